"""A vertex-cut from a partition of the nodes."""

import numpy as np

from asepr.contracts import EdgePartArray, PartArray, PartitionProblem
from asepr.partition.edges_by_owner_kernels import place_where_wanted


def edges_to_lower_degree_owner(problem: PartitionProblem, owner: PartArray) -> EdgePartArray:
    """Place every edge with the owner of its end of lower degree.

    Parameters
    ----------
    problem : PartitionProblem
    owner : int32 (N,), in [0, K)

    Returns
    -------
    int16 (E,), in [0, K)
        The cap on edges holds: an edge whose part is full goes to the part of its other end, or, where
        that is full too, to the part with the least load relative to its cap.
    """
    source = problem.source
    part: EdgePartArray = problem.scratch.array("edge-part", (source.num_edges,), np.int16)
    load = np.zeros(problem.num_parts, dtype=np.int64)
    cap = problem.caps(source.num_edges)
    degree = problem.degrees.total
    for chunk in source:
        out = part[chunk.first_eid : chunk.first_eid + len(chunk)]
        near, far = owner[chunk.src], owner[chunk.dst]
        turned = degree[chunk.dst] < degree[chunk.src]
        place_where_wanted(np.where(turned, far, near), np.where(turned, near, far), load, cap, out)
    return part
