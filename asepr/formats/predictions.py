"""What a model says of nodes, as Parquet with the ids of the input."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from asepr.contracts import FloatArray
from asepr.errors import OutputError
from asepr.formats.id_maps import original_ids
from asepr.formats.shard import Shard


def write_predictions(folder: Path, shard: Shard, logits: FloatArray, *, several: bool = False) -> Path:
    """Write `id`, `nid`, `prediction` (the likeliest class) and `logits` of one part's inner nodes.

    Parameters
    ----------
    folder : Path
        Made where it does not exist. All parts' files together hold each node once, and read as one table.
    shard : Shard
    logits : float32 (num_inner, classes)
    several : bool
        A node may be of several classes: `prediction` is a list of 0 and 1, one a class.

    Returns
    -------
    Path: the file, which appears whole or not at all

    Raises
    ------
    OutputError
        It cannot be written, or the disk is full.
    """
    prediction = _lists(logits > 0, np.uint8) if several else pa.array(logits.argmax(1).astype(np.int32))
    columns = {"prediction": prediction, "logits": _lists(logits)}
    return _write(folder, shard, columns, "--predictions")


def write_embeddings(folder: Path, shard: Shard, rows: FloatArray) -> Path:
    """Write `id`, `nid` and `embedding` of one part's inner nodes, as `write_predictions` does.

    Raises
    ------
    OutputError
        It cannot be written, or the disk is full.
    """
    return _write(folder, shard, {"embedding": _lists(rows)}, "--embeddings")


def _write(folder: Path, shard: Shard, columns: dict[str, pa.Array], option: str) -> Path:
    path = folder / _file_name(shard.rank)
    unfinished = folder / f".{path.name}"
    table = original_ids(shard).append_column("nid", pa.array(shard.nid[: shard.num_inner]))
    for name, column in columns.items():
        table = table.append_column(name, column)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, unfinished, compression="zstd")
        unfinished.rename(path)
        _drop_other_parts(folder, shard.num_parts)
    except OSError as error:
        raise OutputError(
            f"{folder}: must be a folder that can be written, got: {error}; choose another {option}"
        ) from error
    return path


def _drop_other_parts(folder: Path, num_parts: int) -> None:
    """Remove files of a run with more parts, whose nodes would else be there twice."""
    names = {_file_name(part) for part in range(num_parts)}
    for path in folder.glob("part-*.parquet"):
        if path.name not in names:
            path.unlink(missing_ok=True)


def _file_name(part: int) -> str:
    return f"part-{part:05d}.parquet"


def _lists(rows: npt.NDArray[Any], dtype: npt.DTypeLike = np.float32) -> pa.FixedSizeListArray:
    values = pa.array(np.ascontiguousarray(rows, dtype=dtype).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(values, rows.shape[1])
