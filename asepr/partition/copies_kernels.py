"""Bitsets of copies: marking, counting and listing."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import helper, kernel


@kernel
def mark_edges(src, dst, part, bits):
    """Set the bit of each edge's part in the rows of both its ends.

    Parameters
    ----------
    src, dst : int64 (E_chunk,), ids in [0, N)
    part : int16 (E_chunk,), in [0, K)
    bits : uint64 (N, W), state, changed in place
    """
    for i in range(src.shape[0]):
        word = part[i] >> 6
        bit = np.uint64(1) << np.uint64(part[i] & 63)
        bits[src[i], word] |= bit
        bits[dst[i], word] |= bit


@kernel
def mark_owners(owner, bits):
    """Set the bit of each node's owner.

    Parameters
    ----------
    owner : int32 (N,), in [0, K)
    bits : uint64 (N, W), state, changed in place
    """
    for v in range(owner.shape[0]):
        bits[v, owner[v] >> 6] |= np.uint64(1) << np.uint64(owner[v] & 63)


@kernel
def spread_copies(src, dst, bits, wider):
    """Set, in the row of each edge's source, the bits that its destination has.

    Parameters
    ----------
    src, dst : int64 (E_chunk,), ids in [0, N)
    bits : uint64 (N, W), read
    wider : uint64 (N, W), state, changed in place
    """
    for i in range(src.shape[0]):
        for w in range(bits.shape[1]):
            wider[src[i], w] |= bits[dst[i], w]


@kernel
def count_copies(bits, num_copies):
    """Count the set bits of each row.

    Parameters
    ----------
    bits : uint64 (N, W)
    num_copies : int32 (N,), out
    """
    for v in range(bits.shape[0]):
        count = 0
        for w in range(bits.shape[1]):
            word = bits[v, w]
            while word:
                word &= word - np.uint64(1)
                count += 1
        num_copies[v] = count


@kernel
def list_halo_copies(bits, owner, first_nid, part, nid):
    """List the copies of a block of nodes that lie outside the node's owner, in ascending nid, then part.

    Parameters
    ----------
    bits : uint64 (n, W), rows of nodes first_nid .. first_nid + n - 1
    owner : int32 (n,)
    first_nid : int
    part : int32 (H,), out
    nid : int64 (H,), out
        H is the number of such copies.
    """
    at = 0
    for v in range(bits.shape[0]):
        for w in range(bits.shape[1]):
            word = bits[v, w]
            while word:
                p = (w << 6) + lowest_bit(word)
                word &= word - np.uint64(1)
                if p != owner[v]:
                    part[at] = p
                    nid[at] = first_nid + v
                    at += 1


@kernel
def count_copies_by_part(bits, copies):
    """Count the nodes that each part holds.

    Parameters
    ----------
    bits : uint64 (N, W)
    copies : int64 (K,), zeros on entry, out
    """
    for v in range(bits.shape[0]):
        for w in range(bits.shape[1]):
            word = bits[v, w]
            while word:
                copies[(w << 6) + lowest_bit(word)] += 1
                word &= word - np.uint64(1)


@helper
def lowest_bit(word):
    """Return the position of the lowest set bit: how many lie below it, which compiles to one instruction."""
    below = (word & (~word + np.uint64(1))) - np.uint64(1)
    p = 0
    while below:
        below &= below - np.uint64(1)
        p += 1
    return p
