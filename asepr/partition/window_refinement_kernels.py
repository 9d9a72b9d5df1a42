"""Numbering the nodes of a run of edges, and the copies of them that stay whatever becomes of these edges."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import kernel

MANY_EDGES = 1 << 30
"""Edges that a copy is said to rest on when it stays."""


@kernel
def number_nodes(owner, other, local, nodes, start):
    """Number the nodes of a run of edges from 0: owners in their order, then other ends.

    Parameters
    ----------
    owner, other : int32 or int64 (n,), sorted by owner
    local : int32 (N,), state: -1 everywhere on entry, the number of each node of the run on return
    nodes : as `owner` (2 n,), out: the node of each number
    start : int64 (owners + 1,), out: edges owned by number r are rows `start[r]:start[r + 1]`

    Returns
    -------
    int
        How many there are.
    """
    num_edges, num_nodes = owner.shape[0], 0
    for i in range(num_edges):
        if local[owner[i]] < 0:
            local[owner[i]] = num_nodes
            nodes[num_nodes] = owner[i]
            start[num_nodes] = i
            num_nodes += 1
    start[num_nodes] = num_edges
    for i in range(num_edges):
        if local[other[i]] < 0:
            local[other[i]] = num_nodes
            nodes[num_nodes] = other[i]
            num_nodes += 1
    return num_nodes


@kernel
def enter_lasting_copies(bits, num_parts, first_slot, slot_part, slot_count, num_copies):
    """Enter copies that stay into counts that are all zero; see `replica_removal_kernels.CopyCounts` for these.

    Parameters
    ----------
    bits : uint64 (n, W), the parts that hold each node in any case
    num_parts : int
    first_slot : int64 (n + 1,)
    slot_part, slot_count, num_copies : out
    """
    for v in range(bits.shape[0]):
        is_row = first_slot[v + 1] - first_slot[v] == num_parts
        for p in range(num_parts):
            if (bits[v, p >> 6] >> np.uint64(p & 63)) & np.uint64(1):
                slot = first_slot[v] + (p if is_row else num_copies[v])
                slot_part[slot] = p
                slot_count[slot] = MANY_EDGES
                num_copies[v] += 1


@kernel
def mark_counted_copies(num_parts, first_slot, slot_part, slot_count, num_copies, bits):
    """Set the bits of the parts that counts say hold each node, the converse of `enter_lasting_copies`."""
    bits[:] = 0
    for v in range(bits.shape[0]):
        is_row = first_slot[v + 1] - first_slot[v] == num_parts
        for j in range(num_parts if is_row else num_copies[v]):
            slot = first_slot[v] + j
            p = j if is_row else np.int64(slot_part[slot])
            if slot_count[slot] > 0:
                bits[v, p >> 6] |= np.uint64(1) << np.uint64(p & 63)
