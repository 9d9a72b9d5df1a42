"""Models of stacked convolutions, by name."""

import functools
import itertools
from collections.abc import Callable

import torch
from torch import nn

from asepr.errors import TrainingError
from asepr.trainer_plugin.layers import GATConv, GCNConv, GINConv, RGCNConv, SAGEConv
from asepr.trainer_plugin.local_graph import LocalGraph

CONVOLUTIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "sage": SAGEConv,
    "sage-sum": functools.partial(SAGEConv, aggregate="sum"),
    "gcn": GCNConv,
    "gin": GINConv,
    "gat": GATConv,
}
TYPED_CONVOLUTIONS = {"rgcn": RGCNConv}
"""Those that need edge types."""


class StackedModel(nn.Module):
    """Convolutions with ReLU and dropout between them.

    Parameters
    ----------
    model : str
        A name in `CONVOLUTIONS` or `TYPED_CONVOLUTIONS`.
    widths : list of int
        Width of the features, of each hidden layer, and of the output.
    dropout : float, in [0, 1)
    seed : int
        Of the dropout masks.
    num_edge_types : int
        0 where edges have no type.
    bases : int
        As in `RGCNConv`.
    decoder : nn.Module, optional
        What makes answers of the output rows; a part of the model, so that it is trained and averaged with it.

    Raises
    ------
    TrainingError
        No such model, the message lists those there are; or it needs edge types, and there are none.

    Notes
    -----
    Dropout masks depend on seed, epoch, layer, global node id and column alone, so that training is
    the same however the graph is partitioned.
    """

    def __init__(
        self,
        model: str,
        widths: list[int],
        dropout: float = 0.0,
        seed: int = 0,
        *,
        num_edge_types: int = 0,
        bases: int = 0,
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        make = _convolution(model, num_edge_types, bases)
        self.layers = nn.ModuleList(make(a, b) for a, b in itertools.pairwise(widths))
        self.decoder = decoder
        self._dropout = dropout
        self._seed = seed

    def forward(self, graph: LocalGraph, features: torch.Tensor, epoch: int = 0) -> torch.Tensor:
        """Run all layers.

        Parameters
        ----------
        graph : LocalGraph
        features : (num_local, F)
        epoch : int
            Chooses the dropout masks.

        Returns
        -------
        (num_inner, output width)
        """
        rows, near = features, graph
        for number, layer in enumerate(self.layers):
            if number:
                rows = torch.relu(rows)
                if self.training and self._dropout > 0:
                    rows = keyed_dropout(rows, near.nid, (self._seed, epoch, number - 1), self._dropout)
            near, inner, local = graph.before_layer(number, len(self.layers), rows)
            rows = layer(near, inner, local)
        return rows


def _convolution(model: str, num_edge_types: int, bases: int) -> Callable[[int, int], nn.Module]:
    if model in CONVOLUTIONS:
        return CONVOLUTIONS[model]
    if model not in TYPED_CONVOLUTIONS:
        known = ", ".join((*CONVOLUTIONS, *TYPED_CONVOLUTIONS))
        raise TrainingError(f"model must be one of {known}, got '{model}'; choose one of these")
    if not num_edge_types:
        raise TrainingError(
            f"model {model} must come with edge types, got edges without; partition again with --etype, or choose "
            "another model"
        )
    return functools.partial(TYPED_CONVOLUTIONS[model], num_types=num_edge_types, bases=bases)


def keyed_dropout(rows: torch.Tensor, nid: torch.Tensor, key: tuple[int, int, int], rate: float) -> torch.Tensor:
    """Zero entries with the given chance and scale up the others; the choice depends on key, nid and column.

    Parameters
    ----------
    rows : (n, F)
    nid : int64 (n,)
    key : three ints
    rate : float, in [0, 1)

    Returns
    -------
    (n, F)
    """
    row_hash = nid
    for part in key:
        row_hash = _mix(row_hash + _mix(torch.tensor(part + 1, device=rows.device)))
    column_hash = _mix(torch.arange(1, rows.shape[1] + 1, device=rows.device))
    # 31 bits suffice for the mask, and halve the memory of the one large step.
    mask = (row_hash & 0x7FFFFFFF).to(torch.int32)[:, None] ^ (column_hash & 0x7FFFFFFF).to(torch.int32)
    mask = (mask * 0x2C1B3C6D) & 0x7FFFFFFF
    mask = ((mask ^ (mask >> 15)) * 0x297A2D39) & 0x7FFFFFFF
    kept = (mask ^ (mask >> 15)) >= int(rate * 2**31)
    return rows * kept / (1 - rate)


def keyed_normal(nid: torch.Tensor, width: int, seed: int) -> torch.Tensor:
    """Return float64 (n, width), normal with variance `1 / width`; a value depends on seed, nid and column alone.

    Parameters
    ----------
    nid : int64 (n,)
    width, seed : int

    Notes
    -----
    Source: Box, Muller, A note on the generation of random normal deviates, 1958.
    """
    key = _mix(nid + _mix(torch.tensor(seed + 1, device=nid.device)))[:, None]
    column = torch.arange(1, width + 1, device=nid.device)
    first, second = ((_mix(key ^ _mix(2 * column + odd)) & (2**53 - 1)).double() / 2**53 for odd in (0, 1))
    values: torch.Tensor = (-2 * torch.log(1 - first)).sqrt() * torch.cos(2 * torch.pi * second) / width**0.5
    return values


def _mix(values: torch.Tensor) -> torch.Tensor:
    """Mix the bits of int64 values (multiplications wrap)."""
    values = (values ^ (values >> 30)) * -0x40A7B892E31B1A47
    values = (values ^ (values >> 27)) * -0x6B2FB644ECCEEE15
    return values ^ (values >> 31)
