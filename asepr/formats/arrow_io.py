"""Numpy arrays to and from uncompressed Arrow IPC files of one record batch, mapped without a copy."""

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asepr.errors import ShardError

Columns = dict[str, npt.NDArray[Any]]


def write_columns(path: Path, columns: Columns) -> None:
    """Write equally long arrays as one record batch; a two-dimensional one as FixedSizeList.

    Parameters
    ----------
    path : Path
    columns : dict of name to array of shape (n,) or (n, F)
    """
    batch = pa.RecordBatch.from_arrays([_to_arrow(array) for array in columns.values()], names=list(columns))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def map_columns(path: Path) -> Columns:
    """Map a file that `write_columns` wrote.

    Returns
    -------
    dict of name to array
        The arrays lie in the mapped file. The mapping is private: writing into an array changes
        this process' view alone, never the file.

    Raises
    ------
    ShardError
        The file is missing, cut short, or not of one record batch without nulls.
    """
    try:
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        reader = pa.ipc.open_file(pa.py_buffer(mapping))
        if reader.num_record_batches != 1:
            raise ShardError(f"{path}: must hold one record batch, got {reader.num_record_batches}; write it again")
        batch = reader.get_batch(0)
        batch.validate()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ShardError(f"{path}: must be a whole Arrow file, got: {reason}; copy or partition again") from error
    base = np.frombuffer(mapping, dtype=np.uint8).ctypes.data
    return {
        name: _to_numpy(path, name, column, mapping, base)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def _to_arrow(array: npt.NDArray[Any]) -> pa.Array:
    if array.ndim == 1:
        return pa.array(array)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(array).reshape(-1)), array.shape[1])


def _to_numpy(path: Path, name: str, column: pa.Array, mapping: mmap.mmap, base: int) -> npt.NDArray[Any]:
    shape: tuple[int, ...] = (len(column),)
    if pa.types.is_fixed_size_list(column.type):
        shape = (len(column), column.type.list_size)
        column = column.values
    if column.null_count or not pa.types.is_primitive(column.type):
        raise ShardError(f"{path}: column '{name}' must be numbers without nulls, got {column.type}; write it again")
    dtype = np.dtype(column.type.to_pandas_dtype())
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.empty(shape, dtype=dtype)
    offset = column.buffers()[1].address - base + column.offset * dtype.itemsize
    return np.frombuffer(mapping, dtype=dtype, count=count, offset=offset).reshape(shape)
