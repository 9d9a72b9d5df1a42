"""Edges that were rewritten to nids, kept in temporary arrays."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from asepr.contracts import EdgeChunk, FloatArray, PartArray

NidArray = npt.NDArray[np.int32] | npt.NDArray[np.int64]


def nid_dtype(num_nodes: int) -> type[np.int32] | type[np.int64]:
    """Return the narrower of the two types that nids are stored in."""
    return np.int32 if num_nodes < 2**31 else np.int64


class StoredEdges:
    """An `EdgeSource` over arrays, most of them file-backed, whose ids were checked when they were filled.

    Parameters
    ----------
    src, dst : int32 or int64 (E,), in [0, num_nodes)
    num_nodes : int
    chunk_edges : int
    etype : int32 (E,), optional
    weight : float32 (E,), optional
    """

    def __init__(
        self,
        src: NidArray,
        dst: NidArray,
        num_nodes: int,
        chunk_edges: int,
        *,
        etype: PartArray | None = None,
        weight: FloatArray | None = None,
    ) -> None:
        self.src, self.dst, self.etype, self.weight = src, dst, etype, weight
        self.num_nodes, self.num_edges = num_nodes, len(src)
        self.has_etype, self.has_weight = etype is not None, weight is not None
        self._chunk_edges = chunk_edges

    def __iter__(self) -> Iterator[EdgeChunk]:
        """Yield chunks of `chunk_edges` edges, the last one shorter."""
        for start in range(0, self.num_edges, self._chunk_edges):
            rows = slice(start, start + self._chunk_edges)
            yield EdgeChunk(
                src=np.array(self.src[rows], dtype=np.int64),
                dst=np.array(self.dst[rows], dtype=np.int64),
                first_eid=start,
                etype=None if self.etype is None else np.array(self.etype[rows]),
                weight=None if self.weight is None else np.array(self.weight[rows]),
            )
