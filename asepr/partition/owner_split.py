"""Streaming vertex-cut: every edge is placed by its end of lower degree, hubs first, out of core."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import Buckets, EdgeChunk, EdgePartArray, IdArray, PartArray, PartitionProblem
from asepr.partition.owner_split_kernels import place_owners

BUCKET_DEGREE = 1 << 19
"""Degree sum of the nodes whose edges share a bucket: about 260,000 edges, 4 MB."""

NO_HOME = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """Where nodes would rather be, for reasons that one ordered pass cannot see.

    Attributes
    ----------
    home : int32 (N,), in [0, K), or NO_HOME
    weight : float
        What being at home is worth, in replicas.
    """

    home: PartArray
    weight: float


def split_owners(problem: PartitionProblem, prior: Prior | None = None) -> EdgePartArray:
    """Place every edge by the greedy choice of its owner, its end of lower degree.

    Nodes are ranked by descending degree (ties by id) and take their turn in that order. When a
    node's turn comes no part holds it yet, while its neighbours of higher degree may be anywhere.
    The edges it owns, those to these neighbours, go to a few parts that it opens greedily as in
    facility location: opening a part costs one copy of the owner, and saves a copy of each neighbour
    that the part holds already and no part opened before does. Savings are discounted by how likely
    the copy is to come about anyway, `1 / (1 + unplaced edges / K)`. Edges and copies have prices of
    their own that rise steeply near the bounds, which keeps both balanced; the cap on edges is hard.

    Parameters
    ----------
    problem : PartitionProblem
    prior : Prior, optional
        Adds `weight` to the gain of a part that is the home of the owner, or of a neighbour that no
        part holds yet.

    Returns
    -------
    int16 (E,), in [0, K); `problem.caps(E)` holds

    Notes
    -----
    O(E K / 64 + N K) time; three passes over the edges and one over a temporary copy of 16 bytes an
    edge (24 from 2**31 nodes on). Memory: about 20 bytes a node, 8 ceil(K / 64) more for the copies,
    and one bucket. The result does not depend on the order of the input rows, but for which of
    several parallel edges goes where. Source: ours; facility location greedy after Hochbaum,
    Heuristics for the fixed cost median problem, 1982.
    """
    edge_part: EdgePartArray = problem.scratch.array("edge-part", (problem.source.num_edges,), np.int16)
    order, ranked_degree = rank_nodes(problem)
    home = np.full(len(order), NO_HOME, dtype=np.int32) if prior is None else prior.home[order]
    state = _State(problem, ranked_degree, home, 0.0 if prior is None else prior.weight)
    for rows in iterate_owned(problem, order, ranked_degree):
        edge_part[rows["eid"]] = state.place(rows)
    return edge_part


def rank_nodes(problem: PartitionProblem) -> tuple[IdArray, IdArray]:
    """Return the nodes by falling degree, ties by id, and their degrees: two int64 (N,)."""
    degree = problem.degrees.total
    order = np.argsort(-degree, kind="stable")
    return order, degree[order]


def iterate_owned(problem: PartitionProblem, order: IdArray, ranked_degree: IdArray) -> Iterator[npt.NDArray[Any]]:
    """Yield all edges, a bucket of owners at a time, sorted by owner, other end and eid.

    Parameters
    ----------
    problem : PartitionProblem
    order, ranked_degree : int64 (N,)
        As from `rank_nodes`.

    Yields
    ------
    structured (E_bucket,) with `owner` and `other`, ranks, and `eid`
    """
    rank_of = np.empty(len(order), dtype=np.int32 if len(order) < 2**31 else np.int64)
    rank_of[order] = np.arange(len(order))
    buckets = _bucket_by_owner(problem, rank_of, _bucket_bounds(ranked_degree))
    for bucket in range(buckets.num_buckets):
        yield _sorted_by_owner(buckets.read(bucket), len(rank_of))
    buckets.close()


class _State:
    """What is known after some owners had their turn; changed by `place`."""

    def __init__(self, problem: PartitionProblem, ranked_degree: IdArray, home: PartArray, weight: float) -> None:
        num_nodes, num_parts = len(ranked_degree), problem.num_parts
        self._capacities = problem.capacities
        self._cap = problem.caps(problem.source.num_edges)
        self._totals = np.array([problem.source.num_edges, np.count_nonzero(ranked_degree)], dtype=np.int64)
        self._unplaced = ranked_degree
        self._home, self._weight = home, weight
        self._bits = np.zeros((num_nodes, (num_parts + 63) // 64), dtype=np.uint64)
        self._num_copies = np.zeros(num_nodes, dtype=np.int16)
        self._load = np.zeros(num_parts, dtype=np.int64)
        self._copies = np.zeros(num_parts, dtype=np.int64)

    def place(self, rows: npt.NDArray[Any]) -> EdgePartArray:
        """Place the edges of one bucket, sorted by owner; return int16 (len(rows),)."""
        part = np.empty(len(rows), dtype=np.int16)
        place_owners(
            np.ascontiguousarray(rows["owner"]),
            np.ascontiguousarray(rows["other"]),
            self._home,
            self._weight,
            self._capacities,
            self._cap,
            self._totals,
            self._unplaced,
            self._bits,
            self._num_copies,
            self._load,
            self._copies,
            part,
        )
        return part


def _bucket_bounds(ranked_degree: IdArray) -> IdArray:
    """Return the first rank of every bucket but the first, each of about `BUCKET_DEGREE` degree sum."""
    bucket = (np.cumsum(ranked_degree) - ranked_degree) // BUCKET_DEGREE
    return np.flatnonzero(np.diff(bucket)) + 1


def _bucket_by_owner(problem: PartitionProblem, rank_of: npt.NDArray[Any], bounds: IdArray) -> Buckets:
    dtype = np.dtype([("owner", rank_of.dtype), ("other", rank_of.dtype), ("eid", np.int64)])
    buckets = problem.scratch.buckets("owners", len(bounds) + 1, dtype)
    for chunk in problem.source:
        rows = _owned_rows(chunk, rank_of, dtype)
        buckets.append(np.searchsorted(bounds, rows["owner"], side="right"), rows)
    return buckets


def _owned_rows(chunk: EdgeChunk, rank_of: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    src, dst = rank_of[chunk.src], rank_of[chunk.dst]
    rows = np.empty(len(chunk), dtype=dtype)
    rows["owner"], rows["other"] = np.maximum(src, dst), np.minimum(src, dst)
    rows["eid"] = np.arange(chunk.first_eid, chunk.first_eid + len(chunk))
    return rows


def _sorted_by_owner(rows: npt.NDArray[Any], num_nodes: int) -> npt.NDArray[Any]:
    """Sort by owner, then other end; rows come in ascending eid, and equal ones stay so."""
    if not len(rows):
        return rows
    key = (rows["owner"].astype(np.int64) - rows["owner"].min()) * num_nodes + rows["other"]
    return rows[np.argsort(key, kind="stable")]
