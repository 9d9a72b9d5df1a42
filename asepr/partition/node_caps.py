"""Hard caps on the nodes of a part, whatever a method made."""

import numpy as np

from asepr.contracts import PartArray, PartitionProblem
from asepr.partition.adjacency import Adjacency
from asepr.partition.node_caps_kernels import count_inside, move_out_of_overfull
from asepr.partition.owners_kernels import fill_empty_parts


def enforce_node_caps(problem: PartitionProblem, adjacency: Adjacency, part: PartArray) -> PartArray:
    """Move nodes out of parts above `problem.caps(N)` and into parts without a node.

    Nodes with the fewest neighbours in their own part move first, each to the part with room where
    most of its neighbours are (ties: the emptiest for its cap).

    Parameters
    ----------
    problem : PartitionProblem
    adjacency : Adjacency
    part : int32 (N,), in [0, K), changed in place

    Returns
    -------
    part; with N >= K no part is empty
    """
    cap = problem.caps(adjacency.num_nodes)
    nodes = np.bincount(part, minlength=problem.num_parts)
    degree = np.diff(adjacency.offsets)
    if (nodes > cap).any():
        inside = np.zeros(adjacency.num_nodes, dtype=np.int64)
        count_inside(adjacency.offsets, adjacency.neighbour, part, inside)
        order = np.argsort(inside, kind="stable")
        move_out_of_overfull(adjacency.offsets, adjacency.neighbour, order, cap, nodes, part)
    fill_empty_parts(part, degree, problem.num_parts)
    return part
