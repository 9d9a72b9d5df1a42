"""Full-graph training on shards, one process a shard; halo rows are exchanged as the options say.

    torchrun --nnodes 4 --nproc-per-node 1 ... -m asepr.trainer_plugin.train OUT --epochs 30

A process opens the manifest and one part alone. The printed lines are JSON, one an epoch.
"""

import argparse
import dataclasses
import functools
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from asepr.errors import AseprError, TrainingError
from asepr.formats.predictions import write_embeddings, write_predictions
from asepr.trainer_plugin.checkpoint import (
    BEST_NAME,
    Keeper,
    State,
    check_folder,
    forget_rank_states,
    load_checkpoint,
    load_rank_state,
    load_weights,
    save_checkpoint,
    save_rank_state,
)
from asepr.trainer_plugin.exchange import ExchangeConfig
from asepr.trainer_plugin.gradients import GradientSum, check_gradients, sum_over_ranks
from asepr.trainer_plugin.local_graph import LocalGraph
from asepr.trainer_plugin.meter import Meter
from asepr.trainer_plugin.metrics_writer import Report, keep_quiet, make_report
from asepr.trainer_plugin.models import StackedModel
from asepr.trainer_plugin.node_inputs import ROWS, make_input
from asepr.trainer_plugin.planner import Planner
from asepr.trainer_plugin.precision import PRECISIONS, lower_products
from asepr.trainer_plugin.processes import DEVICES, own_shard
from asepr.trainer_plugin.progress import SHAPED_BY_EPOCHS, BestScore, ProgressConfig, RateSchedule
from asepr.trainer_plugin.shard_graph import ShardGraph
from asepr.trainer_plugin.task import LinkConfig, Setting
from asepr.trainer_plugin.tasks import check_task, make_task


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
    clip : float
        The gradient's norm is brought down to this; 0: it is left.
    lr_schedule, warmup, lr_step, lr_decay, lr_patience, patience, min_delta
        As in `ProgressConfig`.
    restore : "last" or "best"
        Which weights training ends with: those of the last epoch, or of the best evaluation.
    dtype : "float32" or "float64"
    precision : "float32" or "bf16"
        In which matrix products are taken, where dtype is float32.
    device : "auto", "cpu" or "cuda"
        auto: the GPU of this process where there is one.
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
    tensorboard : str
        Folder for TensorBoard's events; empty: none.
    predictions, embeddings : str
        Folders for what the model says of every node, and for the rows that its last layer reads: a Parquet
        file a part; empty: none.
    quiet : bool
        Show no line an epoch on a terminal.
    timeout_s : float
        How long to wait for a peer.
    exchange, codec, exact_every, smoothing
        As `schedule`, `codec`, `exact_every`, `smoothing` of `ExchangeConfig`; exchange may be `auto`, which
        measures and chooses both.
    gradients : str
        How gradients are summed: none (whole), fp16, powersgd:RANK or threshold:SHARE.
    task : str
        A name in `asepr.trainer_plugin.tasks.TASKS`.
    bases : int
        Of rgcn: matrices that those of the edge types are sums of; 0: each type has its own.
    decoder, negatives, negatives_from, eval_negatives
        As in `LinkConfig`.
    """

    model: str = "sage"
    epochs: int = 30
    layers: int = 2
    hidden: int = 128
    lr: float = 0.01
    weight_decay: float = 5e-4
    dropout: float = 0.5
    seed: int = 0
    clip: float = 0.0
    lr_schedule: str = "constant"
    warmup: int = 0
    lr_step: int = 10
    lr_decay: float = 0.1
    lr_patience: int = 5
    patience: int = 0
    min_delta: float = 0.0
    restore: str = "last"
    dtype: str = "float32"
    precision: str = "float32"
    device: str = "auto"
    eval_every: int = 1
    checkpoint: str = ""
    checkpoint_every: int = 10
    resume: bool = False
    metrics: str = ""
    tensorboard: str = ""
    predictions: str = ""
    embeddings: str = ""
    quiet: bool = False
    timeout_s: float = 300.0
    exchange: str = "exact"
    codec: str = "none"
    exact_every: int = 0
    smoothing: float = 0.0
    gradients: str = "none"
    task: str = "node"
    bases: int = 8
    decoder: str = ""
    negatives: int = 64
    negatives_from: str = "local"
    eval_negatives: int = 0

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
        if not 0 <= self.clip < float("inf"):
            raise TrainingError(f"clip must be a number of at least 0, got {self.clip}; 0 leaves gradients as they are")
        if self.dtype not in ("float32", "float64"):
            raise TrainingError(f"dtype must be float32 or float64, got '{self.dtype}'; choose one of these")
        for name, known in (("restore", ("last", "best")), ("precision", PRECISIONS), ("device", DEVICES)):
            if getattr(self, name) not in known:
                raise TrainingError(
                    f"{name} must be one of {', '.join(known)}, got '{getattr(self, name)}'; choose one of these"
                )
        if self.precision == "bf16" and self.dtype != "float32":
            raise TrainingError(f"precision bf16 must come with dtype float32, got '{self.dtype}'; leave out one")
        if self.resume and not self.checkpoint:
            raise TrainingError("resume must come with a checkpoint folder, got none; give --checkpoint")
        if self.exchange == "auto" and (self.codec != "none" or self.exact_every or self.smoothing):
            raise TrainingError("exchange auto chooses all by itself, got options beside it; leave them out")
        if self.bases < 0:
            raise TrainingError(f"bases must not be negative, got {self.bases}; 0 is a matrix for each edge type")
        check_gradients(self.gradients)
        check_task(self.task)
        if self.task == "link" and self.predictions:
            raise TrainingError("predictions are of classes, which task link has none of; ask for --embeddings")
        self.link_config()
        self.progress_config()
        self.exchange_config()

    def progress_config(self) -> ProgressConfig:
        """Return when the learning rate falls and training stops."""
        return ProgressConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(ProgressConfig)})

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

    def link_config(self) -> LinkConfig:
        """Return how links are predicted."""
        return LinkConfig(
            decoder=self.decoder,
            negatives=self.negatives,
            negatives_from=self.negatives_from,
            eval_negatives=self.eval_negatives,
        )


FREE_TO_RESUME = frozenset(
    {
        "epochs", "eval_every", "checkpoint", "checkpoint_every", "resume", "metrics", "timeout_s", "patience",
        "min_delta", "restore", "device", "tensorboard", "predictions", "embeddings", "quiet",
    }
)  # fmt: skip
"""Options that a run which resumes may choose anew."""


class Trainer:
    """Trains one shard's share of the model; every rank ends with the same weights.

    Parameters
    ----------
    shard : ShardGraph
        With what the task needs. With more than one part the default process group is up.
    config : TrainConfig
    device : torch.device, optional

    Raises
    ------
    TrainingError
        The shard lacks something, the number of processes is wrong, or the checkpoint does not fit.
    """

    _is_local = False

    def __init__(self, shard: ShardGraph, config: TrainConfig, device: torch.device | None = None) -> None:
        self.config = config
        self.shard = shard
        dtype = getattr(torch, config.dtype)
        self.graph = LocalGraph(shard, dtype, device, config.exchange_config())
        self._task = make_task(config.task, self._setting(device))
        self._input = make_input(shard, config, self._is_local, self.graph.exchange, dtype, device)
        widths = [self._input.width, *[config.hidden] * (config.layers - 1), self._task.width]
        torch.manual_seed(config.seed)
        self.model = StackedModel(
            config.model,
            widths,
            config.dropout,
            config.seed,
            num_edge_types=self.graph.num_edge_types,
            bases=config.bases,
            decoder=self._task.make_decoder(),
        ).to(device, dtype)
        if config.precision == "bf16":
            lower_products(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        self._sum = GradientSum(
            list(self.model.parameters()), config.gradients, shard.rank, shard.num_parts, config.seed
        )
        self._meter = Meter(self.graph.exchange, self._sum)
        self._planner = Planner(config, shard, self.graph.exchange) if config.exchange == "auto" else None
        self._epoch = 0
        self._saved: dict[Path, int] = {}
        self._best = BestScore(config.patience, config.min_delta, self._task.score)
        self._best_weights: State = {}
        self._best_rows: State = {}
        self._rate_state: dict[str, Any] = {}
        if config.checkpoint and shard.rank == 0:
            check_folder(Path(config.checkpoint))
        if config.resume:
            self._restore()

    def run(self, report: Report) -> dict[str, Any]:
        """Train to the last epoch, or to that in which patience ends; then write what the model says of nodes.

        `report` is called on rank 0 with each epoch's metrics.

        Returns
        -------
        dict: the last epoch's metrics, `best_val_acc`, `best_test_acc` (or the task's other score), `best_epoch`, and
            `stopped_early`
        """
        metrics = self._train(report)
        if self.config.restore == "best":
            self.model.load_state_dict(self._best_weights)
            self._input.load_state(self._best_rows)
        self._write_answers()
        stopped_early = metrics["epoch"] + 1 < self.config.epochs
        return metrics | {f"best_{name}": value for name, value in self._best.values.items()} | {
            "stopped_early": stopped_early
        }  # fmt: skip

    def _train(self, report: Report) -> dict[str, Any]:
        """Train; return the last epoch's metrics."""
        config = self.config
        metrics: dict[str, Any] = {}
        for epoch in range(self._epoch, config.epochs):
            metrics = self._train_epoch(epoch)
            is_last = epoch + 1 == config.epochs or self._best.is_stale
            if self.shard.rank == 0:
                report(metrics)
            if config.checkpoint and (is_last or (epoch + 1) % config.checkpoint_every == 0):
                self._save(epoch + 1)
            if is_last:
                break
        self.graph.exchange.settle()
        return metrics

    @functools.cached_property
    def _rate(self) -> RateSchedule:
        """The learning rate; how many steps an epoch has is known only after all ranks are set up."""
        rate = RateSchedule(self.optimizer, self.config.progress_config(), self.config.epochs, self._steps_per_epoch)
        if self._rate_state:
            rate.restore(self._rate_state)
        return rate

    def _train_epoch(self, epoch: int) -> dict[str, Any]:
        """Train one epoch, and evaluate where that is due; return its metrics."""
        self._meter.start()
        self._rate.move_to(epoch * self._steps_per_epoch)
        rate = self._rate.rate
        self._input.set_rate(rate)
        loss = self._step(epoch)
        metrics = {"epoch": epoch, "loss": loss, "lr": rate} | self._measured()
        if self._planner is not None:
            metrics["exchange"] |= self._planner.look(metrics)
        if epoch + 1 == self.config.epochs or (epoch + 1) % self.config.eval_every == 0:
            metrics |= self._evaluate()
            self._rate.look(metrics[f"val_{self._task.score}"])
            if self._best.look(epoch, metrics):
                self._keep_best(epoch)
        return metrics

    def _keep_best(self, epoch: int) -> None:
        if self.config.restore == "best":
            self._best_weights = {name: value.clone() for name, value in self.model.state_dict().items()}
            self._best_rows = {name: value.clone() for name, value in self._learned_rows().items()}
        if self.config.checkpoint:
            own = {"input": self._learned_rows()} if self._input.is_learned else {}
            self._write_checkpoint(Path(self.config.checkpoint) / BEST_NAME, epoch + 1, own)

    def _learned_rows(self) -> State:
        """Return the rows that are learned here, without what the next step builds on."""
        return {name: value for name, value in self._input.state().items() if name == ROWS}

    @property
    def _steps_per_epoch(self) -> int:
        """Optimiser steps of an epoch, the same on all ranks."""
        return 1

    @property
    def bytes_sent(self) -> int:
        """Payload bytes that this rank sent since the start, sums of gradients left out."""
        return self.graph.exchange.bytes_sent

    def _measured(self) -> dict[str, Any]:
        """Return what the meter says of the epoch."""
        return self._meter.stop()

    def _step(self, epoch: int) -> float:
        """Take one step; return the mean loss over the training examples of all ranks."""
        self.model.train()
        self.optimizer.zero_grad()
        self.graph.exchange.start_step(epoch)
        total_loss = self._find_gradients(self._input.local(), epoch)
        self._take_step()
        return total_loss

    def _take_step(self) -> None:
        if self.config.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        # The optimiser's step may be the last before ranks come together, learned rows too.
        self._input.step()
        self.optimizer.step()

    def _find_gradients(self, rows: torch.Tensor, epoch: int) -> float:
        """Find the gradients of the mean loss over all ranks' training examples; return that loss."""
        output = self.model(self.graph, rows, epoch)
        loss = self._task.mean_loss(output, self.model.decoder, epoch)
        loss.backward()  # type: ignore[no-untyped-call]
        return self._sum(loss.detach())

    @torch.no_grad()
    def _evaluate(self) -> dict[str, float]:
        """Return the task's measures over all ranks."""
        self.model.eval()
        with self.graph.exchange.exactly():
            return self._task.measure(self.model(self.graph, self._input.local()), self.model.decoder)

    @torch.no_grad()
    def _write_answers(self) -> None:
        """Write predictions and embeddings of the inner nodes, where they are wanted."""
        config = self.config
        if not config.predictions and not config.embeddings:
            return
        read: list[torch.Tensor] = []
        # A layer takes the graph, then the rows of inner nodes.
        hook = self.model.layers[-1].register_forward_pre_hook(lambda _, given: read.append(given[1]))
        self.model.eval()
        with self.graph.exchange.exactly():
            output = self.model(self.graph, self._input.local())
        hook.remove()
        if config.predictions:
            several = config.task == "multilabel"
            write_predictions(Path(config.predictions), self.shard, output.float().cpu().numpy(), several=several)
        if config.embeddings:
            rows = output if config.task == "link" else read[0]
            write_embeddings(Path(config.embeddings), self.shard, rows.float().cpu().numpy())

    def _setting(self, device: torch.device | None) -> Setting:
        config = self.config
        return Setting(
            shard=self.shard,
            exchange=self.graph.exchange,
            device=device,
            hidden=config.hidden,
            seed=config.seed,
            num_edge_types=self.graph.num_edge_types,
            link=config.link_config(),
        )

    def _agreed(self) -> dict[str, Any]:
        """Return what a run that resumes must have in common with the one it resumes."""
        free = set(FREE_TO_RESUME)
        if self.config.lr_schedule in SHAPED_BY_EPOCHS:
            free.remove("epochs")
        if self.config.lr_schedule == "plateau":
            free -= {"eval_every", "min_delta"}
        return {name: value for name, value in dataclasses.asdict(self.config).items() if name not in free}

    def _save(self, epoch: int) -> None:
        if self._planner is not None:
            # A run that resumes measures and chooses anew.
            self.graph.exchange.finish()
            self._sum.forget()
        own = {name: part.state() for name, part in self._kept_apart.items()}
        self._write_checkpoint(Path(self.config.checkpoint), epoch, own)

    def _write_checkpoint(self, folder: Path, epoch: int, own: dict[str, State]) -> None:
        """Write a checkpoint; what each rank keeps of its own, if anything, comes first, so that none lacks it."""
        rank = self.shard.rank
        if own:
            save_rank_state(folder, rank, epoch, own)
            sum_over_ranks(next(self.model.parameters()).new_zeros(1), rank, self.shard.num_parts)
            # Those of the checkpoint that is there until the next lines replace it stay too.
            forget_rank_states(folder, rank, {self._saved.get(folder, 0), epoch})
            self._saved[folder] = epoch
        if rank == 0:
            state = {"epoch": epoch, "best": self._best.state(), "rate": self._rate.state(), "config": self._agreed()}
            save_checkpoint(folder, self.model, self.optimizer, state)

    @property
    def _kept_apart(self) -> dict[str, Keeper]:
        """What each rank keeps between steps beside the model, by name; the same names on all ranks."""
        exchange, gradients = self.graph.exchange, self._sum
        kept: dict[str, Keeper] = {"input": self._input} if self._input.is_learned else {}
        if self._planner is None and self.shard.num_parts > 1 and (exchange.keeps_state or gradients.keeps_state):
            kept |= {"exchange": exchange, "gradients": gradients}
        return kept

    def _load_apart(self, folder: Path, epoch: int) -> dict[str, State]:
        """Return what this rank wrote beside the checkpoint of an epoch, by name."""
        self._saved[folder] = epoch
        return load_rank_state(folder, self.shard.rank, epoch)

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
        self._best.restore(state["best"])
        if self._best.is_stale:
            raise TrainingError(
                f"{folder}: must be of a run that patience has not ended, got one stopped after epoch "
                f"{state['epoch'] - 1}; raise --patience, or leave it out"
            )
        self._epoch, self._rate_state = state["epoch"], state["rate"]
        if self.config.restore == "best":
            self._best_weights, epoch = load_weights(folder / BEST_NAME, self.model)
            if self._input.is_learned:
                self._best_rows = self._load_apart(folder / BEST_NAME, epoch).get("input", {})
                # Seen to fit before there is work to lose; those of the last epoch come next.
                self._input.load_state(self._best_rows)
        if self._kept_apart:
            saved = self._load_apart(folder, self._epoch)
            for name, part in self._kept_apart.items():
                part.load_state(saved.get(name, {}))


def train_shard(path: Path | str, config: TrainConfig, report: Report) -> dict[str, Any]:
    """Train this process' shard, which is as `asepr.trainer_plugin.processes.own_shard` says.

    Raises
    ------
    AseprError
        A shard, an option or a peer is at fault.
    """
    with own_shard(path, config.timeout_s, config.device) as process:
        return Trainer(process.shard, config, process.device).run(report)


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


def _print_line(metrics: dict[str, Any]) -> None:
    print(json.dumps(metrics), flush=True)


def main() -> int:
    """Train the shard of this rank; print its metrics on rank 0."""
    try:
        path, config = _parse(sys.argv[1:])
        show = keep_quiet if config.quiet else _print_line
        train_shard(path, config, make_report(config.metrics, config.tensorboard, show))
    except AseprError as error:
        print(f"asepr: error: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
