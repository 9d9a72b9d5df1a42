"""Growing one part after the other along the edges that are not placed yet."""
# mypy: disable-error-code="no-untyped-def"

from typing import Any, NamedTuple

import numpy.typing as npt

from asepr.contracts import EdgePartArray, IdArray
from asepr.jit import helper, kernel

NOBODY = -1


class Rows(NamedTuple):
    """The edges of each node, those that may still be unplaced first; changed while parts grow.

    Attributes
    ----------
    start : int64 (N + 1,)
    length : int64 (N,), state
        Entries of node v that are still looked at: rows `start[v]:start[v] + length[v]`.
    other : int32 or int64 (2E,), state, the other end; a self-loop has one entry
    edge : int32 or int64 (2E,), state, which edge that is
    """

    start: IdArray
    length: IdArray
    other: npt.NDArray[Any]
    edge: npt.NDArray[Any]


class Growth(NamedTuple):
    """The part that grows, and what is left of the graph.

    Attributes
    ----------
    left : int64 (N,), state
        Unplaced edges of each node.
    reached_by : int16 (N,), state
        The last part that reached each node, or NOBODY.
    first : int32 or int64 (D + 1,), state
        The first node of the queue's list for each number of unplaced edges, or NOBODY.
    before, after : int32 or int64 (N,), state
        Neighbours in these lists, or NOBODY; `before` is the node itself where it is in none.
    lowest : int64 (1,), state
        No node in the queue has fewer unplaced edges.
    load : int64 (K,), state
    part : int16 (E,), state, NOBODY where an edge is not placed yet
    """

    left: IdArray
    reached_by: EdgePartArray
    first: npt.NDArray[Any]
    before: npt.NDArray[Any]
    after: npt.NDArray[Any]
    lowest: IdArray
    load: IdArray
    part: EdgePartArray


@kernel
def count_loops(src, dst, loops):
    """Add the self-loops of a chunk to `loops`, int64 (N,), state."""
    for i in range(src.shape[0]):
        if src[i] == dst[i]:
            loops[src[i]] += 1


@kernel
def fill_edge_rows(src, dst, first_eid, cursor, other, edge):
    """Enter a chunk of edges into the rows of both their ends, self-loops once.

    Parameters
    ----------
    src, dst : integer (E_chunk,), ids in [0, N)
    first_eid : int
    cursor : int64 (N,), state: next free entry of each row
    other, edge : int32 or int64 (2E,), out
    """
    for i in range(src.shape[0]):
        u, v = src[i], dst[i]
        other[cursor[u]] = v
        edge[cursor[u]] = first_eid + i
        cursor[u] += 1
        if u != v:
            other[cursor[v]] = u
            edge[cursor[v]] = first_eid + i
            cursor[v] += 1


@kernel
def grow_parts(rows, growth, target, seeds):
    """Grow each part in turn from seeds until it holds its target.

    Parameters
    ----------
    rows : Rows, state
    growth : Growth, state; nothing is placed or queued on entry
    target : int64 (K,), edges of each part; their sum is at least E
    seeds : int64 (N,), a permutation: the order in which nodes are tried as seeds

    Notes
    -----
    Of the nodes with fewest unplaced edges, the one that came to that number last goes first.
    """
    at = 0
    for p in range(target.shape[0]):
        while growth.load[p] < target[p]:
            v = pop(growth)
            if v < 0:
                while at < seeds.shape[0] and growth.left[seeds[at]] == 0:
                    at += 1
                if at == seeds.shape[0]:
                    return
                v = seeds[at]
                reach(rows, growth, target[p], p, v)
                unqueue(growth, v)
            close(rows, growth, target[p], p, v)
        while pop(growth) >= 0:
            pass


@helper
def close(rows, growth, most, p, v):
    """Reach all of v's neighbours by unplaced edges, so that none of its edges is left to others."""
    start = rows.start[v]
    while rows.length[v] > 0 and growth.load[p] < most:
        i = start + rows.length[v] - 1
        rows.length[v] -= 1
        u = rows.other[i]
        if growth.part[rows.edge[i]] == NOBODY:
            if growth.reached_by[u] != p:
                reach(rows, growth, most, p, u)
            if growth.part[rows.edge[i]] == NOBODY:
                rows.length[v] += 1


@helper
def reach(rows, growth, most, p, v):
    """Copy v into part p, place its edges to nodes already there, and queue it if edges are left."""
    growth.reached_by[v] = p
    start = rows.start[v]
    kept = start
    for i in range(start, start + rows.length[v]):
        u, e = rows.other[i], rows.edge[i]
        if growth.reached_by[u] == p and growth.load[p] < most:
            if growth.part[e] == NOBODY:
                growth.part[e] = p
                growth.load[p] += 1
                growth.left[v] -= 1
                if u != v:
                    lessen(growth, u)
            continue
        rows.other[kept] = u
        rows.edge[kept] = e
        kept += 1
    rows.length[v] = kept - start
    if growth.left[v] > 0:
        enqueue(growth, v)


@helper
def lessen(growth, v):
    """Take one from the unplaced edges of a node, and move it in the queue if it is there."""
    if growth.before[v] == v:
        growth.left[v] -= 1
        return
    unqueue(growth, v)
    growth.left[v] -= 1
    if growth.left[v] > 0:
        enqueue(growth, v)


@helper
def enqueue(growth, v):
    """Put a node at the head of the list for its number of unplaced edges."""
    key = growth.left[v]
    second = growth.first[key]
    growth.first[key] = v
    growth.before[v] = NOBODY
    growth.after[v] = second
    if second != NOBODY:
        growth.before[second] = v
    growth.lowest[0] = min(growth.lowest[0], key)


@helper
def unqueue(growth, v):
    """Take a node out of the list for its number of unplaced edges, if it is there."""
    if growth.before[v] == v:
        return
    if growth.before[v] == NOBODY:
        growth.first[growth.left[v]] = growth.after[v]
    else:
        growth.after[growth.before[v]] = growth.after[v]
    if growth.after[v] != NOBODY:
        growth.before[growth.after[v]] = growth.before[v]
    growth.before[v] = v


@helper
def pop(growth):
    """Take the node with fewest unplaced edges out of the queue; return it, or NOBODY if there is none."""
    while growth.lowest[0] < growth.first.shape[0]:
        v = growth.first[growth.lowest[0]]
        if v != NOBODY:
            unqueue(growth, v)
            return v
        growth.lowest[0] += 1
    return NOBODY
