"""What each node's in-neighbours carry, summed or averaged in one pass over the edges."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import AGGREGATES, Aggregate, Degrees, EdgeSource, FeatureSource, FloatArray, IdArray, Scratch
from asepr.errors import ConfigError
from asepr.stream.aggregates_kernels import add_rows

BLOCK_BYTES = 32_000_000
"""Features of the sources of as many edges are held at a time."""


class NeighbourAggregates:
    """One row a node: the aggregate of its in-neighbours' features over the whole graph.

    `sum` adds them up, parallel edges each time; `mean` divides by the in-degree, and is zero where
    that is; `gcn` is `(D_in(v) + 1)^-1/2 sum_u (D_out(u) + 1)^-1/2 x_u`, without the self-loop that
    a graph convolution adds: a node's own features are at hand anyway.

    Parameters
    ----------
    kind : "mean", "sum" or "gcn"
    features : FeatureSource of N rows
    source : EdgeSource
    degrees : Degrees
    scratch : Scratch
        Holds the sums, float64 (N, F), so that a hub's many terms lose nothing.

    Raises
    ------
    ConfigError
        No such kind.

    Notes
    -----
    O(E F) time, two random rows an edge; memory of one block. Terms are added in input order, so the
    result does not depend on the chunk size.
    """

    def __init__(
        self, kind: Aggregate, features: FeatureSource, source: EdgeSource, degrees: Degrees, scratch: Scratch
    ) -> None:
        if kind not in AGGREGATES:
            raise ConfigError(f"aggregate must be one of {', '.join(AGGREGATES)}, got '{kind}'; choose one of these")
        self.num_rows, self.width = features.num_rows, features.width
        self._sums: npt.NDArray[np.float64] = scratch.array("aggregates", (self.num_rows, self.width), np.float64)
        self._scale = _target_scale(kind, degrees)
        weight = _source_weight(kind, degrees)
        block_edges = max(1, BLOCK_BYTES // (4 * max(self.width, 1)))
        for src, dst in _blocks(source, block_edges):
            add_rows(features.read(src), weight[src], dst, self._sums)

    def read(self, rows: IdArray) -> FloatArray:
        """Return float32 (len(rows), F)."""
        return np.ascontiguousarray(self._sums[rows] * self._scale[rows, None], dtype=np.float32)

    def read_as_stored(self, rows: IdArray) -> Any:
        """Return the same."""
        return self.read(rows)


def _target_scale(kind: Aggregate, degrees: Degrees) -> npt.NDArray[np.floating[Any]]:
    if kind == "mean":
        return 1.0 / np.maximum(degrees.in_degree, 1)
    return (degrees.in_degree + 1.0) ** -0.5 if kind == "gcn" else np.ones(len(degrees.in_degree))


def _source_weight(kind: Aggregate, degrees: Degrees) -> npt.NDArray[np.floating[Any]]:
    return (degrees.out_degree + 1.0) ** -0.5 if kind == "gcn" else np.ones(len(degrees.out_degree))


def _blocks(source: EdgeSource, block_edges: int) -> Iterator[tuple[IdArray, IdArray]]:
    for chunk in source:
        for start in range(0, len(chunk), block_edges):
            block = slice(start, start + block_edges)
            yield chunk.src[block], chunk.dst[block]
