"""Counting edges whose ends share a home."""
# mypy: disable-error-code="no-untyped-def"

from asepr.jit import kernel


@kernel
def count_agreeing_edges(src, dst, home, counts):
    """Return how many edges of a chunk, self-loops aside, have both ends at one home.

    Parameters
    ----------
    src, dst : int64 (E_chunk,)
    home : int32 (N,), in [0, K)
    counts : int64 (2, K), state, changed in place
        Sources, and destinations, of these edges at each home.
    """
    agreeing = 0
    for i in range(src.shape[0]):
        if src[i] == dst[i]:
            continue
        p, q = home[src[i]], home[dst[i]]
        counts[0, p] += 1
        counts[1, q] += 1
        agreeing += p == q
    return agreeing
