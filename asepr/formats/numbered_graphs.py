"""Graphs that number the nodes of each type from 0, as libraries for graph learning keep them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asepr.contracts import NO_LABEL, ByteArray, EdgeTable, FeatureSource, FloatArray, IdArray, NodeTable, Scratch
from asepr.errors import EdgeSourceError, NodeSourceError
from asepr.formats.edge_readers import EdgeColumns, TableEdgeReader, check_range
from asepr.formats.graph_files import EdgeTypeName, StoredGraph, column_values, store_features
from asepr.formats.ids import BATCH_ROWS
from asepr.formats.stored_edges import StoredEdges, nid_dtype
from asepr.formats.tables import Table, read_as, schema_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column whose rows lie in one table after the other; its name may differ from table to table."""

    tables: tuple[Table, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureTables:
    """Features as columns of tables, one after the other: all columns of all of them, side by side."""

    tables: tuple[Table, ...]


Features = FeatureSource | FeatureTables


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberedNodes:
    """The nodes of one type, 0 .. num_nodes-1; arrays and features in this order."""

    num_nodes: int
    label: IdArray | None = None
    split: ByteArray | None = None
    features: Features | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberedEdges:
    """The edges of one type.

    Attributes
    ----------
    tables : tuple of Table
        One after the other; the first two columns of each are the ends.
    num_edges : int
        Rows of all of them.
    src_type, dst_type : int
    etype, weight, time : Column, optional
        `etype` counts only where edge types have no names.
    features : Features, optional
    """

    tables: tuple[Table, ...]
    num_edges: int
    src_type: int = 0
    dst_type: int = 0
    etype: Column | None = None
    weight: Column | None = None
    time: Column | None = None
    features: Features | None = None

    @property
    def ends(self) -> tuple[str, str]:
        """Columns of both ends in the first table."""
        return _ends_of(self.tables[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberedGraph:
    """A graph whose ids are row numbers within a type.

    nids count the nodes of one type after those of another, eids the edges likewise.

    Attributes
    ----------
    where : str
        How messages call it.
    nodes, edges : tuple, one entry a type
    node_types, edge_types : tuple
        Names, or empty where there is one of each and it has none.
    """

    where: str
    nodes: tuple[NumberedNodes, ...]
    edges: tuple[NumberedEdges, ...]
    node_types: tuple[str, ...] = ()
    edge_types: tuple[EdgeTypeName, ...] = ()


class StackedFeatures:
    """Rows of one feature source after those of another."""

    def __init__(self, sources: Sequence[FeatureSource]) -> None:
        self._sources = list(sources)
        self._ends = np.cumsum([source.num_rows for source in sources])
        self.num_rows, self.width = int(self._ends[-1]), sources[0].width

    def read(self, rows: IdArray) -> FloatArray:
        """Return float32 (len(rows), F)."""
        found = np.empty((len(rows), self.width), dtype=np.float32)
        source_of = np.searchsorted(self._ends, rows, side="right")
        for number in np.unique(source_of):
            mine = source_of == number
            first = self._ends[number] - self._sources[number].num_rows
            found[mine] = self._sources[number].read(rows[mine] - first)
        return found

    read_as_stored = read


def stack_features(where: str, sources: Sequence[FeatureSource]) -> FeatureSource:
    """Return sources of one width as one.

    Raises
    ------
    NodeSourceError
        Widths differ.
    """
    widths = sorted({source.width for source in sources})
    if len(widths) > 1:
        raise NodeSourceError(f"{where}: features must have one width, got {widths}; mend the shorter rows")
    return sources[0] if len(sources) == 1 else StackedFeatures(sources)


def store_graph(graph: NumberedGraph, scratch: Scratch, chunk_edges: int) -> StoredGraph:
    """Read a graph into temporary arrays.

    Parameters
    ----------
    graph : NumberedGraph
    scratch : Scratch
        Keeps edges and columns until the run ends.
    chunk_edges : int

    Raises
    ------
    TableError
        An id is out of range, a column has another number of rows or values that it cannot have.
    """
    offsets = [0, *accumulate(nodes.num_nodes for nodes in graph.nodes)]
    firsts = [0, *accumulate(edges.num_edges for edges in graph.edges)]
    if offsets[-1] == 0:
        raise NodeSourceError(f"{graph.where}: must have at least one node, got none; give a graph")
    src, dst = _store_ends(graph, offsets, firsts, scratch)
    source = StoredEdges(
        src,
        dst,
        offsets[-1],
        chunk_edges,
        etype=_store_types(graph, firsts, scratch),
        weight=_store_columns(graph, firsts, scratch, "weight", np.float32, default=1),
    )
    return StoredGraph(
        source=source,
        table=_node_table(graph, offsets, scratch),
        edge_table=EdgeTable(time=_store_times(graph, firsts, scratch), features=_edge_features(graph, scratch)),
        offsets=tuple(offsets) if graph.node_types else (),
    )


def read_column(where: str, column: Column, dtype: type[Any], num_rows: int) -> npt.NDArray[Any]:
    """Return a column of numbers as one array.

    Raises
    ------
    TableError
        It has another number of rows, or a value that `dtype` cannot hold.
    """
    values = np.empty(num_rows, dtype=dtype)
    _fill(values, where, column, dtype)
    return values


def _fill(filled: npt.NDArray[Any], where: str, column: Column, dtype: type[Any]) -> None:
    first_row = 0
    for table, name in zip(column.tables, column.names, strict=True):
        if table.is_text:
            table = read_as(table, {name: pa.float64() if np.issubdtype(dtype, np.floating) else pa.int64()})
        row = 0
        for batch in table.batches([name], BATCH_ROWS):
            _check_fits(where, name, first_row + row + batch.num_rows, len(filled), at_end=False)
            rows = slice(first_row + row, first_row + row + batch.num_rows)
            filled[rows] = column_values(table, name, batch.column(0), dtype, row)
            row += batch.num_rows
        first_row += row
    _check_fits(where, ", ".join(dict.fromkeys(column.names)), first_row, len(filled), at_end=True)


def _check_fits(where: str, name: str, got: int, expected: int, *, at_end: bool) -> None:
    if got > expected or (at_end and got < expected):
        more = "" if at_end else " or more"
        raise EdgeSourceError(f"{where}: {name} must have {expected} rows, got {got}{more}; write it again")


def _store_ends(
    graph: NumberedGraph, offsets: Sequence[int], firsts: Sequence[int], scratch: Scratch
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    dtype = nid_dtype(offsets[-1])
    src, dst = scratch.array("src", (firsts[-1],), dtype), scratch.array("dst", (firsts[-1],), dtype)
    for edges, first in zip(graph.edges, firsts, strict=False):
        row = 0
        for sources, targets in _nids(edges, graph.nodes):
            _check_fits(graph.where, "edges", row + len(sources), edges.num_edges, at_end=False)
            rows = slice(first + row, first + row + len(sources))
            src[rows] = sources + offsets[edges.src_type]
            dst[rows] = targets + offsets[edges.dst_type]
            row += len(sources)
        _check_fits(graph.where, "edges", row, edges.num_edges, at_end=True)
    return src, dst


def _nids(edges: NumberedEdges, nodes: Sequence[NumberedNodes]) -> Iterator[tuple[IdArray, IdArray]]:
    for table in edges.tables:
        row = 0
        src, dst = _ends_of(table)
        for batch in TableEdgeReader(table, EdgeColumns(src=src, dst=dst, etype="", weight="")).batches(BATCH_ROWS):
            check_range(table.name, "src", batch.src, row, nodes[edges.src_type].num_nodes)
            check_range(table.name, "dst", batch.dst, row, nodes[edges.dst_type].num_nodes)
            yield batch.src, batch.dst
            row += len(batch)


def _ends_of(table: Table) -> tuple[str, str]:
    if len(table.names) < 2:
        raise EdgeSourceError(f"{table.name}: edges must have two columns, got {', '.join(table.names)}; mend the file")
    return table.names[0], table.names[1]


def _store_types(graph: NumberedGraph, firsts: Sequence[int], scratch: Scratch) -> npt.NDArray[np.int32] | None:
    if len(graph.edge_types) <= 1:
        return _store_columns(graph, firsts, scratch, "etype", np.int32)
    etype = scratch.array("etype", (firsts[-1],), np.int32)
    for code, first in enumerate(firsts[:-1]):
        etype[first : firsts[code + 1]] = code
    return etype


def _store_times(graph: NumberedGraph, firsts: Sequence[int], scratch: Scratch) -> npt.NDArray[Any] | None:
    columns = [edges.time for edges in graph.edges if edges.time is not None]
    kinds = [schema_of(t, [name]).field(0).type for c in columns for t, name in zip(c.tables, c.names, strict=True)]
    dtype = np.float64 if any(map(pa.types.is_floating, kinds)) else np.int64
    return _store_columns(graph, firsts, scratch, "time", dtype)


def _store_columns(
    graph: NumberedGraph, firsts: Sequence[int], scratch: Scratch, what: str, dtype: type[Any], default: float = 0
) -> npt.NDArray[Any] | None:
    """Fill an array in the order of the edges; `default` where a type lacks the column."""
    columns: list[Column | None] = [getattr(edges, what) for edges in graph.edges]
    if not any(columns):
        return None
    stored = scratch.array(what, (firsts[-1],), dtype)
    for column, low, high in zip(columns, firsts, firsts[1:], strict=False):
        if column is None:
            stored[low:high] = default
        else:
            _fill(stored[low:high], graph.where, column, dtype)
    return stored


def _edge_features(graph: NumberedGraph, scratch: Scratch) -> FeatureSource | None:
    given = [_opened(graph.where, edges.features, edges.num_edges, scratch) for edges in graph.edges]
    found = [features for features in given if features is not None]
    if not found:
        return None
    if len(found) < len(given):
        raise EdgeSourceError(
            f"{graph.where}: features of edges must be there for every edge type, got them for {len(found)} of "
            f"{len(given)}; drop them, or add zeros"
        )
    return stack_features(f"{graph.where}: edges", found)


def _node_table(graph: NumberedGraph, offsets: Sequence[int], scratch: Scratch) -> NodeTable:
    features = [_opened(graph.where, nodes.features, nodes.num_nodes, scratch) for nodes in graph.nodes]
    has_own = bool(graph.node_types) and any(source is not None for source in features)
    counts = [nodes.num_nodes for nodes in graph.nodes]
    return NodeTable(
        num_nodes=offsets[-1],
        label=_joined([nodes.label for nodes in graph.nodes], counts, NO_LABEL, np.int64),
        split=_joined([nodes.split for nodes in graph.nodes], counts, 0, np.uint8),
        ntype=np.repeat(np.arange(len(counts), dtype=np.int32), counts) if graph.node_types else None,
        features=None if graph.node_types else features[0],
        features_by_type=tuple(features) if has_own else (),
    )


def _joined(
    arrays: Sequence[npt.NDArray[Any] | None], counts: Sequence[int], default: int, dtype: type[Any]
) -> npt.NDArray[Any] | None:
    if all(array is None for array in arrays):
        return None
    return np.concatenate(
        [
            np.full(count, default, dtype=dtype) if array is None else array.astype(dtype, copy=False)
            for array, count in zip(arrays, counts, strict=True)
        ]
    )


def _opened(where: str, features: Features | None, num_rows: int, scratch: Scratch) -> FeatureSource | None:
    if features is None:
        return None
    if isinstance(features, FeatureTables):
        features = store_features(features.tables, [table.names for table in features.tables], num_rows, scratch)
        if features is None:
            return None
    if features.num_rows != num_rows:
        raise NodeSourceError(
            f"{where}: rows of features must be {num_rows}, one a node or edge, got {features.num_rows}; mend them"
        )
    return features
