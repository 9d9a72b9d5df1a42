"""Finding the owners of edges, and sorting a bucket of edges by owner and other end."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import helper, kernel

FEW_EDGES = 48
"""Groups up to this size are sorted by insertion."""


@kernel
def own_edges(src, dst, rank_of, bounds, owner, other, bucket):
    """Find the owner of each edge, and the bucket of that.

    Parameters
    ----------
    src, dst : int (n,)
    rank_of : int32 or int64 (N,)
    bounds : int64 (B - 1,), the first rank of every bucket but the first
    owner, other : as `rank_of` (n,), out
    bucket : int32 (n,), out
    """
    for i in range(src.shape[0]):
        a, b = rank_of[src[i]], rank_of[dst[i]]
        owner[i], other[i] = max(a, b), min(a, b)
        # A binary search without branches, which would be mispredicted half of the time.
        low, length = 0, bounds.shape[0]
        while length > 0:
            half = (length + 1) >> 1
            low += half * (bounds[low + half - 1] <= owner[i])
            length -= half
        bucket[i] = low


@kernel
def group_by_owner(owner, other, eid, first, start, owner_out, other_out, eid_out):
    """Sort edges stably by owner, then by other end.

    Parameters
    ----------
    owner, other, eid : int32 or int64 (n,)
    first : int, the least owner
    start : int64 (owners + 1,), zeros on entry, work
    owner_out, other_out, eid_out : as the input, out
    """
    for i in range(owner.shape[0]):
        start[owner[i] - first + 1] += 1
    for r in range(start.shape[0] - 1):
        start[r + 1] += start[r]
    for i in range(owner.shape[0]):
        r = owner[i] - first
        at = start[r]
        start[r] += 1
        owner_out[at], other_out[at], eid_out[at] = owner[i], other[i], eid[i]
    # Each start has moved on to the end of its group.
    begin = 0
    for r in range(start.shape[0] - 1):
        if start[r] - begin <= FEW_EDGES:
            sort_by_insertion(other_out, eid_out, begin, start[r])
        else:
            order = np.argsort(other_out[begin : start[r]], kind="mergesort")
            other_out[begin : start[r]] = other_out[begin : start[r]][order]
            eid_out[begin : start[r]] = eid_out[begin : start[r]][order]
        begin = start[r]


@helper
def sort_by_insertion(other, eid, begin, end):
    """Sort rows `begin:end` stably by other end."""
    for i in range(begin + 1, end):
        key, value = other[i], eid[i]
        at = i
        while at > begin and other[at - 1] > key:
            other[at], eid[at] = other[at - 1], eid[at - 1]
            at -= 1
        other[at], eid[at] = key, value
