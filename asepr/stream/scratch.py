"""Temporary arrays and bucket files, all below one folder that is gone when the run ends."""

import errno
import itertools
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from asepr.errors import OutputError
from asepr.mapped import release
from asepr.stream.scratch_kernels import bucket_order

BLOCK_ROWS = 1 << 22
"""Rows that a long scattered array is filled by: 8 MB where a row has 2 bytes."""

FEW_BLOCKS = 4


class ScratchDir:
    """A folder of temporary files; a context manager that removes it.

    Parameters
    ----------
    path : Path
        A folder that does not exist yet; it is made here and removed by `close`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._serial = itertools.count()
        self._opened: list[BucketFiles] = []
        path.mkdir(parents=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder and all in it."""
        for buckets in self._opened:
            buckets.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def array(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a zero-filled, file-backed array.

        Its disk space is reserved at once, so that a full disk is an error here and not a bus
        error when a page is written later.

        Raises
        ------
        OutputError
            The disk has no room for it.
        """
        num_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if num_bytes == 0:
            return np.zeros(shape, dtype=dtype)
        path = self._new_file(name)
        with path.open("wb") as file:
            _reserve(file.fileno(), num_bytes, path)
        return np.memmap(path, dtype=dtype, mode="r+", shape=shape)

    def buckets(self, name: str, num_buckets: int, dtype: npt.DTypeLike) -> "BucketFiles":
        """Return empty buckets of rows of the given (usually structured) dtype."""
        buckets = BucketFiles(self._new_file(name), num_buckets, np.dtype(dtype))
        self._opened.append(buckets)
        return buckets

    def scattered(self, name: str, num_rows: int, dtype: npt.DTypeLike) -> "ScatteredFile":
        """Return a file-backed array to be filled in any order, with memory of one block."""
        return ScatteredFile(self, name, num_rows, dtype)

    def _new_file(self, name: str) -> Path:
        return self.path / f"{name}-{next(self._serial)}"


class BucketFiles:
    """Rows appended in any order, read back one bucket at a time.

    All buckets share one file: each `append` groups its rows by bucket and writes them with one
    call, and an index of offsets a chunk remembers where each bucket's rows lie. So thousands of
    buckets need one open file and no buffer of their own.

    Within a bucket rows keep the order in which they were appended.
    """

    def __init__(self, path: Path, num_buckets: int, dtype: np.dtype[Any]) -> None:
        self.num_buckets = num_buckets
        self.dtype = dtype
        self._path = path
        self._file = path.open("wb+", buffering=0)
        self._starts: list[npt.NDArray[np.int64]] = []
        self._rows = 0

    def append(self, bucket_of: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
        """Add `rows[i]` to bucket `bucket_of[i]`.

        Raises
        ------
        OutputError
            The disk is full.
        """
        order, starts = bucket_order(bucket_of, self.num_buckets)
        _write_all(self._file.fileno(), _bytes_of(rows.take(order)), self._path)
        self._starts.append(starts + self._rows)
        self._rows += rows.shape[0]

    def num_rows(self, bucket: int) -> int:
        """Return the number of rows in a bucket."""
        return int(sum(starts[bucket + 1] - starts[bucket] for starts in self._starts))

    def read(self, bucket: int) -> npt.NDArray[Any]:
        """Return all rows of a bucket in the order in which they were appended."""
        rows = np.empty(self.num_rows(bucket), dtype=self.dtype)
        filled = 0
        for starts in self._starts:
            lo, hi = int(starts[bucket]), int(starts[bucket + 1])
            if lo == hi:
                continue
            view = _bytes_of(rows[filled : filled + hi - lo])
            _read_all(self._file.fileno(), view, lo * self.dtype.itemsize, self._path)
            filled += hi - lo
        return rows

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)


class ScatteredFile:
    """An array that is filled in any order, and then read.

    Up to `FEW_BLOCKS` blocks are written where they belong at once. What is longer would be touched all over,
    and so be in memory as a whole; it is gathered by blocks on disk first.
    """

    def __init__(self, scratch: ScratchDir, name: str, num_rows: int, dtype: npt.DTypeLike) -> None:
        self._array = scratch.array(name, (num_rows,), dtype)
        self._blocks: BucketFiles | None = None
        if num_rows > FEW_BLOCKS * BLOCK_ROWS:
            row = np.dtype([("row", np.int32), ("value", self._array.dtype)])
            self._blocks = scratch.buckets(f"{name}-blocks", -(-num_rows // BLOCK_ROWS), row)

    def put(self, rows: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
        """Set `array[rows]` to `values`; the last to set a row wins."""
        if self._blocks is None:
            self._array[rows] = values
            return
        block, row = np.divmod(rows, BLOCK_ROWS)
        entries = np.empty(len(rows), dtype=self._blocks.dtype)
        entries["row"], entries["value"] = row, values
        self._blocks.append(block, entries)

    def finish(self) -> npt.NDArray[Any]:
        """Return the array; `put` is over."""
        if self._blocks is not None:
            for block in range(self._blocks.num_buckets):
                self._fill(block * BLOCK_ROWS, self._blocks.read(block))
            self._blocks.close()
        return self._array

    def _fill(self, start: int, entries: npt.NDArray[Any]) -> None:
        rows = self._array[start : start + BLOCK_ROWS]
        rows[entries["row"]] = entries["value"]
        release(self._array, start, start + len(rows))


def _reserve(descriptor: int, num_bytes: int, path: Path) -> None:
    try:
        os.posix_fallocate(descriptor, 0, num_bytes)
    except OSError as error:
        raise _disk_error(error, path) from error


def _bytes_of(rows: npt.NDArray[Any]) -> memoryview:
    return rows.view(np.uint8).data


def _write_all(descriptor: int, data: memoryview, path: Path) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        raise _disk_error(error, path) from error


def _read_all(descriptor: int, view: memoryview, offset: int, path: Path) -> None:
    while view:
        done = os.preadv(descriptor, [view], offset)
        if done == 0:
            raise OutputError(f"{path}: a temporary file was cut short while in use; run again")
        view = view[done:]
        offset += done


def _disk_error(error: OSError, path: Path) -> OutputError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputError(f"{path.parent}: the disk is full; free space or choose another --scratch folder")
    return OutputError(f"{path}: cannot write a temporary file: {error.strerror}")
