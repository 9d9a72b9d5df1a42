"""Dealing splits in a row so that every stretch of it has its shares."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import kernel


@kernel
def deal_splits(shares, dealt):
    """Give each place in a row the split that is furthest behind its share; ties go to the first.

    Parameters
    ----------
    shares : float64 (S,), sums to 1
    dealt : int64 (n,), out
    """
    counts = np.zeros(shares.shape[0], dtype=np.int64)
    for i in range(dealt.shape[0]):
        best, most = 0, -1.0
        for s in range(shares.shape[0]):
            behind = shares[s] * (i + 1) - counts[s]
            if behind > most and shares[s] > 0:
                best, most = s, behind
        dealt[i] = best
        counts[best] += 1
