"""Ids as people have them to nids: which graphs need a map, and making that map out of core."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from asepr.contracts import IdArray
from asepr.errors import AseprError, CapacityError, EdgeSourceError, NodeSourceError, OutputError
from asepr.formats.manifest import map_file
from asepr.formats.tables import Table, schema_of

IdMode: TypeAlias = Literal["auto", "dense", "map"]
ID_MODES: tuple[IdMode, ...] = ("auto", "dense", "map")

BATCH_ROWS = 1 << 17
MAP_GROUP_ROWS = 1 << 17
"""Rows of a row group of a map: what a reader holds at a time."""

DATABASE_SHARE = 0.5
"""Part of the memory budget that the database may use; the rest is for batches on their way."""

MIN_DATABASE_BYTES = 64_000_000

_DENSE_ROOM = 4
"""A dense graph has at most two ids an edge, and at least half of them occur."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IdDecision:
    """Whether ids are nids already, and why."""

    mode: Literal["dense", "map"]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class IdMap:
    """A kept map of one node type: row i of the file is node `first_nid + i`."""

    path: Path
    first_nid: int
    num_nodes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeKeys:
    """A table of edges and the columns of its two ends, with the node type of each."""

    table: Table
    src: str
    dst: str
    src_type: int = 0
    dst_type: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeKeys:
    """A table of nodes of one type, and its column of ids."""

    table: Table
    id: str
    ntype: int = 0


def key_kind(columns: Sequence[tuple[Table, str]]) -> pa.DataType:
    """Return the type that holds the ids of all columns: int64, uint64 or string.

    Integers beside strings are read as their decimal digits.

    Raises
    ------
    EdgeSourceError
        A column holds neither integers nor strings.
    """
    kinds = set()
    for table, name in columns:
        kind = schema_of(table, [name]).field(0).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise EdgeSourceError(
                f"{table.name}: column '{name}' must be integers or strings to be ids, got {kind}; store whole numbers"
            )
        kinds.add(kind)
    if not all(map(pa.types.is_integer, kinds)):
        return pa.string()
    return pa.uint64() if pa.uint64() in kinds else pa.int64()


def are_row_numbers(table: Table, column: str) -> bool:
    """Tell whether a column of ids is 0 .. N-1 in some order, in one pass and a byte a node."""
    if not pa.types.is_integer(schema_of(table, [column]).field(0).type):
        return False
    count = table.num_rows()
    if count is None:
        count = sum(batch.num_rows for batch in table.batches([column], BATCH_ROWS))
    seen = np.zeros(count, dtype=np.bool_)
    for batch in table.batches([column], BATCH_ROWS):
        ids = batch.column(0)
        if ids.null_count:
            return False
        values = ids.to_numpy(zero_copy_only=False)
        if len(values) and (values.min() < 0 or values.max() >= count):
            return False
        seen[values] = True
    return bool(seen.all())


def are_mostly_used(edges: Sequence[EdgeKeys]) -> tuple[int, int] | None:
    """Count the ids that occur in the edges.

    Returns
    -------
    (occurring, largest id + 1), or None where ids are so large that most of them cannot occur

    Raises
    ------
    EdgeSourceError
        An id is negative or missing.
    """
    num_edges, top = 0, -1
    for keys in edges:
        bounds, first_row = keys.table.bounds([keys.src, keys.dst]), keys.table.num_rows()
        if bounds is not None and first_row is not None and bounds[0] >= 0:
            num_edges, top = num_edges + first_row, max(top, bounds[1])
            continue
        first_row = 0
        for batch in keys.table.batches([keys.src, keys.dst], BATCH_ROWS):
            for name, column in zip((keys.src, keys.dst), batch.columns, strict=True):
                _check_keys(keys.table, name, column, first_row, allow_negative=False)
                if len(column):
                    top = max(top, pc.max(column).as_py())
            first_row += batch.num_rows
        num_edges += first_row
    if top >= _DENSE_ROOM * num_edges:
        return None
    seen = np.zeros(top + 1, dtype=np.bool_)
    for keys in edges:
        for batch in keys.table.batches([keys.src, keys.dst], BATCH_ROWS):
            for column in batch.columns:
                seen[column.to_numpy(zero_copy_only=False)] = True
    return int(np.count_nonzero(seen)), top + 1


def decide_ids(
    mode: IdMode, nodes: Sequence[NodeKeys], edges: Sequence[EdgeKeys], *, rows_are_nids: str | None = None
) -> IdDecision:
    """Say whether the ids of an untyped graph are nids already.

    Parameters
    ----------
    mode : "auto", "dense" or "map"
    nodes, edges
        All tables of the graph.
    rows_are_nids : str, optional
        What else the caller gave that says so, as `--num-nodes`.

    Raises
    ------
    EdgeSourceError
        An id is negative or missing, and no map was asked for.
    """
    if mode != "auto":
        return IdDecision(mode=mode, reason=f"--ids {mode}")
    for table, name in [*((n.table, n.id) for n in nodes), *_ends(edges)]:
        kind = schema_of(table, [name]).field(0).type
        if not pa.types.is_integer(kind):
            return IdDecision(mode="map", reason=f"column '{name}' of {Path(table.name).name} holds {kind}")
    for keys in nodes:
        if not are_row_numbers(keys.table, keys.id):
            return IdDecision(mode="map", reason="the ids of the node file are not 0 .. N-1")
    if nodes:
        return IdDecision(mode="dense", reason="the ids of the node file are 0 .. N-1")
    if rows_are_nids:
        return IdDecision(mode="dense", reason=f"{rows_are_nids} says that ids are row numbers")
    used = are_mostly_used(edges)
    if used is None:
        return IdDecision(mode="map", reason="less than half of the ids up to the largest occur in the edges")
    share = f"{used[0]:,} of the {used[1]:,} ids up to the largest occur in the edges"
    return IdDecision(mode="dense" if 2 * used[0] >= used[1] else "map", reason=share)


class IdMapper:
    """Maps ids of any kind to nids in a database on disk that spills below its memory limit.

    The nid of a node is its rank of first appearance within its type: in the node files of the
    type, in their order, if there are any; else in the edge files, a source before the destination
    of the same row. Types follow one another.

    Parameters
    ----------
    scratch : Path
        Folder for the database and what it spills; it must not exist.
    maps : Path
        Folder for the kept maps; made when missing.
    memory_bytes : int
    nodes, edges : sequence of NodeKeys, EdgeKeys
    num_types : int
    allow_negative : bool
        Whether a negative id is an id; otherwise it is taken for a missing one.

    Raises
    ------
    EdgeSourceError, NodeSourceError
        An id is missing, negative where that is not allowed, listed twice among the nodes, or in
        an edge but not among the nodes.

    Notes
    -----
    O((N + E) log E) time, memory of a part of the budget, disk for both ends of each edge.
    """

    def __init__(
        self,
        scratch: Path,
        maps: Path,
        memory_bytes: int,
        nodes: Sequence[NodeKeys],
        edges: Sequence[EdgeKeys],
        *,
        num_types: int = 1,
        allow_negative: bool = False,
    ) -> None:
        scratch.mkdir(parents=True)
        maps.mkdir(parents=True, exist_ok=True)
        self._maps_folder = maps
        self._edges = list(edges)
        self._allow_negative = allow_negative
        self._database = _connect(scratch, memory_bytes)
        self.num_rows: list[int] = []
        try:
            self._kinds = [key_kind(_columns_of(ntype, nodes, edges)) for ntype in range(num_types)]
            for index, keys in enumerate(edges):
                self.num_rows.append(self._add_edges(index, keys))
            self.maps = self._make_maps(nodes, num_types)
        except BaseException as error:
            self._database.close()
            if isinstance(error, duckdb.Error):
                raise _database_error(error) from error
            raise

    @property
    def offsets(self) -> list[int]:
        """First nid of each type, and the number of nodes."""
        return [*(kept.first_nid for kept in self.maps), sum(kept.num_nodes for kept in self.maps)]

    def close(self) -> None:
        """End the database; the maps stay."""
        self._database.close()

    def ends(self, index: int) -> Iterator[tuple[IdArray, IdArray]]:
        """Yield the nids of both ends of the edges of one table, in the order of its rows.

        Raises
        ------
        EdgeSourceError
            An end is not among the nodes.
        """
        keys = self._edges[index]
        query = f"""
            SELECT e.row AS row, s.nid AS src, d.nid AS dst FROM edges_{index} e
            LEFT JOIN nodes_{keys.src_type} s ON e.src = s.id
            LEFT JOIN nodes_{keys.dst_type} d ON e.dst = d.id ORDER BY e.row
        """
        first_row = 0
        try:
            for batch in self._database.sql(query).to_arrow_reader(BATCH_ROWS):
                for name in ("src", "dst"):
                    if batch.column(name).null_count:
                        raise self._unknown(index, name, first_row, batch.column(name))
                first_row += batch.num_rows
                yield batch.column("src").to_numpy(), batch.column("dst").to_numpy()
        except duckdb.Error as error:
            raise _database_error(error) from error

    def _add_edges(self, index: int, keys: EdgeKeys) -> int:
        kinds = [self._kinds[keys.src_type], self._kinds[keys.dst_type]]
        types = [_SQL_TYPES[kind] for kind in kinds]
        self._database.execute(f"CREATE TABLE edges_{index} (row BIGINT, src {types[0]}, dst {types[1]})")
        first_row = 0
        for batch in keys.table.batches([keys.src, keys.dst], BATCH_ROWS):
            columns = [
                self._keys(keys.table, name, column, kind, first_row)
                for name, column, kind in zip((keys.src, keys.dst), batch.columns, kinds, strict=True)
            ]
            row = pa.array(np.arange(first_row, first_row + batch.num_rows))
            self._insert(f"edges_{index}", pa.table([row, *columns], names=["row", "src", "dst"]))
            first_row += batch.num_rows
        return first_row

    def _make_maps(self, nodes: Sequence[NodeKeys], num_types: int) -> list[IdMap]:
        maps: list[IdMap] = []
        first_nid = 0
        for ntype in range(num_types):
            path = self._maps_folder / map_file(ntype)
            tables = [keys for keys in nodes if keys.ntype == ntype]
            batches = self._listed(tables, ntype) if tables else self._appearing(ntype)
            num_nodes = _write_map(path, batches, self._kinds[ntype], first_nid)
            self._database.execute(f"CREATE VIEW nodes_{ntype} AS SELECT id, nid FROM read_parquet('{_quoted(path)}')")
            if tables:
                self._check_once(tables, ntype, first_nid)
            maps.append(IdMap(path=path, first_nid=first_nid, num_nodes=num_nodes))
            first_nid += num_nodes
        return maps

    def _listed(self, tables: Sequence[NodeKeys], ntype: int) -> Iterator[pa.Array]:
        for keys in tables:
            first_row = 0
            for batch in keys.table.batches([keys.id], BATCH_ROWS):
                yield self._keys(keys.table, keys.id, batch.column(0), self._kinds[ntype], first_row)
                first_row += batch.num_rows

    def _appearing(self, ntype: int) -> Iterator[pa.Array]:
        parts, first_row = [], 0
        for index, keys in enumerate(self._edges):
            for end, (name, kind) in enumerate((("src", keys.src_type), ("dst", keys.dst_type))):
                if kind == ntype:
                    parts.append(f"SELECT {name} AS id, 2 * (row + {first_row}) + {end} AS place FROM edges_{index}")
            first_row += self.num_rows[index]
        if not parts:
            return
        query = f"SELECT id FROM ({' UNION ALL '.join(parts)}) GROUP BY id ORDER BY min(place)"
        for batch in self._database.sql(query).to_arrow_reader(BATCH_ROWS):
            yield batch.column(0)

    def _check_once(self, tables: Sequence[NodeKeys], ntype: int, first_nid: int) -> None:
        twice = self._database.execute(
            f"SELECT id, max(nid) FROM nodes_{ntype} GROUP BY id HAVING count(*) > 1 ORDER BY 2 LIMIT 1"
        ).fetchone()
        if twice is not None:
            names = ", ".join(keys.table.name for keys in tables)
            raise NodeSourceError(
                f"{names}: row {twice[1] - first_nid}: {tables[0].id} must occur once, got {twice[0]!r} again; "
                "drop one of the rows"
            )

    def _keys(self, table: Table, name: str, column: pa.Array, kind: pa.DataType, first_row: int) -> pa.Array:
        _check_keys(table, name, column, first_row, allow_negative=self._allow_negative)
        try:
            return column if column.type == kind else pc.cast(column, kind)
        except pa.ArrowException as error:
            raise EdgeSourceError(
                f"{table.name}: {name} must be whole numbers that are all negative or not, got {error}; use strings"
            ) from error

    def _insert(self, name: str, rows: pa.Table) -> None:
        self._database.register("incoming", rows)
        self._database.execute(f"INSERT INTO {name} SELECT * FROM incoming")
        self._database.unregister("incoming")

    def _unknown(self, index: int, name: str, first_row: int, nids: pa.Array) -> EdgeSourceError:
        row = first_row + int(np.argmax(nids.is_null().to_numpy(zero_copy_only=False)))
        # The rows that were being read are still open on the connection itself.
        cursor = self._database.cursor()
        found = cursor.execute(f"SELECT {name} FROM edges_{index} WHERE row = {row}").fetchone()
        keys = self._edges[index]
        column = keys.src if name == "src" else keys.dst
        return EdgeSourceError(
            f"{keys.table.name}: row {row}: {column} must be an id of the node file, got {found and found[0]!r}; "
            "add the node, or leave the node file out"
        )


_SQL_TYPES = {pa.int64(): "BIGINT", pa.uint64(): "UBIGINT", pa.string(): "VARCHAR"}


def _columns_of(ntype: int, nodes: Sequence[NodeKeys], edges: Sequence[EdgeKeys]) -> list[tuple[Table, str]]:
    listed = [(keys.table, keys.id) for keys in nodes if keys.ntype == ntype]
    src = [(keys.table, keys.src) for keys in edges if keys.src_type == ntype]
    return [*listed, *src, *((keys.table, keys.dst) for keys in edges if keys.dst_type == ntype)]


def _ends(edges: Sequence[EdgeKeys]) -> Iterator[tuple[Table, str]]:
    for keys in edges:
        yield keys.table, keys.src
        yield keys.table, keys.dst


def _check_keys(table: Table, name: str, column: pa.Array, first_row: int, *, allow_negative: bool) -> None:
    if column.null_count:
        row = first_row + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise EdgeSourceError(f"{table.name}: row {row}: {name} must have a value, got null; fill it or drop the row")
    if allow_negative or not len(column) or not pa.types.is_signed_integer(column.type):
        return
    values = column.to_numpy(zero_copy_only=False)
    if values.min() < 0:
        row = int(np.argmax(values < 0))
        raise EdgeSourceError(
            f"{table.name}: row {first_row + row}: {name} must not be negative, got {values[row]}; "
            "drop the row, or say --ids map where negative ids are ids"
        )


def _connect(scratch: Path, memory_bytes: int) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(
        scratch / "ids.duckdb",
        config={
            "memory_limit": f"{max(int(memory_bytes * DATABASE_SHARE), MIN_DATABASE_BYTES)}B",
            "temp_directory": str(scratch / "spilled"),
            "threads": str(min(os.cpu_count() or 1, 4)),
            "preserve_insertion_order": "false",
        },
    )
    database.execute("SET enable_progress_bar = false")
    return database


def _write_map(path: Path, batches: Iterator[pa.Array], kind: pa.DataType, first_nid: int) -> int:
    """Write ids beside their nids; return how many."""
    schema = pa.schema([("id", kind), ("nid", pa.int64())])
    num_nodes = 0
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        for ids in batches:
            nid: npt.NDArray[np.int64] = first_nid + np.arange(num_nodes, num_nodes + len(ids))
            writer.write_table(pa.table([ids, pa.array(nid)], schema=schema), row_group_size=MAP_GROUP_ROWS)
            num_nodes += len(ids)
    return num_nodes


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _database_error(error: duckdb.Error) -> AseprError:
    reason = " ".join(str(error).split())
    if isinstance(error, duckdb.OutOfMemoryException):
        return CapacityError(f"--memory must be enough to map the ids, got: {reason}; give more")
    return OutputError(f"ids: must be mapped in temporary files, got: {reason}; free space or choose another --out")
