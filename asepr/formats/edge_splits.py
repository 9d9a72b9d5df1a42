"""Which input edges are for training, validation and test, where a file of row numbers says so."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import SPLIT_CODES, ByteArray, IdArray
from asepr.errors import EdgeSourceError
from asepr.formats.locations import DAMAGE

SUFFIX = ".npz"
NAMES = {"train": ("train",), "val": ("val", "valid"), "test": ("test",)}


def read_edge_split(path: Path, num_edges: int) -> ByteArray:
    """Read arrays `train`, `val` (or `valid`) and `test` of rows of the edge input.

    Parameters
    ----------
    path : Path
        npz. Without `train`, all edges in neither of the others are for training.
    num_edges : int

    Returns
    -------
    uint8 (E,), codes in `SPLIT_CODES`

    Raises
    ------
    EdgeSourceError
        The file cannot be read; an array is missing or not of whole numbers; a row is out of range, in two arrays or in
        none.
    """
    rows = _read(path, num_edges)
    code = np.zeros(num_edges, dtype=np.uint8)
    for name, found in rows.items():
        if (code[found] > 0).any() or len(np.unique(found)) < len(found):
            raise EdgeSourceError(f"{path}: {name}: a row must be named once in all arrays, got one again; mend it")
        code[found] = SPLIT_CODES[name]
    if "train" not in rows:
        code[code == 0] = SPLIT_CODES["train"]
    if not code.all():
        raise EdgeSourceError(
            f"{path}: every row of {num_edges} must be in an array, got none with row {int(np.argmin(code))}; "
            "add it, or leave train out"
        )
    return code


def _read(path: Path, num_edges: int) -> dict[str, IdArray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            stored = {name: arrays[name] for name in arrays.files}
    except DAMAGE as error:
        reason = " ".join(str(error).split())
        raise EdgeSourceError(
            f"{path}: must be an npz of arrays train, val, test, got: {reason}; write it with numpy.savez"
        ) from error
    rows = {}
    for name, names in NAMES.items():
        there = next((other for other in names if other in stored), None)
        if there is not None:
            rows[name] = _checked(path, there, stored[there], num_edges)
        elif name != "train":
            raise EdgeSourceError(f"{path}: must have an array '{name}', got {', '.join(stored) or 'none'}; add it")
    return rows


def _checked(path: Path, name: str, stored: npt.NDArray[Any], num_edges: int) -> IdArray:
    if stored.ndim != 1 or not (np.issubdtype(stored.dtype, np.integer) or not stored.size):
        raise EdgeSourceError(
            f"{path}: {name} must be a flat array of whole numbers, got {stored.dtype} of shape {stored.shape}; mend it"
        )
    rows: IdArray = stored.astype(np.int64)
    if rows.size and not 0 <= rows.min() <= rows.max() < num_edges:
        bad = rows[(rows < 0) | (rows >= num_edges)][0]
        raise EdgeSourceError(f"{path}: {name}: rows must be in [0, {num_edges}), got {bad}; mend it")
    return rows
