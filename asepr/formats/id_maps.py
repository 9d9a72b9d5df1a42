"""The kept maps between ids and nids: looking one up, and giving rows their ids back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from asepr.contracts import PartArray
from asepr.errors import ConfigError, ShardError
from asepr.formats.ids import MAP_GROUP_ROWS, IdMap
from asepr.formats.manifest import MAP_FOLDER, FileEntry, Manifest, PartEntry, file_entry, id_file, read_manifest
from asepr.formats.shard import Shard, read_ids

OPEN_PARTS = 128
"""Parts whose ids are written in one pass over a map."""


def write_part_ids(
    folder: Path, entries: Sequence[PartEntry], maps: Sequence[IdMap], owner: PartArray
) -> list[PartEntry]:
    """Give each part the ids of its own inner nodes, one file a node type, in local order.

    Parameters
    ----------
    folder : Path
        The dataset folder.
    entries : sequence of PartEntry
    maps : sequence of IdMap, one a node type
    owner : int32 (N,)

    Returns
    -------
    list of PartEntry
        With the new files.

    Notes
    -----
    A pass over the maps for every 128 parts; memory of a row group.
    """
    files: list[dict[str, FileEntry]] = [{} for _ in entries]
    for ntype, kept in enumerate(maps):
        for first in range(0, len(entries), OPEN_PARTS):
            group = range(first, min(first + OPEN_PARTS, len(entries)))
            paths = {rank: folder / entries[rank].folder / id_file(ntype) for rank in group}
            _split_map(kept, owner, paths)
            for rank, path in paths.items():
                files[rank][path.name] = file_entry(path)
    return [
        entry.model_copy(update={"files": entry.files | added}) for entry, added in zip(entries, files, strict=True)
    ]


def _split_map(kept: IdMap, owner: PartArray, paths: dict[int, Path]) -> None:
    with pq.ParquetFile(kept.path) as file:
        schema = pa.schema([file.schema_arrow.field("id")])
        writers = {
            rank: pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False)
            for rank, path in paths.items()
        }
        try:
            nid = kept.first_nid
            for batch in file.iter_batches(batch_size=MAP_GROUP_ROWS, columns=["id"]):
                owners = owner[nid : nid + batch.num_rows]
                order = np.argsort(owners, kind="stable")
                by_owner = batch.take(pa.array(order))
                ranks, starts = np.unique(owners[order], return_index=True)
                for rank, start, stop in zip(ranks.tolist(), starts, [*starts[1:], len(order)], strict=True):
                    if rank in writers:
                        writers[rank].write_batch(by_owner.slice(start, stop - start))
                nid += batch.num_rows
        finally:
            for writer in writers.values():
                writer.close()


def find_node(folder: Path, original: str, node_type: str | None = None) -> list[dict[str, Any]]:
    """Find the nodes that had an id in the input, and the parts that hold them.

    Parameters
    ----------
    folder : Path
        The dataset folder; its id maps and all parts must be at hand.
    original : str
        The id; digits where ids are integers.
    node_type : str, optional
        Look among nodes of this type alone; needed where types share ids.

    Returns
    -------
    list of dict
        `id`, `type` (None where there is one), `nid`, `owner`, `parts` (ascending, the owner included),
        one entry a type that knows the id.

    Raises
    ------
    ConfigError
        There is no such type.
    ShardError
        A file is missing or damaged.
    """
    manifest = read_manifest(folder)
    nids = {ntype: _find_nid(folder, manifest, ntype, original) for ntype in _types(manifest, node_type)}
    known = {ntype: nid for ntype, nid in nids.items() if nid is not None}
    shards = [Shard(folder, rank, manifest) for rank in range(manifest.num_parts)] if known else []
    return [
        {"id": original, "type": manifest.node_types[ntype] if manifest.node_types else None, "nid": nid}
        | _placed(shards, nid)
        for ntype, nid in known.items()
    ]


def original_ids(dataset: Path | str | Shard, values: Any = None, *, node_type: str | None = None) -> pa.Table:
    """Give rows that are in nid order, or in the order of one shard or of all, the ids of the input.

    Parameters
    ----------
    dataset : path or Shard
        The dataset folder; or one shard, whose folder alone is then read.
    values : array (N, ...) or sequence of arrays (num_inner, ...), optional
        For a dataset: one row a node in nid order, or one array a shard in rank order. For a shard: one
        row an inner node, in local order. Predictions, embeddings, anything. With `node_type`: rows of
        that type alone.
    node_type : str, optional

    Returns
    -------
    pyarrow.Table
        `id`, `type` where there are several and none was chosen, and `value` where values were given, a
        fixed-size list where they are two-dimensional; in nid order. Types whose ids are of several
        kinds have them as strings.

    Raises
    ------
    ConfigError
        There is no such type, or values of another number of rows.
    ShardError
        A file is missing or damaged.
    """
    if isinstance(dataset, Shard):
        manifest, ids = dataset.manifest, _shard_ids(dataset, node_type)
        given = None if values is None else np.asarray(values)
    else:
        folder = Path(dataset)
        manifest = read_manifest(folder)
        ids = {ntype: _read_map(folder, manifest, ntype) for ntype in _types(manifest, node_type)}
        given = _in_nid_order(folder, manifest, values, node_type)
    return _labelled(manifest, ids, given, node_type)


def _labelled(
    manifest: Manifest, ids: dict[int, pa.ChunkedArray], values: npt.NDArray[Any] | None, node_type: str | None
) -> pa.Table:
    num_rows = sum(map(len, ids.values()))
    kinds = {column.type for column in ids.values()}
    kind = kinds.pop() if len(kinds) == 1 else pa.string()
    columns: dict[str, Any] = {
        "id": pa.chunked_array([chunk for column in ids.values() for chunk in column.cast(kind).chunks], kind)
    }
    if manifest.node_types and node_type is None:
        names = [manifest.node_types[ntype] for ntype in ids]
        codes = np.repeat(np.arange(len(names), dtype=np.int32), [len(column) for column in ids.values()])
        columns["type"] = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names, pa.string()))
    if values is not None:
        if len(values) != num_rows:
            raise ConfigError(f"values: rows must be one a node, {num_rows}, got {len(values)}; give all of them")
        columns["value"] = _as_column(values)
    return pa.table(columns)


def _as_column(values: npt.NDArray[Any]) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    rows = np.ascontiguousarray(values).reshape(len(values), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


def _in_nid_order(folder: Path, manifest: Manifest, values: Any, node_type: str | None) -> npt.NDArray[Any] | None:
    if values is None or not isinstance(values, list | tuple):
        return None if values is None else np.asarray(values)
    if len(values) != manifest.num_parts:
        raise ConfigError(f"values: must be {manifest.num_parts} arrays, one a shard, got {len(values)}; give all")
    low, high = _nids(manifest, _types(manifest, node_type))
    ordered: npt.NDArray[Any] | None = None
    for rank, rows in enumerate(map(np.asarray, values)):
        shard = Shard(folder, rank, manifest)
        nid = shard.nid[: shard.num_inner]
        nid = nid[(nid >= low) & (nid < high)]
        if len(rows) != len(nid):
            raise ConfigError(f"values[{rank}]: rows must be one an inner node, {len(nid)}, got {len(rows)}; give all")
        if ordered is None:
            ordered = np.empty((high - low, *rows.shape[1:]), dtype=rows.dtype)
        ordered[nid - low] = rows
    return ordered


def _shard_ids(shard: Shard, node_type: str | None) -> dict[int, pa.ChunkedArray]:
    return {ntype: shard.original_ids(ntype) for ntype in _types(shard.manifest, node_type)}


def _read_map(folder: Path, manifest: Manifest, ntype: int) -> pa.ChunkedArray:
    if not manifest.id_maps:
        low, high = _nids(manifest, [ntype])
        return pa.chunked_array([np.arange(high - low)])
    return read_ids(folder / MAP_FOLDER / manifest.id_maps[ntype].name)


def _find_nid(folder: Path, manifest: Manifest, ntype: int, original: str) -> int | None:
    low, high = _nids(manifest, [ntype])
    if not manifest.id_maps:
        return low + int(original) if original.isdecimal() and int(original) < high - low else None
    path = folder / MAP_FOLDER / manifest.id_maps[ntype].name
    try:
        with pq.ParquetFile(path) as file:
            wanted = _as_key(original, file.schema_arrow.field("id").type)
            if wanted is None:
                return None
            for batch in file.iter_batches(batch_size=MAP_GROUP_ROWS, columns=["id", "nid"]):
                row = pc.index(batch.column("id"), wanted).as_py()
                if row >= 0:
                    return int(batch.column("nid")[row].as_py())
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise ShardError(f"{path}: must be a whole Parquet file, got: {reason}; copy it again") from error
    return None


def _as_key(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """Return an id as typed in, as the map has it; None where no id of the map can look so."""
    try:
        return pa.scalar(int(text) if pa.types.is_integer(kind) else text, kind)
    except (ValueError, OverflowError, pa.ArrowException):
        return None


def _placed(shards: Sequence[Shard], nid: int) -> dict[str, Any]:
    owner, parts = -1, []
    for shard in shards:
        inner = shard.nid[: shard.num_inner]
        row = int(np.searchsorted(inner, nid))
        if row < len(inner) and inner[row] == nid:
            owner = shard.rank
        elif not (shard.nid[shard.num_inner :] == nid).any():
            continue
        parts.append(shard.rank)
    return {"owner": owner, "parts": parts}


def _types(manifest: Manifest, node_type: str | None) -> list[int]:
    if node_type is None:
        return list(range(max(len(manifest.node_types), 1)))
    if node_type not in manifest.node_types:
        known = ", ".join(manifest.node_types) or "none"
        raise ConfigError(f"--type must be a node type of the dataset, {known}, got '{node_type}'; choose one")
    return [manifest.node_types.index(node_type)]


def _nids(manifest: Manifest, types: Sequence[int]) -> tuple[int, int]:
    """Return the first nid of adjacent types, and one after the last."""
    offsets = manifest.node_type_offsets or [0, manifest.num_nodes]
    return offsets[types[0]], offsets[types[-1] + 1]
