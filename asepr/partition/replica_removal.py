"""Fewer copies at the same balance: a finished vertex-cut, refined in memory."""

from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import DegreeArray, EdgePartArray, PartitionProblem
from asepr.partition.owned_edges import OwnedEdges, owned_edges
from asepr.partition.ranking import id_dtype, rank_nodes
from asepr.partition.replica_removal_kernels import (
    Bounds,
    CopyCounts,
    Groups,
    Work,
    count_copies_of_edges,
    replace_groups,
)

NUM_PASSES = 8

MIN_SAVED = 0.002
"""A pass that saves a smaller share of the copies than this is the last."""

EDGE_WALL = 0.6
COPY_WALL = 0.5
"""Where prices begin to rise steeply, as a fraction of the imbalance that is allowed."""


def remove_replicas(
    problem: PartitionProblem,
    edge_part: EdgePartArray,
    replica_imbalance: float = 1.10,
    owned: OwnedEdges | None = None,
) -> EdgePartArray:
    """Take the edges of one owner after the other out of their parts, and place them where copies are fewest.

    An edge's owner is its end of lower degree. With all edges of an owner taken out, the copies that
    each neighbour still has are known exactly. The parts that hold the owner by edges of others are
    open; further parts are opened greedily while that saves copies, and edges go to the opened part
    that holds their other end. A neighbour's copy is worth the less the fewer edges it rests on, so that
    edges gather where it has many and the rest of its copies can leave. The group goes back where it was
    if it would make more copies than it made before; so no pass adds any.

    Parameters
    ----------
    problem : PartitionProblem
    edge_part : int16 (E,), in [0, K), within `problem.caps(E)`
    replica_imbalance : float
        Most copies of a part relative to its share; kept to if `edge_part` keeps to it, and else not
        exceeded further.
    owned : OwnedEdges, optional
        Of the problem, where they are on disk already.

    Returns
    -------
    int16 (E,), in [0, K)
        Within the same caps, and with no more copies than `edge_part` has: of the states after each pass the one whose
        balance of copies is least above the bound, then the one with the fewest copies.

    Notes
    -----
    O(E K) time a pass, at most 20 bytes an edge and 24 a node in memory, and 8 an edge on disk. Source:
    ours; parts are opened by the greedy of Hochbaum, Heuristics for the fixed cost median problem, 1982.
    """
    if problem.num_parts == 1 or problem.source.num_edges == 0:
        return edge_part
    order, ranked_degree = rank_nodes(problem)
    with owned_edges(problem, order, ranked_degree, owned) as edges:
        groups, eids = _gather_groups(problem, edges, edge_part)
    counts = _count_copies(ranked_degree, groups, problem.num_parts)
    bounds = _bounds(problem, replica_imbalance)
    work = make_work(groups, problem.num_parts)
    best = groups.part.copy()
    least = max(replica_imbalance, _copy_balance(counts, bounds)), int(counts.copies.sum())
    for _ in range(NUM_PASSES):
        num_before = int(counts.copies.sum())
        replace_groups(groups, counts, bounds, work)
        reached = max(replica_imbalance, _copy_balance(counts, bounds)), int(counts.copies.sum())
        if reached < least:
            best[:], least = groups.part, reached
        if num_before - counts.copies.sum() < MIN_SAVED * num_before:
            break
    refined: EdgePartArray = problem.scratch.array("edge-part", (problem.source.num_edges,), np.int16)
    refined[eids] = best
    return refined


def _gather_groups(
    problem: PartitionProblem, owned: OwnedEdges, edge_part: EdgePartArray
) -> tuple[Groups, npt.NDArray[Any]]:
    """Return the edges grouped by owner, and int64 (E,): the input row of each."""
    num_nodes, num_edges = problem.source.num_nodes, problem.source.num_edges
    eids = problem.scratch.array("eids", (num_edges,), np.int64)
    other = np.empty(num_edges, dtype=id_dtype(num_nodes))
    part = np.empty(num_edges, dtype=np.int16)
    start = np.zeros(num_nodes + 1, dtype=np.int64)
    filled = 0
    for rows in owned:
        span = slice(filled, filled + len(rows.eid))
        eids[span], other[span], part[span] = rows.eid, rows.other, edge_part[rows.eid]
        if len(rows.eid):
            first = int(rows.owner[0])
            sizes = np.bincount(rows.owner - first)
            start[first + 1 : first + 1 + len(sizes)] = sizes
        filled += len(rows.eid)
    return Groups(start=np.cumsum(start), other=other, part=part), eids


def _count_copies(ranked_degree: DegreeArray, groups: Groups, num_parts: int) -> CopyCounts:
    counts = make_counts(ranked_degree, np.ones(len(ranked_degree), dtype=np.float32), num_parts)
    count_copies_of_edges(groups, counts)
    return counts


def make_counts(num_ends: npt.NDArray[Any], value: npt.NDArray[np.float32], num_parts: int) -> CopyCounts:
    """Return counts that are all zero, with room for the parts that nodes with so many ends of edges may need."""
    first_slot = np.zeros(len(num_ends) + 1, dtype=np.int64)
    np.cumsum(np.minimum(num_ends, num_parts), out=first_slot[1:])
    return CopyCounts(
        first_slot=first_slot,
        slot_part=np.zeros(first_slot[-1], dtype=np.int16),
        slot_count=np.zeros(first_slot[-1], dtype=np.int32),
        num_copies=np.zeros(len(num_ends), dtype=np.int32),
        value=value,
        load=np.zeros(num_parts, dtype=np.int64),
        copies=np.zeros(num_parts, dtype=np.int64),
    )


def _bounds(problem: PartitionProblem, replica_imbalance: float) -> Bounds:
    walls = [1 + EDGE_WALL * problem.imbalance, 1 + COPY_WALL * (replica_imbalance - 1)]
    return Bounds(
        num_edges=float(problem.source.num_edges),
        cap=problem.caps(problem.source.num_edges),
        capacities=problem.capacities,
        walls=np.array(walls),
    )


def make_work(groups: Groups, num_parts: int) -> Work:
    """Return work space for the largest of the groups, as `replace_groups` wants it."""
    largest = int(np.diff(groups.start).max())
    return Work(
        edge_price=np.zeros(num_parts),
        copy_price=np.zeros(num_parts),
        worth=np.zeros(num_parts),
        gain=np.zeros(num_parts, dtype=np.float32),
        num_covered=np.zeros(num_parts, dtype=np.int32),
        opened=np.zeros(num_parts, dtype=np.int64),
        is_open=np.zeros(num_parts, dtype=np.bool_),
        old_part=np.empty(largest, dtype=np.int16),
        waiting=np.empty(largest, dtype=np.int64),
    )


def _copy_balance(counts: CopyCounts, bounds: Bounds) -> float:
    return float((counts.copies / bounds.capacities).max() / counts.copies.sum())
