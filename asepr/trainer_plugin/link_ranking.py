"""Ranks of held-out edges among pairs in which another node takes the place of an end."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from asepr.contracts import IdArray
from asepr.errors import ShardError, TrainingError
from asepr.trainer_plugin.fetch import fetch_rows, gather_lists
from asepr.trainer_plugin.gradients import sum_over_ranks
from asepr.trainer_plugin.task import Setting

if TYPE_CHECKING:
    from asepr.trainer_plugin.shard_graph import ShardGraph


HITS = (1, 3, 10)
HELD_OUT = {"val": "valid", "test": "test"}
"""Name of each split of held-out edges in measures, and in shards."""
BLOCK_SCORES = 1 << 24
"""Scores computed at a time."""


def link_measures(greater: npt.NDArray[np.int64], equal: npt.NDArray[np.int64]) -> dict[str, float]:
    """Return mean reciprocal rank and hits, as OGB's evaluator for link prediction counts them.

    The rank of an edge is one more than the number of greater scores among its negatives, and half that of equal ones.

    Parameters
    ----------
    greater, equal : int64 (n,)
        How many negatives of each edge have a greater, or the same, score.

    Notes
    -----
    Source: Hu et al., Open graph benchmark, 2020; the mean of the optimistic and the pessimistic rank.
    """
    rank = 1 + greater + equal / 2
    return {"mrr": float((1 / rank).mean())} | {f"hits@{k}": float((rank <= k).mean()) for k in HITS}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Queries:
    """Each held-out edge twice: once without its destination, once without its source. The same on all ranks.

    Attributes
    ----------
    known, missing, etype : int64 (q,)
        Nid of the end that stays, and of the one to be found; type of the edge.
    is_head : bool (q,)
        Whether the source is to be found.
    split : int64 (q,), place in `HELD_OUT`
    """

    known: IdArray
    missing: IdArray
    etype: IdArray
    is_head: npt.NDArray[np.bool_]
    split: IdArray


class LinkRanking:
    """Ranks held-out edges among all nodes, or some drawn from all, wherever they are owned.

    Nodes that an edge, held out or not, joins to the end that stays with the same type are no negatives; nor are nodes
    of another type than the node to be found.

    Parameters
    ----------
    shard : ShardGraph
    setting : Setting

    Raises
    ------
    TrainingError
        No edges are held out, or one is of a type that no other edge has.

    Notes
    -----
    Rows of the ends of held-out edges travel to all ranks; each compares them with the nodes it owns, and counts are
    summed. Scores are computed in float64 and rounded to float32, so that equal rows get equal scores however a
    product is split up.
    """

    def __init__(self, shard: "ShardGraph", setting: Setting) -> None:
        self._shard = shard
        self._device = setting.device
        self._queries = _make_queries(_held_out(shard), setting.num_edge_types, shard)
        self._candidates = _candidates(shard, setting.link.eval_negatives, setting.seed)
        self._excluded = _excluded(shard, self._queries, max(setting.num_edge_types, 1), self._candidates)
        self._nid = np.unique(np.concatenate([self._queries.known, self._queries.missing]))
        self._types = _types_of(shard, self._nid)

    @torch.no_grad()
    def measure(self, output: torch.Tensor, decoder: nn.Module) -> dict[str, float]:
        """Return `val_mrr`, `val_hits@10` and others over all ranks; all ranks together.

        Parameters
        ----------
        output : (num_inner, width)
        decoder : nn.Module

        Raises
        ------
        TrainingError
            A row is not finite; a peer is gone or stalls.
        """
        shard, queries = self._shard, self._queries
        nid = torch.from_numpy(self._nid).to(output.device)
        rows = fetch_rows(output, shard.nid[: shard.num_inner], nid, shard.rank, shard.num_parts)
        known, missing = (
            rows[torch.from_numpy(np.searchsorted(self._nid, ends)).to(rows.device)]
            for ends in (queries.known, queries.missing)
        )
        query = decoder(known, torch.from_numpy(queries.etype).to(rows.device)).double()
        true = (query * missing.double()).sum(1).float()
        if not bool(torch.isfinite(true).all()):
            raise TrainingError("the model's scores must be finite, got NaN or infinity; lower --lr")
        counts = self._count(query, true, output[torch.from_numpy(self._candidates).to(output.device)].double())
        sum_over_ranks(counts, shard.rank, shard.num_parts)
        greater, equal = counts.cpu().numpy()
        measures: dict[str, float] = {}
        for code, split in enumerate(HELD_OUT):
            chosen = queries.split == code
            measures |= {f"{split}_{name}": v for name, v in link_measures(greater[chosen], equal[chosen]).items()}
        return measures

    def _count(self, query: torch.Tensor, true: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
        """Return int64 (2, q): how many candidates here have a greater score than the true one, and the same."""
        counts = torch.zeros((2, len(query)), dtype=torch.int64, device=query.device)
        step = max(1, BLOCK_SCORES // max(len(candidates), 1))
        for start in range(0, len(query), step):
            block = slice(start, start + step)
            scores = (query[block] @ candidates.T).float()
            scores.masked_fill_(self._is_excluded(block, scores.shape).to(scores.device), -torch.inf)
            counts[0, block] = (scores > true[block, None]).sum(1)
            counts[1, block] = (scores == true[block, None]).sum(1)
        return counts

    def _is_excluded(self, block: slice, shape: torch.Size) -> torch.Tensor:
        """Return bool (queries of the block, candidates): whether a candidate is no negative of a query."""
        excluded = np.zeros(shape, dtype=np.bool_)
        if self._types is not None:
            assert self._shard.ntype is not None
            missing = self._types[np.searchsorted(self._nid, self._queries.missing[block])]
            excluded = missing[:, None] != self._shard.ntype[self._candidates][None, :]
        low, high = np.searchsorted(self._excluded[:, 0], [block.start, block.start + shape[0]])
        excluded[self._excluded[low:high, 0] - block.start, self._excluded[low:high, 1]] = True
        return torch.from_numpy(excluded)


def _held_out(shard: "ShardGraph") -> IdArray:
    """Return int64 (n, 5) of all ranks, ascending in eid: split, eid, src, dst, etype."""
    found = []
    for code, split in enumerate(HELD_OUT.values()):
        try:
            table = shard.held_out_edges(split)
        except ShardError as error:
            raise TrainingError(
                f"{shard.path.parent}: must hold out edges to be predicted, got none; partition again with --edge-split"
            ) from error
        columns = [table[name].to_numpy().astype(np.int64) for name in ("eid", "src", "dst")]
        etype = table["etype"].to_numpy() if "etype" in table.column_names else np.zeros(len(table))
        found.append(np.stack([np.full(len(table), code), *columns, etype.astype(np.int64)], axis=1))
    edges: IdArray = gather_lists(np.concatenate(found), shard.rank, shard.num_parts)
    for code, split in enumerate(HELD_OUT.values()):
        if not (edges[:, 0] == code).any():
            raise TrainingError(
                f"{shard.path.parent}: must hold out {split} edges to be predicted, got none; partition again with "
                "another --edge-split"
            )
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


def _make_queries(edges: IdArray, num_types: int, shard: "ShardGraph") -> _Queries:
    if edges[:, 4].max() >= max(num_types, 1):
        raise TrainingError(
            f"{shard.path.parent}: held-out edges must be of a type that other edges have, got {edges[:, 4].max()} and "
            f"types below {num_types}; hold out others"
        )
    split, _, src, dst, etype = edges.T
    return _Queries(
        known=np.concatenate([src, dst]),
        missing=np.concatenate([dst, src]),
        etype=np.concatenate([etype, etype]),
        is_head=np.repeat([False, True], len(edges)),
        split=np.concatenate([split, split]),
    )


def _candidates(shard: "ShardGraph", count: int, seed: int) -> IdArray:
    """Return the inner rows that take places: all, or those among so many drawn from all nodes."""
    rows = np.arange(shard.num_inner, dtype=np.int64)
    num_nodes = shard.manifest.num_nodes
    if count == 0 or count >= num_nodes:
        return rows
    drawn = np.random.default_rng(seed).choice(num_nodes, count, replace=False)
    return rows[np.isin(shard.nid[: shard.num_inner], drawn)]


def _excluded(shard: "ShardGraph", queries: _Queries, num_types: int, candidates: IdArray) -> IdArray:
    """Return int64 (n, 2), ascending: number of a query, and place of a candidate here that answers it truly."""
    held = ~queries.is_head
    local_etype = np.zeros(shard.num_edges, np.int64) if shard.etype is None else shard.etype
    src = np.concatenate([shard.nid[shard.src], queries.known[held]])
    dst = np.concatenate([shard.nid[shard.dst], queries.missing[held]])
    etype = np.concatenate([local_etype, queries.etype[held]]).astype(np.int64)
    pairs = []
    for is_head, known, answer in ((False, src, dst), (True, dst, src)):
        chosen = np.flatnonzero(queries.is_head == is_head)
        wanted = queries.known[chosen] * num_types + queries.etype[chosen]
        pairs.append(_join(chosen, wanted, known * num_types + etype, answer))
    mine = np.unique(np.concatenate(pairs), axis=0)
    everyone = np.unique(gather_lists(mine, shard.rank, shard.num_parts), axis=0)
    nid = shard.nid[candidates]
    place = np.searchsorted(nid, everyone[:, 1])
    is_here = np.zeros(len(everyone), dtype=np.bool_)
    is_here[place < len(nid)] = nid[place[place < len(nid)]] == everyone[place < len(nid), 1]
    return np.stack([everyone[is_here, 0], place[is_here]], axis=1)


def _join(number: IdArray, wanted: IdArray, keys: IdArray, answers: IdArray) -> IdArray:
    """Return int64 (n, 2): each query's number with the answer of each edge whose key it wants."""
    order = np.argsort(keys, kind="stable")
    low, high = (np.searchsorted(keys[order], wanted, side=side) for side in ("left", "right"))
    counts = high - low
    nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.stack([np.repeat(number, counts), answers[order][np.repeat(low, counts) + nth]], axis=1)


def _types_of(shard: "ShardGraph", nid: IdArray) -> IdArray | None:
    """Return the types of some nodes, told by their owners; None where nodes have one type."""
    if shard.ntype is None:
        return None
    own = torch.from_numpy(shard.ntype[: shard.num_inner].astype(np.int64))[:, None]
    found = fetch_rows(own, shard.nid[: shard.num_inner], torch.from_numpy(nid), shard.rank, shard.num_parts)
    types: IdArray = found[:, 0].numpy()
    return types
