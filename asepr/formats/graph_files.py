"""Graphs whose ids need a map: tables of nodes and edges, of one type or many, rewritten to nids."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from asepr.contracts import (
    NO_LABEL,
    NO_LABELS,
    SPLIT_CODES,
    ByteArray,
    EdgeTable,
    FeatureSource,
    FloatArray,
    IdArray,
    NodeTable,
    PartArray,
    Scratch,
)
from asepr.errors import EdgeSourceError, NodeSourceError
from asepr.formats.edge_readers import EdgeColumns, checked_numbers
from asepr.formats.ids import BATCH_ROWS, EdgeKeys, IdMap, IdMapper, NodeKeys
from asepr.formats.node_sources import (
    DenseFeatures,
    NodeColumns,
    feature_matrix,
    is_list,
    label_matrix,
    open_features,
    split_codes,
)
from asepr.formats.stored_edges import StoredEdges, nid_dtype
from asepr.formats.tables import Table, read_as, schema_of

EdgeTypeName = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFiles:
    """The nodes of one type: tables, one after the other, or none where nodes are those in edges.

    Attributes
    ----------
    tables : tuple of Table
    columns : NodeColumns
    features : Path, optional
        A feature file of one row for each row of the tables.
    """

    tables: tuple[Table, ...] = ()
    columns: NodeColumns = field(default_factory=NodeColumns)
    features: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeFiles:
    """One table of edges.

    Attributes
    ----------
    table : Table
    columns : EdgeColumns
        `src` and `dst` must be there; etype and weight are read where they are.
    src_type, dst_type : int
        Node types of the ends.
    etype : int, optional
        Type of all edges of the table; None: as the column of edge types says, if there is one.
    time : str, optional
        Column of times: integers, floats or timestamps.
    split : str, optional
        Column of train, val, test.
    """

    table: Table
    columns: EdgeColumns
    src_type: int = 0
    dst_type: int = 0
    etype: int | None = None
    time: str | None = None
    split: str | None = None

    @property
    def tables(self) -> tuple[Table, ...]:
        """The table, as one of those of an edge type."""
        return (self.table,)

    @property
    def ends(self) -> tuple[str, str]:
        """Columns of both ends."""
        return self.columns.src, self.columns.dst

    def keys(self) -> EdgeKeys:
        """Return what the id mapper needs."""
        return EdgeKeys(
            table=self.table,
            src=self.columns.src,
            dst=self.columns.dst,
            src_type=self.src_type,
            dst_type=self.dst_type,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphFiles:
    """A graph on disk: one entry a node type, and tables of edges in the order in which they are numbered.

    `node_types` and `edge_types` are empty where the graph has one of each and they have no name. `where` is how
    messages call the graph, `why_mapped` why its ids are mapped. `rules` are what edges stand for and how they are
    split, by the names of `EdgeRules`, where the graph itself says so.
    """

    nodes: tuple[NodeFiles, ...]
    edges: tuple[EdgeFiles, ...]
    node_types: tuple[str, ...] = ()
    edge_types: tuple[EdgeTypeName, ...] = ()
    where: str = "the graph"
    why_mapped: str = "ids of several types are numbered type after type"
    rules: Mapping[str, Any] = field(default_factory=dict)

    def node_keys(self) -> list[NodeKeys]:
        """Return the columns of ids of all node tables."""
        return [
            NodeKeys(table=table, id=nodes.columns.id, ntype=ntype)
            for ntype, nodes in enumerate(self.nodes)
            for table in nodes.tables
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredGraph:
    """A graph whose ids are nids: edges, nodes, and the maps that lead back where there are any."""

    source: StoredEdges
    table: NodeTable
    edge_table: EdgeTable
    offsets: tuple[int, ...]
    maps: tuple[IdMap, ...] = ()


def map_graph(
    files: GraphFiles,
    scratch: Scratch,
    folder: Path,
    maps: Path,
    *,
    memory_bytes: int,
    chunk_edges: int,
    allow_negative: bool = False,
) -> StoredGraph:
    """Read a graph once for its ids and once for its columns.

    Parameters
    ----------
    files : GraphFiles
    scratch : Scratch
        Keeps edges and columns until the run ends.
    folder : Path
        Where the database of ids works; it must not exist, and can be removed when this returns.
    maps : Path
        Where the maps are kept.
    memory_bytes, chunk_edges : int
    allow_negative : bool

    Raises
    ------
    TableError
        A table, a column or a value is not what it must be.
    """
    mapper = IdMapper(
        folder,
        maps,
        memory_bytes,
        files.node_keys(),
        [edges.keys() for edges in files.edges],
        num_types=len(files.nodes),
        allow_negative=allow_negative,
    )
    try:
        offsets = mapper.offsets
        if offsets[-1] == 0:
            raise EdgeSourceError(f"{files.edges[0].table.name}: must hold at least one edge, got none; give edges")
        ends = _store_ends(mapper, files, scratch)
    finally:
        mapper.close()
    firsts = np.concatenate([[0], np.cumsum(mapper.num_rows)]).tolist()
    etype, weight = _store_types(files, firsts, scratch), _store_weights(files, firsts, scratch)
    source = StoredEdges(*ends, offsets[-1], chunk_edges, etype=etype, weight=weight)
    return StoredGraph(
        source=source,
        table=_read_nodes(files, offsets, scratch),
        edge_table=EdgeTable(time=_store_times(files, firsts, scratch), split=read_splits(files, firsts, scratch)),
        maps=tuple(mapper.maps),
        offsets=tuple(offsets) if files.node_types else (),
    )


class FilteredTable:
    """The rows of a table whose columns have given values.

    Parameters
    ----------
    table : Table
    where : mapping of column to value
    """

    def __init__(self, table: Table, where: Mapping[str, Any]) -> None:
        self._table, self._where = table, dict(where)
        self.name, self.names, self.has_names = table.name, table.names, table.has_names
        self.is_text, self.num_nodes = False, None
        missing = [name for name in where if name not in table.names]
        if missing:
            raise EdgeSourceError(
                f"{table.name}: must have the column '{missing[0]}' that rows are chosen by, "
                f"got {', '.join(table.names)}; mend 'where'"
            )

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the table."""
        return self._table.schema

    def num_rows(self) -> int | None:
        """Return None: rows must be looked at."""
        return None

    def bounds(self, columns: Sequence[str]) -> tuple[int, int] | None:
        """Return None: rows must be looked at."""
        del columns
        return None

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are chosen."""
        wanted = list(dict.fromkeys([*columns, *self._where]))
        for batch in self._table.batches(wanted, batch_rows):
            chosen = batch.filter(self._chosen(batch))
            yield chosen.select(list(columns))

    def rows(self) -> IdArray:
        """Return int64: the numbers of the rows that are chosen."""
        found, first_row = [np.empty(0, np.int64)], 0
        for batch in self._table.batches(list(self._where), BATCH_ROWS):
            found.append(first_row + np.flatnonzero(self._chosen(batch).to_numpy(zero_copy_only=False)))
            first_row += batch.num_rows
        return np.concatenate(found)

    def _chosen(self, batch: pa.RecordBatch) -> pa.Array:
        mask = pa.array(np.ones(batch.num_rows, dtype=np.bool_))
        for name, value in self._where.items():
            column = batch.column(name)
            try:
                same = pc.equal(column, pa.scalar(value, column.type))
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                raise EdgeSourceError(
                    f"{self.name}: column '{name}' must be compared with a value of {column.type}, got {value!r}; "
                    "mend 'where'"
                ) from error
            mask = pc.and_(mask, pc.fill_null(same, False))
        return mask


class ChosenFeatures:
    """Some rows of a feature source, in a given order."""

    def __init__(self, features: FeatureSource, rows: IdArray) -> None:
        self._features, self._rows = features, rows
        self.num_rows, self.width = len(rows), features.width

    def read(self, rows: IdArray) -> FloatArray:
        """Return float32 (len(rows), F)."""
        return self._features.read(self._rows[rows])

    def read_as_stored(self, rows: IdArray) -> Any:
        """Return the rows as they are stored."""
        return self._features.read_as_stored(self._rows[rows])


def _store_ends(mapper: IdMapper, files: GraphFiles, scratch: Scratch) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    shape = (sum(mapper.num_rows),)
    dtype = nid_dtype(mapper.offsets[-1])
    src, dst = scratch.array("src", shape, dtype), scratch.array("dst", shape, dtype)
    filled = 0
    for index in range(len(files.edges)):
        for sources, targets in mapper.ends(index):
            src[filled : filled + len(sources)] = sources
            dst[filled : filled + len(targets)] = targets
            filled += len(sources)
    return src, dst


def _store_types(files: GraphFiles, firsts: list[int], scratch: Scratch) -> PartArray | None:
    if len(files.edge_types) > 1:
        etype = scratch.array("etype", (firsts[-1],), np.int32)
        for edges, low, high in zip(files.edges, firsts, firsts[1:], strict=False):
            etype[low:high] = edges.etype
        return etype
    names = [_if_there(edges.table, edges.columns.etype) if edges.etype is None else None for edges in files.edges]
    return _store(files, names, firsts, scratch, "etype", np.int32)


def _store_weights(files: GraphFiles, firsts: list[int], scratch: Scratch) -> FloatArray | None:
    names = [_if_there(edges.table, edges.columns.weight) for edges in files.edges]
    return _store(files, names, firsts, scratch, "weight", np.float32, default=1)


def _store_times(files: GraphFiles, firsts: list[int], scratch: Scratch) -> npt.NDArray[Any] | None:
    names = [edges.time for edges in files.edges]
    kinds = [schema_of(e.table, [n]).field(0).type for e, n in zip(files.edges, names, strict=True) if n is not None]
    dtype = np.float64 if any(map(pa.types.is_floating, kinds)) else np.int64
    return _store(files, names, firsts, scratch, "time", dtype)


def read_splits(files: GraphFiles, firsts: Sequence[int], scratch: Scratch) -> ByteArray | None:
    """Return uint8 (E,): the code of each edge's split, training where a table has no column; None where none has one.

    Parameters
    ----------
    files : GraphFiles
    firsts : sequence of int
        First edge of each table, and the number of edges.
    scratch : Scratch

    Raises
    ------
    TableError
        A column is not there, or holds something else.
    """
    for edges in files.edges:
        if edges.split is not None and edges.split not in edges.table.names:
            raise EdgeSourceError(
                f"{edges.table.name}: must have the column '{edges.split}' that edges are split by, "
                f"got {', '.join(edges.table.names)}; name another, or give shares such as 0.8,0.1,0.1"
            )
    names = [edges.split for edges in files.edges]
    return _store(files, names, firsts, scratch, "edge_split", np.uint8, default=SPLIT_CODES["train"])


def _store(
    files: GraphFiles,
    names: Sequence[str | None],
    firsts: Sequence[int],
    scratch: Scratch,
    what: str,
    dtype: type[Any],
    default: float = 0,
) -> npt.NDArray[Any] | None:
    """Fill an array in the order of the edges from one column a table; `default` where a table has none."""
    if not any(names):
        return None
    stored = scratch.array(what, (firsts[-1],), dtype)
    for edges, name, low, high in zip(files.edges, names, firsts, firsts[1:], strict=False):
        if name is None:
            stored[low:high] = default
            continue
        row = 0
        for batch in edges.table.batches([name], BATCH_ROWS):
            stored[low + row : low + row + batch.num_rows] = column_values(
                edges.table, name, batch.column(0), dtype, row
            )
            row += batch.num_rows
    return stored


def column_values(table: Table, name: str, column: pa.Array, dtype: type[Any], first_row: int) -> npt.NDArray[Any]:
    """Return numbers or times of a batch in `dtype`, and names of splits as codes.

    Raises
    ------
    TableError
        A value is missing, or not what it must be.
    """
    if dtype is np.uint8:
        return split_codes(table.name, name, column, first_row)
    if column.null_count:
        row = first_row + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise EdgeSourceError(f"{table.name}: row {row}: {name} must have a value, got null; fill it or drop the row")
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    return checked_numbers(table.name, name, column.to_numpy(zero_copy_only=False), dtype, first_row)


def _if_there(table: Table, name: str) -> str | None:
    return name if name in table.names else None


def _read_nodes(files: GraphFiles, offsets: Sequence[int], scratch: Scratch) -> NodeTable:
    """Read what is known of the nodes: as rows follow in the files, so do nids."""
    num_nodes = offsets[-1]
    labels = _read_many_labels(files, offsets)
    label = np.full(num_nodes, NO_LABEL, dtype=np.int64) if labels is None and _any_has(files, "label") else None
    split = np.zeros(num_nodes, dtype=np.uint8) if _any_has(files, "split") else None
    ntype = np.zeros(num_nodes, dtype=np.int32) if files.node_types or _any_has(files, "ntype") else None
    features: list[FeatureSource | None] = []
    for code, nodes in enumerate(files.nodes):
        row = offsets[code]
        if ntype is not None and files.node_types:
            ntype[row : offsets[code + 1]] = code
        for table in nodes.tables:
            for filled, name in ((label, nodes.columns.label), (split, nodes.columns.split), (ntype, None)):
                name = nodes.columns.ntype if name is None and not files.node_types else name
                if filled is not None and name in table.names:
                    _fill(filled, row, table, str(name))
            row += _count_rows(table, nodes.columns.id)
        features.append(_features(nodes, offsets[code + 1] - offsets[code], scratch))
    has_own = bool(files.node_types) and any(source is not None for source in features)
    return NodeTable(
        num_nodes=num_nodes,
        label=label,
        labels=labels,
        split=split,
        ntype=ntype,
        features=None if files.node_types else features[0],
        features_by_type=tuple(features) if has_own else (),
    )


def _read_many_labels(files: GraphFiles, offsets: Sequence[int]) -> ByteArray | None:
    """Return uint8 (N, C) where columns of labels hold lists; without such a column a table's nodes are not known."""
    labels: ByteArray | None = None
    for code, nodes in enumerate(files.nodes):
        row, name = offsets[code], nodes.columns.label
        for table in nodes.tables:
            if name in table.names and is_list(schema_of(table, [name]).field(name).type):
                column = pa.Table.from_batches(table.batches([name], BATCH_ROWS), schema_of(table, [name])).column(0)
                found = label_matrix(table.name, name, column)
                if labels is None:
                    labels = np.full((offsets[-1], found.shape[1]), NO_LABELS, dtype=np.uint8)
                if found.shape[1] != labels.shape[1]:
                    raise NodeSourceError(
                        f"{table.name}: column '{name}' must hold lists of {labels.shape[1]} values as in the other "
                        f"tables, got {found.shape[1]}; pad the lists"
                    )
                labels[row : row + len(found)] = found
            row += _count_rows(table, nodes.columns.id)
    return labels


def _count_rows(table: Table, column: str) -> int:
    known = table.num_rows()
    return known if known is not None else sum(batch.num_rows for batch in table.batches([column], BATCH_ROWS))


def _any_has(files: GraphFiles, column: str) -> bool:
    return any(getattr(nodes.columns, column) in table.names for nodes in files.nodes for table in nodes.tables)


def _fill(filled: npt.NDArray[Any], row: int, table: Table, name: str) -> None:
    first_row = 0
    for batch in table.batches([name], BATCH_ROWS):
        column, rows = batch.column(0), slice(row + first_row, row + first_row + batch.num_rows)
        if filled.dtype == np.uint8:
            filled[rows] = split_codes(table.name, name, column, first_row)
        else:
            column = pc.fill_null(column, NO_LABEL) if filled.dtype == np.int64 else column
            filled[rows] = column_values(table, name, column, filled.dtype.type, first_row)
            if len(column) and filled[rows].min() < NO_LABEL:
                bad = int(np.argmin(filled[rows]))
                raise NodeSourceError(
                    f"{table.name}: row {first_row + bad}: {name} must be at least -1, "
                    f"got {filled[rows][bad]}; -1 means none"
                )
        first_row += batch.num_rows


def _features(nodes: NodeFiles, num_nodes: int, scratch: Scratch) -> FeatureSource | None:
    if nodes.features is not None:
        return _feature_file(nodes, num_nodes)
    if not nodes.tables:
        return None
    names = nodes.columns.feature_names(nodes.tables[0].names)
    if not names:
        return None
    for table in nodes.tables:
        missing = [name for name in names if name not in table.names]
        if missing:
            raise NodeSourceError(
                f"{table.name}: must have the feature column '{missing[0]}', got {', '.join(table.names)}; mend it"
            )
    return store_features(nodes.tables, [names] * len(nodes.tables), num_nodes, scratch)


def store_features(
    tables: Sequence[Table], names: Sequence[list[str]], num_rows: int, scratch: Scratch
) -> FeatureSource | None:
    """Fill an array from columns of tables, one after the other.

    Parameters
    ----------
    tables : sequence of Table
    names : sequence of list of str
        Columns of each table, side by side.
    num_rows : int
        Rows of all tables.
    scratch : Scratch

    Returns
    -------
    FeatureSource, or None where no table has a row

    Raises
    ------
    NodeSourceError
        A value is no finite number, or rows differ in width or number from what they must be.
    """
    array: npt.NDArray[Any] | None = None
    row = 0
    for table, columns in zip(tables, names, strict=True):
        if table.is_text:
            table = read_as(table, dict.fromkeys(columns, pa.float64()))
        first_row = 0
        for batch in table.batches(columns, BATCH_ROWS):
            block = feature_matrix(table.name, columns, batch, first_row)
            if array is None:
                array = scratch.array("features", (num_rows, block.shape[1]), np.float32)
            if block.shape[1] != array.shape[1]:
                raise NodeSourceError(
                    f"{table.name}: row {first_row}: features must have one width, got {block.shape[1]} after "
                    f"{array.shape[1]}; mend the row"
                )
            first_row += batch.num_rows
            if row + first_row > num_rows:
                break
            array[row + first_row - len(block) : row + first_row] = block
        row += first_row
    if array is not None and row != num_rows:
        more = " or more" if row > num_rows else ""
        raise NodeSourceError(f"{tables[0].name}: rows must be {num_rows}, got {row}{more}; write the features again")
    return None if array is None else DenseFeatures(array, tables[0].name)


def _feature_file(nodes: NodeFiles, num_nodes: int) -> FeatureSource:
    assert nodes.features is not None
    features = open_features(nodes.features)
    table = nodes.tables[0] if len(nodes.tables) == 1 else None
    if isinstance(table, FilteredTable) and features.num_rows != num_nodes:
        rows = table.rows()
        if len(rows) == num_nodes and (not len(rows) or rows[-1] < features.num_rows):
            return ChosenFeatures(features, rows)
    if features.num_rows != num_nodes:
        raise NodeSourceError(
            f"{nodes.features}: rows must be one a node, {num_nodes}, got {features.num_rows}; write it again"
        )
    return features
