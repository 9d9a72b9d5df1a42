"""Local training in a user's own loop: some steps apart, then the models of all ranks become one."""

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector

from asepr.errors import TrainingError
from asepr.trainer_plugin.exchange import peer_error
from asepr.trainer_plugin.reconcile_average import (
    AverageConfig,
    AverageKind,
    WeightedSum,
    gather_numbers,
    gather_vectors,
    round_shares,
)
from asepr.trainer_plugin.reconcile_bounded import BoundedAverage
from asepr.trainer_plugin.reconcile_losses import ContrastConfig, DistillConfig, Outputs, contrast, distillation

Run = Callable[[nn.Module], Outputs]
_MOMENTS = ("exp_avg", "exp_avg_sq")


class Halo(Protocol):
    """Something that keeps halo rows fresh while ranks train apart."""

    def after_step(self) -> None:
        """Take note that a step was taken; may exchange rows, as all ranks do at the same steps."""


class Reconciler:
    """Counts optimiser steps, and every so many of them makes the ranks' models one.

    A context manager around the optimiser of a training loop:

        with Reconciler(model, optimizer, sync_every=16, weight=len(train_rows)) as reconciler:
            for batch in batches:
                optimizer.zero_grad()
                own = run(model, batch)
                loss = cross_entropy(own.logits, label) + reconciler.penalty(own, lambda m: run(m, batch))
                loss.backward()
                optimizer.step()

    Ranks may take different numbers of steps: `finish`, which the end of the block calls, takes part in
    the others' rounds until all have come there. All ranks end with the same weights.

    Parameters
    ----------
    model : nn.Module
        Its parameters are averaged; all ranks start from those of rank 0.
    optimizer : torch.optim.Optimizer
        Its moments are left, cleared or averaged, as `average.moments` says.
    sync_every : int
        Steps between rounds.
    average : AverageConfig, optional
    weight : float
        This rank's training weight: of how many nodes it trains on.
    distill : DistillConfig, optional
        Off in the first round, when there is no common model yet.
    contrast : ContrastConfig, optional
        The same.
    halo : Halo, optional
        Told of each step.
    staleness : int
        0: each round waits for all ranks. Else a rank averages with what the others last posted, weighed by its age,
        and waits only for those more than so many rounds behind; all come together in `finish`.
    timeout_s : float
        How long to wait for a peer in a round that does not wait for all.
    correct : callable, optional
        Called after each round that changed the model; takes steps that are the same on all ranks.
    group : torch.distributed.ProcessGroup, optional

    Attributes
    ----------
    round : int
        Rounds so far that changed the model.

    Raises
    ------
    TrainingError
        `sync_every` or `weight` is out of its range; a peer does not answer.

    Notes
    -----
    Source of `correct`: Ramezani et al., Learn locally, correct globally, 2022, algorithm 2.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        sync_every: int = 16,
        average: AverageConfig | None = None,
        weight: float = 1.0,
        distill: DistillConfig | None = None,
        contrast: ContrastConfig | None = None,
        halo: Halo | None = None,
        correct: Callable[[], None] | None = None,
        staleness: int = 0,
        timeout_s: float = 300.0,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        if sync_every < 1:
            raise TrainingError(f"sync_every must be at least 1, got {sync_every}; 16 is usual")
        if not 0 <= weight < float("inf"):
            raise TrainingError(f"weight must be a number of at least 0, got {weight}; give what the rank trains on")
        if staleness < 0:
            raise TrainingError(f"staleness must be at least 0 rounds, got {staleness}; 0 waits for all ranks")
        average = average or AverageConfig()
        together = correct is not None or halo is not None or average.moments == "average"
        if staleness and (together or average.kind not in ("weighted", "uniform") or _is_ensemble(distill)):
            raise TrainingError(
                "staleness must come with average weighted or uniform, and without averaged moments, an ensemble as "
                "teacher, correction steps, historical halos and learned rows, for all of which ranks meet, got one of "
                "these; leave it out, or staleness"
            )
        self.model = model
        self.optimizer = optimizer
        self.sync_every = sync_every
        self.round = 0
        self._average = average
        self._weight = weight
        self._distill = distill
        self._contrast = contrast
        self._halo = halo
        self._correct = correct
        self._group = group
        self._sum = WeightedSum(self._average.bits, group)
        self._moment_sum = WeightedSum(self._average.bits, group)
        self._teacher: nn.Module | None = None
        self._previous: nn.Module | None = None
        self._common = _flat(model)
        self._ensemble: list[tuple[float, nn.Module]] = []
        self._ensemble_bytes = 0
        self._staleness, self._timeout_s = staleness, timeout_s
        self._bounded: BoundedAverage | None = None
        self._steps = self._waits = self._steps_apart = 0
        self._rank = dist.get_rank(group) if dist.is_initialized() else 0
        self._hook: Any = None

    @property
    def bytes_sent(self) -> int:
        """Payload bytes of weights and moments that this rank sent; those it read, where it waits for nobody, too."""
        posted = 0 if self._bounded is None else self._bounded.bytes_sent
        return self._sum.bytes_sent + self._moment_sum.bytes_sent + self._ensemble_bytes + posted

    @property
    def ages(self) -> list[int]:
        """How many models averaged were 0, 1, ... rounds old; empty where each round waits for all."""
        return [] if self._bounded is None else self._bounded.ages

    def __enter__(self) -> Self:
        if dist.is_initialized():
            with self._peers():
                dist.broadcast(self._common, group=self._group, group_src=0)
                if self._staleness and dist.get_world_size(self._group) > 1:
                    self._bounded = BoundedAverage(self._staleness, self._average.bits, self._timeout_s, self._group)
        _fill(_tensors(self.model), self._common)
        self._hook = self.optimizer.register_step_post_hook(lambda *_: self._after_step())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        self._hook.remove()

    def penalty(self, own: Outputs, run: Run) -> torch.Tensor:
        """Return the losses that draw the model to the common one; zero in the first round.

        Parameters
        ----------
        own : Outputs
            What `run` gave for the model in training.
        run : callable of a module
            Computes the same nodes with another model, whose weights are frozen.
        """
        total = own.logits.new_zeros(())
        if self._teacher is None:
            return total
        with torch.no_grad():
            common = run(self._teacher)
            if self._ensemble:
                logits = torch.stack([share * run(model).logits for share, model in self._ensemble]).sum(0)
                common = replace(common, logits=logits)
            previous = None if self._previous is None else run(self._previous)
        if self._distill is not None:
            total = total + distillation(own, common, self._distill)
        if self._contrast is not None:
            total = total + contrast(own, common, previous, self._contrast)
        return total

    def finish(self) -> None:
        """Take part in rounds until every rank has come here; all go on from the common model."""
        if self._bounded is not None:
            # Ranks have models of their own: their mean is found as that of changes from one of them.
            self._common = _flat(self.model)
            with self._peers():
                self._bounded.end()
                dist.broadcast(self._common, group=self._group, group_src=0)
            self._steps += self._steps_apart
            self._steps_apart = 0
        while not self._reconcile(done=True):
            pass
        _fill(_tensors(self.model), self._common)
        if self._bounded is not None:
            self._bounded.begin()

    def skip_step(self) -> None:
        """Count a step that others take and this rank has nothing for: its rounds and refreshes stay with theirs."""
        self._waits += 1
        self._come_together()

    def _after_step(self) -> None:
        self._steps += 1
        self._come_together()

    def _come_together(self) -> None:
        if self._steps + self._waits == self.sync_every:
            if self._bounded is None:
                self._reconcile(done=False)
            else:
                self._average_with_latest(self._bounded)
        if self._halo is not None:
            self._halo.after_step()

    def _average_with_latest(self, bounded: BoundedAverage) -> None:
        """Run a round that waits for nobody but those too far behind."""
        if self._contrast is not None and self._contrast.previous:
            self._previous = _frozen(self.model)
        weight = self._weight if self._average.kind == "weighted" else float(self._weight > 0)
        with self._peers():
            self._common = bounded.average(_flat(self.model), weight)
        _fill(_tensors(self.model), self._common)
        if self._average.moments == "reset":
            self.optimizer.state.clear()
        self.round += 1
        self._keep_teacher()
        self._steps_apart += self._steps
        self._steps = self._waits = 0

    def _reconcile(self, done: bool) -> bool:
        """Run one round; return whether all ranks are done."""
        with self._peers():
            weight, steps, finished = gather_numbers([self._weight, self._steps, done], self._group).T
        shares = round_shares(self._average.kind, weight, steps)
        if bool(shares.any()):
            if _is_ensemble(self._distill):
                self._keep_ensemble(shares)
            self._move(float(shares[self._rank]), len(shares))
            if self._average.moments == "average":
                kind: AverageKind = "uniform" if self._average.kind in ("uniform", "elastic") else "weighted"
                self._average_moments(float(round_shares(kind, weight, steps)[self._rank]))
            self.round += 1
            if self._correct is not None:
                self._correct()
                self._common = _flat(self.model)
            self._keep_teacher()
        self._steps = self._waits = 0
        return bool(finished.all())

    def _move(self, share: float, num_ranks: int) -> None:
        """Bring the ranks' changes together, and this rank to where it goes on from."""
        if self._contrast is not None and self._contrast.previous:
            self._previous = _frozen(self.model)
        own = _flat(self.model)
        with self._peers():
            change = self._sum(own - self._common, share)
        if self._average.kind == "elastic":
            pull = self._average.elasticity
            own -= pull / num_ranks * (own - self._common)
            self._common = self._common + pull * change
        else:
            self._common = self._common + change
            own = self._common
        _fill(_tensors(self.model), own)
        if self._average.moments == "reset":
            self.optimizer.state.clear()

    def _average_moments(self, share: float) -> None:
        parameters = list(self.model.parameters())
        states = [self.optimizer.state[parameter] for parameter in parameters]
        # A parameter that has taken no step here has no moments: zeros, which nothing reads afterwards.
        moments = [
            state.get(name, torch.zeros_like(parameter))
            for state, parameter in zip(states, parameters, strict=True)
            for name in _MOMENTS
        ]
        with self._peers():
            total = self._moment_sum(parameters_to_vector(moments), share)
        _fill(moments, total)
        for second in moments[1::2]:
            second.clamp_(min=0)  # Rounding may leave a zero just below.

    def _keep_ensemble(self, shares: torch.Tensor) -> None:
        """Hold the models of all ranks that took part, each with its share."""
        own = _flat(self.model)
        if len(shares) == 1:
            models = [own]
        else:
            with self._peers():
                models = gather_vectors(own, self._group)
            self._ensemble_bytes += (len(models) - 1) * own.numel() * own.element_size()
        self._ensemble = []
        for share, values in zip((shares / shares.sum()).tolist(), models, strict=True):
            if share:
                member = _frozen(self.model)
                _fill(_tensors(member), values)
                self._ensemble.append((share, member))

    def _keep_teacher(self) -> None:
        if self._distill is None and self._contrast is None:
            return
        if self._teacher is None:
            self._teacher = _frozen(self.model)
        _fill(_tensors(self._teacher), self._common)

    @contextlib.contextmanager
    def _peers(self) -> Iterator[None]:
        """Say clearly where a peer does not answer."""
        try:
            yield
        except RuntimeError as error:
            raise peer_error(self._rank, error) from error


def _is_ensemble(distill: DistillConfig | None) -> bool:
    return distill is not None and distill.teacher == "ensemble"


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    """Return what is averaged: parameters, and buffers such as running means."""
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    return [*model.parameters(), *buffers]


def _flat(model: nn.Module) -> torch.Tensor:
    return parameters_to_vector(_tensors(model)).detach().clone()


@torch.no_grad()
def _fill(tensors: Sequence[torch.Tensor], values: torch.Tensor) -> None:
    pieces = torch.split(values, [tensor.numel() for tensor in tensors])
    for tensor, piece in zip(tensors, pieces, strict=True):
        tensor.copy_(piece.view_as(tensor))


def _frozen(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).eval().requires_grad_(False)
