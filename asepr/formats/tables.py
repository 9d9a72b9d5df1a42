"""Tables on disk, wherever and however stored: the one interface between bytes and what rows mean."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from asepr.errors import TableError
from asepr.formats.arrow_tables import IpcTable, ParquetTable
from asepr.formats.locations import StoredFile, find_files

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zst")


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
        self.num_nodes = table.num_nodes
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


def read_as(table: Table, types: Mapping[str, pa.DataType]) -> Table:
    """Return the same rows with these columns as these types; text is parsed straight into them.

    Raises
    ------
    TableError
        While reading, at the first value that cannot be of the type.
    """
    return CastTable(table, types)


def open_table(location: Path | str, *, format: str | None = None) -> Table:
    """Open a table by its suffix.

    Parameters
    ----------
    location : path or str
        A file; a folder or glob, whose files are read one after the other, sorted by path, and may be partitioned
        as Hive does (`year=2020/...`: then `year` is a column); or an `s3://` or `gs://` URI of any of these.
    format : str, optional
        A key of `READERS` without its dot, where the suffix does not tell.

    Raises
    ------
    TableError
        Nothing is there, it is empty or damaged, or nobody reads that suffix.
    """
    files = find_files(location)
    tables = [_open_file(file, format) for file in files]
    return tables[0]


def _open_file(file: StoredFile, format: str | None) -> Table:
    if file.size == 0:
        raise TableError(f"{file.name}: must hold rows, got an empty file; write it again")
    suffixes = file.suffixes
    while suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    suffix = f".{format}" if format else suffixes[-1] if suffixes else ""
    if suffix not in READERS:
        known = ", ".join(READERS)
        raise TableError(f"{file.name}: suffix must be one of {known}, got '{suffix}'; convert the file")
    return READERS[suffix](file)


def _can_be(value: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        value.cast(kind)
    except pa.ArrowException:
        return False
    return True


READERS: dict[str, Callable[[StoredFile], Table]] = {
    ".parquet": ParquetTable,
    ".arrow": IpcTable,
    ".feather": IpcTable,
}
