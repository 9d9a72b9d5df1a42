"""The score of High-Degree Replicated First."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import kernel


@kernel
def place_by_hdrf(src, dst, balance_weight, cap, seen_degree, bits, load, part):
    """Place a chunk of edges, each where its score is best among the parts with room.

    Parameters
    ----------
    src, dst : int64 (E_chunk,)
    balance_weight : float
        The factor lambda of the balance term.
    cap : int64 (K,), most edges of each part
    seen_degree : int64 (N,), state: edges seen so far of each node
    bits : uint64 (N, W), state: parts that hold each node
    load : int64 (K,), state: edges of each part
    part : int16 (E_chunk,), out

    Notes
    -----
    O(E K) time. Ties go to the lowest part. Loads are compared relative to the caps, so that parts
    of unequal capacity fill evenly.
    """
    num_parts = load.shape[0]
    fill = load / cap
    one_edge = 1.0 / cap.max()
    for i in range(src.shape[0]):
        u, v = src[i], dst[i]
        seen_degree[u] += 1
        seen_degree[v] += 1
        share = seen_degree[u] / (seen_degree[u] + seen_degree[v])
        least, most = 1.0, 0.0
        for p in range(num_parts):
            least = min(least, fill[p])
            most = max(most, fill[p])
        scale = balance_weight / (one_edge + most - least)
        best, best_score = -1, -1.0
        for p in range(num_parts):
            if load[p] >= cap[p]:
                continue
            score = scale * (most - fill[p])
            bit = np.uint64(1) << np.uint64(p & 63)
            if bits[u, p >> 6] & bit:
                score += 2.0 - share
            if bits[v, p >> 6] & bit:
                score += 1.0 + share
            if score > best_score:
                best, best_score = p, score
        part[i] = best
        load[best] += 1
        fill[best] = load[best] / cap[best]
        bit = np.uint64(1) << np.uint64(best & 63)
        bits[u, best >> 6] |= bit
        bits[v, best >> 6] |= bit
