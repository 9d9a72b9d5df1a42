"""Neighbour sampling on one shard: blocks that the built-in convolutions take in place of a whole graph."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import embedding_bag

from asepr.contracts import IdArray
from asepr.trainer_plugin.local_graph import greatest_by_row

if TYPE_CHECKING:
    from asepr.trainer_plugin.shard_graph import ShardGraph


class Block:
    """The sampled in-edges of some rows: what a convolution needs of a graph.

    Parameters
    ----------
    num_inner : int
        Rows computed: the first of the n rows that are read.
    source : int64 (e,), positions among the rows read, grouped by the row computed
    offset : int64 (num_inner,), where each group starts
    weight : (e,)
        What each sampled edge stands for, so that sums are unbiased.
    in_degree : (num_inner, 1)
    out_degree : (n, 1)
    etype : int64 (e,), optional
    """

    def __init__(
        self,
        num_inner: int,
        source: torch.Tensor,
        offset: torch.Tensor,
        weight: torch.Tensor,
        in_degree: torch.Tensor,
        out_degree: torch.Tensor,
        etype: torch.Tensor | None = None,
    ) -> None:
        self.num_inner = num_inner
        self._etype = etype
        self.in_degree = in_degree
        self.out_degree = out_degree
        self._source = source
        self._offset = offset
        self._weight = weight

    def sum_neighbours(self, inner: torch.Tensor, local: torch.Tensor | None = None) -> torch.Tensor:
        """Return (num_inner, F): the weighted sum over the sampled in-edges of each row computed."""
        del inner
        assert local is not None, "a block has its halo at hand"
        total: torch.Tensor = embedding_bag(
            self._source, local, self._offset, mode="sum", per_sample_weights=self._weight
        )
        return total

    def sum_means_by_type(self, rows: torch.Tensor) -> torch.Tensor:
        """Sum over edge types the mean over the sampled in-edges of each type.

        Parameters
        ----------
        rows : (n, T, F), what each row says over edges of each type

        Returns
        -------
        (num_inner, F)
        """
        assert self._etype is not None, "edges have types"
        num_types = rows.shape[1]
        ends = torch.cat([self._offset[1:], self._offset.new_tensor([len(self._source)])])
        group = torch.arange(self.num_inner, device=ends.device).repeat_interleave(ends - self._offset) * num_types
        group = group + self._etype
        counts = torch.bincount(group, minlength=self.num_inner * num_types)
        total: torch.Tensor = embedding_bag(
            self._source * num_types + self._etype,
            rows.reshape(-1, rows.shape[2]),
            self._offset,
            mode="sum",
            per_sample_weights=1 / counts[group].to(rows.dtype),
        )
        return total

    @functools.cached_property
    def edges_and_loops(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Source and destination of each sampled edge, int64, with a self-loop at each row computed added."""
        loops = torch.arange(self.num_inner, device=self._source.device)
        ends = torch.cat([self._offset[1:], self._offset.new_tensor([len(self._source)])])
        return torch.cat([self._source, loops]), torch.cat([loops.repeat_interleave(ends - self._offset), loops])

    def greatest_of_neighbours(self, score: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        """Return (n, F): the greatest score among the sampled in-edges of each row; no gradient."""
        return greatest_by_row(score, dst, len(self.out_degree))

    def add_copies(self, local: torch.Tensor) -> torch.Tensor:
        """Return the rows computed: all that was sampled is here."""
        return local[: self.num_inner]


class StoredBlock:
    """A first layer whose neighbours were summed when the shard was written.

    Stands in for a graph where a convolution is given, as `local`, the rows that `rows_for` makes.

    Parameters
    ----------
    kind : "mean", "sum" or "gcn"
    in_degree, out_degree : (n, 1)
    """

    def __init__(self, kind: str, in_degree: torch.Tensor, out_degree: torch.Tensor) -> None:
        self.num_inner = len(in_degree)
        # A mean is the sum of one neighbour.
        self.in_degree = torch.ones_like(in_degree) if kind == "mean" else in_degree
        self.out_degree = out_degree
        self._kind = kind

    def rows_for(self, stored: torch.Tensor) -> torch.Tensor:
        """Return the stored rows as if they were those of a single neighbour."""
        if self._kind != "gcn":
            return stored
        # The convolution scales by both degrees once more; the stored rows are scaled already.
        return stored * (self.in_degree + 1).sqrt() * (self.out_degree + 1).sqrt()

    def sum_neighbours(self, inner: torch.Tensor, local: torch.Tensor | None = None) -> torch.Tensor:
        """Return (n, F): the rows as they are."""
        del inner
        assert local is not None, "stored rows are at hand"
        return local


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """What one step computes on.

    Attributes
    ----------
    rows : int64 (n,)
        Local rows whose features are read.
    blocks : list of Block or StoredBlock, from the first layer to the last
    recalled : list of int64 (h,)
        Of each block: the halo rows, counted from 0, that it reads but that the block before does not
        compute. They stand under those that it does.
    """

    rows: torch.Tensor
    blocks: list[Block | StoredBlock]
    recalled: list[torch.Tensor]


class NeighbourSampler:
    """Samples in-neighbours, without replacement, among the edges of one shard.

    Parameters
    ----------
    shard : ShardGraph
    fanouts : sequence of int
        Most in-neighbours of a row, from the first sampled layer to the last; 0: all of them.
    stored : str or None
        Kind of the aggregates that take the place of one more, first layer.
    seed : sequence of int
    dtype : torch.dtype
        Of degrees and weights: that of the model.
    device : torch.device, optional
        Where batches will be.
    recalls_halo : bool
        Leave halo rows that a hidden layer reads to be recalled, in place of computing them from what is here.

    Notes
    -----
    A sum over sampled edges is scaled up by global in-degree over edges sampled, so it is an
    estimate of the exact one; a mean is that of the sampled edges. On an edge-cut shard the in-edges
    of inner rows are all here, and the estimate is unbiased; on a vertex-cut shard the edges
    elsewhere are taken to be like those here.
    """

    def __init__(
        self,
        shard: "ShardGraph",
        fanouts: Sequence[int],
        stored: str | None,
        seed: Sequence[int],
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        recalls_halo: bool = False,
    ) -> None:
        self._recalls_halo = recalls_halo
        self._num_inner = shard.num_inner
        self._fanouts = list(fanouts)
        self._stored = stored
        self._dtype = dtype
        self._device = device
        self._rng = np.random.default_rng(list(seed))
        self._in_degree, self._out_degree = shard.in_degree, shard.out_degree
        order = np.argsort(shard.dst, kind="stable")
        self._order = order
        self._source = np.asarray(shard.src)[order].astype(np.int64)
        self._etype = None if shard.etype is None else np.asarray(shard.etype)[order].astype(np.int64)
        counts = np.bincount(shard.dst, minlength=shard.num_local)
        self._start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._position = np.zeros(shard.num_local, dtype=np.int64)

    @property
    def local_in_degree(self) -> IdArray:
        """In-edges of each local row that lie here, int64 (num_local,)."""
        return np.diff(self._start)

    def sample(self, rows: IdArray, hidden: npt.NDArray[np.bool_] | None = None) -> Batch:
        """Return what is needed to compute the given rows, which are distinct, without the hidden edges.

        Parameters
        ----------
        rows : int64 (n,)
        hidden : bool (num_edges,), optional
            In the order of the shard's edge list.
        """
        self._is_hidden = None if hidden is None else hidden[self._order]
        blocks: list[Block | StoredBlock] = []
        recalled: list[torch.Tensor] = []
        for number, fanout in reversed(list(enumerate(self._fanouts))):
            block, reached = self._block(rows, fanout)
            is_first = number == 0 and self._stored is None
            num_computed = len(reached) if is_first else self._num_computed(rows, reached)
            rows = reached[:num_computed]
            blocks.insert(0, block)
            recalled.insert(0, self._tensor(reached[num_computed:] - self._num_inner))
        if self._stored is not None:
            blocks.insert(0, StoredBlock(self._stored, self._degree("in", rows), self._degree("out", rows)))
            recalled.insert(0, self._tensor(rows[:0]))
        return Batch(rows=self._tensor(rows), blocks=blocks, recalled=recalled)

    def _num_computed(self, rows: IdArray, reached: IdArray) -> int:
        """Return how many of the rows reached are not recalled: all but the halo rows behind `rows`."""
        if not self._recalls_halo:
            return len(reached)
        return len(rows) + int(np.searchsorted(reached[len(rows) :], self._num_inner))

    def _block(self, rows: IdArray, fanout: int) -> tuple[Block, IdArray]:
        """Return the sampled in-edges of some rows, and the rows that these read: themselves, then others."""
        edge, counts = self._sample_edges(rows, fanout)
        if self._is_hidden is not None:
            is_seen = ~self._is_hidden[edge]
            counts = np.bincount(np.repeat(np.arange(len(rows)), counts)[is_seen], minlength=len(rows))
            edge = edge[is_seen]
        source = self._source[edge]
        reached = self._with_sources(rows, source)
        weight = self._in_degree[rows] / np.maximum(counts, 1)
        block = Block(
            num_inner=len(rows),
            source=self._tensor(self._position[source]),
            offset=self._tensor(np.cumsum(counts) - counts),
            weight=self._tensor(np.repeat(weight, counts)).to(self._dtype),
            in_degree=self._degree("in", rows),
            out_degree=self._degree("out", reached),
            etype=None if self._etype is None else self._tensor(self._etype[edge]),
        )
        return block, reached

    def _degree(self, direction: str, rows: IdArray) -> torch.Tensor:
        degree = self._in_degree if direction == "in" else self._out_degree
        return self._tensor(degree[rows][:, None]).to(self._dtype)

    def _tensor(self, values: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)

    def _with_sources(self, rows: IdArray, source: IdArray) -> IdArray:
        """Return `rows` and behind them the other sources, each once; note where each is."""
        self._position[source] = -1
        self._position[rows] = np.arange(len(rows))
        others = np.unique(source[self._position[source] < 0])
        self._position[others] = np.arange(len(rows), len(rows) + len(others))
        return np.concatenate([rows, others])

    def _sample_edges(self, rows: IdArray, fanout: int) -> tuple[IdArray, IdArray]:
        """Return positions in the edge list, grouped by row, and how many each row got."""
        start = self._start[rows]
        degree = self._start[rows + 1] - start
        counts = np.minimum(degree, fanout) if fanout else degree
        nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        large = np.flatnonzero(degree > counts)
        if len(large):
            nth[np.repeat(degree > counts, counts)] = self._choose(degree[large], fanout).reshape(-1)
        return np.repeat(start, counts) + nth, counts

    def _choose(self, degree: IdArray, fanout: int) -> npt.NDArray[Any]:
        """Return int64 (n, fanout): distinct numbers below each degree, all such sets equally likely.

        Source: Bentley, Floyd, A sample of brilliance, 1987, algorithm F2, here for many rows at once.
        """
        chosen = np.full((len(degree), fanout), -1, dtype=np.int64)
        for column in range(fanout):
            last = degree - fanout + column
            drawn = (self._rng.random(len(degree)) * (last + 1)).astype(np.int64)
            taken = (chosen[:, :column] == drawn[:, None]).any(1)
            chosen[:, column] = np.where(taken, last, drawn)
        return chosen
