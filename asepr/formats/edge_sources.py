"""Edge files as re-iterable chunks of checked ids, whatever they look like on disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from asepr.contracts import EdgeChunk, FloatArray, IdArray, PartArray
from asepr.errors import EdgeSourceError
from asepr.formats.edge_readers import EdgeBatch, EdgeColumns, EdgeReader, TableEdgeReader, check_range
from asepr.formats.tables import open_table

CHUNK_EDGES = 1 << 18
"""Edges a chunk by default: 4 MB of ids."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Extent:
    """What one look at the edges tells: how many, and the largest id."""

    num_edges: int
    max_id: int


class FileEdgeSource:
    """Edges of a reader: re-cut into chunks of one size, every id in [0, N).

    Parameters
    ----------
    reader : EdgeReader
        Yields batches of any size.
    num_nodes : int or None
        None: as many as the file states (Matrix Market, METIS, scipy npz), else one more than the largest id.
    chunk_edges : int
        Edges a chunk. No result depends on it.

    Raises
    ------
    EdgeSourceError
        No edges and no `num_nodes`; a negative id; an id that is `num_nodes` or more.
    """

    def __init__(self, reader: EdgeReader, num_nodes: int | None = None, chunk_edges: int = CHUNK_EDGES) -> None:
        self._reader = reader
        self._chunk_edges = chunk_edges
        num_nodes = reader.num_nodes if num_nodes is None else num_nodes
        extent = _measure(reader, num_nodes)
        if extent.num_edges == 0 and num_nodes is None:
            raise EdgeSourceError(f"{reader.path}: must hold at least one edge, got none; give edges, or a node file")
        self.num_edges = extent.num_edges
        self.num_nodes = extent.max_id + 1 if num_nodes is None else num_nodes
        self.has_etype = reader.has_etype
        self.has_weight = reader.has_weight

    def __iter__(self) -> Iterator[EdgeChunk]:
        """Yield chunks of `chunk_edges` edges, the last one shorter."""
        first_eid = 0
        for batch in _recut(self._reader, self._chunk_edges):
            _check_ids(self._reader.path, batch, first_eid, self.num_nodes)
            yield EdgeChunk(src=batch.src, dst=batch.dst, first_eid=first_eid, etype=batch.etype, weight=batch.weight)
            first_eid += len(batch)
        if first_eid != self.num_edges:
            raise EdgeSourceError(
                f"{self._reader.path}: must stay the same during a run, got {first_eid} edges "
                f"after {self.num_edges}; run again"
            )


class ArrayEdgeSource(FileEdgeSource):
    """Edges that are in memory already.

    Parameters
    ----------
    src, dst : integer (E,)
    num_nodes : int or None
    etype : integer (E,), optional
    weight : float (E,), optional
    chunk_edges : int
    """

    def __init__(
        self,
        src: npt.ArrayLike,
        dst: npt.ArrayLike,
        num_nodes: int | None = None,
        *,
        etype: npt.ArrayLike | None = None,
        weight: npt.ArrayLike | None = None,
        chunk_edges: int = CHUNK_EDGES,
    ) -> None:
        super().__init__(_ArrayReader(src, dst, etype, weight), num_nodes, chunk_edges)


class _ArrayReader:
    def __init__(
        self, src: npt.ArrayLike, dst: npt.ArrayLike, etype: npt.ArrayLike | None, weight: npt.ArrayLike | None
    ) -> None:
        self.path = "edges in memory"
        self.num_nodes = None
        self._batch = EdgeBatch(
            src=_as_ids(src, "src"),
            dst=_as_ids(dst, "dst"),
            etype=None if etype is None else np.ascontiguousarray(etype, dtype=np.int32),
            weight=None if weight is None else np.ascontiguousarray(weight, dtype=np.float32),
        )
        lengths = {len(column) for column in self._batch.columns() if column is not None}
        if len(lengths) > 1:
            raise EdgeSourceError(
                f"{self.path}: columns must have one length, got {sorted(lengths)}; give one value an edge"
            )
        self.has_etype = etype is not None
        self.has_weight = weight is not None

    def batches(self, batch_edges: int) -> Iterator[EdgeBatch]:
        for start in range(0, len(self._batch), batch_edges):
            yield self._batch.cut(start, start + batch_edges)

    def extent_from_metadata(self) -> tuple[int, int, int] | None:
        return None


def open_edge_source(
    path: Path | str, columns: EdgeColumns, num_nodes: int | None = None, chunk_edges: int = CHUNK_EDGES
) -> FileEdgeSource:
    """Open edges in any format that `open_table` reads, whose ids are 0 .. N-1.

    Parameters
    ----------
    path : path or str
        File, folder, glob or URI.
    columns : EdgeColumns
        Names of the columns to read.
    num_nodes : int or None
        Number of nodes, where something else than the edges says so.
    chunk_edges : int

    Raises
    ------
    EdgeSourceError
        The file, a column or an id is not what it must be.
    """
    return FileEdgeSource(TableEdgeReader(open_table(path), columns), num_nodes, chunk_edges)


def _as_ids(values: npt.ArrayLike, name: str) -> IdArray:
    array = np.asarray(values)
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        raise EdgeSourceError(
            f"edges in memory: {name} must be a one-dimensional integer array, got {array.dtype} "
            f"of shape {array.shape}; convert the ids to integers"
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def _measure(reader: EdgeReader, num_nodes: int | None) -> _Extent:
    known = reader.extent_from_metadata()
    if known is not None:
        num_edges, min_id, max_id = known
        if min_id >= 0 and (num_nodes is None or max_id < num_nodes):
            return _Extent(num_edges=num_edges, max_id=max_id)
    num_edges, max_id = 0, -1
    for batch in reader.batches(CHUNK_EDGES):
        _check_ids(reader.path, batch, num_edges, num_nodes)
        if len(batch):
            max_id = max(max_id, int(batch.src.max()), int(batch.dst.max()))
        num_edges += len(batch)
    return _Extent(num_edges=num_edges, max_id=max_id)


def _check_ids(path: Path | str, batch: EdgeBatch, first_eid: int, num_nodes: int | None) -> None:
    for name, ids in (("src", batch.src), ("dst", batch.dst)):
        check_range(path, name, ids, first_eid, num_nodes)


def _recut(reader: EdgeReader, chunk_edges: int) -> Iterator[EdgeBatch]:
    """Yield the reader's edges in batches of exactly `chunk_edges`, the last one shorter."""
    held: list[EdgeBatch] = []
    num_held = 0
    for batch in reader.batches(chunk_edges):
        held.append(batch)
        num_held += len(batch)
        while num_held >= chunk_edges:
            joined = _join(held)
            yield joined.cut(0, chunk_edges)
            rest = joined.cut(chunk_edges, num_held)
            num_held = len(rest)
            held = [rest] if num_held else []
    if num_held:
        yield _join(held)


def _join(batches: list[EdgeBatch]) -> EdgeBatch:
    if len(batches) == 1:
        return batches[0]
    etype: PartArray | None = None
    weight: FloatArray | None = None
    if batches[0].etype is not None:
        etype = np.concatenate([b.etype for b in batches if b.etype is not None])
    if batches[0].weight is not None:
        weight = np.concatenate([b.weight for b in batches if b.weight is not None])
    return EdgeBatch(
        src=np.concatenate([b.src for b in batches]),
        dst=np.concatenate([b.dst for b in batches]),
        etype=etype,
        weight=weight,
    )
