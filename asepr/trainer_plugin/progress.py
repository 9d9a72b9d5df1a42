"""How training goes: the learning rate, the best evaluation so far, and whether it is worth going on."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from asepr.errors import TrainingError

LR_SCHEDULES = ("constant", "linear", "cosine", "step", "plateau")
SHAPED_BY_EPOCHS = ("linear", "cosine")
"""Schedules that reach zero after the last epoch, so that the number of epochs shapes all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressConfig:
    """When the learning rate falls, and when training stops.

    Attributes
    ----------
    patience : int
        Evaluations without a better validation score after which training stops; 0: it never does.
    min_delta : float
        By how much a score must be better to count for `patience`.
    lr_schedule : "constant", "linear", "cosine", "step" or "plateau"
    warmup : int
        Epochs in which the rate rises to what it should be.
    lr_step : int
        step: epochs between falls.
    lr_decay : float, in (0, 1)
        step and plateau: what the rate is multiplied by.
    lr_patience : int
        plateau: evaluations without a better score before the rate falls.
    """

    patience: int = 0
    min_delta: float = 0.0
    lr_schedule: str = "constant"
    warmup: int = 0
    lr_step: int = 10
    lr_decay: float = 0.1
    lr_patience: int = 5

    def __post_init__(self) -> None:
        """Check every range.

        Raises
        ------
        TrainingError
            A value is out of its range.
        """
        if self.lr_schedule not in LR_SCHEDULES:
            raise TrainingError(
                f"lr_schedule must be one of {', '.join(LR_SCHEDULES)}, got '{self.lr_schedule}'; choose one of these"
            )
        for name, least in (("patience", 0), ("min_delta", 0), ("warmup", 0), ("lr_step", 1), ("lr_patience", 0)):
            if not least <= getattr(self, name) < float("inf"):
                raise TrainingError(f"{name} must be at least {least}, got {getattr(self, name)}; mend the option")
        if not 0 < self.lr_decay < 1:
            raise TrainingError(f"lr_decay must be in (0, 1), got {self.lr_decay}; 0.1 is usual")


class RateSchedule:
    """Sets an optimiser's learning rate by how far training is.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        At its full rate.
    config : ProgressConfig
    epochs : int
    steps_per_epoch : int
        Positions in an epoch; ranks that take fewer steps keep to the same positions.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, config: ProgressConfig, epochs: int, steps_per_epoch: int
    ) -> None:
        self._optimizer = optimizer
        self._position = 0
        self._warm = config.warmup * steps_per_epoch
        self._by_position = _by_position(optimizer, config, epochs, steps_per_epoch)
        self._plateau: ReduceLROnPlateau | None = None
        if config.lr_schedule == "plateau":
            self._plateau = ReduceLROnPlateau(
                optimizer, mode="max", factor=config.lr_decay, patience=config.lr_patience, threshold=config.min_delta,
                threshold_mode="abs",
            )  # fmt: skip

    @property
    def rate(self) -> float:
        """The learning rate now."""
        return float(self._optimizer.param_groups[0]["lr"])

    def move_to(self, position: int) -> None:
        """Set the rate of a position, counted from the first step of all."""
        with warnings.catch_warnings():
            # A rank without training rows takes no step.
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
            while self._position < position:
                self._by_position.step()
                self._position += 1

    def look(self, score: float) -> None:
        """Take the validation score of an evaluation, the same on all ranks."""
        if self._plateau is not None and self._position >= self._warm:
            self._plateau.step(score)

    def state(self) -> dict[str, Any]:
        """Return what JSON can hold and `restore` takes."""
        plateau = {} if self._plateau is None else self._plateau.state_dict()
        return {"position": self._position, "rate": self.rate, "plateau": plateau}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from where another object was."""
        self.move_to(state["position"])
        for group in self._optimizer.param_groups:
            group["lr"] = state["rate"]
        if self._plateau is not None:
            self._plateau.load_state_dict(state["plateau"])


def _by_position(
    optimizer: torch.optim.Optimizer, config: ProgressConfig, epochs: int, steps_per_epoch: int
) -> LRScheduler:
    warm = config.warmup * steps_per_epoch
    # The rise to the full rate comes first: schedulers set the rate when they are made.
    rise = LinearLR(optimizer, 1 / (warm + 1), total_iters=warm) if warm else None
    left = max(1, epochs * steps_per_epoch - warm)
    match config.lr_schedule:
        case "linear":
            fall: LRScheduler = LinearLR(optimizer, 1.0, 0.0, total_iters=left)
        case "cosine":
            fall = CosineAnnealingLR(optimizer, left)
        case "step":
            fall = StepLR(optimizer, config.lr_step * steps_per_epoch, config.lr_decay)
        case _:
            fall = ConstantLR(optimizer, 1.0, total_iters=0)
    return fall if rise is None else SequentialLR(optimizer, [rise, fall], milestones=[warm])


class BestScore:
    """Follows the best evaluation, and counts those since that were no better.

    Every rank holds one and is told the same scores, so all ranks stop after the same epoch.

    Parameters
    ----------
    patience, min_delta
        As in `ProgressConfig`.
    score : str
        What is followed, as `acc` for the metrics `val_acc` and `test_acc`.
    """

    def __init__(self, patience: int, min_delta: float, score: str = "acc") -> None:
        self._patience = patience
        self._min_delta = min_delta
        self._val, self._test = f"val_{score}", f"test_{score}"
        self.values: dict[str, Any] = {self._val: -1.0, self._test: 0.0, "epoch": -1}
        self._to_beat = -float("inf")
        self._waited = 0

    @property
    def is_stale(self) -> bool:
        """Whether patience is at its end."""
        return 0 < self._patience <= self._waited

    def look(self, epoch: int, metrics: dict[str, Any]) -> bool:
        """Take an evaluation's metrics; return whether it is the best so far."""
        score = metrics[self._val]
        if score > self._to_beat + self._min_delta:
            self._to_beat = score
            self._waited = 0
        else:
            self._waited += 1
        is_best: bool = score > self.values[self._val]
        if is_best:
            self.values = {self._val: score, self._test: metrics[self._test], "epoch": epoch}
        return is_best

    def state(self) -> dict[str, Any]:
        """Return what JSON can hold and `restore` takes."""
        return {"values": self.values, "to_beat": self._to_beat, "waited": self._waited}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from where another object was."""
        self.values, self._to_beat, self._waited = state["values"], state["to_beat"], state["waited"]
