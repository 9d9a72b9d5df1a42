"""Building a CSR of neighbours."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import kernel


@kernel
def count_ends(src, dst, counts):
    """Add each edge's ends, self-loops aside, to `counts[node + 1]`.

    Parameters
    ----------
    src, dst : int64 (E_chunk,)
    counts : int64 (N + 1,), state
    """
    for i in range(src.shape[0]):
        if src[i] != dst[i]:
            counts[src[i] + 1] += 1
            counts[dst[i] + 1] += 1


@kernel
def fill_rows(src, dst, cursor, neighbour):
    """Write each edge, self-loops aside, into the rows of both its ends.

    Parameters
    ----------
    src, dst : int64 (E_chunk,)
    cursor : int64 (N,), state: next free entry of each row
    neighbour : int32 or int64 (entries,), out
    """
    for i in range(src.shape[0]):
        u, v = src[i], dst[i]
        if u != v:
            neighbour[cursor[u]] = v
            cursor[u] += 1
            neighbour[cursor[v]] = u
            cursor[v] += 1


@kernel
def fill_weighted_rows(src, dst, value, cursor, neighbour, weight):
    """Write each edge and its weight, self-loops aside, into the rows of both its ends.

    Parameters
    ----------
    src, dst : int64 (E_chunk,)
    value : int32 (E_chunk,)
    cursor : int64 (N,), state: next free entry of each row
    neighbour : int32 or int64 (entries,), out
    weight : int32 (entries,), out
    """
    for i in range(src.shape[0]):
        u, v = src[i], dst[i]
        if u != v:
            neighbour[cursor[u]] = v
            weight[cursor[u]] = value[i]
            cursor[u] += 1
            neighbour[cursor[v]] = u
            weight[cursor[v]] = value[i]
            cursor[v] += 1


@kernel
def merge_parallel(offsets, neighbour, multiplicity):
    """Sort every row, merge equal neighbours, and close the gaps; return the number of entries left.

    Parameters
    ----------
    offsets : int64 (N + 1,), state, changed in place
    neighbour : int32 or int64 (entries,), state, changed in place
    multiplicity : int32 (entries,), out
    """
    at = 0
    start = offsets[0]
    for v in range(offsets.shape[0] - 1):
        stop = offsets[v + 1]
        row = neighbour[start:stop]
        row.sort()
        first = at
        for i in range(start, stop):
            if at > first and neighbour[at - 1] == neighbour[i]:
                multiplicity[at - 1] += 1
            else:
                neighbour[at] = neighbour[i]
                multiplicity[at] = 1
                at += 1
        start = stop
        offsets[v + 1] = at
    return at


@kernel
def merge_weighted(offsets, neighbour, weight):
    """Sort every row, merge equal neighbours and add up their weights; return the number of entries left.

    Parameters
    ----------
    offsets : int64 (N + 1,), state, changed in place
    neighbour : int32 or int64 (entries,), state, changed in place
    weight : int32 (entries,), state, changed in place
    """
    at = 0
    start = offsets[0]
    for v in range(offsets.shape[0] - 1):
        stop = offsets[v + 1]
        order = np.argsort(neighbour[start:stop])
        row = neighbour[start:stop][order]
        row_weight = weight[start:stop][order]
        first = at
        for i in range(row.shape[0]):
            if at > first and neighbour[at - 1] == row[i]:
                weight[at - 1] += row_weight[i]
            else:
                neighbour[at] = row[i]
                weight[at] = row_weight[i]
                at += 1
        start = stop
        offsets[v + 1] = at
    return at
