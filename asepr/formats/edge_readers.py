"""One reader a file format: bytes in, batches of columns out. Ids are checked by the edge source."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from asepr.contracts import FloatArray, IdArray, PartArray
from asepr.errors import EdgeSourceError


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeColumns:
    """Names of the columns of an edge file.

    Attributes
    ----------
    src, dst : str
    etype, weight : str
        Read where the file has a column of that name.
    """

    src: str = "src"
    dst: str = "dst"
    etype: str = "etype"
    weight: str = "weight"


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeBatch:
    """Edges as they came from the file, in its order; dtypes as in `EdgeChunk`."""

    src: IdArray
    dst: IdArray
    etype: PartArray | None = None
    weight: FloatArray | None = None

    def __len__(self) -> int:
        return int(self.src.shape[0])

    def columns(self) -> tuple[npt.NDArray[Any] | None, ...]:
        """Return all columns, None where absent."""
        return self.src, self.dst, self.etype, self.weight

    def cut(self, start: int, stop: int) -> "EdgeBatch":
        """Return the edges `start:stop` of the batch, without a copy."""
        return EdgeBatch(
            src=self.src[start:stop],
            dst=self.dst[start:stop],
            etype=None if self.etype is None else self.etype[start:stop],
            weight=None if self.weight is None else self.weight[start:stop],
        )


class EdgeReader(Protocol):
    """A file of edges that can be read from the start again and again."""

    @property
    def path(self) -> Path | str:
        """Where the edges are, for messages."""

    @property
    def has_etype(self) -> bool:
        """Whether every batch carries `etype`."""

    @property
    def has_weight(self) -> bool:
        """Whether every batch carries `weight`."""

    def batches(self, batch_edges: int) -> Iterator[EdgeBatch]:
        """Yield the edges in file order, about `batch_edges` at a time."""

    def extent_from_metadata(self) -> tuple[int, int, int] | None:
        """Return (edges, smallest id, largest id) where the file's metadata tells, else None."""


def open_edge_reader(path: Path, columns: EdgeColumns) -> EdgeReader:
    """Choose the reader by the file's suffix.

    Raises
    ------
    EdgeSourceError
        No such file, an empty one, or a suffix nobody reads.
    """
    if not path.is_file():
        raise EdgeSourceError(f"{path}: must be a file, got nothing there; check the path")
    if path.stat().st_size == 0:
        raise EdgeSourceError(f"{path}: must hold edges, got an empty file; write it again")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    if suffix not in READERS:
        raise EdgeSourceError(f"{path}: suffix must be one of {', '.join(READERS)}, got '{suffix}'; convert the file")
    return READERS[suffix](path, columns)


class ParquetReader:
    """Edges in one Parquet file."""

    def __init__(self, path: Path, columns: EdgeColumns) -> None:
        self.path: Path | str = path
        try:
            with pq.ParquetFile(path) as file:
                schema, self._metadata = file.schema_arrow, file.metadata
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, "Parquet", error) from error
        _require_columns(path, schema.names, columns)
        self.has_etype = columns.etype in schema.names
        self.has_weight = columns.weight in schema.names
        self._columns = columns
        for name in (columns.src, columns.dst):
            _require_integers(path, name, schema.field(name).type)

    def extent_from_metadata(self) -> tuple[int, int, int] | None:
        """Return what the statistics of the row groups say, if each has them."""
        bounds: list[tuple[int, int]] = []
        for group in range(self._metadata.num_row_groups):
            for column in map(self._metadata.row_group(group).column, range(self._metadata.num_columns)):
                if column.path_in_schema not in (self._columns.src, self._columns.dst):
                    continue
                statistics = column.statistics
                if statistics is None or not statistics.has_min_max or statistics.null_count != 0:
                    return None
                bounds.append((int(statistics.min), int(statistics.max)))
        if not bounds:
            return None
        return self._metadata.num_rows, min(low for low, _ in bounds), max(high for _, high in bounds)

    def batches(self, batch_edges: int) -> Iterator[EdgeBatch]:
        """Yield one batch a `batch_edges` rows or rest of a row group."""
        names = [self._columns.src, self._columns.dst]
        names += [self._columns.etype] * self.has_etype + [self._columns.weight] * self.has_weight
        first_row = 0
        try:
            # Without pre-buffering a row group is read page by page, not held as a whole.
            with pq.ParquetFile(self.path, pre_buffer=False) as file:
                for batch in file.iter_batches(batch_size=batch_edges, columns=names):
                    yield self._convert(batch, first_row)
                    first_row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self.path, "Parquet", error) from error

    def _convert(self, batch: pa.RecordBatch, first_row: int) -> EdgeBatch:
        columns = self._columns
        etype = self._numbers(batch, columns.etype, np.int32, first_row) if self.has_etype else None
        weight = self._numbers(batch, columns.weight, np.float32, first_row) if self.has_weight else None
        return EdgeBatch(
            src=self._numbers(batch, columns.src, np.int64, first_row),
            dst=self._numbers(batch, columns.dst, np.int64, first_row),
            etype=etype,
            weight=weight,
        )

    def _numbers(self, batch: pa.RecordBatch, name: str, dtype: type[Any], first_row: int) -> npt.NDArray[Any]:
        column = batch.column(name)
        if column.null_count:
            row = first_row + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise EdgeSourceError(
                f"{self.path}: row {row}: {name} must have a value, got null; fill it or drop the row"
            )
        return checked_numbers(self.path, name, column.to_numpy(zero_copy_only=False), dtype, first_row)


class NpyReader:
    """Edges in one npy file of shape (E, 2)."""

    has_etype = False
    has_weight = False

    def __init__(self, path: Path, columns: EdgeColumns) -> None:
        del columns  # an npy file has no column names
        self.path: Path | str = path
        try:
            self._array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise _unreadable(path, "npy", error) from error
        if self._array.ndim != 2 or self._array.shape[1] != 2 or not np.issubdtype(self._array.dtype, np.integer):
            raise EdgeSourceError(
                f"{path}: must be an integer array of shape (E, 2), got {self._array.dtype} of shape "
                f"{self._array.shape}; save one row an edge: source id, destination id"
            )

    def extent_from_metadata(self) -> tuple[int, int, int] | None:
        """Return None: the file must be read."""
        return None

    def batches(self, batch_edges: int) -> Iterator[EdgeBatch]:
        """Yield slices of the array."""
        for start in range(0, self._array.shape[0], batch_edges):
            rows = self._array[start : start + batch_edges]
            yield EdgeBatch(
                src=checked_numbers(self.path, "src", rows[:, 0], np.int64, start),
                dst=checked_numbers(self.path, "dst", rows[:, 1], np.int64, start),
            )


class TextReader:
    """Edges in text: CSV, TSV or columns split by white space; `#` and `%` start comment lines.

    A first line whose fields are all numbers means that there is no header: then the first two
    columns are source and destination, and further columns are not read.
    """

    def __init__(self, path: Path, columns: EdgeColumns, separator: str) -> None:
        self.path: Path | str = path
        self._separator = separator
        self._skip, first_line = self._find_first_line(path)
        fields = first_line.split(None if separator == r"\s+" else separator)
        names = [field.strip().strip("\"'") for field in fields]
        self._names = names
        self._has_header = not all(_is_number(name) for name in names)
        if self._has_header:
            _require_columns(path, names, columns)
        else:
            self._names = [f"column {number}" for number in range(len(names))]
        if len(names) < 2:
            raise EdgeSourceError(
                f"{path}: each line must hold two ids, got {first_line!r} first; name the right format by the suffix"
            )
        self._columns = columns
        self.has_etype = self._has_header and columns.etype in names
        self.has_weight = self._has_header and columns.weight in names

    def extent_from_metadata(self) -> tuple[int, int, int] | None:
        """Return None: the file must be read."""
        return None

    def batches(self, batch_edges: int) -> Iterator[EdgeBatch]:
        """Yield parsed runs of lines."""
        import pandas as pd

        wanted = [self._columns.src, self._columns.dst] if self._has_header else self._names[:2]
        wanted += [self._columns.etype] * self.has_etype + [self._columns.weight] * self.has_weight
        first_row = 0
        try:
            # All columns are parsed, not only those wanted: only so are lines of another length noticed.
            with pd.read_csv(
                self.path,
                sep=self._separator,
                skiprows=self._skip,
                header=0 if self._has_header else None,
                names=self._names,
                index_col=False,
                comment="#",
                chunksize=batch_edges,
                skipinitialspace=True,
                low_memory=False,
                encoding="utf-8-sig",
            ) as frames:
                for frame in frames:
                    yield self._convert([frame[name].to_numpy() for name in wanted], first_row)
                    first_row += len(frame)
        except (ValueError, OSError, EOFError, zlib.error) as error:
            raise _unreadable(self.path, "text", error) from error

    def _convert(self, values: list[npt.NDArray[Any]], first_row: int) -> EdgeBatch:
        src, dst, *more = values
        etype = more.pop(0) if self.has_etype else None
        weight = more.pop(0) if self.has_weight else None
        names = self._columns
        return EdgeBatch(
            src=checked_numbers(self.path, names.src, src, np.int64, first_row),
            dst=checked_numbers(self.path, names.dst, dst, np.int64, first_row),
            etype=None if etype is None else checked_numbers(self.path, names.etype, etype, np.int32, first_row),
            weight=None if weight is None else checked_numbers(self.path, names.weight, weight, np.float32, first_row),
        )

    def _find_first_line(self, path: Path) -> tuple[int, str]:
        """Return the number of leading comment or blank lines, and the first line after them."""
        try:
            with pa.input_stream(str(path), compression="detect") as stream:
                text = stream.read(1 << 16).decode("utf-8-sig", errors="replace")
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, "text", error) from error
        for number, line in enumerate(text.splitlines()):
            if line.strip() and line.lstrip()[0] not in "#%":
                return number, line
        raise EdgeSourceError(f"{path}: must hold edges, got only comments or blank lines; write it again")


def checked_numbers(
    path: Path | str, name: str, values: npt.NDArray[Any], dtype: type[Any], first_row: int
) -> npt.NDArray[Any]:
    """Return the values in `dtype`, contiguous, or say which row cannot be.

    Raises
    ------
    EdgeSourceError
        A value is no number, not finite, not whole where ids are asked for, or too large.
    """
    if np.issubdtype(dtype, np.floating):
        if not np.issubdtype(values.dtype, np.number) or not np.isfinite(values).all():
            bad = _first_bad(values, lambda value: _is_number(value) and np.isfinite(float(value)))
            raise EdgeSourceError(
                f"{path}: row {first_row + bad}: {name} must be a finite number, got {values[bad]!r}; mend the row"
            )
        return np.ascontiguousarray(values, dtype=dtype)
    limits = np.iinfo(dtype)
    if not np.issubdtype(values.dtype, np.integer):
        bad = _first_not_integer(values, limits)
        raise EdgeSourceError(
            f"{path}: row {first_row + bad}: {name} must be a whole number below 2**{limits.bits - 1}, "
            f"got {str(values[bad])!r}; re-index the ids from 0 and keep them integers"
        )
    if len(values) and values.max() > limits.max:
        bad = int(np.argmax(values > limits.max))
        raise EdgeSourceError(
            f"{path}: row {first_row + bad}: {name} must be below 2**{limits.bits - 1}, got {values[bad]}; re-index"
        )
    return np.ascontiguousarray(values, dtype=dtype)


def _first_bad(values: npt.NDArray[Any], is_good: Callable[[Any], bool]) -> int:
    """Return the first row that is not good, or 0 where the whole column has the wrong type."""
    return next((row for row, value in enumerate(values) if not is_good(value)), 0)


def _first_not_integer(values: npt.NDArray[Any], limits: "np.iinfo[Any]") -> int:
    if np.issubdtype(values.dtype, np.floating):
        # One missing or fractional value makes a text parser turn the whole column into floats.
        return int(np.argmax(~np.isfinite(values) | (values != np.floor(values))))
    return _first_bad(values, lambda value: _is_integer(value) and limits.min <= int(value) <= limits.max)


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except (TypeError, ValueError):
        return False
    return True


def _is_integer(text: Any) -> bool:
    try:
        int(str(text))
    except ValueError:
        return False
    return True


def _require_columns(path: Path, names: list[str], columns: EdgeColumns) -> None:
    for name in (columns.src, columns.dst):
        if name not in names:
            raise EdgeSourceError(
                f"{path}: must have a column '{name}', got {', '.join(names)}; name the columns with --src and --dst"
            )


def _require_integers(path: Path, name: str, kind: pa.DataType) -> None:
    if not pa.types.is_integer(kind):
        raise EdgeSourceError(
            f"{path}: column '{name}' must be integers, got {kind}; re-index the nodes from 0 and store integer ids"
        )


def _unreadable(path: Path | str, kind: str, error: Exception) -> EdgeSourceError:
    reason = " ".join(str(error).split())
    return EdgeSourceError(f"{path}: must be a whole {kind} file, got: {reason}; write it again")


def _csv(path: Path, columns: EdgeColumns) -> TextReader:
    return TextReader(path, columns, ",")


def _tsv(path: Path, columns: EdgeColumns) -> TextReader:
    return TextReader(path, columns, "\t")


def _spaced(path: Path, columns: EdgeColumns) -> TextReader:
    return TextReader(path, columns, r"\s+")


COMPRESSED_SUFFIXES = (".gz", ".bz2")
READERS: dict[str, Callable[[Path, EdgeColumns], EdgeReader]] = {
    ".parquet": ParquetReader,
    ".npy": NpyReader,
    ".csv": _csv,
    ".tsv": _tsv,
    ".txt": _spaced,
    ".edges": _spaced,
    ".el": _spaced,
}
