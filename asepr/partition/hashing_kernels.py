"""Parts by hash, under hard caps."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import helper, kernel


@helper
def hash_to_unit(key, seed):
    """Return a number in [0, 1) from a 64-bit mix of key and seed (splitmix64, Steele et al. 2014)."""
    x = np.uint64(key) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(seed + 1)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return np.float64(x >> np.uint64(11)) / np.float64(1 << 53)


@helper
def place_with_room(part, load, cap):
    """Return `part` if it has room, else the part with the least load relative to its cap; count it."""
    if load[part] >= cap[part]:
        part = 0
        for p in range(1, load.shape[0]):
            # load / cap compared crosswise, so that equal ratios are equal
            if load[p] * cap[part] < load[part] * cap[p]:
                part = p
    load[part] += 1
    return part


@kernel
def hash_keys(first_key, seed, upper, load, cap, part):
    """Place consecutive keys by their hash.

    Parameters
    ----------
    first_key, seed : int
    upper : float64 (K,), cumulated shares; the last is 1
    load, cap : int64 (K,), load is state, changed in place
    part : int16 or int32 (n,), out
    """
    for i in range(part.shape[0]):
        p = np.searchsorted(upper, hash_to_unit(first_key + i, seed), side="right")
        part[i] = place_with_room(min(p, upper.shape[0] - 1), load, cap)


@kernel
def hash_lower_degree_ends(src, dst, degree, seed, upper, load, cap, part):
    """Place each edge by the hash of its end of lower degree (ties: the lower id).

    Parameters
    ----------
    src, dst : int64 (E_chunk,)
    degree : int64 (N,)
    seed : int
    upper : float64 (K,), cumulated shares; the last is 1
    load, cap : int64 (K,), load is state, changed in place
    part : int16 (E_chunk,), out
    """
    for i in range(src.shape[0]):
        u, v = src[i], dst[i]
        if degree[v] < degree[u] or (degree[v] == degree[u] and v < u):
            u = v
        p = np.searchsorted(upper, hash_to_unit(u, seed), side="right")
        part[i] = place_with_room(min(p, upper.shape[0] - 1), load, cap)
