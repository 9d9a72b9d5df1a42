"""The interface between bytes and what rows mean, and tables that are made of other tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from asepr.errors import TableError
from asepr.formats.text_tables import KINDS, TextTable, fits


class Table(Protocol):
    """Rows with named columns that can be read again and again, in the order in which they are stored."""

    @property
    def name(self) -> str:
        """How messages call it: path, glob or URI."""

    @property
    def names(self) -> list[str]:
        """Column names. Cheap, unlike `schema`, which for text may need a pass."""

    @property
    def has_names(self) -> bool:
        """Whether the names are stored; if not, columns have a fixed meaning or are numbered `0`, `1`, ..."""

    @property
    def is_text(self) -> bool:
        """Whether values are parsed from text, so that `read_as` decides what they are."""

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types as stored. Text: int64, float64 or string, the first that fits the whole file."""

    @property
    def num_nodes(self) -> int | None:
        """Number of nodes, where the format itself states it (Matrix Market, METIS), else None."""

    def num_rows(self) -> int | None:
        """Return the number of rows as metadata states it, None where only a pass can tell."""

    def bounds(self, columns: Sequence[str]) -> tuple[int, int] | None:
        """Return smallest and largest value of integer columns as metadata states it, else None.

        None also where one of the columns may hold nulls.
        """

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, these columns in this order, at most about `batch_rows` at a time.

        Raises
        ------
        TableError
            The bytes are damaged or changed since the table was opened.
        """


class CastTable:
    """A table some of whose columns are read as other types.

    Values must survive: a fraction is no integer, and text that is no number has no number.

    Raises
    ------
    TableError
        While reading, at the first row that cannot be cast.
    """

    def __init__(self, table: Table, types: Mapping[str, pa.DataType]) -> None:
        self._table = table
        self._types = dict(types)
        self.name, self.names, self.has_names = table.name, table.names, table.has_names
        self.num_nodes, self.is_text = table.num_nodes, False
        self.num_rows, self.bounds = table.num_rows, table.bounds

    @property
    def schema(self) -> pa.Schema:
        """Names and types after the cast."""
        return pa.schema([(field.name, self._types.get(field.name, field.type)) for field in self._table.schema])

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows, cast."""
        first_row = 0
        for batch in self._table.batches(columns, batch_rows):
            arrays = [self._cast(name, array, first_row) for name, array in zip(columns, batch.columns, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
            first_row += batch.num_rows

    def _cast(self, name: str, array: pa.Array, first_row: int) -> pa.Array:
        kind = self._types.get(name, array.type)
        try:
            return pc.cast(array, kind)
        except pa.ArrowException:
            row, value = next((i, v) for i, v in enumerate(array) if not _can_be(v, kind))
            raise TableError(
                f"{self.name}: row {first_row + row}: {name} must be {kind}, got {value.as_py()!r}; mend the row"
            ) from None


class FilesTable:
    """Files of the same columns, one after the other; folders as `year=2020` give further columns.

    Parameters
    ----------
    name : str
    tables : sequence of Table
        In the order in which to read them.
    partitions : sequence of dict
        For each table the columns that its folders state.

    Raises
    ------
    TableError
        Files, or their folders, have different columns, or columns whose types have nothing in common.
    """

    num_nodes = None

    def __init__(self, name: str, tables: Sequence[Table], partitions: Sequence[Mapping[str, str | None]]) -> None:
        self.name = name
        self._tables = list(tables)
        self._partitions = list(partitions)
        self._added = {key: _partition_type([p.get(key) for p in partitions]) for key in partitions[0]}
        self.has_names = all(table.has_names for table in tables)
        self.is_text = all(table.is_text for table in tables)
        self.names = [*(n for n in tables[0].names if n not in self._added), *self._added]
        for table, partition in zip(tables, partitions, strict=True):
            names = {*table.names, *partition}
            if names != set(self.names):
                raise TableError(
                    f"{table.name}: must have the columns {', '.join(self.names)} as the first file of {name}, "
                    f"got {', '.join(sorted(names))}; keep other files elsewhere"
                )

    @property
    def schema(self) -> pa.Schema:
        """Names, and types that hold the values of all files."""
        return self.schema_of(self.names)

    def schema_of(self, columns: Sequence[str]) -> pa.Schema:
        """Return names and types of some columns, as in `schema`."""
        stored = [name for name in columns if name not in self._added]
        schemas = [schema_of(table, stored) for table in self._tables]
        types = {name: _common_type(self.name, name, [s.field(name).type for s in schemas]) for name in stored}
        return pa.schema([(name, (types | self._added)[name]) for name in columns])

    def num_rows(self) -> int | None:
        """Return the number of rows of all files, where each says its own."""
        counts = [table.num_rows() for table in self._tables]
        return None if None in counts else sum(count for count in counts if count is not None)

    def bounds(self, columns: Sequence[str]) -> tuple[int, int] | None:
        """Return the bounds over all files, where each file with rows says its own."""
        if set(columns) & set(self._added):
            return None
        found = [table.bounds(columns) for table in self._tables if table.num_rows() != 0]
        known = [bounds for bounds in found if bounds is not None]
        if not known or len(known) < len(found):
            return None
        return min(low for low, _ in known), max(high for _, high in known)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file after those of another, types alike."""
        schema = self.schema_of(columns)
        types = dict(zip(schema.names, schema.types, strict=True))
        for table, partition in zip(self._tables, self._partitions, strict=True):
            stored = {name: kind for name, kind in types.items() if name not in partition}
            for batch in read_as(table, stored).batches(list(stored), batch_rows):
                arrays = [
                    batch.column(name) if name in stored else _repeated(partition[name], kind, batch.num_rows)
                    for name, kind in types.items()
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def read_as(self, types: Mapping[str, pa.DataType]) -> "FilesTable":
        """Return the same rows with these columns as these types."""
        tables = [read_as(table, {n: t for n, t in types.items() if n not in self._added}) for table in self._tables]
        files = FilesTable(self.name, tables, self._partitions)
        files._added |= {name: kind for name, kind in types.items() if name in self._added}
        return files


def read_as(table: Table, types: Mapping[str, pa.DataType]) -> Table:
    """Return the same rows with these columns as these types; text is parsed straight into them.

    Raises
    ------
    TableError
        While reading, at the first value that cannot be of the type.
    """
    if isinstance(table, TextTable | FilesTable):
        return table.read_as(types)
    if all(schema_of(table, list(types)).field(name).type == kind for name, kind in types.items()):
        return table
    return CastTable(table, types)


def schema_of(table: Table, columns: Sequence[str]) -> pa.Schema:
    """Return names and types of some columns; of text only these are looked through."""
    if isinstance(table, TextTable | FilesTable):
        return table.schema_of(columns)
    schema = table.schema
    return pa.schema([schema.field(name) for name in columns])


def _can_be(value: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        value.cast(kind)
    except pa.ArrowException:
        return False
    return True


def _partition_type(values: Sequence[str | None]) -> pa.DataType:
    texts = pa.array(values, pa.string())
    return pa.int64() if fits(texts, pa.int64()) else pa.string()


def _repeated(value: str | None, kind: pa.DataType, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()).cast(kind), length)


def _common_type(where: str, name: str, types: Sequence[pa.DataType]) -> pa.DataType:
    kinds = set(types)
    if len(kinds) == 1:
        return types[0]
    if all(map(pa.types.is_integer, kinds)):
        return pa.int64()
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
        return pa.float64()
    if all(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind in KINDS for kind in kinds):
        return pa.string()
    raise TableError(
        f"{where}: column '{name}' must be of one type in all files, got {', '.join(sorted(map(str, kinds)))}; "
        "write them alike"
    )
