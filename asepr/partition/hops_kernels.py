"""Which parts beside its owner hold all in-edges of a node."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import kernel
from asepr.partition.copies_kernels import lowest_bit


@kernel
def count_outer_parts(dst, owner, whole):
    """Count, over edges, the parts that hold the edge's destination whole and do not own it.

    Parameters
    ----------
    dst : int64 (E_chunk,)
    owner : int32 (N,)
    whole : uint64 (N, W)
    """
    count = 0
    for i in range(dst.shape[0]):
        v = dst[i]
        for w in range(whole.shape[1]):
            word = whole[v, w]
            while word:
                if (w << 6) + lowest_bit(word) != owner[v]:
                    count += 1
                word &= word - np.uint64(1)
    return count


@kernel
def list_outer_parts(dst, owner, whole, part, edge):
    """List these parts, and the edge of each, in the order of the edges.

    Parameters
    ----------
    dst : int64 (E_chunk,)
    owner : int32 (N,)
    whole : uint64 (N, W)
    part : int32 (count,), out
    edge : int64 (count,), out
        Position in the chunk.
    """
    at = 0
    for i in range(dst.shape[0]):
        v = dst[i]
        for w in range(whole.shape[1]):
            word = whole[v, w]
            while word:
                p = (w << 6) + lowest_bit(word)
                if p != owner[v]:
                    part[at] = p
                    edge[at] = i
                    at += 1
                word &= word - np.uint64(1)
