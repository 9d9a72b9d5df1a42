"""What a model says of nodes, as Parquet with their ids."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from asepr.contracts import FloatArray, IdArray
from asepr.errors import OutputError


def write_predictions(folder: Path, part: int, nid: IdArray, logits: FloatArray) -> Path:
    """Write `nid`, `prediction` (the likeliest class) and `logits` of one part's nodes.

    Parameters
    ----------
    folder : Path
        Made where it does not exist.
    part : int
    nid : int64 (n,)
    logits : float32 (n, classes)

    Returns
    -------
    Path: the file, which appears whole or not at all

    Raises
    ------
    OutputError
        It cannot be written, or the disk is full.
    """
    path = folder / f"part-{part:05d}.parquet"
    unfinished = folder / f".{path.name}"
    values = pa.array(np.ascontiguousarray(logits, dtype=np.float32).reshape(-1))
    table = pa.table(
        {
            "nid": nid,
            "prediction": logits.argmax(1).astype(np.int32),
            "logits": pa.FixedSizeListArray.from_arrays(values, logits.shape[1]),
        }
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, unfinished, compression="zstd")
        unfinished.rename(path)
    except OSError as error:
        raise OutputError(
            f"{folder}: must be a folder that can be written, got: {error}; choose another --predictions"
        ) from error
    return path
