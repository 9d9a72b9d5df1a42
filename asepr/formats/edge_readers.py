"""Tables as batches of edges: columns found, checked to be numbers, in their dtypes. Ranges are checked above."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asepr.contracts import FloatArray, IdArray, PartArray
from asepr.errors import EdgeSourceError
from asepr.formats.tables import Table, read_as, schema_of


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
    """Edges that can be read from the start again and again."""

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

    @property
    def num_nodes(self) -> int | None:
        """Number of nodes, where the edges themselves state it."""

    def extent_from_metadata(self) -> tuple[int, int, int] | None:
        """Return (edges, smallest id, largest id) where the file's metadata tells, else None."""


class TableEdgeReader:
    """Edges in a table; ids, types and weights as numbers.

    Columns are found by name. Where the table stores no names and has none called so, the first two are source
    and destination.

    Raises
    ------
    EdgeSourceError
        A column is missing, or of a type that holds no ids.
    """

    def __init__(self, table: Table, columns: EdgeColumns) -> None:
        self.path: Path | str = table.name
        self.num_nodes = table.num_nodes
        self._src, self._dst = find_ends(table, columns)
        self._etype = columns.etype if columns.etype in table.names else None
        self._weight = columns.weight if columns.weight in table.names else None
        self.has_etype, self.has_weight = self._etype is not None, self._weight is not None
        if table.is_text:
            kinds = {self._src: pa.int64(), self._dst: pa.int64(), self._etype: pa.int64(), self._weight: pa.float64()}
            table = read_as(table, {name: kind for name, kind in kinds.items() if name is not None})
        for field in schema_of(table, [self._src, self._dst]):
            _require_integers(table.name, field.name, field.type)
        self._table = table

    def extent_from_metadata(self) -> tuple[int, int, int] | None:
        """Return what metadata says, if it says all."""
        num_rows, bounds = self._table.num_rows(), self._table.bounds([self._src, self._dst])
        return None if num_rows is None or bounds is None else (num_rows, *bounds)

    def batches(self, batch_edges: int) -> Iterator[EdgeBatch]:
        """Yield the table's batches, each column checked and in its dtype."""
        names = [self._src, self._dst, self._etype, self._weight]
        wanted = list(dict.fromkeys(name for name in names if name is not None))
        first_row = 0
        for batch in self._table.batches(wanted, batch_edges):
            yield EdgeBatch(
                src=self._numbers(batch, self._src, np.int64, first_row),
                dst=self._numbers(batch, self._dst, np.int64, first_row),
                etype=None if self._etype is None else self._numbers(batch, self._etype, np.int32, first_row),
                weight=None if self._weight is None else self._numbers(batch, self._weight, np.float32, first_row),
            )
            first_row += batch.num_rows

    def _numbers(self, batch: pa.RecordBatch, name: str, dtype: type[Any], first_row: int) -> npt.NDArray[Any]:
        column = batch.column(name)
        if column.null_count:
            row = first_row + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise EdgeSourceError(
                f"{self.path}: row {row}: {name} must have a value, got null; fill it or drop the row"
            )
        return checked_numbers(self.path, name, column.to_numpy(zero_copy_only=False), dtype, first_row)


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


def check_range(path: Path | str, name: str, ids: IdArray, first_row: int, num_nodes: int | None) -> None:
    """Check that ids are in [0, num_nodes), or not negative where that is None.

    Raises
    ------
    EdgeSourceError
        One is not; the message says which row.
    """
    if not len(ids):
        return
    if ids.min() < 0:
        row = int(np.argmax(ids < 0))
        raise EdgeSourceError(
            f"{path}: row {first_row + row}: {name} must not be negative, got {ids[row]}; "
            "drop the row or re-index the nodes from 0"
        )
    if num_nodes is not None and ids.max() >= num_nodes:
        row = int(np.argmax(ids >= num_nodes))
        raise EdgeSourceError(
            f"{path}: row {first_row + row}: {name} must be in [0, {num_nodes}), got {ids[row]}; "
            "give the node or feature file one row for every node, or re-index the edges"
        )


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


def find_ends(table: Table, columns: EdgeColumns) -> tuple[str, str]:
    """Return the columns of source and destination: those named, or the first two of a table without names.

    Raises
    ------
    EdgeSourceError
        There are no such columns.
    """
    names = table.names
    if not table.has_names and columns.src not in names and columns.dst not in names:
        if len(names) < 2:
            raise EdgeSourceError(
                f"{table.name}: each line must hold two ids, got one field a line; name the right format by the suffix"
            )
        return names[0], names[1]
    for name in (columns.src, columns.dst):
        if names.count(name) != 1:
            raise EdgeSourceError(
                f"{table.name}: must have a column '{name}', got {', '.join(names)}; "
                "name the columns with --src and --dst"
            )
    return columns.src, columns.dst


def _require_integers(where: str, name: str, kind: pa.DataType) -> None:
    if not pa.types.is_integer(kind):
        raise EdgeSourceError(
            f"{where}: column '{name}' must be integers, got {kind}; re-index the nodes from 0 and store integer ids"
        )
