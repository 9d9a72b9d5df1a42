"""Who owns which node in a DistDGL folder, ours or DGL's own."""

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("DGLBACKEND", "pytorch")

import dgl
import numpy as np

from asepr.contracts import IdArray
from asepr.errors import ShardError

ORIGINAL_IDS = "orig_nids.dgl"


def read_owners(folder: Path) -> IdArray:
    """Return int64 (N,): the part that owns each node, by its original id.

    Parameters
    ----------
    folder : Path
        With one JSON file, that of the partition.

    Raises
    ------
    ShardError
        There is no such file, it is of several node types that number their nodes apart, or a part is damaged.
    """
    config, where = _read_config(folder)
    owner = np.full(config["num_nodes"], -1, dtype=np.int64)
    for part in range(config["num_parts"]):
        for ids in _original_ids(folder, config, part):
            if len(ids) and (ids.min() < 0 or ids.max() >= len(owner) or (owner[ids] != -1).any()):
                raise ShardError(
                    f"{where}: part {part}: original ids must be 0 .. {len(owner) - 1}, each in one part, got others; "
                    "types that number their nodes apart cannot be read"
                )
            owner[ids] = part
    if (owner == -1).any():
        raise ShardError(f"{where}: every node must be in a part, got none for {np.argmin(owner)}; copy all parts")
    return owner


def _read_config(folder: Path) -> tuple[dict[str, Any], Path]:
    files = sorted(folder.glob("*.json"))
    if len(files) != 1:
        raise ShardError(f"{folder}: must hold one JSON file, DistDGL's, got {len(files)}; check the folder")
    try:
        config = json.loads(files[0].read_text(encoding="utf-8"))
        return {name: int(config[name]) for name in ("num_nodes", "num_parts")}, files[0]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ShardError(
            f"{files[0]}: must be DistDGL's description of parts, got: {error!r}; write it again"
        ) from error


def _original_ids(folder: Path, config: dict[str, Any], part: int) -> list[IdArray]:
    """Return the original ids of a part's inner nodes, an array a type."""
    place = folder / f"part{part}"
    try:
        if (place / ORIGINAL_IDS).exists():
            return [ids.numpy() for ids in dgl.data.utils.load_tensors(str(place / ORIGINAL_IDS)).values()]
        graph = dgl.load_graphs(str(place / "graph.dgl"))[0][0]
        return [graph.ndata["orig_id"][graph.ndata["inner_node"].bool()].numpy()]
    except (dgl.DGLError, OSError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ShardError(f"{place}: must hold {ORIGINAL_IDS} or graph.dgl with orig_id, got: {reason}") from error
