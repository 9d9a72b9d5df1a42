"""The baseline HDRF: one pass, every edge where its ends are already, hubs replicated first."""

import numpy as np

from asepr.contracts import EdgePartArray, PartitionProblem
from asepr.partition.hdrf_kernels import place_by_hdrf

BALANCE_WEIGHT = 1.1
"""The factor lambda of the balance term, as in the paper's experiments."""


def hdrf(problem: PartitionProblem) -> EdgePartArray:
    """Place every edge by replicas, degrees seen so far, and balance.

    Returns
    -------
    int16 (E,), in [0, K); the cap on edges holds

    Notes
    -----
    O(E K) time, 8 + 8 ceil(K / 64) bytes a node. Source: Petroni, Querzoni, Daudjee, Kamali,
    Iacoboni, HDRF: stream-based partitioning for power-law graphs, 2015, section 4. The least load
    is followed along with the largest one, which public copies leave out; the cap is ours.
    """
    source = problem.source
    part: EdgePartArray = problem.scratch.array("edge-part", (source.num_edges,), np.int16)
    cap = problem.caps(source.num_edges)
    seen_degree = np.zeros(source.num_nodes, dtype=np.int64)
    bits = np.zeros((source.num_nodes, (problem.num_parts + 63) // 64), dtype=np.uint64)
    load = np.zeros(problem.num_parts, dtype=np.int64)
    for chunk in source:
        out = part[chunk.first_eid : chunk.first_eid + len(chunk)]
        place_by_hdrf(chunk.src, chunk.dst, BALANCE_WEIGHT, cap, seen_degree, bits, load, out)
    return part
