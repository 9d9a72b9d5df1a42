"""Tables that are in memory already."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from asepr.errors import TableError


class ArrayTable:
    """Columns in memory, or in a mapped file.

    Parameters
    ----------
    name : str
        How messages call it.
    columns : mapping of str to array or pyarrow.Array
        One-dimensional, of one length.

    Raises
    ------
    TableError
        Columns differ in length, or cannot be a column.
    """

    has_names = True
    is_text = False
    num_nodes = None

    def __init__(self, name: str, columns: Mapping[str, Any]) -> None:
        self.name = name
        lengths = {key: len(values) for key, values in columns.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            raise TableError(f"{name}: columns must have one length, got {listed}; mend the shorter")
        try:
            self._rows = pa.table({key: _native(values) for key, values in columns.items()})
        except (pa.ArrowException, TypeError) as error:
            reason = " ".join(str(error).split())
            raise TableError(f"{name}: columns must hold numbers or strings, got: {reason}; convert them") from error

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return list(self._rows.column_names)

    @property
    def schema(self) -> pa.Schema:
        """Names and types."""
        return self._rows.schema

    def num_rows(self) -> int:
        """Return the number of rows."""
        return int(self._rows.num_rows)

    def bounds(self, columns: Sequence[str]) -> None:
        """Return None: rows must be looked at."""
        del columns

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield slices, without a copy."""
        yield from self._rows.select(list(columns)).to_batches(max_chunksize=batch_rows)


def _native(values: Any) -> Any:
    """Return an array as Arrow takes it: one-dimensional, in this machine's byte order."""
    if isinstance(values, pa.Array | pa.ChunkedArray | list):
        return values
    array = np.asarray(values)
    return pa.array(array.astype(array.dtype.newbyteorder("="), copy=False))
