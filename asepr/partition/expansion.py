"""Vertex-cut in memory with as few copies as possible, however unevenly parts hold them: parts that grow."""

import numpy as np

from asepr.contracts import EdgePartArray, IdArray, PartitionProblem
from asepr.partition.expansion_kernels import NOBODY, Growth, Rows, count_loops, fill_edge_rows, grow_parts
from asepr.partition.ranking import rank_nodes, ranks

LEAST_SHARE = 0.5
"""What the parts that grow last are left with at least, relative to their share of the edges."""


def expand_parts(problem: PartitionProblem) -> EdgePartArray:
    """Let one part after the other grow along unplaced edges, closing the node with fewest of them first.

    A part starts at a random node. Of the nodes it has reached, it closes the one with fewest unplaced
    edges, each of which costs at most one copy: it reaches all that node's neighbours, and takes every
    unplaced edge among the nodes it has reached. A closed node has no edge left, so no other part
    will need a copy of it. A part that can reach nothing more starts anew at another random node; it stops
    at its cap on edges.

    Parameters
    ----------
    problem : PartitionProblem

    Returns
    -------
    int16 (E,), in [0, K); `problem.caps(E)` holds

    Notes
    -----
    O(E RF) time; two passes over the edges; 18 bytes an edge and about 40 a node in memory. Parts that
    grow early are dense and the last ones are what is left, so copies are few and far from balanced:
    filling the early ones to the cap saves copies. Depends on the seed and on the order of the edges.
    Source: Zhang, Wei, Liu, Tang, Li, Graph edge partitioning via neighborhood heuristic, 2017. Ours: a
    queue of lists, rows that forget placed edges, and no list of a part's boundary kept between parts.
    """
    num_nodes, num_edges = problem.source.num_nodes, problem.source.num_edges
    part: EdgePartArray = problem.scratch.array("edge-part", (num_edges,), np.int16)
    order = rank_nodes(problem)[0]
    rows, left = _gather_rows(problem, order)
    node = rows.other.dtype
    growth = Growth(
        left=left,
        reached_by=np.full(num_nodes, NOBODY, dtype=np.int16),
        first=np.full(int(left.max(initial=0)) + 1, NOBODY, dtype=node),
        before=np.arange(num_nodes, dtype=node),
        after=np.full(num_nodes, NOBODY, dtype=node),
        lowest=np.ones(1, dtype=np.int64),
        load=np.zeros(problem.num_parts, dtype=np.int64),
        part=np.full(num_edges, NOBODY, dtype=np.int16),
    )
    seeds = np.random.default_rng(problem.seed).permutation(num_nodes)
    grow_parts(rows, growth, _targets(problem), seeds)
    part[:] = growth.part
    return part


def _targets(problem: PartitionProblem) -> IdArray:
    """Return int64 (K,): the cap of every part in turn, as long as the later ones are left with enough."""
    num_edges = problem.source.num_edges
    cap = problem.caps(num_edges)
    least = np.minimum(np.floor(LEAST_SHARE * problem.capacities * num_edges).astype(np.int64), cap)
    target = np.empty_like(cap)
    num_left, num_kept = num_edges, int(least.sum())
    for p in range(len(cap)):
        num_kept -= int(least[p])
        target[p] = min(int(cap[p]), num_left - num_kept)
        num_left -= int(target[p])
    return target


def _gather_rows(problem: PartitionProblem, order: IdArray) -> tuple[Rows, IdArray]:
    """Return the edges of each node, nodes numbered by rank, and int64 (N,): how many each has."""
    num_nodes, num_edges = len(order), problem.source.num_edges
    # Nodes of high degree side by side: most of what is read at random then stays in the cache.
    rank_of = ranks(order)
    loops = np.zeros(num_nodes, dtype=np.int64)
    for chunk in problem.source:
        count_loops(chunk.src, chunk.dst, loops)
    length = problem.degrees.total[order] - loops[order]
    start = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(length, out=start[1:])
    other = np.empty(start[-1], dtype=rank_of.dtype)
    edge = np.empty(start[-1], dtype=np.int32 if num_edges < 2**31 else np.int64)
    cursor = start[:-1].copy()
    for chunk in problem.source:
        fill_edge_rows(rank_of[chunk.src], rank_of[chunk.dst], chunk.first_eid, cursor, other, edge)
    return Rows(start=start, length=length.copy(), other=other, edge=edge), length
