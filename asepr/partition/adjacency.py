"""The undirected simple graph behind an edge source, as one CSR in memory."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import EdgeSource, FloatArray, IdArray
from asepr.errors import EdgeSourceError
from asepr.partition.adjacency_kernels import (
    count_ends,
    fill_rows,
    fill_weighted_rows,
    merge_parallel,
    merge_weighted,
)

MEAN_WEIGHT = 256
"""What an edge of mean weight counts as an integer, so the smallest counts 1/256 of it."""

MOST_WEIGHT = 2**29
"""Of all edges together, so that sums of both directions stay below 2**31."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Adjacency:
    """Neighbours of each node, both directions stored, self-loops left out, parallel edges merged.

    Attributes
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 (2M,), int64 from 2**31 nodes on; ascending within a row
    multiplicity : int32 (2M,)
        How many edges of the input, in either direction, stand behind each entry; with weights, what they weigh in
        whole units.
    """

    offsets: IdArray
    neighbour: npt.NDArray[Any]
    multiplicity: npt.NDArray[np.int32]

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return len(self.offsets) - 1


def build_adjacency(source: EdgeSource, *, is_weighted: bool = False) -> Adjacency:
    """Build the CSR in two passes over the edges.

    Parameters
    ----------
    source : EdgeSource
    is_weighted : bool
        Let edges count as much as they weigh; they must have weights. One more pass, to find the unit.

    Raises
    ------
    EdgeSourceError
        A weight is negative.

    Notes
    -----
    O(E log d) time, 16 bytes an edge. No sum depends on the order of the edges.
    """
    unit = _weight_unit(source) if is_weighted else 0.0
    offsets = np.zeros(source.num_nodes + 1, dtype=np.int64)
    for chunk in source:
        count_ends(chunk.src, chunk.dst, offsets)
    np.cumsum(offsets, out=offsets)
    neighbour = np.empty(offsets[-1], dtype=np.int32 if source.num_nodes < 2**31 else np.int64)
    cursor = offsets[:-1].copy()
    multiplicity = np.empty(offsets[-1], dtype=np.int32)
    for chunk in source:
        if chunk.weight is None or not is_weighted:
            fill_rows(chunk.src, chunk.dst, cursor, neighbour)
        else:
            fill_weighted_rows(chunk.src, chunk.dst, _in_units(chunk.weight, unit), cursor, neighbour, multiplicity)
    merge = merge_weighted if is_weighted else merge_parallel
    num_entries = merge(offsets, neighbour, multiplicity)
    return Adjacency(offsets=offsets, neighbour=neighbour[:num_entries], multiplicity=multiplicity[:num_entries])


def _weight_unit(source: EdgeSource) -> float:
    """Return the weight that counts 1, a power of two so that rounding does not depend on how sums were formed."""
    total, num_edges = 0.0, 0
    for chunk in source:
        assert chunk.weight is not None
        if len(chunk) and chunk.weight.min() < 0:
            bad = int(np.argmin(chunk.weight))
            raise EdgeSourceError(
                f"edges: row {chunk.first_eid + bad}: weight must not be negative where edges are weighed, "
                f"got {chunk.weight[bad]:g}; mend it, or leave --weigh-edges out"
            )
        total += float(chunk.weight.sum(dtype=np.float64))
        num_edges += len(chunk)
    if not total:
        return 1.0
    return float(2.0 ** np.ceil(np.log2(max(total / num_edges / MEAN_WEIGHT, total / MOST_WEIGHT))))


def _in_units(weight: FloatArray, unit: float) -> npt.NDArray[np.int32]:
    units = np.rint(weight.astype(np.float64) / unit)
    return np.clip(units, 1, MOST_WEIGHT).astype(np.int32)
