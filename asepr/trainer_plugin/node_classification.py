"""Answers about nodes: one class, or any number of labels."""

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812  # the name the field uses
from torch import nn

from asepr.contracts import NO_LABEL, NO_LABELS, SPLIT_CODES, FloatArray, IdArray
from asepr.errors import TrainingError
from asepr.trainer_plugin.gradients import sum_over_ranks
from asepr.trainer_plugin.task import Picked, Setting, missing

SPLITS = ("train", "val", "test")


class NodeTask:
    """One answer a node: what single and multiple labels have in common.

    Parameters
    ----------
    setting : Setting
    target : (num_local, ...)
    is_labelled : bool (num_local,)
    """

    score: str

    def __init__(self, setting: Setting, target: npt.NDArray[np.generic], is_labelled: npt.NDArray[np.bool_]) -> None:
        shard = setting.shard
        if shard.split is None or shard.manifest.split_sizes["train"] == 0:
            raise missing(shard, "a split with training nodes")
        self.width = shard.manifest.num_classes
        self._shard = shard
        self._target = torch.from_numpy(target).to(setting.device)
        self._totals: list[int] = [shard.manifest.split_sizes[split] for split in SPLITS]  # type: ignore[index]
        self._may_train = (shard.split == SPLIT_CODES["train"]) & is_labelled
        code = np.where(is_labelled, shard.split, 0)[: shard.num_inner]
        self._nodes = [torch.from_numpy(np.flatnonzero(code == SPLIT_CODES[s])).to(setting.device) for s in SPLITS]

    def make_decoder(self) -> None:
        """Return None: the output is the answer."""

    def mean_loss(self, output: torch.Tensor, decoder: nn.Module | None, epoch: int) -> torch.Tensor:
        """Return the sum over training nodes here over the number of all."""
        del decoder, epoch
        nodes = self._nodes[0]
        return self._loss(output[nodes], self._target[nodes]).sum() / max(self._totals[0], 1)

    def measure(self, output: torch.Tensor, decoder: nn.Module | None) -> dict[str, float]:
        """Return the measure of each split."""
        del decoder
        counts = torch.stack([self._count(output[nodes], self._target[nodes]) for nodes in self._nodes]).double()
        sum_over_ranks(counts, self._shard.rank, self._shard.num_parts)
        return {
            f"{split}_{self.score}": self._measure(count, total)
            for split, count, total in zip(SPLITS, counts.tolist(), self._totals, strict=True)
        }

    def examples(self, weight: FloatArray) -> IdArray:
        """Return the local rows, copies included, that have a label, are trained on, and count."""
        self._weight = weight
        return np.flatnonzero(self._may_train & (weight > 0)).astype(np.int64)

    def weight_of(self, examples: IdArray) -> float:
        """Return the sum of the weights of rows."""
        return float(self._weight[examples].sum())

    def start_epoch(self, epoch: int) -> None:
        """Do nothing."""

    def pick(self, examples: IdArray) -> Picked:
        """Return the rows themselves."""
        weight = torch.from_numpy(self._weight[examples]).to(self._target.device)
        return Picked(rows=examples, weight=weight, examples=examples)

    def losses(self, output: torch.Tensor, decoder: nn.Module | None, picked: Picked) -> torch.Tensor:
        """Return the loss of each row."""
        del decoder
        return self._loss(output, self._target[torch.from_numpy(picked.rows).to(self._target.device)])

    def _loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return (n,)."""
        raise NotImplementedError

    def _count(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return a vector that is summed over ranks."""
        raise NotImplementedError

    def _measure(self, counts: list[float], num_nodes: int) -> float:
        """Return the measure that the summed counts give."""
        raise NotImplementedError


class SingleLabel(NodeTask):
    """One of several classes a node: cross-entropy, and accuracy."""

    score = "acc"

    def __init__(self, setting: Setting) -> None:
        shard = setting.shard
        if shard.labels is not None:
            raise TrainingError(
                f"{shard.path}: task node must have one label a node, got lists; give --task multilabel"
            )
        if shard.label is None or shard.manifest.num_classes == 0:
            raise missing(shard, "labels")
        super().__init__(setting, shard.label, shard.label != NO_LABEL)

    def _loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, target, reduction="none")

    def _count(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output.argmax(1) == target).sum().reshape(1)

    def _measure(self, counts: list[float], num_nodes: int) -> float:
        return counts[0] / max(num_nodes, 1)


class MultiLabel(NodeTask):
    """Any number of labels a node: binary cross-entropy over all of them, and micro-averaged F1.

    A label is predicted where its logit is above 0. Without any label, true or predicted, F1 is 0.
    """

    score = "f1"

    def __init__(self, setting: Setting) -> None:
        shard = setting.shard
        if shard.labels is None:
            got = "no labels" if shard.label is None else "one label a node"
            raise TrainingError(
                f"{shard.path}: task multilabel must have a list of 0 and 1 a node as label, got {got}; partition "
                "again with such a column, or give --task node"
            )
        super().__init__(setting, shard.labels, shard.labels[:, 0] != NO_LABELS)

    def _loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(output, target.to(output.dtype), reduction="none").mean(1)

    def _count(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        predicted, true = output > 0, target > 0
        return torch.stack([(predicted & true).sum(), predicted.sum(), true.sum()])

    def _measure(self, counts: list[float], num_nodes: int) -> float:
        del num_nodes
        hits, predicted, true = counts
        return 2 * hits / max(predicted + true, 1)
