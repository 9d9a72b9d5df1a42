"""Full-graph training on shards, one process a shard; halo rows are exchanged as the options say.

    torchrun --nnodes 4 --nproc-per-node 1 ... -m asepr.trainer_plugin.train OUT --epochs 30

A process opens the manifest and one part alone. The printed lines are JSON, one an epoch.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name the field uses

from asepr.contracts import NO_LABEL, SPLIT_CODES
from asepr.errors import AseprError, TrainingError
from asepr.trainer_plugin.checkpoint import load_checkpoint, save_checkpoint
from asepr.trainer_plugin.exchange import ExchangeConfig
from asepr.trainer_plugin.gradients import GradientSum, check_gradients, sum_over_ranks
from asepr.trainer_plugin.local_graph import LocalGraph, features_of
from asepr.trainer_plugin.meter import Meter
from asepr.trainer_plugin.models import StackedModel
from asepr.trainer_plugin.planner import Planner
from asepr.trainer_plugin.processes import own_shard
from asepr.trainer_plugin.shard_graph import ShardGraph

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """What to train, and how.

    Attributes
    ----------
    model : str
        A name in `asepr.trainer_plugin.models.CONVOLUTIONS`.
    epochs, layers, hidden, seed : int
    lr, weight_decay : float
        Of Adam.
    dropout : float, in [0, 1)
    dtype : "float32" or "float64"
    eval_every : int
        Epochs between evaluations; the last epoch is always evaluated.
    checkpoint : str
        Folder for checkpoints, which every machine can read to resume; empty: none are written.
    checkpoint_every : int
        Epochs between checkpoints; the last epoch is always written.
    resume : bool
        Go on from the checkpoint, which must be of the same options.
    metrics : str
        File for the lines of JSON, appended to; empty: none.
    timeout_s : float
        How long to wait for a peer.
    exchange, codec, exact_every, smoothing
        As `schedule`, `codec`, `exact_every`, `smoothing` of `ExchangeConfig`; exchange may be `auto`, which
        measures and chooses both.
    gradients : str
        How gradients are summed: none (whole), fp16, powersgd:RANK or threshold:SHARE.
    """

    model: str = "sage"
    epochs: int = 30
    layers: int = 2
    hidden: int = 128
    lr: float = 0.01
    weight_decay: float = 5e-4
    dropout: float = 0.5
    seed: int = 0
    dtype: str = "float32"
    eval_every: int = 1
    checkpoint: str = ""
    checkpoint_every: int = 10
    resume: bool = False
    metrics: str = ""
    timeout_s: float = 300.0
    exchange: str = "exact"
    codec: str = "none"
    exact_every: int = 0
    smoothing: float = 0.0
    gradients: str = "none"

    def __post_init__(self) -> None:
        """Check every range.

        Raises
        ------
        TrainingError
            A value is out of its range.
        """
        for name in ("epochs", "layers", "hidden", "eval_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise TrainingError(f"{name} must be at least 1, got {getattr(self, name)}; give a positive number")
        if not 0 <= self.dropout < 1:
            raise TrainingError(f"dropout must be in [0, 1), got {self.dropout}; 0.5 is usual")
        if not self.lr > 0 or not self.weight_decay >= 0 or not self.timeout_s > 0:
            raise TrainingError(
                f"lr and timeout_s must be positive and weight_decay not negative, got {self.lr}, {self.timeout_s}, "
                f"{self.weight_decay}; mend the option"
            )
        if self.dtype not in ("float32", "float64"):
            raise TrainingError(f"dtype must be float32 or float64, got '{self.dtype}'; choose one of these")
        if self.resume and not self.checkpoint:
            raise TrainingError("resume must come with a checkpoint folder, got none; give --checkpoint")
        if self.exchange == "auto" and (self.codec != "none" or self.exact_every or self.smoothing):
            raise TrainingError("exchange auto chooses all by itself, got options beside it; leave them out")
        check_gradients(self.gradients)
        self.exchange_config()

    def exchange_config(self) -> ExchangeConfig:
        """Return how rows are exchanged at first."""
        return ExchangeConfig(
            schedule="exact" if self.exchange == "auto" else self.exchange,
            codec=self.codec,
            exact_every=self.exact_every,
            smoothing=self.smoothing,
            seed=self.seed,
            timeout_s=self.timeout_s,
        )


Report = Callable[[dict[str, Any]], None]


class Trainer:
    """Trains one shard's share of the model; every rank ends with the same weights.

    Parameters
    ----------
    shard : ShardGraph
        With features, labels and a split. With more than one part the default process group is up.
    config : TrainConfig
    device : torch.device, optional

    Raises
    ------
    TrainingError
        The shard lacks something, the number of processes is wrong, or the checkpoint does not fit.
    """

    def __init__(self, shard: ShardGraph, config: TrainConfig, device: torch.device | None = None) -> None:
        _check_shard(shard)
        self.config = config
        self.shard = shard
        dtype = getattr(torch, config.dtype)
        self.graph = LocalGraph(shard, dtype, device, config.exchange_config())
        self._features = features_of(shard).to(device, dtype)
        self._label, self._nodes = _labelled_nodes(shard, device)
        self._totals = [shard.manifest.split_sizes[split] for split in SPLITS]  # type: ignore[index]  # Literal keys
        widths = [shard.manifest.feature_width, *[config.hidden] * (config.layers - 1), shard.manifest.num_classes]
        torch.manual_seed(config.seed)
        self.model = StackedModel(config.model, widths, config.dropout, config.seed).to(device, dtype)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        self._sum = GradientSum(
            list(self.model.parameters()), config.gradients, shard.rank, shard.num_parts, config.seed
        )
        self._meter = Meter(self.graph.exchange, self._sum)
        self._planner = Planner(config, shard, self.graph.exchange) if config.exchange == "auto" else None
        self._epoch = 0
        self._best = {"val_acc": -1.0, "test_acc": 0.0, "epoch": -1}
        if config.resume:
            self._restore()

    def run(self, report: Report) -> dict[str, Any]:
        """Train to the last epoch; `report` is called on rank 0 with each epoch's metrics.

        Returns
        -------
        dict: the last epoch's metrics, and `best_val_acc`, `best_test_acc`, `best_epoch`
        """
        metrics: dict[str, Any] = {}
        for epoch in range(self._epoch, self.config.epochs):
            self._meter.start()
            loss = self._step(epoch)
            metrics = {"epoch": epoch, "loss": loss} | self._measured()
            if self._planner is not None:
                metrics["exchange"] |= self._planner.look(metrics)
            is_last = epoch + 1 == self.config.epochs
            if is_last or (epoch + 1) % self.config.eval_every == 0:
                metrics |= self._evaluate(epoch)
            if self.shard.rank == 0:
                report(metrics)
            if is_last or (self.config.checkpoint and (epoch + 1) % self.config.checkpoint_every == 0):
                # Both then go on as if new, so that a run that resumes here is the same.
                self.graph.exchange.finish()
                self._sum.forget()
                if self.config.checkpoint and self.shard.rank == 0:
                    self._save(epoch + 1)
        return metrics | {f"best_{name}": value for name, value in self._best.items()}

    @property
    def bytes_sent(self) -> int:
        """Payload bytes that this rank sent since the start, sums of gradients left out."""
        return self.graph.exchange.bytes_sent

    def _measured(self) -> dict[str, Any]:
        """Return what the meter says of the epoch."""
        return self._meter.stop()

    def _step(self, epoch: int) -> float:
        """Take one step; return the mean loss over the training nodes of all ranks."""
        self.model.train()
        self.optimizer.zero_grad()
        nodes = self._nodes["train"]
        self.graph.exchange.start_step(epoch)
        logits = self.model(self.graph, self._features, epoch)
        loss = F.cross_entropy(logits[nodes], self._label[nodes], reduction="sum") / max(self._totals[0], 1)
        loss.backward()  # type: ignore[no-untyped-call]
        total_loss = self._sum(loss.detach())
        self.optimizer.step()
        return total_loss

    @torch.no_grad()
    def _evaluate(self, epoch: int) -> dict[str, float]:
        """Return accuracy on each split over all ranks, and follow the best."""
        self.model.eval()
        with self.graph.exchange.exactly():
            hit = self.model(self.graph, self._features).argmax(1) == self._label
        counts = torch.stack([hit[self._nodes[split]].sum() for split in SPLITS]).double()
        sum_over_ranks(counts, self.shard.rank, self.shard.num_parts)
        accuracy = {
            f"{split}_acc": float(count) / max(total, 1)
            for split, count, total in zip(SPLITS, counts, self._totals, strict=True)
        }
        if accuracy["val_acc"] > self._best["val_acc"]:
            self._best = {"val_acc": accuracy["val_acc"], "test_acc": accuracy["test_acc"], "epoch": epoch}
        return accuracy

    def _agreed(self) -> dict[str, Any]:
        """Return what a run that resumes must have in common with the one it resumes."""
        free = {"epochs", "eval_every", "checkpoint", "checkpoint_every", "resume", "metrics", "timeout_s"}
        if self.config.exchange != "exact" or self.config.codec != "none" or self.config.gradients != "none":
            free.remove("checkpoint_every")
        return {name: value for name, value in dataclasses.asdict(self.config).items() if name not in free}

    def _save(self, epoch: int) -> None:
        agreed = self._agreed() | {"checkpoint_every": self.config.checkpoint_every}
        state = {"epoch": epoch, "best": self._best, "config": agreed}
        save_checkpoint(Path(self.config.checkpoint), self.model, self.optimizer, state)

    def _restore(self) -> None:
        folder = Path(self.config.checkpoint)
        state = load_checkpoint(folder, self.model, self.optimizer)
        for name, value in self._agreed().items():
            saved = state["config"].get(name, getattr(TrainConfig(), name, None))
            if saved != value:
                raise TrainingError(
                    f"{folder}: {name} must be {saved} as in the checkpoint, got {value}; resume with the same options"
                )
        if state["epoch"] >= self.config.epochs:
            raise TrainingError(
                f"{folder}: epochs must be above {state['epoch']}, those already trained, got {self.config.epochs}; "
                "ask for more epochs"
            )
        self._epoch, self._best = state["epoch"], state["best"]


def train_shard(path: Path | str, config: TrainConfig, report: Report) -> dict[str, Any]:
    """Train this process' shard, which is as `asepr.trainer_plugin.processes.own_shard` says.

    Raises
    ------
    AseprError
        A shard, an option or a peer is at fault.
    """
    with own_shard(path, config.timeout_s) as process:
        return Trainer(process.shard, config, process.device).run(report)


class MetricsFile:
    """Appends each epoch's metrics to a file of JSON lines, where one is named.

    Parameters
    ----------
    path : str
        Empty: nothing is written.
    also : Report
        Called with the same metrics.
    """

    def __init__(self, path: str, also: Report) -> None:
        self._path = path
        self._also = also

    def __call__(self, metrics: dict[str, Any]) -> None:
        """Take the metrics of one epoch."""
        if self._path:
            try:
                with Path(self._path).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(metrics) + "\n")
            except OSError as error:
                raise TrainingError(
                    f"{self._path}: must be a file that can be written, got: {error.strerror}; choose another --metrics"
                ) from error
        self._also(metrics)


def _check_shard(shard: ShardGraph) -> None:
    missing = {
        "node features": shard.manifest.feature_width == 0,
        "labels": shard.label is None or shard.manifest.num_classes == 0,
        "a split with training nodes": shard.split is None or shard.manifest.split_sizes["train"] == 0,
    }
    for name, is_missing in missing.items():
        if is_missing:
            raise TrainingError(f"{shard.path.parent}: must hold {name}, got none; partition again with them")


def _labelled_nodes(shard: ShardGraph, device: torch.device | None) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the labels of inner nodes, and the inner rows of each split that have one."""
    assert shard.label is not None
    assert shard.split is not None
    label = torch.from_numpy(shard.label[: shard.num_inner]).to(device)
    split = torch.from_numpy(shard.split[: shard.num_inner]).to(device)
    rows = {name: torch.nonzero((split == SPLIT_CODES[name]) & (label != NO_LABEL)).reshape(-1) for name in SPLITS}
    return label, rows


def _parse(arguments: list[str]) -> tuple[str, TrainConfig]:
    parser = argparse.ArgumentParser(prog="python -m asepr.trainer_plugin.train", description=__doc__)
    parser.add_argument("path", help="the dataset folder, that of manifest.json")
    for field in dataclasses.fields(TrainConfig):
        flag = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, bool):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=type(field.default), default=field.default)
    values = vars(parser.parse_args(arguments))
    return values.pop("path"), TrainConfig(**values)


def main() -> int:
    """Train the shard of this rank; print its metrics on rank 0."""
    try:
        path, config = _parse(sys.argv[1:])
        train_shard(path, config, MetricsFile(config.metrics, lambda metrics: print(json.dumps(metrics), flush=True)))
    except AseprError as error:
        print(f"asepr: error: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
