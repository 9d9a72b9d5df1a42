"""The raw folders of the Open Graph Benchmark: gzipped CSV without headers, or npz, beside folders of splits."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from asepr.contracts import NO_LABEL, SPLIT_CODES, ByteArray, IdArray
from asepr.errors import ConfigError, NodeSourceError, TableError
from asepr.formats.graph_files import EdgeTypeName
from asepr.formats.locations import find_files
from asepr.formats.node_sources import NodeColumns, is_list
from asepr.formats.numbered_graphs import Column, FeatureTables, NumberedEdges, NumberedGraph, NumberedNodes
from asepr.formats.numpy_tables import NumpyMatrix
from asepr.formats.tables import Table, open_table, read_as, schema_of

HOMOGENEOUS, TYPED = "num-node-list.csv.gz", "triplet-type-list.csv.gz"
BINARY, BINARY_LABELS = "data.npz", "node-label.npz"
SPLIT_FILES = {"train": "train.csv.gz", "val": "valid.csv.gz", "test": "test.csv.gz"}


def find_raw(location: Path | str) -> Path | None:
    """Return the raw folder at a location, or directly below it, or None where there is none."""
    for folder in (Path(location), Path(location) / "raw"):
        if (folder / HOMOGENEOUS).is_file() or (folder / TYPED).is_file() or _is_binary(folder):
            return folder
    return None


def _is_binary(folder: Path) -> bool:
    """Tell whether a folder is laid out as that of ogbn-papers100M."""
    path = folder / BINARY
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return {"edge_index.npy", "num_nodes_list.npy", "num_edges_list.npy"} <= set(archive.namelist())


def read_ogb(raw: Path, columns: NodeColumns) -> NumberedGraph:
    """Read the raw folder of a dataset of one graph: edges, features, labels and the split beside it.

    Parameters
    ----------
    raw : Path
        As `find_raw` returns.
    columns : NodeColumns
        `label` empty: no labels. `split`: which folder below `split/`, where there are several.

    Raises
    ------
    TableError
        A file is missing or damaged, or files contradict each other.
    ConfigError
        It is not clear which split to take.
    """
    split = _split_folder(raw, columns)
    if (raw / TYPED).is_file():
        return _read_typed(raw, columns, split)
    if not (raw / HOMOGENEOUS).is_file():
        return _read_binary(raw, columns, split)
    num_nodes = _number(raw / HOMOGENEOUS)
    nodes = _nodes(
        num_nodes,
        label=raw / "node-label.csv.gz" if columns.label else None,
        features=raw / "node-feat.csv.gz",
        split=split,
    )
    return NumberedGraph(where=str(raw), nodes=(nodes,), edges=(_edges(raw, 0, 0),))


def _read_binary(raw: Path, columns: NodeColumns, split: Path | None) -> NumberedGraph:
    """Read arrays in npz, which are streamed: the largest of these graphs does not fit in memory."""
    path, label = raw / BINARY, raw / BINARY_LABELS
    (file,) = find_files(path)
    num_nodes, num_edges = (_only(NumpyMatrix(file, name)) for name in ("num_nodes_list", "num_edges_list"))
    with zipfile.ZipFile(path) as archive:
        there = {name.removesuffix(".npy") for name in archive.namelist()}
    found = {
        name: FeatureTables(tables=(NumpyMatrix(file, name),)) if name in there else None
        for name in ("node_feat", "edge_feat")
    }
    nodes = NumberedNodes(
        num_nodes=num_nodes,
        label=_labels(NumpyMatrix(find_files(label)[0], "node_label"), num_nodes)
        if columns.label and label.is_file()
        else None,
        split=None if split is None else _split(split, num_nodes),
        features=found["node_feat"],
    )
    edges = NumberedEdges(tables=(open_table(path),), num_edges=num_edges, features=found["edge_feat"])
    return NumberedGraph(where=str(raw), nodes=(nodes,), edges=(edges,))


def _read_typed(raw: Path, columns: NodeColumns, split: Path | None) -> NumberedGraph:
    counts = open_table(raw / "num-node-dict.csv.gz", has_header=True)
    types = sorted(counts.names)
    triplets = sorted(_rows(raw / TYPED, 3))
    for triplet in triplets:
        if not {triplet[0], triplet[2]} <= set(types):
            raise TableError(
                f"{raw / TYPED}: ends must be of the node types {', '.join(types)}, got {' '.join(triplet)}; mend it"
            )
    first = _one_row(counts)
    nodes = tuple(
        _nodes(
            first[name],
            label=raw / "node-label" / name / "node-label.csv.gz" if columns.label else None,
            features=raw / "node-feat" / name / "node-feat.csv.gz",
            split=None if split is None else split / name,
        )
        for name in types
    )
    edges = tuple(
        _edges(_below(raw / "relations", "___".join(triplet)), types.index(triplet[0]), types.index(triplet[2]))
        for triplet in triplets
    )
    return NumberedGraph(where=str(raw), nodes=nodes, edges=edges, node_types=tuple(types), edge_types=tuple(triplets))


def _nodes(num_nodes: int, *, label: Path | None, features: Path, split: Path | None) -> NumberedNodes:
    return NumberedNodes(
        num_nodes=num_nodes,
        label=_labels(_open(label), num_nodes) if label is not None and label.is_file() else None,
        split=None if split is None else _split(split, num_nodes),
        features=FeatureTables(tables=(_open(features),)) if features.is_file() else None,
    )


def _edges(folder: Path, src_type: int, dst_type: int) -> NumberedEdges:
    weight, features = folder / "edge_weight.csv.gz", folder / "edge-feat.csv.gz"
    return NumberedEdges(
        tables=(_open(folder / "edge.csv.gz"),),
        num_edges=_number(folder / "num-edge-list.csv.gz"),
        src_type=src_type,
        dst_type=dst_type,
        weight=Column(tables=(_open(weight),), names=("0",)) if weight.is_file() else None,
        features=FeatureTables(tables=(_open(features),)) if features.is_file() else None,
    )


def _labels(table: Table, num_nodes: int) -> IdArray:
    """Return the classes; missing ones, which OGB writes as `nan` or leaves empty, as `NO_LABEL`."""
    path = table.name
    width = len(table.names)
    if not table.is_text and is_list(kind := table.schema.field(0).type):
        width = kind.list_size
    if width > 1:
        raise NodeSourceError(f"{path}: labels must be one column, got {width}; leave them out with --label ''")
    label, row = np.full(num_nodes, NO_LABEL, dtype=np.int64), 0
    for values in _values(read_as(table, {"0": pa.float64()}) if table.is_text else table):
        present = np.isfinite(values)
        wrong = present & ((values != np.floor(values)) | (values < NO_LABEL))
        if wrong.any():
            bad = int(np.argmax(wrong))
            raise NodeSourceError(
                f"{path}: row {row + bad}: label must be a whole number from -1, got {values[bad]}; "
                "leave labels out with --label ''"
            )
        if row + len(values) > num_nodes:
            break
        label[row : row + len(values)][present] = values[present].astype(np.int64)
        row += len(values)
    if row != num_nodes:
        raise NodeSourceError(f"{path}: rows must be one a node, {num_nodes}, got another number; write it again")
    return label


def _split_folder(raw: Path, columns: NodeColumns) -> Path | None:
    """Return the folder that holds train, valid and test, or a folder a node type."""
    names = ("train.csv.gz", "nodetype-has-split.csv.gz")
    found = [f for f in sorted(raw.parent.glob("split/*")) if any((f / name).is_file() for name in names)]
    chosen = [folder for folder in found if folder.name == columns.split] or found
    if len(chosen) > 1:
        listed = ", ".join(folder.name for folder in chosen)
        raise ConfigError(f"{raw.parent / 'split'}: must hold one split, got {listed}; keep one of them there")
    return chosen[0] if chosen else None


def _split(folder: Path, num_nodes: int) -> ByteArray | None:
    if not folder.is_dir():
        return None
    split = np.zeros(num_nodes, dtype=np.uint8)
    for name, file in SPLIT_FILES.items():
        row = 0
        for rows in _values(read_as(_open(folder / file), {"0": pa.int64()})):
            wrong = (rows < 0) | (rows >= num_nodes)
            twice = ~wrong & (split[np.where(wrong, 0, rows)] != 0)
            if wrong.any() or twice.any():
                bad = int(np.argmax(wrong | twice))
                rule = f"in [0, {num_nodes})" if wrong[bad] else "in one split"
                raise NodeSourceError(
                    f"{folder / file}: row {row + bad}: a node must be {rule}, got {rows[bad]}; mend the row"
                )
            split[rows] = SPLIT_CODES[name]
            row += len(rows)
    return split


def _open(path: Path) -> Table:
    return open_table(path, has_header=False)


def _number(path: Path) -> int:
    """Return the one number of a file that has a row a graph."""
    rows = _rows(path, 1)
    if len(rows) != 1 or not rows[0][0].isdecimal():
        listed = ", ".join(row[0] for row in rows[:3])
        raise TableError(f"{path}: must hold one graph, and so one number, got {listed}; split the dataset")
    return int(rows[0][0])


def _only(table: Table) -> int:
    numbers = np.concatenate([np.empty(0, np.int64), *_values(table)])
    if len(numbers) != 1 or numbers[0] < 0:
        raise TableError(f"{table.name}: must hold one graph, got {len(numbers)}; split the dataset")
    return int(numbers[0])


def _one_row(table: Table) -> dict[str, int]:
    rows = pa.Table.from_batches(table.batches(table.names, 1), schema_of(table, table.names)).to_pylist()
    if len(rows) != 1 or not all(isinstance(value, int) and value >= 0 for value in rows[0].values()):
        raise TableError(f"{table.name}: must have one row of numbers, one a node type, got {rows[:2]}; mend it")
    counts: dict[str, int] = rows[0]
    return counts


def _rows(path: Path, width: int) -> list[EdgeTypeName]:
    table = _open(path)
    if len(table.names) != width:
        raise TableError(f"{path}: rows must have {width} fields, got {len(table.names)}; write it again")
    texts = read_as(table, dict.fromkeys(table.names, pa.string()))
    return [
        tuple(str(value) for value in row.values())  # type: ignore[misc]  # its length was checked
        for batch in texts.batches(table.names, 1 << 10)
        for row in batch.to_pylist()
    ]


def _values(table: Table) -> Iterator[Any]:
    for batch in table.batches(["0"], 1 << 16):
        column = batch.column(0)
        if pa.types.is_integer(column.type) and column.null_count:
            raise TableError(f"{table.name}: every row must have a value, got an empty one; mend the row")
        yield column.to_numpy(zero_copy_only=False)


def _below(folder: Path, name: str) -> Path:
    """Return a folder inside another, whose name a file said."""
    if "/" in name or "\\" in name or name.startswith("."):
        raise TableError(f"{folder}: names of types must be plain, got {name!r}; rename the type")
    return folder / name
