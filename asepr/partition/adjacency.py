"""The undirected simple graph behind an edge source, as one CSR in memory."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import EdgeSource, IdArray
from asepr.partition.adjacency_kernels import count_ends, fill_rows, merge_parallel


@dataclass(frozen=True, kw_only=True, slots=True)
class Adjacency:
    """Neighbours of each node, both directions stored, self-loops left out, parallel edges merged.

    Attributes
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 (2M,), int64 from 2**31 nodes on; ascending within a row
    multiplicity : int32 (2M,)
        How many edges of the input, in either direction, stand behind each entry.
    """

    offsets: IdArray
    neighbour: npt.NDArray[Any]
    multiplicity: npt.NDArray[np.int32]

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return len(self.offsets) - 1


def build_adjacency(source: EdgeSource) -> Adjacency:
    """Build the CSR in two passes over the edges.

    Notes
    -----
    O(E log d) time, 16 bytes an edge.
    """
    offsets = np.zeros(source.num_nodes + 1, dtype=np.int64)
    for chunk in source:
        count_ends(chunk.src, chunk.dst, offsets)
    np.cumsum(offsets, out=offsets)
    neighbour = np.empty(offsets[-1], dtype=np.int32 if source.num_nodes < 2**31 else np.int64)
    cursor = offsets[:-1].copy()
    for chunk in source:
        fill_rows(chunk.src, chunk.dst, cursor, neighbour)
    multiplicity = np.empty(offsets[-1], dtype=np.int32)
    num_entries = merge_parallel(offsets, neighbour, multiplicity)
    return Adjacency(offsets=offsets, neighbour=neighbour[:num_entries], multiplicity=multiplicity[:num_entries])
