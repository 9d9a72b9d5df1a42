"""The edges of each part, gathered on disk in one pass over the input."""

from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import Assignment, Buckets, EdgeChunk, EdgeSource, HeldOutEdges, Scratch

BLOCK_ROWS = 1 << 20


def edge_row_dtype(source: EdgeSource) -> np.dtype[Any]:
    """Return the dtype of an edge on its way: `eid`, `src`, `dst`, and `etype`, `weight` where there."""
    nid = np.int32 if source.num_nodes < 2**31 else np.int64
    fields: list[tuple[str, type]] = [("eid", np.int64), ("src", nid), ("dst", nid)]
    if source.has_etype:
        fields.append(("etype", np.int32))
    if source.has_weight:
        fields.append(("weight", np.float32))
    return np.dtype(fields)


def bucket_edges(source: EdgeSource, assignment: Assignment, scratch: Scratch) -> Buckets:
    """Return the edges of each part as rows of `edge_row_dtype`, ascending in `eid`.

    Notes
    -----
    16 bytes of temporary disk an edge (24 from 2**31 nodes on), 4 more for each of type and weight.
    """
    buckets = scratch.buckets("edges", assignment.num_parts, edge_row_dtype(source))
    for chunk in source:
        buckets.append(assignment.part_of(chunk), as_rows(chunk, buckets.dtype))
    return buckets


def bucket_held_out(held: HeldOutEdges | None, assignment: Assignment, scratch: Scratch) -> Buckets | None:
    """Return the rows of held-out edges by the owner of their destination, int64, ascending."""
    if held is None:
        return None
    buckets = scratch.buckets("held_out", assignment.num_parts, np.int64)
    for start in range(0, len(held), BLOCK_ROWS):
        rows = np.arange(start, min(start + BLOCK_ROWS, len(held)))
        buckets.append(assignment.owner[held.dst[rows]].astype(np.int64), rows)
    return buckets


def as_rows(chunk: EdgeChunk, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the edges of a chunk as rows of `edge_row_dtype`."""
    rows = np.empty(len(chunk), dtype=dtype)
    rows["eid"] = np.arange(chunk.first_eid, chunk.first_eid + len(chunk))
    for name in dtype.names or ():
        if name != "eid":
            rows[name] = getattr(chunk, name)
    return rows
