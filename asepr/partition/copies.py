"""Which parts hold a copy of which node, as one bitset a node."""

import numpy as np

from asepr.contracts import CopyBits, EdgePartArray, EdgeSource, PartArray
from asepr.mapped import release
from asepr.partition.copies_kernels import mark_edges, mark_owners


def mark_copies(
    source: EdgeSource, edge_part: EdgePartArray | None, owner: PartArray | None, num_parts: int
) -> CopyBits:
    """Mark each node in every part that holds one of its edges, or owns it.

    Parameters
    ----------
    source : EdgeSource
    edge_part : int16 (E,), or None
        None: an edge lies in the part of its destination's owner.
    owner : int32 (N,), or None
        None: nobody owns a node yet.
    num_parts : int

    Returns
    -------
    uint64 (N, ceil(K / 64))

    Notes
    -----
    One pass over the edges, 8 ceil(K / 64) bytes a node.
    """
    bits = np.zeros((source.num_nodes, (num_parts + 63) // 64), dtype=np.uint64)
    for chunk in source:
        stop = chunk.first_eid + len(chunk)
        if edge_part is not None:
            part = edge_part[chunk.first_eid : stop]
        else:
            assert owner is not None
            part = owner[chunk.dst].astype(np.int16)
        mark_edges(chunk.src, chunk.dst, part, bits)
        if edge_part is not None:
            release(edge_part, chunk.first_eid, stop)
    if owner is not None:
        mark_owners(owner, bits)
    return bits
