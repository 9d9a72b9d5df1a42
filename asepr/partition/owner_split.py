"""Streaming vertex-cut: every edge is placed by its end of lower degree, hubs first, out of core."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import Buckets, EdgeChunk, EdgePartArray, IdArray, PartArray, PartitionProblem
from asepr.partition.owner_split_kernels import place_in_turn, place_owners

BUCKET_DEGREE = 1 << 19
"""Degree sum of the nodes whose edges share a bucket: about 260,000 edges, 4 MB."""

NO_HOME = -1

CORE_SLACK = 0.9
"""How much of the allowed imbalance of copies a dense core may use up."""

MAX_CORE_IMBALANCE = 0.25

CORE_DENSITY = 0.25
"""A core must have at most this share of the nodes, relative to its share of the edges, to be placed apart."""


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
    owned = OwnedEdges(problem, order, ranked_degree)
    core_end = _find_core(problem, owned, int(np.count_nonzero(ranked_degree)))
    for rows in owned:
        core, rest = np.split(rows, [np.searchsorted(rows["owner"], core_end)])
        if len(core):
            edge_part[core["eid"]] = state.place_core(core)
        if len(rest):
            edge_part[rest["eid"]] = state.place(rest)
    owned.close()
    return edge_part


def _find_core(problem: PartitionProblem, owned: "OwnedEdges", num_nodes: int) -> int:
    """Return how many of the first ranks form a core to be placed apart; 0 where none is dense enough."""
    share = CORE_SLACK * (1 - 1 / (1 + min(problem.replica_imbalance, MAX_CORE_IMBALANCE)))
    num_edges = int(share * problem.source.num_edges)
    if num_edges == 0:
        return 0
    core_end = owned.owner_of_row(num_edges)
    return core_end if core_end <= CORE_DENSITY * share * num_nodes else 0


def rank_nodes(problem: PartitionProblem) -> tuple[IdArray, IdArray]:
    """Return the nodes by falling degree, ties by id, and their degrees: two int64 (N,)."""
    degree = problem.degrees.total
    order = np.argsort(-degree, kind="stable")
    return order, degree[order]


class OwnedEdges:
    """All edges on temporary disk, read a bucket of owners at a time, sorted by owner, other end and eid.

    Parameters
    ----------
    problem : PartitionProblem
    order, ranked_degree : int64 (N,)
        As from `rank_nodes`.

    Notes
    -----
    Iterating yields structured (E_bucket,) with `owner` and `other`, ranks, and `eid`.
    """

    def __init__(self, problem: PartitionProblem, order: IdArray, ranked_degree: IdArray) -> None:
        self._num_nodes = len(order)
        rank_of = np.empty(len(order), dtype=np.int32 if len(order) < 2**31 else np.int64)
        rank_of[order] = np.arange(len(order))
        self._buckets = _bucket_by_owner(problem, rank_of, _bucket_bounds(ranked_degree))

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the buckets in rank order."""
        for bucket in range(self._buckets.num_buckets):
            yield _sorted_by_owner(self._buckets.read(bucket), self._num_nodes)

    def owner_of_row(self, row: int) -> int:
        """Return the rank of the owner of one edge, counted in the order of iteration."""
        bucket = 0
        while row >= self._buckets.num_rows(bucket):
            row -= self._buckets.num_rows(bucket)
            bucket += 1
        return int(np.partition(self._buckets.read(bucket)["owner"], row)[row])

    def close(self) -> None:
        """Give the disk space back."""
        self._buckets.close()


class _State:
    """What is known after some owners had their turn; changed by `place`."""

    def __init__(self, problem: PartitionProblem, ranked_degree: IdArray, home: PartArray, weight: float) -> None:
        num_nodes, num_parts = len(ranked_degree), problem.num_parts
        self._capacities = problem.capacities
        self._cap = problem.caps(problem.source.num_edges)
        self._totals = np.array([problem.source.num_edges, np.count_nonzero(ranked_degree)], dtype=np.int64)
        self._unplaced = ranked_degree
        self._home, self._weight = home, weight
        self._has_core = False
        self._bits = np.zeros((num_nodes, (num_parts + 63) // 64), dtype=np.uint64)
        self._num_copies = np.zeros(num_nodes, dtype=np.int16)
        self._load = np.zeros(num_parts, dtype=np.int64)
        self._copies = np.zeros(num_parts, dtype=np.int64)

    def place_core(self, rows: npt.NDArray[Any]) -> EdgePartArray:
        """Fill the first parts, one after the other, with the edges of a bucket; return int16 (len(rows),)."""
        part = np.empty(len(rows), dtype=np.int16)
        place_in_turn(
            np.ascontiguousarray(rows["owner"]),
            np.ascontiguousarray(rows["other"]),
            self._cap,
            self._unplaced,
            self._bits,
            self._num_copies,
            self._load,
            self._copies,
            part,
        )
        self._has_core = True
        return part

    def _set_core_aside(self) -> None:
        """From now on balance what comes after the core, by the room that it left in each part."""
        left = np.maximum(self._capacities * self._totals[0] - self._load, 0.0)
        self._cap = np.where(left > 0, self._cap - self._load, 0)
        self._totals[0] -= self._load.sum()
        self._capacities = np.maximum(left / left.sum(), np.finfo(np.float64).tiny)
        self._load[:], self._copies[:] = 0, 0
        self._has_core = False

    def place(self, rows: npt.NDArray[Any]) -> EdgePartArray:
        """Place the edges of one bucket, sorted by owner; return int16 (len(rows),)."""
        if self._has_core:
            self._set_core_aside()
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
