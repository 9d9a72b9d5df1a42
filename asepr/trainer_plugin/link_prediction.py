"""Which nodes are joined: edges are the training examples, held-out edges are ranked among all nodes."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from asepr.contracts import FloatArray, IdArray
from asepr.errors import TrainingError
from asepr.trainer_plugin.fetch import fetch_rows
from asepr.trainer_plugin.link_ranking import LinkRanking
from asepr.trainer_plugin.task import Picked, Setting

if TYPE_CHECKING:
    from asepr.trainer_plugin.shard_graph import ShardGraph


class DotProduct(nn.Module):
    """The score of two nodes is the product of their rows."""

    def forward(self, rows: torch.Tensor, etype: torch.Tensor) -> torch.Tensor:
        """Return (n, width): what the other end's rows are multiplied with."""
        del etype
        return rows


class DistMult(nn.Module):
    """The score of two nodes is the product of their rows and of a row of the edge type.

    Parameters
    ----------
    num_types, width : int

    Notes
    -----
    Source: Yang et al., Embedding entities and relations for learning and inference in knowledge bases, 2015.
    """

    def __init__(self, num_types: int, width: int) -> None:
        super().__init__()
        self.relation = nn.Parameter(1 + 0.1 * torch.randn(num_types, width))

    def forward(self, rows: torch.Tensor, etype: torch.Tensor) -> torch.Tensor:
        """Return (n, width): what the other end's rows are multiplied with."""
        return rows * self.relation[etype]


class LinkTask:
    """Learns to tell edges from pairs in which another node takes the place of either end.

    The loss of an edge is the cross-entropy of its score among those of such pairs, mean over both ends. The measures
    are the mean reciprocal rank and the hits among the first 1, 3 and 10 of the held-out edges: see `LinkRanking`.

    Parameters
    ----------
    setting : Setting

    Raises
    ------
    TrainingError
        No edges are held out, edges have no types though the decoder needs them, or there is nothing to train on.

    Notes
    -----
    The nodes that take places are the same for all edges of a step, so that their rows are few. Drawn from
    everywhere, they depend on seed and epoch alone: full-graph training is then the same however the graph is
    partitioned.
    Source of the loss: Ruffinelli, Broscheit, Gemulla, You can teach an old dog new tricks, 2020, section 2.
    """

    score = "mrr"

    def __init__(self, setting: Setting) -> None:
        shard = setting.shard
        if shard.manifest.num_edges == 0:
            raise TrainingError(
                f"{shard.path.parent}: must hold edges to learn from, got none; partition again with them"
            )
        self.width = setting.hidden
        self._setting = setting
        self._shard = shard
        self._link = setting.link
        self._num_types = setting.num_edge_types
        if self._decoder_name == "distmult" and not self._num_types:
            raise TrainingError(
                f"{shard.path.parent}: decoder distmult must come with edge types, got edges without; choose dot"
            )
        self._ranking = LinkRanking(shard, setting)
        self._src, self._dst = (self._tensor(np.asarray(end).astype(np.int64)) for end in (shard.src, shard.dst))
        etype = np.zeros(shard.num_edges, np.int64) if shard.etype is None else np.asarray(shard.etype).astype(np.int64)
        self._etype = self._tensor(etype)
        self._pair_of, self._num_pairs = _number_pairs(shard)
        self._nid = self._tensor(shard.nid)

    @property
    def _decoder_name(self) -> str:
        return self._link.decoder or ("distmult" if self._num_types else "dot")

    def make_decoder(self) -> nn.Module:
        """Return the decoder."""
        return DistMult(self._num_types, self.width) if self._decoder_name == "distmult" else DotProduct()

    def mean_loss(self, output: torch.Tensor, decoder: nn.Module | None, epoch: int) -> torch.Tensor:
        """Return the sum of the losses of edges here over the number of all edges."""
        assert decoder is not None
        local = self._setting.exchange.scatter(output)
        if self._link.negatives_from == "global":
            nid = self._draw_globally((self._setting.seed, epoch), self._link.negatives)
            pool = fetch_rows(
                output, self._shard.nid[: self._shard.num_inner], nid, self._shard.rank, self._shard.num_parts
            )
        else:
            rng = np.random.default_rng((self._setting.seed, epoch, self._shard.rank))
            rows = self._draw_locally(rng)
            nid, pool = self._nid[rows], output[rows]
        losses = self._losses(decoder, local[self._src], local[self._dst], torch.arange(len(self._src)), nid, pool)
        return losses.sum() / self._shard.manifest.num_edges

    def measure(self, output: torch.Tensor, decoder: nn.Module | None) -> dict[str, float]:
        """Return the measures of the held-out edges over all ranks."""
        assert decoder is not None
        return self._ranking.measure(output, decoder)

    def examples(self, weight: FloatArray) -> IdArray:
        """Return the edges of the shard; each is in one shard, so weights of copies play no part."""
        del weight
        return np.arange(self._shard.num_edges, dtype=np.int64)

    def weight_of(self, examples: IdArray) -> float:
        """Return how many edges there are."""
        return float(len(examples))

    def start_epoch(self, epoch: int) -> None:
        """Draw negatives anew."""
        self._rng = np.random.default_rng((self._setting.seed, epoch, self._shard.rank))

    def pick(self, examples: IdArray) -> Picked:
        """Return the ends of some edges and nodes of this part to take their places.

        The edges themselves, and any others between the same two nodes, are not looked at.
        """
        index = torch.from_numpy(examples)
        src, dst = self._src[index].cpu().numpy(), self._dst[index].cpu().numpy()
        near = self._draw_locally(self._rng).cpu().numpy()
        is_picked = np.zeros(self._num_pairs, dtype=np.bool_)
        is_picked[self._pair_of[examples]] = True
        return Picked(
            rows=np.unique(np.concatenate([src, dst, near])),
            weight=torch.ones(len(examples), device=self._setting.device),
            examples=examples,
            negatives=near,
            hidden_edges=is_picked[self._pair_of],
        )

    def losses(self, output: torch.Tensor, decoder: nn.Module | None, picked: Picked) -> torch.Tensor:
        """Return the loss of each edge."""
        assert decoder is not None
        assert picked.negatives is not None
        edges = torch.from_numpy(picked.examples)
        rows = self._tensor(picked.rows)
        src, dst = (output[torch.searchsorted(rows, ends[edges])] for ends in (self._src, self._dst))
        near = self._tensor(picked.negatives)
        return self._losses(decoder, src, dst, edges, self._nid[near], output[torch.searchsorted(rows, near)])

    def _losses(
        self,
        decoder: nn.Module,
        src: torch.Tensor,
        dst: torch.Tensor,
        edges: torch.Tensor,
        pool_nid: torch.Tensor,
        pool: torch.Tensor,
    ) -> torch.Tensor:
        """Return (n,): the loss of each edge, given the rows of its ends and of those that take their places."""
        etype = self._etype[edges]
        total = src.new_zeros(len(src))
        for known, missing, ends in ((src, dst, self._dst), (dst, src, self._src)):
            query = decoder(known, etype)
            true = (query * missing).sum(1)
            others = query @ pool.T
            others = others.masked_fill(self._nid[ends[edges]][:, None] == pool_nid, -torch.inf)
            total = total + torch.logsumexp(torch.cat([true[:, None], others], dim=1), dim=1) - true
        return total / 2

    def _draw_locally(self, rng: np.random.Generator) -> torch.Tensor:
        """Return rows of nodes owned here."""
        return self._tensor(rng.integers(0, self._shard.num_inner, self._link.negatives))

    def _draw_globally(self, key: tuple[int, ...], count: int) -> torch.Tensor:
        """Return distinct nids, ascending, the same on all ranks."""
        num_nodes = self._shard.manifest.num_nodes
        return self._tensor(np.unique(np.random.default_rng(key).integers(0, num_nodes, count)))

    def _tensor(self, values: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._setting.device)


def _number_pairs(shard: "ShardGraph") -> tuple[IdArray, int]:
    """Return int64 (num_edges,), the same number for all edges between the same two nodes, and how many there are."""
    src, dst = np.asarray(shard.src).astype(np.int64), np.asarray(shard.dst).astype(np.int64)
    pairs, pair_of = np.unique(np.minimum(src, dst) * shard.num_local + np.maximum(src, dst), return_inverse=True)
    return pair_of.astype(np.int64), len(pairs)
