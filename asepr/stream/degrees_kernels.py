"""Degree counting."""
# mypy: disable-error-code="no-untyped-def"

from asepr.jit import kernel


@kernel
def count_degrees_of_chunk(src, dst, in_degree, out_degree):
    """Add a chunk's edges to the running degrees.

    Parameters
    ----------
    src, dst : int64 (E_chunk,), ids in [0, N)
    in_degree, out_degree : int32 or int64 (N,), state, changed in place
    """
    for i in range(src.shape[0]):
        out_degree[src[i]] += 1
        in_degree[dst[i]] += 1
