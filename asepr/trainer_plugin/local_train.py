"""Training on local mini-batches: some steps on what a shard holds, then one model of all ranks'."""

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # the name the field uses
from torch import nn

from asepr.contracts import IdArray
from asepr.errors import TrainingError
from asepr.trainer_plugin.gradients import sum_over_ranks
from asepr.trainer_plugin.metrics_writer import Report
from asepr.trainer_plugin.processes import own_shard
from asepr.trainer_plugin.reconcile import Reconciler
from asepr.trainer_plugin.reconcile_average import AverageConfig, gather_numbers
from asepr.trainer_plugin.reconcile_halo import HaloConfig, HistoricalHalo, Recall
from asepr.trainer_plugin.reconcile_losses import ContrastConfig, DistillConfig, Outputs
from asepr.trainer_plugin.replica_weights import REPLICA_WEIGHTS, ReplicaWeights, weigh_replicas
from asepr.trainer_plugin.sampling import Batch, NeighbourSampler, StoredBlock
from asepr.trainer_plugin.shard_graph import ShardGraph
from asepr.trainer_plugin.train import TrainConfig, Trainer

STORED_FOR = {"sage": "mean", "sage-sum": "sum", "gin": "sum", "gcn": "gcn"}
"""The aggregate that takes the place of each model's first layer of neighbours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalConfig:
    """What to train on local mini-batches, and how ranks come together.

    Attributes
    ----------
    train : TrainConfig
        The model and the optimiser; its epochs are passes over a rank's own training rows.
    batch : int
        Training rows of a step; ranks with fewer rows take smaller batches, so that all take as many steps.
    fanout : int
        Most in-neighbours sampled of a row in each layer; 0: all.
    sync_every : int
        Steps between rounds, in which the ranks' models become one; they also do where one is evaluated.
    replica_weight : "degree", "master" or "uniform"
        What a copy of a training node counts: its share of the in-edges; all at the owner; alike in all copies.
    use_aggregates : bool
        Take stored aggregates for the first layer where the shard has the right ones.
    correction_steps : int
        Exact full-graph steps after each round, the same on all ranks.
    unlabelled : int
        Rows without training label on which, in place of the batch's, each step distils and contrasts; 0: the batch's.
    staleness : int
        As of `Reconciler`.
    average, distill, contrast : AverageConfig, DistillConfig or None, ContrastConfig or None
    halo : HaloConfig or None
        Hidden layers read halo rows as their owners last sent them. None: they are computed from what is here.
    """

    train: TrainConfig = field(default_factory=TrainConfig)
    batch: int = 512
    fanout: int = 10
    sync_every: int = 16
    replica_weight: ReplicaWeights = "degree"
    use_aggregates: bool = True
    correction_steps: int = 0
    unlabelled: int = 0
    staleness: int = 0
    average: AverageConfig = field(default_factory=AverageConfig)
    distill: DistillConfig | None = None
    contrast: ContrastConfig | None = None
    halo: HaloConfig | None = None

    def __post_init__(self) -> None:
        """Check every range.

        Raises
        ------
        TrainingError
            A value is out of its range.
        """
        at_least = {"batch": 1, "fanout": 0, "sync_every": 1, "correction_steps": 0, "unlabelled": 0, "staleness": 0}
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise TrainingError(f"{name} must be at least {least}, got {getattr(self, name)}; mend the option")
        if self.replica_weight not in REPLICA_WEIGHTS:
            raise TrainingError(
                f"replica_weight must be one of {', '.join(REPLICA_WEIGHTS)}, got '{self.replica_weight}'; "
                "choose one of these"
            )
        if self.distill is not None and self.distill.logits and self.train.task != "node":
            raise TrainingError(
                f"distillation on answers must come with task node, got {self.train.task}, whose answers are not one "
                "class each; distill layers alone"
            )
        if self.unlabelled and (self.train.task != "node" or not (self.distill or self.contrast)):
            raise TrainingError(
                f"unlabelled must come with task node and with distill or contrast, got task {self.train.task}; "
                "leave it out"
            )
        if self.train.negatives_from != "local":
            raise TrainingError(
                f"negatives_from {self.train.negatives_from} must come with mode exact, got mode local, where no rows "
                "travel in a step; leave it out"
            )


class LocalTrainer(Trainer):
    """Trains one shard on its own mini-batches, and reconciles its model with the others'.

    An epoch is a pass over the training examples here; the ranks agree once on how many steps it has.
    Evaluation is exact, on the whole graph, as that of `Trainer`.

    Parameters
    ----------
    shard : ShardGraph
        With what the task needs. With more than one part the default process group is up.
    config : LocalConfig
    device : torch.device, optional

    Raises
    ------
    TrainingError
        As `Trainer`.
    """

    _is_local = True

    def __init__(self, shard: ShardGraph, config: LocalConfig, device: torch.device | None = None) -> None:
        self.local = config
        super().__init__(shard, config.train, device)
        stored = _stored_aggregates(shard, config)
        self._dtype = getattr(torch, config.train.dtype)
        self._stored = None if stored is None else stored.to(device, self._dtype)
        hops = config.train.layers - (stored is not None)
        self._halo = self._make_halo(device)
        self._sampler = self._make_sampler([config.fanout] * hops, device)
        weight = weigh_replicas(shard, config.replica_weight, self._sampler.local_in_degree, self.graph.exchange)
        self._examples = self._task.examples(weight)
        self._num_steps = self._agree_on_steps()
        self._metered_apart = 0
        self._server = torch.optim.Adam(self.model.parameters(), lr=config.train.lr)
        self.reconciler = Reconciler(
            self.model,
            self.optimizer,
            sync_every=config.sync_every,
            average=config.average,
            weight=self._task.weight_of(self._examples),
            distill=config.distill,
            contrast=config.contrast,
            halo=self._halo,
            staleness=config.staleness,
            timeout_s=config.train.timeout_s,
            correct=self._after_round if config.correction_steps or self._input.is_learned else None,
        )

    def _train(self, report: Report) -> dict[str, Any]:
        with self.reconciler:
            return super()._train(report)

    @property
    def _steps_per_epoch(self) -> int:
        return self._num_steps

    @property
    def bytes_sent(self) -> int:
        """Payload bytes that this rank sent since the start: rows, weights and moments."""
        return super().bytes_sent + self._bytes_apart

    @property
    def _bytes_apart(self) -> int:
        """Bytes sent that the meter does not see."""
        return self.reconciler.bytes_sent + (0 if self._halo is None else self._halo.bytes_sent)

    def _measured(self) -> dict[str, Any]:
        sent, self._metered_apart = self._bytes_apart - self._metered_apart, self._bytes_apart
        measured = super()._measured()
        measured |= {"bytes_sent": measured["bytes_sent"] + sent}
        if self.local.staleness:
            measured |= {"models_by_age": list(self.reconciler.ages)}
        return measured if self._halo is None else measured | {"halo": self._halo.report()}

    def _step(self, epoch: int) -> float:
        """Take the steps of an epoch; return the mean loss of all ranks' steps."""
        torch.manual_seed((self.config.seed * 1_000_003 + self.shard.rank) * 1_000_003 + epoch)
        totals = torch.zeros(2, dtype=torch.float64)
        if self._halo is not None:
            self._halo.begin()
        self._task.start_epoch(epoch)
        batches = list(self._batches(epoch))
        for number, examples in enumerate(batches):
            self._rate.move_to(epoch * self._num_steps + number)
            self._input.set_rate(self._rate.rate)
            totals += self._step_on(examples)
        for _ in range(len(batches), self._num_steps):
            self.reconciler.skip_step()
        if self._comes_together(epoch):
            self.reconciler.finish()
        if self._halo is not None and self._is_kept(epoch):
            self._halo.forget()
        sum_over_ranks(totals, self.shard.rank, self.shard.num_parts)
        return float(totals[0] / totals[1].clamp(min=1e-12))

    def _step_on(self, examples: IdArray) -> torch.Tensor:
        """Take one step; return float64 (2,): weighted loss, and sum of weights."""
        self.model.train()
        picked = self._task.pick(examples)
        batch = self._sampler.sample(picked.rows, picked.hidden_edges)
        self.optimizer.zero_grad()
        own = self._outputs(self.model, batch)
        losses = self._task.losses(own.logits, self.model.decoder, picked)
        weight = picked.weight.to(losses.dtype)
        loss = (losses * weight).sum()
        if self.local.unlabelled and self.reconciler.round:
            batch = self._unlabelled_batch()
            own = self._outputs(self.model, batch)
        total = loss / weight.sum() + self.reconciler.penalty(own, lambda model: self._outputs(model, batch))
        total.backward()  # type: ignore[no-untyped-call]
        self._take_step()
        return torch.stack([loss.detach(), weight.sum()]).double().cpu()

    def _unlabelled_batch(self) -> Batch:
        """Sample some rows of which no label is learned here, or of all where there are none."""
        rows = np.arange(self.shard.num_inner)
        masks = self.shard.split_masks()
        if masks and not masks["train_mask"][rows].all():
            rows = rows[~masks["train_mask"][rows]]
        seed = int(torch.randint(2**31, ()))
        chosen = np.random.default_rng(seed).choice(rows, min(self.local.unlabelled, len(rows)), replace=False)
        return self._sampler.sample(np.sort(chosen))

    def _outputs(self, model: nn.Module, batch: Batch, recall: Recall | None = None) -> Outputs:
        """Run the layers of a model on a batch; halo rows that it does not compute are recalled."""
        if recall is None and self._halo is not None:
            recall = self._halo.recall
        h = self._input.rows(batch.rows)
        hidden = []
        for number, block in enumerate(batch.blocks):
            if number:
                h = torch.relu(h)
                hidden.append(h)
                if recall is not None:
                    h = recall(number, h, batch.recalled[number])
                h = F.dropout(h, self.config.dropout, model.training)
            local = h
            if isinstance(block, StoredBlock):
                assert self._stored is not None
                local = block.rows_for(self._stored[batch.rows])
            h = model.layers[number](block, h[: block.num_inner], local)  # type: ignore[index,operator]
        return Outputs(logits=h, hidden=hidden)

    def _batches(self, epoch: int) -> Iterator[IdArray]:
        """Yield the training examples in a new order, in batches of nearly the same size; none is empty."""
        rng = np.random.default_rng((self.config.seed, self.shard.rank, epoch))
        num_batches = min(self._num_steps, len(self._examples))
        if num_batches:
            yield from np.array_split(rng.permutation(self._examples), num_batches)

    def _agree_on_steps(self) -> int:
        """Return how many batches the rank with the most training examples has."""
        mine = -(-len(self._examples) // self.local.batch)
        return max(1, int(gather_numbers([mine]).max()))

    def _comes_together(self, epoch: int) -> bool:
        """Return whether the epoch is looked at or kept, so that all ranks must have one model at its end."""
        return self._is_kept(epoch) or (epoch + 1) % self.config.eval_every == 0

    def _is_kept(self, epoch: int) -> bool:
        """Return whether training may go on from the end of the epoch in another run, or ends there."""
        config = self.config
        return epoch + 1 == config.epochs or (bool(config.checkpoint) and (epoch + 1) % config.checkpoint_every == 0)

    def _make_sampler(self, fanouts: list[int], device: torch.device | None) -> NeighbourSampler:
        return NeighbourSampler(
            self.shard,
            fanouts,
            None if self._stored is None else self.shard.manifest.aggregate,
            seed=(self.config.seed, self.shard.rank),
            dtype=self._dtype,
            device=device,
            recalls_halo=self._halo is not None,
        )

    def _make_halo(self, device: torch.device | None) -> HistoricalHalo | None:
        config, plan = self.config, self.shard.plan
        if self.local.halo is None or plan.num_parts == 1 or config.layers == 1:
            return None
        widths = [config.hidden] * (config.layers - 1)
        return HistoricalHalo(plan, widths, self.local.halo, self._hidden_of_shared, self._dtype, device)

    @functools.cached_property
    def _shared_batch(self) -> Batch:
        """What the hidden layers of the rows that others hold copies of are computed on: all neighbours."""
        assert self._halo is not None
        hops = self.config.layers - 1 - (self._stored is not None)
        return self._make_sampler([0] * hops, self._input.local().device).sample(self._halo.shared)

    def _hidden_of_shared(self, recall: Recall) -> torch.Tensor:
        self.model.eval()
        return torch.relu(self._outputs(self.model, self._shared_batch, recall).logits)

    def _after_round(self) -> None:
        """Bring learned rows together, then correct the model."""
        self._input.come_together()
        if self.local.correction_steps:
            self._correct()

    def _correct(self) -> None:
        """Take exact steps on the whole graph; gradients are summed, so all ranks take the same."""
        rows = self._input.local().detach()
        for _ in range(self.local.correction_steps):
            self._server.zero_grad()
            self._find_gradients(rows, self.reconciler.round)
            self._server.step()

    def _agreed(self) -> dict[str, Any]:
        own = {name: value for name, value in dataclasses.asdict(self.local).items() if name != "train"}
        return super()._agreed() | own


def train_local_shard(path: Path | str, config: LocalConfig, report: Report) -> dict[str, Any]:
    """Train this process' shard on local mini-batches; see `asepr.trainer_plugin.train.train_shard`.

    Raises
    ------
    AseprError
        A shard, an option or a peer is at fault.
    """
    with own_shard(path, config.train.timeout_s, config.train.device) as process:
        return LocalTrainer(process.shard, config, process.device).run(report)


def _stored_aggregates(shard: ShardGraph, config: LocalConfig) -> torch.Tensor | None:
    """Return the stored rows that take the place of the model's first layer of neighbours, where they are there."""
    stored = shard.aggregates
    if stored is None or not config.use_aggregates or shard.manifest.aggregate != STORED_FOR.get(config.train.model):
        return None
    return torch.from_numpy(stored)
