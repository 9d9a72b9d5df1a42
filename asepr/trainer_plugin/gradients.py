"""Sums of weight gradients over all ranks: whole, in 16 bits, of low rank, or the large entries alone."""

import math
import time
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from asepr.errors import TrainingError
from asepr.trainer_plugin.exchange.codecs import THRESHOLD_REFRESH
from asepr.trainer_plugin.exchange.faults import peer_error

_POWER_SGD_STATE = ("error_dict", "p_memory_dict", "q_memory_dict")
_NAMES = "none, fp16, powersgd:RANK, threshold:SHARE"


def check_gradients(spec: str) -> None:
    """Check the name of a way to sum gradients.

    Raises
    ------
    TrainingError
        There is none of that name, or its number is out of range.
    """
    name, _, number = spec.partition(":")
    if spec in ("none", "fp16") or (name == "powersgd" and number.isdecimal() and int(number) > 0):
        return
    if name == "threshold":
        try:
            share = float(number)
        except ValueError:
            share = math.nan
        if 0 < share <= 1:
            return
    raise TrainingError(
        f"gradients must be one of {_NAMES}, with a rank of at least 1 and a share in (0, 1], got '{spec}'; "
        "choose one of these"
    )


def sum_over_ranks(values: torch.Tensor, rank: int, num_parts: int) -> None:
    """Sum `values` over all ranks in place.

    Raises
    ------
    TrainingError
        A peer is gone or stalls.
    """
    if num_parts == 1:
        return
    try:
        dist.all_reduce(values)
    except RuntimeError as error:
        raise peer_error(rank, error) from error


def max_over_ranks(values: torch.Tensor, rank: int, num_parts: int) -> torch.Tensor:
    """Return the greatest of each value over all ranks.

    Raises
    ------
    TrainingError
        A peer is gone or stalls.
    """
    values = values.clone()
    if num_parts > 1:
        try:
            dist.all_reduce(values, dist.ReduceOp.MAX)
        except RuntimeError as error:
            raise peer_error(rank, error) from error
    return values


class GradientSum:
    """Replaces each parameter's gradient by the sum over ranks, in one fused buffer.

    Parameters
    ----------
    parameters : list of nn.Parameter
    spec : str
        As `check_gradients` takes.
    rank, num_parts, seed : int

    Attributes
    ----------
    seconds : float
        Spent in sums since the start.

    Notes
    -----
    fp16 and powersgd are torch's own hooks for DistributedDataParallel. `threshold` keeps |v| >= tau of v = g + e,
    carries e = v - kept to the next step, and sets tau to the k-th largest |v| now and then.
    Source: Vogels, Karimireddy, Jaggi, PowerSGD, 2019; Gupta et al., Training recommender systems at scale, 2021.
    """

    def __init__(
        self, parameters: list[torch.nn.Parameter], spec: str, rank: int, num_parts: int, seed: int = 0
    ) -> None:
        self._parameters = parameters
        self._spec = spec
        self._rank = rank
        self._num_parts = num_parts
        self._seed = seed
        self.seconds = 0.0
        self.forget()

    def forget(self) -> None:
        """Drop what was carried over from the steps so far."""
        name, _, number = self._spec.partition(":")
        self._power: PowerSGDState | None = None
        self._sparse: _Sparse | None = None
        if name == "powersgd" and self._num_parts > 1:
            self._power = PowerSGDState(
                process_group=None,
                matrix_approximation_rank=int(number),
                start_powerSGD_iter=2,
                random_seed=self._seed,
            )
        if name == "threshold":
            self._sparse = _Sparse(float(number))

    @property
    def keeps_state(self) -> bool:
        """Whether a step depends on those before."""
        return self._power is not None or self._sparse is not None

    def state(self) -> dict[str, torch.Tensor]:
        """Return what is carried over to the next step, by name, for a checkpoint of this rank."""
        found: dict[str, torch.Tensor] = {}
        if self._power is not None:
            found["iteration"] = torch.tensor(self._power.iter)
            for name in _POWER_SGD_STATE:
                found |= {f"{name}.{bucket}": tensor.clone() for bucket, tensor in getattr(self._power, name).items()}
        if self._sparse is not None and self._sparse.error is not None:
            found["error"] = self._sparse.error
            found["numbers"] = torch.tensor([self._sparse.threshold, self._sparse.calls], dtype=torch.float64)
        return found

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from what `state` returned on this rank."""
        state = {name: tensor.to(self._parameters[0].device) for name, tensor in state.items()}
        if self._power is not None:
            self._power.iter = int(state["iteration"])
            for name in _POWER_SGD_STATE:
                buckets = {int(key.split(".")[1]): value for key, value in state.items() if key.startswith(f"{name}.")}
                setattr(self._power, name, buckets)
        if self._sparse is not None and "error" in state:
            self._sparse.error = state["error"]
            threshold, calls = state["numbers"].tolist()
            self._sparse.threshold, self._sparse.calls = threshold, int(calls)

    def __call__(self, loss: torch.Tensor) -> float:
        """Sum gradients and the loss; return the loss.

        Raises
        ------
        TrainingError
            A peer is gone or stalls.
        """
        started = time.perf_counter()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        flat = torch.cat([loss.reshape(1), *(gradient.reshape(-1) for gradient in gradients)])
        if self._num_parts > 1:
            try:
                self._sum(flat)
            except RuntimeError as error:
                raise peer_error(self._rank, error) from error
        pieces = torch.split(flat[1:], [p.numel() for p in self._parameters])
        for parameter, piece in zip(self._parameters, pieces, strict=True):
            parameter.grad = piece.reshape(parameter.shape)
        self.seconds += time.perf_counter() - started
        return float(flat[0])

    def _sum(self, flat: torch.Tensor) -> None:
        if self._spec == "none":
            dist.all_reduce(flat)
            return
        dist.all_reduce(flat[:1])
        bucket: Any = _Bucket(flat[1:], self._parameters)
        if self._sparse is not None:
            flat[1:] = self._sparse.sum(flat[1:])
        elif self._power is not None:
            flat[1:] = powerSGD_hook(self._power, bucket).wait() * self._num_parts
        else:
            flat[1:] = fp16_compress_hook(cast(dist.ProcessGroup, dist.group.WORLD), bucket).wait() * self._num_parts


@dataclass(slots=True)
class _Bucket:
    """What torch's hooks ask of a bucket of gradients."""

    flat: torch.Tensor
    weights: list[torch.nn.Parameter]

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True

    def buffer(self) -> torch.Tensor:
        return self.flat

    def parameters(self) -> list[torch.nn.Parameter]:
        return self.weights

    def gradients(self) -> list[torch.Tensor]:
        pieces = torch.split(self.flat, [weight.numel() for weight in self.weights])
        return [piece.view(weight.shape) for piece, weight in zip(pieces, self.weights, strict=True)]


class _Sparse:
    def __init__(self, share: float) -> None:
        self._share = share
        self.error: torch.Tensor | None = None
        self.threshold = 0.0
        self.calls = 0

    def sum(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the sum of what all ranks keep."""
        values = flat if self.error is None else flat + self.error
        size = values.abs()
        if self.calls % THRESHOLD_REFRESH == 0:
            rank = max(1, len(size) - math.ceil(self._share * len(size)) + 1)
            self.threshold = float(torch.kthvalue(size, rank).values)
        self.calls += 1
        places = ((size >= self.threshold) & (size > 0)).nonzero().view(-1)
        self.error = values.clone()
        self.error[places] = 0
        most = torch.tensor([len(places)], device=flat.device)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        # Where a rank keeps fewer it repeats place 0 with value 0.
        kept_places = torch.zeros(int(most), dtype=torch.int64, device=flat.device)
        kept_values = values.new_zeros(int(most))
        kept_places[: len(places)], kept_values[: len(places)] = places, values[places]
        total = torch.zeros_like(flat)
        for places_of, values_of in zip(_gather(kept_places), _gather(kept_values), strict=True):
            total.index_add_(0, places_of, values_of)
        return total


def _gather(values: torch.Tensor) -> list[torch.Tensor]:
    everyone = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, values)
    return everyone
