"""File-backed arrays that are gone through once: what has been read or written need not stay in memory."""

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt


def release(array: npt.NDArray[Any], start: int, stop: int) -> None:
    """Give back the memory of rows `start:stop` of a file-backed array; of any other, nothing.

    The rows keep their values: what was written is in the page cache, which the system writes out and
    drops as it needs to, and is read again from there.
    """
    pages = getattr(array, "_mmap", None)
    if pages is None or stop <= start or not hasattr(mmap, "MADV_DONTNEED"):
        return
    row_bytes = array.itemsize * int(np.prod(array.shape[1:]))
    begin = start * row_bytes // mmap.PAGESIZE * mmap.PAGESIZE
    pages.madvise(mmap.MADV_DONTNEED, begin, min(stop * row_bytes, len(pages)) - begin)
