"""Adding rows to the nodes they go to."""
# mypy: disable-error-code="no-untyped-def"

from asepr.jit import kernel


@kernel
def add_rows(rows, weight, dst, sums):
    """Add each weighted row to the sum of its destination, in order.

    Parameters
    ----------
    rows : float32 (E_block, F)
    weight : float64 (E_block,)
    dst : int64 (E_block,), ids in [0, N)
    sums : float64 (N, F), state, changed in place
    """
    for i in range(dst.shape[0]):
        for column in range(rows.shape[1]):
            sums[dst[i], column] += weight[i] * rows[i, column]
