"""Halos of an edge-cut that are several hops deep, and the edges between their nodes."""

from dataclasses import replace

import numpy as np

from asepr.contracts import Assignment, Buckets, EdgeSource, Scratch
from asepr.partition.copies_kernels import count_copies, list_halo_copies, spread_copies
from asepr.partition.edge_buckets import as_rows, edge_row_dtype


def widen_halos(assignment: Assignment, source: EdgeSource, hops: int) -> Assignment:
    """Give each part the nodes from which its inner nodes are reached along at most `hops` edges.

    Parameters
    ----------
    assignment : Assignment
        Of an edge-cut, whose halos are one hop deep.
    source : EdgeSource
    hops : int, at least 1

    Returns
    -------
    Assignment
        With `whole`, unless `hops` is 1.

    Notes
    -----
    A pass over the edges for each hop beyond the first; 8 ceil(K / 64) bytes a node more.
    """
    copies, whole = assignment.copies, None
    for _ in range(hops - 1):
        # What was reached before this hop alone: one pass must not go two hops.
        whole, copies = copies, copies.copy()
        for chunk in source:
            spread_copies(chunk.src, chunk.dst, whole, copies)
    return replace(assignment, copies=copies, whole=whole)


def bucket_outer_edges(source: EdgeSource, assignment: Assignment, scratch: Scratch) -> Buckets | None:
    """Return, for each part, the in-edges of the halo nodes that it holds whole: rows of `edge_row_dtype`, by `eid`.

    None where halos are one hop deep.
    """
    if assignment.whole is None:
        return None
    buckets = scratch.buckets("outer_edges", assignment.num_parts, edge_row_dtype(source))
    for chunk in source:
        whole, num_parts = assignment.whole[chunk.dst], np.empty(len(chunk), dtype=np.int32)
        count_copies(whole, num_parts)
        # The owner of its destination has each edge already.
        count = int(num_parts.sum()) - len(chunk)
        part, edge = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int64)
        list_halo_copies(whole, assignment.owner[chunk.dst], 0, part, edge)
        buckets.append(part, as_rows(chunk, buckets.dtype)[edge])
    return buckets
