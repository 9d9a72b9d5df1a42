"""What node attributes say about where edges should go, and how much that is worth."""

import heapq

import numpy as np

from asepr.contracts import EdgeSource, PartArray, PartitionProblem
from asepr.partition.attribute_prior_kernels import count_agreeing_edges
from asepr.partition.owner_split import Prior

MAX_WEIGHT = 0.25
WEIGHT_PER_LIFT = 1.5
MIN_LIFT = 0.02
"""Below this lift attributes say nothing about edges, and following them would only cost replicas."""


def attribute_prior(problem: PartitionProblem) -> Prior | None:
    """Pack attribute clusters into parts, and weigh them by how often edges agree with that.

    Returns
    -------
    Prior, or None where nodes have no attributes, edges do not follow them, or the weight asked for is 0

    Notes
    -----
    The weight is `problem.attr_weight`, or else `min(MAX_WEIGHT, WEIGHT_PER_LIFT * lift)`, with lift as in
    `agreement_lift`: one pass over the edges.
    """
    if problem.attribute_cluster is None or problem.num_parts == 1 or problem.attr_weight == 0:
        return None
    home = pack_clusters(problem.attribute_cluster, problem)
    if problem.attr_weight is not None:
        return Prior(home=home, weight=problem.attr_weight)
    lift = agreement_lift(problem.source, home, problem.num_parts)
    if lift < MIN_LIFT:
        return None
    return Prior(home=home, weight=min(MAX_WEIGHT, WEIGHT_PER_LIFT * lift))


def pack_clusters(cluster: PartArray, problem: PartitionProblem) -> PartArray:
    """Give every cluster a part: the largest first, each to the part that is emptiest for its share.

    Parameters
    ----------
    cluster : int32 (N,), in [0, C)
    problem : PartitionProblem

    Returns
    -------
    int32 (N,), in [0, K)
    """
    volume = np.bincount(cluster, weights=problem.degrees.total)
    shares = problem.capacities.tolist()
    load = [0.0] * problem.num_parts
    emptiest = [(0.0, part) for part in range(problem.num_parts)]
    order = np.argsort(-volume, kind="stable")
    part_of_cluster = np.empty(len(volume), dtype=np.int32)
    for c, size in zip(order.tolist(), volume[order].tolist(), strict=True):
        part = emptiest[0][1]
        part_of_cluster[c] = part
        load[part] += size
        heapq.heapreplace(emptiest, (load[part] / shares[part], part))
    return part_of_cluster[cluster]


def agreement_lift(source: EdgeSource, home: PartArray, num_parts: int) -> float:
    """Return how much more often the ends of an edge share a home than two random edge ends do.

    Parameters
    ----------
    source : EdgeSource
    home : int32 (N,), in [0, K)
    num_parts : int

    Returns
    -------
    float in [-1, 1)
        Fraction of edges whose ends share a home, less the chance of that: the sum over parts of the
        share of sources times the share of destinations there. Self-loops do not count.
    """
    counts = np.zeros((2, num_parts), dtype=np.int64)
    agreeing: int = sum(count_agreeing_edges(chunk.src, chunk.dst, home, counts) for chunk in source)
    num_edges = int(counts[0].sum())
    if num_edges == 0:
        return 0.0
    chance = float((counts[0] / num_edges * (counts[1] / num_edges)).sum())
    return agreeing / num_edges - chance
