"""Files that say which part each node or edge is in: METIS' `.part.K`, numpy arrays, and tables."""

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from asepr.errors import TableError
from asepr.formats.locations import DAMAGE
from asepr.formats.table import Table
from asepr.formats.tables import open_table

BATCH_ROWS = 1 << 17
Numbers = npt.NDArray[np.int64]


def read_parts(path: Path) -> Numbers:
    """Return int64 (n,): the part of each node by nid, or of each edge in input order.

    Parameters
    ----------
    path : Path
        One part a line (`.part.K`, as METIS writes it); an npy array (n,); or any table: with a column `part`,
        and `id` where its rows are not in order, or of one column.

    Raises
    ------
    TableError
        The file cannot be read, a value is no whole number, or ids are not 0 .. n-1, each once.
    """
    if path.suffix == ".npy":
        return _array(path)
    table = open_table(path, format="txt", has_header=False) if _is_metis(path) else open_table(path)
    names = table.names
    if "part" not in names and len(names) > 1:
        raise TableError(f"{path}: must have a column 'part', got {', '.join(names)}; name it so")
    part = _column(table, "part" if "part" in names else names[0])
    return _in_order(path, _column(table, "id"), part) if "id" in names else part


def _is_metis(path: Path) -> bool:
    return re.search(r"\.part\.\d+$", path.name) is not None


def _array(path: Path) -> Numbers:
    try:
        values = np.load(path, allow_pickle=False)
    except DAMAGE as error:
        reason = " ".join(str(error).split())
        raise TableError(f"{path}: must be a whole npy file, got: {reason}; write it again") from error
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        raise TableError(
            f"{path}: must be whole numbers (n,), got {values.dtype} of shape {values.shape}; save one each"
        )
    parts: Numbers = values.astype(np.int64)
    return parts


def _column(table: Table, name: str) -> Numbers:
    blocks = [np.empty(0, dtype=np.int64)]
    first_row = 0
    for batch in table.batches([name], BATCH_ROWS):
        column = batch.column(0)
        values = column.to_numpy(zero_copy_only=False)
        if column.null_count or not np.issubdtype(values.dtype, np.integer):
            raise TableError(
                f"{table.name}: rows from {first_row} on: {name} must be whole numbers, got {column.type} with "
                f"{column.null_count} nulls; mend the column"
            )
        blocks.append(values.astype(np.int64))
        first_row += len(values)
    return np.concatenate(blocks)


def _in_order(path: Path, ids: Numbers, part: Numbers) -> Numbers:
    outside = (ids < 0) | (ids >= len(ids))
    if outside.any():
        row = int(np.argmax(outside))
        raise TableError(f"{path}: row {row}: id must be in [0, {len(ids)}), got {ids[row]}; give every id once")
    counts = np.bincount(ids, minlength=len(ids))
    if len(ids) and counts.max() > 1:
        row = int(np.flatnonzero(ids == np.argmax(counts > 1))[1])
        raise TableError(f"{path}: row {row}: id must occur once, got {ids[row]} again; give every id once")
    ordered = np.empty_like(part)
    ordered[ids] = part
    return ordered
