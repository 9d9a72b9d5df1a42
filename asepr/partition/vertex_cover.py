"""A vertex-cut from a partition of the nodes, with as few copies as a vertex cover gives."""

import numpy as np
import numpy.typing as npt

from asepr.contracts import EdgePartArray, IdArray, PartArray, PartitionProblem
from asepr.partition.edges_by_owner_kernels import place_where_wanted
from asepr.partition.vertex_cover_kernels import cover_edges


def cover_cut_edges(problem: PartitionProblem, home: PartArray) -> EdgePartArray:
    """Place each edge in the home of one of its ends, so that few nodes are needed away from home.

    An edge between parts P and Q needs a copy of its one end in Q or of its other end in P. So each
    pair of parts is a bipartite graph, and the copies are a vertex cover of it.

    Parameters
    ----------
    problem : PartitionProblem
    home : int32 (N,), in [0, K)

    Returns
    -------
    int16 (E,), in [0, K); `problem.caps(E)` holds
        An edge whose part is full goes to its other end's home, or to the emptiest part for its cap.

    Notes
    -----
    The edges between parts are held in memory, about 100 bytes each. Greedy cover: see `cover_edges`.
    """
    source = problem.source
    part: EdgePartArray = problem.scratch.array("edge-part", (source.num_edges,), np.int16)
    load = np.zeros(problem.num_parts, dtype=np.int64)
    cap = problem.caps(source.num_edges)
    src_covers = _covering_sources(problem, home)
    num_cut = 0
    for chunk in source:
        near, far = home[chunk.src], home[chunk.dst]
        cut = near != far
        at_destination = np.zeros(len(chunk), dtype=np.bool_)
        at_destination[cut] = src_covers[num_cut : num_cut + int(cut.sum())]
        num_cut += int(cut.sum())
        out = part[chunk.first_eid : chunk.first_eid + len(chunk)]
        place_where_wanted(np.where(at_destination, far, near), np.where(at_destination, near, far), load, cap, out)
    return part


def _covering_sources(problem: PartitionProblem, home: PartArray) -> npt.NDArray[np.bool_]:
    """Return, for each edge between parts in input order, whether its source is what gets the copy."""
    ends = _ends_in_pairs(problem, home)
    if not ends.shape[1]:
        return np.zeros(0, dtype=np.bool_)
    num_nodes = int(ends.max()) + 1
    edge_of = np.argsort(ends.reshape(-1), kind="stable") % ends.shape[1]
    degree = np.bincount(ends.reshape(-1), minlength=num_nodes)
    offsets = np.concatenate([[0], np.cumsum(degree)])
    taken = np.full(ends.shape[1], -1, dtype=np.int64)
    cover_edges(offsets, edge_of, ends, degree, taken)
    covered: npt.NDArray[np.bool_] = taken == ends[0]
    return covered


def _ends_in_pairs(problem: PartitionProblem, home: PartArray) -> IdArray:
    """Return int64 (2, C): both ends of each edge between parts, one number a node and part it may go to."""
    num_parts = problem.num_parts
    pieces = []
    for chunk in problem.source:
        near, far = home[chunk.src], home[chunk.dst]
        cut = near != far
        pieces.append(np.stack([chunk.src[cut] * num_parts + far[cut], chunk.dst[cut] * num_parts + near[cut]]))
    keys = np.concatenate(pieces, axis=1) if pieces else np.zeros((2, 0), dtype=np.int64)
    return np.unique(keys, return_inverse=True)[1].reshape(keys.shape)
