"""Which end of each edge between parts gets a copy in the other end's part."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import helper, kernel


@helper
def take_all_edges(s, offsets, edge_of, ends, degree, leaves, num_leaves, taken):
    """Let node s cover all its uncovered edges; return the number of leaves waiting then."""
    for i in range(offsets[s], offsets[s + 1]):
        e = edge_of[i]
        if taken[e] >= 0:
            continue
        taken[e] = s
        t = ends[1, e] if ends[0, e] == s else ends[0, e]
        degree[t] -= 1
        if degree[t] == 1:
            leaves[num_leaves] = t
            num_leaves += 1
    degree[s] = 0
    return num_leaves


@kernel
def cover_edges(offsets, edge_of, ends, degree, taken):
    """Cover all edges by few nodes: neighbours of leaves first, the node with most edges otherwise.

    Parameters
    ----------
    offsets : int64 (S + 1,)
    edge_of : int64 (2C,), the edges of each node
    ends : int64 (2, C), in [0, S)
    degree : int64 (S,), state: uncovered edges of each node
    taken : int64 (C,), all -1 on entry, out: the node that covers each edge

    Notes
    -----
    O(S + C) time. A leaf's neighbour covers at least what the leaf does, so on forests the cover is
    minimal. Nodes of most edges come from lists by degree, renewed as they are met.
    """
    num_nodes = degree.shape[0]
    most = degree.max() if num_nodes else 0
    head = np.full(most + 1, -1, dtype=np.int64)
    following = np.full(num_nodes, -1, dtype=np.int64)
    leaves = np.empty(num_nodes, dtype=np.int64)
    num_leaves = 0
    for s in range(num_nodes - 1, -1, -1):
        following[s] = head[degree[s]]
        head[degree[s]] = s
        if degree[s] == 1:
            leaves[num_leaves] = s
            num_leaves += 1
    while most > 0:
        if num_leaves > 0:
            num_leaves -= 1
            leaf = leaves[num_leaves]
            if degree[leaf] != 1:
                continue
            for i in range(offsets[leaf], offsets[leaf + 1]):
                e = edge_of[i]
                if taken[e] < 0:
                    s = ends[1, e] if ends[0, e] == leaf else ends[0, e]
                    num_leaves = take_all_edges(s, offsets, edge_of, ends, degree, leaves, num_leaves, taken)
            continue
        s = head[most]
        if s < 0:
            most -= 1
            continue
        head[most] = following[s]
        if degree[s] == most:
            num_leaves = take_all_edges(s, offsets, edge_of, ends, degree, leaves, num_leaves, taken)
        elif degree[s] > 0:
            following[s] = head[degree[s]]
            head[degree[s]] = s
