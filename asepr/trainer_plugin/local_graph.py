"""One shard as tensors, and the sum over neighbours in either layout."""

import functools
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch

from asepr.contracts import IdArray
from asepr.errors import TrainingError
from asepr.formats.shard import LocalIds, Shard
from asepr.trainer_plugin.exchange import Exchange, ExchangeConfig
from asepr.trainer_plugin.gradients import max_over_ranks

if TYPE_CHECKING:
    from asepr.trainer_plugin.shard_graph import ShardGraph


class LocalGraph:
    """What a model needs of a shard.

    Parameters
    ----------
    shard : ShardGraph
    dtype : torch.dtype
        Of sums and degrees.
    device : torch.device, optional
    exchange : ExchangeConfig or Exchange, optional
        None: exact. Else all ranks must construct theirs together.

    Attributes
    ----------
    nid : int64 (num_inner,)
        Global ids of the inner nodes.
    in_degree : dtype (num_inner, 1), global
    out_degree : dtype (num_local, 1), global
    exchange : Exchange
    num_edge_types : int
        0 where edges have no type.
    """

    def __init__(
        self,
        shard: "ShardGraph | NearRows",
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        exchange: ExchangeConfig | Exchange | None = None,
    ) -> None:
        self.num_inner = shard.num_inner
        self.num_local = shard.num_local
        self.layout = shard.manifest.layout
        self.exchange = exchange if isinstance(exchange, Exchange) else Exchange(shard.plan, device, config=exchange)
        self.nid = torch.from_numpy(shard.nid[: shard.num_inner]).to(device)
        self.in_degree = torch.from_numpy(shard.in_degree[: shard.num_inner]).to(device, dtype)[:, None]
        self.out_degree = torch.from_numpy(shard.out_degree).to(device, dtype)[:, None]
        # In an edge-cut every edge ends at an inner node, so halo rows need no sums.
        num_rows = shard.num_inner if self.layout == "edge-cut" else shard.num_local
        ones = torch.ones(shard.num_edges, dtype=dtype)
        self._sum = _NeighbourSum(shard.dst, shard.src, (num_rows, shard.num_local), ones, device)
        self._shard = shard
        self._dtype = dtype
        self._device = device
        self._levels: dict[int, LocalGraph] = {}

    def before_layer(
        self, number: int, num_layers: int, rows: torch.Tensor
    ) -> "tuple[LocalGraph, torch.Tensor, torch.Tensor | None]":
        """Return the graph that a layer runs on, and the rows that it reads of nodes computed and of all nodes.

        Where halos are several hops deep, each layer but the last before an exchange also computes the halo nodes that
        the next ones read, from what is here; the first layers are those that may be fewer.

        Parameters
        ----------
        number, num_layers : int
        rows : (n, F)
            What the layer before computed; before the first, the features of all local nodes.

        Returns
        -------
        LocalGraph of n' nodes computed among m
        (n', F)
        (m, F), or None where they are to be fetched
        """
        hops = self._shard.manifest.halo_hops
        if hops == 1:
            return (self, rows, None) if number else (self, rows[: self.num_inner], rows)
        left = num_layers - number
        reach = (left - 1) % hops + 1
        level = self._level(reach)
        if number == 0:
            rows = rows[self._by_hop[: level.num_local]]
        elif reach == hops:
            rows = self.exchange.scatter(rows)[self._by_hop]
        return level, rows[: level.num_inner], rows

    @functools.cached_property
    def _by_hop(self) -> torch.Tensor:
        """Local rows by their distance from the inner nodes."""
        assert isinstance(self._shard, Shard), "levels of a graph have none of their own"
        return torch.from_numpy(order_by_hop(self._shard)).to(self._device)

    def _level(self, reach: int) -> "LocalGraph":
        """Return the graph on which nodes fewer than `reach` hops away are computed from those up to there."""
        if reach not in self._levels:
            assert isinstance(self._shard, Shard), "levels of a graph have none of their own"
            level = LocalGraph(NearRows(self._shard, reach), self._dtype, self._device, self.exchange)
            level.num_edge_types = self.num_edge_types
            self._levels[reach] = level
        return self._levels[reach]

    @functools.cached_property
    def num_edge_types(self) -> int:
        """One more than the largest edge type of the whole graph; all ranks ask together."""
        return count_edge_types(self._shard)

    def sum_means_by_type(self, rows: torch.Tensor) -> torch.Tensor:
        """Sum over edge types, for each inner node, the mean over all its in-edges of each type.

        Where nothing is exchanged, the in-edges elsewhere count as zeros.

        Parameters
        ----------
        rows : (num_local, T, F)
            What each local node says over edges of each type.

        Returns
        -------
        (num_inner, F)
        """
        partial = self._typed_sum(rows.reshape(-1, rows.shape[2]))
        return partial if self.layout == "edge-cut" else self.exchange.gather(partial)

    @functools.cached_property
    def _typed_sum(self) -> "_NeighbourSum":
        """Adjacency whose columns are local nodes times edge types, divided by global in-degrees of the type."""
        shard, num_types = self._shard, self.num_edge_types
        assert shard.etype is not None, "edges have types"
        etype, dst = np.asarray(shard.etype).astype(np.int64), np.asarray(shard.dst).astype(np.int64)
        counts = np.bincount(dst * num_types + etype, minlength=self.num_local * num_types)
        degree = torch.from_numpy(counts.reshape(-1, num_types)).to(self._device, self._dtype)
        if self.layout == "vertex-cut":
            degree = self.exchange.send_owned(self.exchange.return_copies(degree))
        share = 1 / degree.cpu()[torch.from_numpy(dst), torch.from_numpy(etype)]
        columns = np.asarray(shard.src).astype(np.int64) * num_types + etype
        num_rows = self.num_inner if self.layout == "edge-cut" else self.num_local
        return _NeighbourSum(dst, columns, (num_rows, self.num_local * num_types), share, self._device)

    @functools.cached_property
    def edges_and_loops(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Local source and destination of each edge here, int64, with a self-loop at each inner node added."""
        loops = np.arange(self.num_inner)
        ends = (self._shard.src, self._shard.dst)
        src, dst = (torch.from_numpy(np.concatenate([end, loops]).astype(np.int64)).to(self._device) for end in ends)
        return src, dst

    def sum_neighbours(self, inner: torch.Tensor, local: torch.Tensor | None = None) -> torch.Tensor:
        """Sum, for each inner node, the rows of all sources of its in-edges, wherever they lie.

        Parameters
        ----------
        inner : (num_inner, F)
        local : (num_local, F), optional
            The same with halo rows, where they are at hand; else they are fetched.

        Returns
        -------
        (num_inner, F)
        """
        seen = None
        if self.exchange.is_cut:
            seen = self._num_seen_with_halo if local is not None else self._num_seen
        if local is None:
            local = self.exchange.scatter(inner)
        partial = self._sum(local)
        total = partial if self.layout == "edge-cut" else self.exchange.gather(partial)
        # Without an exchange the neighbours at hand stand for all: the mean is theirs, not one with zeros.
        return total if seen is None else total * (self.in_degree / seen.clamp(min=1))

    def add_copies(self, local: torch.Tensor) -> torch.Tensor:
        """Sum rows of partial sums over all parts that hold in-edges of a node.

        Parameters
        ----------
        local : (num_local, F)

        Returns
        -------
        (num_inner, F)
        """
        return local[: self.num_inner] if self.layout == "edge-cut" else self.exchange.gather(local)

    def greatest_of_neighbours(self, score: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        """Return the greatest score among all in-edges of each local node, wherever they lie; no gradient.

        Of the last whole step, where rows may be late: see `Exchange.greatest_of_copies`.

        Parameters
        ----------
        score : (num_edges, F)
            Finite.
        dst : int64 (num_edges,)

        Returns
        -------
        (num_local, F)
        """
        local = greatest_by_row(score, dst, self.num_local)
        if self.layout == "edge-cut" or self.exchange.is_cut:
            return local
        return self.exchange.greatest_of_copies(local)

    @functools.cached_property
    def _num_seen(self) -> torch.Tensor:
        """In-edges here from inner nodes, (num_inner, 1)."""
        rows = torch.zeros_like(self.out_degree)
        rows[: self.num_inner] = 1
        return self._sum(rows)[: self.num_inner]

    @functools.cached_property
    def _num_seen_with_halo(self) -> torch.Tensor:
        """In-edges here, (num_inner, 1)."""
        return self._sum(torch.ones_like(self.out_degree))[: self.num_inner]


def order_by_hop(shard: Shard) -> IdArray:
    """Return int64 (num_local,): local rows by their distance from the inner nodes, in order within each."""
    return np.argsort(shard.hop, kind="stable")


class NearRows:
    """The part of a shard that is at most some hops away from its inner nodes, as a shard of its own.

    "Inner" are the nodes fewer than `reach` hops away, all in-edges of which are here. Nodes are in order of their
    distance, so those of a nearer part come first.

    Parameters
    ----------
    shard : Shard
        Of an edge-cut with halos at least `reach` hops deep.
    reach : int, at least 1
    """

    def __init__(self, shard: Shard, reach: int) -> None:
        hop, order = shard.hop, order_by_hop(shard)
        self.manifest, self.plan = shard.manifest, shard.plan
        self.rank, self.num_parts = shard.rank, shard.num_parts
        self.num_inner, self.num_local = (int(np.count_nonzero(hop < reach + more)) for more in (0, 1))
        near = order[: self.num_local]
        self.nid, self.in_degree, self.out_degree = shard.nid[near], shard.in_degree[near], shard.out_degree[near]
        row = np.empty(shard.num_local, dtype=np.int64)
        row[order] = np.arange(shard.num_local)
        outer = shard.outer_edges
        chosen = hop[outer["dst"]] < reach
        self.src, self.dst = (
            row[np.concatenate([getattr(shard, name), outer[name][chosen]])] for name in ("src", "dst")
        )
        self.num_edges = len(self.src)
        self.etype = None if shard.etype is None else np.concatenate([shard.etype, outer["etype"][chosen]])


def greatest_by_row(score: torch.Tensor, row: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Return (num_rows, F): the greatest of the finite scores (e, F) of each row; the least number where none."""
    lowest = torch.finfo(score.dtype).min
    greatest = torch.full((num_rows, score.shape[1]), lowest, dtype=score.dtype, device=score.device)
    return greatest.scatter_reduce_(0, row[:, None].expand_as(score), score, "amax")


class _NeighbourSum:
    """The local adjacency as a sparse matrix, and its transpose for the way back."""

    def __init__(
        self,
        dst: LocalIds,
        src: LocalIds,
        shape: tuple[int, int],
        values: torch.Tensor,
        device: torch.device | None,
    ) -> None:
        indices = torch.from_numpy(np.stack([dst, src]).astype(np.int64))
        with warnings.catch_warnings(), torch.sparse.check_sparse_tensor_invariants(True):  # type: ignore[no-untyped-call]
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            matrix = torch.sparse_coo_tensor(indices, values, shape).coalesce()
            self.forward = matrix.to_sparse_csr().to(device)
            self.backward = matrix.t().coalesce().to_sparse_csr().to(device)

    def __call__(self, local: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _SparseProduct.apply(local, self)  # type: ignore[no-untyped-call]
        return result


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local, matrix):  # type: ignore[no-untyped-def]
        ctx.matrix = matrix
        return matrix.forward @ local

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return ctx.matrix.backward @ gradient, None


def count_edge_types(shard: "ShardGraph | NearRows") -> int:
    """Return the number of edge types of a dataset, 0 where edges have none; all ranks together where none has a name.

    Raises
    ------
    TrainingError
        A peer is gone or stalls.
    """
    if shard.etype is None:
        return 0
    if shard.manifest.edge_types:
        return len(shard.manifest.edge_types)
    largest = torch.tensor(int(np.max(shard.etype, initial=-1)))
    return 1 + int(max_over_ranks(largest, shard.rank, shard.num_parts))


def features_of(shard: "ShardGraph") -> torch.Tensor:
    """Return the features of all local rows, float32 (num_local, F), without a copy.

    Raises
    ------
    TrainingError
        The dataset has none.
    """
    features = shard.features
    if features is None:
        raise TrainingError(f"{shard.path}: must hold node features, got none; partition again with --features")
    return torch.from_numpy(features)
