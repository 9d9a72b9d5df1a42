"""Tables on disk: which reader a location needs."""

import os
from collections.abc import Callable
from pathlib import Path

from asepr.errors import TableError
from asepr.formats.arrow_tables import IpcTable, ParquetTable
from asepr.formats.locations import StoredFile, find_files
from asepr.formats.matrix_tables import MatrixMarketTable, MetisTable
from asepr.formats.numpy_tables import NumpyTable
from asepr.formats.table import CastTable, FilesTable, Table, read_as, schema_of
from asepr.formats.text_lines import SPACE
from asepr.formats.text_tables import open_text

__all__ = ["READERS", "CastTable", "FilesTable", "Table", "open_table", "read_as", "schema_of"]

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zst")


def open_table(location: Path | str, *, format: str | None = None, has_header: bool | None = None) -> Table:
    """Open a table by its suffix.

    Parameters
    ----------
    location : path or str
        A file; a folder or glob, whose files are read one after the other, sorted by path, and may be partitioned
        as Hive does (`year=2020/...`: then `year` is a column); or an `s3://` or `gs://` URI of any of these.
    format : str, optional
        A key of `READERS` without its dot, where the suffix does not tell.
    has_header : bool, optional
        Whether text begins with a line of names; None: unless all fields of the first line are numbers.

    Raises
    ------
    TableError
        Nothing is there, it is empty or damaged, or nobody reads that suffix.
    """
    files = find_files(location)
    tables = [_open_file(file, format, has_header) for file in files]
    if len(tables) == 1 and not files[0].partition:
        return tables[0]
    return FilesTable(os.fspath(location).partition("?")[0], tables, [file.partition for file in files])


def _open_file(file: StoredFile, format: str | None, has_header: bool | None) -> Table:
    if file.size == 0:
        raise TableError(f"{file.name}: must hold rows, got an empty file; write it again")
    suffixes = file.suffixes
    while suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    suffix = f".{format}" if format else suffixes[-1] if suffixes else ""
    if suffix in SEPARATORS:
        return open_text(file, SEPARATORS[suffix], has_header=has_header)
    if suffix not in READERS:
        known = ", ".join([*READERS, *SEPARATORS])
        raise TableError(f"{file.name}: suffix must be one of {known}, got '{suffix}'; convert the file")
    return READERS[suffix](file)


READERS: dict[str, Callable[[StoredFile], Table]] = {
    ".parquet": ParquetTable,
    ".pq": ParquetTable,
    ".arrow": IpcTable,
    ".feather": IpcTable,
    ".ipc": IpcTable,
    ".npy": NumpyTable,
    ".npz": NumpyTable,
    ".mtx": MatrixMarketTable,
    ".graph": MetisTable,
    ".metis": MetisTable,
}
SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": SPACE, ".edges": SPACE, ".el": SPACE, ".edgelist": SPACE}
"""Suffixes of text, and what is between its columns."""
