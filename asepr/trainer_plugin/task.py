"""What a model is trained for: what every task offers, and what it is made from."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from asepr.contracts import FloatArray, IdArray
from asepr.errors import TrainingError

if TYPE_CHECKING:
    from asepr.trainer_plugin.exchange import Exchange
    from asepr.trainer_plugin.shard_graph import ShardGraph


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkConfig:
    """How links are predicted.

    Attributes
    ----------
    decoder : "dot" or "distmult"
        What makes a score of two nodes; distmult learns a vector for each edge type. Empty: distmult where edges
        have types.
    negatives : int
        Nodes that take the place of either end of each edge.
    negatives_from : "local" or "global"
        Where these are drawn: from the nodes a part owns, or from all, whose rows then travel.
    eval_negatives : int
        Nodes that each held-out edge is ranked among; 0: all.
    """

    decoder: str = ""
    negatives: int = 64
    negatives_from: str = "local"
    eval_negatives: int = 0

    def __post_init__(self) -> None:
        """Check every value.

        Raises
        ------
        TrainingError
            A value is out of its range.
        """
        for name, known in (("decoder", ("", "dot", "distmult")), ("negatives_from", ("local", "global"))):
            if getattr(self, name) not in known:
                listed = ", ".join(filter(None, known))
                raise TrainingError(f"{name} must be one of {listed}, got '{getattr(self, name)}'; choose one of these")
        if self.negatives < 1 or self.eval_negatives < 0:
            raise TrainingError(
                f"negatives must be at least 1 and eval_negatives not negative, got {self.negatives} and "
                f"{self.eval_negatives}; mend the option"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a task is made from.

    Attributes
    ----------
    shard : ShardGraph
    exchange : Exchange
    device : torch.device or None
    hidden, seed, num_edge_types : int
    link : LinkConfig
    """

    shard: "ShardGraph"
    exchange: "Exchange"
    device: torch.device | None = None
    hidden: int = 128
    seed: int = 0
    num_edge_types: int = 0
    link: LinkConfig = field(default_factory=LinkConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class Picked:
    """What one step on a mini-batch computes.

    Attributes
    ----------
    rows : int64 (n,)
        Distinct local rows whose output is needed.
    weight : (m,)
        What each loss counts.
    examples : int64 (m,)
        Those that the step trains on.
    negatives : int64 (k,), or None
        Rows that take the place of others.
    hidden_edges : bool (num_edges,), or None
        Edges of the shard that are not looked at, in the order of its edge list.
    """

    rows: IdArray
    weight: torch.Tensor
    examples: IdArray
    negatives: IdArray | None = None
    hidden_edges: npt.NDArray[np.bool_] | None = None


class Task(Protocol):
    """What a model is trained for, on one shard.

    Attributes
    ----------
    width : int
        Columns of the model's output.
    score : str
        Measure that tells the best epoch.
    """

    width: int
    score: str

    def make_decoder(self) -> nn.Module | None:
        """Return what makes answers of the model's output rows, where they are none themselves."""

    def mean_loss(self, output: torch.Tensor, decoder: nn.Module | None, epoch: int) -> torch.Tensor:
        """Return this rank's part of the mean loss over the training examples of all ranks.

        Parameters
        ----------
        output : (num_inner, width)
        decoder : nn.Module or None
        epoch : int
        """

    def measure(self, output: torch.Tensor, decoder: nn.Module | None) -> dict[str, float]:
        """Return measures over all ranks as `val_acc`; all ranks call it together."""

    def examples(self, weight: FloatArray) -> IdArray:
        """Return the training examples of this shard, given what each local row counts."""

    def weight_of(self, examples: IdArray) -> float:
        """Return what some examples count in all."""

    def start_epoch(self, epoch: int) -> None:
        """Begin a pass over the examples."""

    def pick(self, examples: IdArray) -> Picked:
        """Return what a step on some examples computes."""

    def losses(self, output: torch.Tensor, decoder: nn.Module | None, picked: Picked) -> torch.Tensor:
        """Return (m,): the loss of each example, given the output of the rows picked."""


def missing(shard: "ShardGraph", what: str) -> TrainingError:
    """Return the error of a dataset that lacks what a task needs."""
    return TrainingError(f"{shard.path.parent}: must hold {what}, got none; partition again with them")
