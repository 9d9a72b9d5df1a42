"""Baselines that place by hash: random edges or nodes, and degree-based hashing."""

import numpy as np
import numpy.typing as npt

from asepr.contracts import EdgePartArray, PartArray, PartitionProblem
from asepr.partition.hashing_kernels import hash_keys, hash_lower_degree_ends
from asepr.partition.owners_kernels import fill_empty_parts


def hash_edges(problem: PartitionProblem) -> EdgePartArray:
    """Place every edge by the hash of its input row.

    Returns
    -------
    int16 (E,), in [0, K); the cap on edges holds
    """
    part: EdgePartArray = problem.scratch.array("edge-part", (problem.source.num_edges,), np.int16)
    load = np.zeros(problem.num_parts, dtype=np.int64)
    hash_keys(0, problem.seed, _upper(problem), load, problem.caps(problem.source.num_edges), part)
    return part


def hash_nodes(problem: PartitionProblem) -> PartArray:
    """Place every node by the hash of its id.

    Returns
    -------
    int32 (N,), in [0, K); the cap on nodes holds and no part is empty
    """
    part = np.empty(problem.source.num_nodes, dtype=np.int32)
    load = np.zeros(problem.num_parts, dtype=np.int64)
    hash_keys(0, problem.seed, _upper(problem), load, problem.caps(problem.source.num_nodes), part)
    fill_empty_parts(part, np.ones_like(part), problem.num_parts)
    return part


def dbh(problem: PartitionProblem) -> EdgePartArray:
    """Place every edge by the hash of its end of lower degree, so that hubs are what gets cut.

    Returns
    -------
    int16 (E,), in [0, K); the cap on edges holds

    Notes
    -----
    O(E log K) time. Source: Xie, Yan, Li, Zhang, Distributed power-law graph computing: theoretical
    and empirical analysis, 2014. We add the cap: an edge whose part is full goes to the part with
    the least load relative to its cap.
    """
    part: EdgePartArray = problem.scratch.array("edge-part", (problem.source.num_edges,), np.int16)
    load = np.zeros(problem.num_parts, dtype=np.int64)
    cap = problem.caps(problem.source.num_edges)
    degree = problem.degrees.total
    for chunk in problem.source:
        out = part[chunk.first_eid : chunk.first_eid + len(chunk)]
        hash_lower_degree_ends(chunk.src, chunk.dst, degree, problem.seed, _upper(problem), load, cap, out)
    return part


def _upper(problem: PartitionProblem) -> npt.NDArray[np.float64]:
    return np.cumsum(problem.capacities)
