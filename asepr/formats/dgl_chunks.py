"""DGL's chunked graphs: `metadata.json`, and for each type chunks of edges and columns in text, npy or Parquet."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from asepr.contracts import FeatureSource
from asepr.errors import TableError
from asepr.formats.array_tables import ArrayTable
from asepr.formats.graph_files import EdgeTypeName
from asepr.formats.graph_objects import Keys, number_nodes
from asepr.formats.locations import DAMAGE, find_files
from asepr.formats.node_sources import DenseFeatures, NodeColumns
from asepr.formats.numbered_graphs import (
    Column,
    Features,
    FeatureTables,
    NumberedEdges,
    NumberedGraph,
    NumberedNodes,
    read_column,
    stack_features,
)
from asepr.formats.tables import Table, open_table
from asepr.formats.text_lines import SPACE
from asepr.formats.text_tables import open_text

METADATA = "metadata.json"
SPLITS = ("train_mask", "val_mask", "test_mask")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Format(_Record):
    name: str = Field(pattern="^(csv|numpy|parquet)$")
    delimiter: str = Field(default=" ", min_length=1, max_length=1)


class _Chunks(_Record):
    format: _Format
    data: list[str] = Field(min_length=1)


class _Metadata(_Record):
    node_type: list[str] = Field(min_length=1)
    edge_type: list[str] = Field(min_length=1)
    num_nodes_per_chunk: list[list[int]] | None = None
    num_nodes_per_type: list[int] | None = None
    num_edges_per_chunk: list[list[int]] | None = None
    num_edges_per_type: list[int] | None = None
    edges: dict[str, _Chunks]
    node_data: dict[str, dict[str, _Chunks]] = {}
    edge_data: dict[str, dict[str, _Chunks]] = {}

    def counts(self, what: str) -> list[int]:
        """Return the number of nodes or edges of each type, whichever way the file says it."""
        whole, chunks = getattr(self, f"num_{what}_per_type"), getattr(self, f"num_{what}_per_chunk")
        types = self.node_type if what == "nodes" else self.edge_type
        found: list[int] = whole if whole is not None else [sum(counts) for counts in chunks or []]
        if len(found) != len(types) or min(found) < 0:
            raise ValueError(f"num_{what}_per_chunk must be counts of each of the {len(types)} types, got {found}")
        return found


def find_metadata(location: Path) -> Path | None:
    """Return the `metadata.json` that a location is or holds, None where it has none."""
    path = location if location.name == METADATA else location / METADATA
    return path if path.is_file() else None


def read_chunks(path: Path, columns: NodeColumns, weight: str) -> NumberedGraph:
    """Open a chunked graph; nodes and edges are numbered in the order of the chunks.

    Parameters
    ----------
    path : Path
        Of `metadata.json`; chunks are named relative to its folder, and must lie in it.
    columns : NodeColumns
        Names of labels and features; features of edges are `feat`.
    weight : str
        Name of edge weights.

    Raises
    ------
    TableError
        The description or a chunk is not what it must be.
    """
    try:
        metadata = _Metadata.model_validate(json.loads(path.read_text(encoding="utf-8")))
        num_nodes, num_edges = metadata.counts("nodes"), metadata.counts("edges")
    except (OSError, ValueError, ValidationError) as error:
        reason = " ".join(str(error).split())[:200]
        raise TableError(f"{path}: must describe a chunked graph, got: {reason}; write it again") from error
    kinds = [_edge_type(path, metadata, name) for name in metadata.edge_type]
    nodes = [
        _nodes(path, count, metadata.node_data.get(name, {}), columns)
        for name, count in zip(metadata.node_type, num_nodes, strict=True)
    ]
    edges = [
        _edges(path, count, metadata.edges[name], metadata.edge_data.get(name, {}), weight, ends)
        for name, count, ends in zip(
            metadata.edge_type,
            num_edges,
            ((metadata.node_type.index(kind[0]), metadata.node_type.index(kind[2])) for kind in kinds),
            strict=True,
        )
    ]
    is_typed = len(nodes) > 1 or len(edges) > 1
    return NumberedGraph(
        where=str(path),
        nodes=tuple(nodes),
        edges=tuple(edges),
        node_types=tuple(metadata.node_type) if is_typed else (),
        edge_types=tuple(kinds) if is_typed else (),
    )


def _edge_type(path: Path, metadata: _Metadata, name: str) -> EdgeTypeName:
    parts = name.split(":")
    if len(parts) != 3 or not {parts[0], parts[2]} <= set(metadata.node_type) or name not in metadata.edges:
        raise TableError(
            f"{path}: edge types must be source:relation:destination of node types, with edges, got {name!r}; mend it"
        )
    return parts[0], parts[1], parts[2]


def _nodes(path: Path, count: int, data: Mapping[str, _Chunks], columns: NodeColumns) -> NumberedNodes:
    integers = [key for key in (columns.label, *SPLITS) if key in data]
    arrays = {key: read_column(str(path), _column(path, data[key]), np.int64, count) for key in integers}
    plain = number_nodes(str(path), count, arrays, Keys(label=columns.label, features=()))
    names = [key for key in columns.feature_names(list(data)) if key in data]
    if len(names) > 1:
        raise TableError(f"{path}: features must be one entry, got {', '.join(names)}; choose with --feature-columns")
    return NumberedNodes(
        num_nodes=count,
        label=plain.label,
        split=plain.split,
        features=_features(path, data[names[0]]) if names else None,
    )


def _edges(
    path: Path, count: int, ends: _Chunks, data: Mapping[str, _Chunks], weight: str, types: tuple[int, int]
) -> NumberedEdges:
    return NumberedEdges(
        tables=tuple(_each(path, ends, _pairs)),
        num_edges=count,
        src_type=types[0],
        dst_type=types[1],
        weight=_column(path, data[weight]) if weight in data else None,
        features=_features(path, data["feat"]) if "feat" in data else None,
    )


def _column(path: Path, chunks: _Chunks) -> Column:
    tables = tuple(_each(path, chunks, _single))
    return Column(tables=tables, names=tuple(table.names[0] for table in tables))


def _features(path: Path, chunks: _Chunks) -> Features:
    if chunks.format.name != "numpy":
        return FeatureTables(tables=tuple(_each(path, chunks, _single)))
    sources: list[FeatureSource] = []
    for name in chunks.data:
        array = _load(_inside(path, name))
        if array.ndim < 1 or array.dtype.kind not in "fiub":
            raise TableError(f"{name}: must be real numbers, one row each, got {array.dtype}; write the chunk again")
        sources.append(DenseFeatures(array.reshape(len(array), -1), name))
    return stack_features(str(path), [source for source in sources if source.num_rows] or sources[:1])


def _each(path: Path, chunks: _Chunks, of_array: Callable[[str, npt.NDArray[Any]], Table]) -> Sequence[Table]:
    tables: list[Table] = []
    for name in chunks.data:
        file = _inside(path, name)
        if chunks.format.name == "numpy":
            tables.append(of_array(str(file), _load(file)))
        elif chunks.format.name == "parquet":
            tables.append(open_table(file, format="parquet"))
        elif file.stat().st_size:
            separator = SPACE if chunks.format.delimiter == " " else chunks.format.delimiter
            tables.append(open_text(find_files(file)[0], separator, has_header=False))
    return tables


def _pairs(name: str, array: npt.NDArray[Any]) -> Table:
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise TableError(f"{name}: edges must be integers of shape (E, 2), got {array.dtype} {array.shape}; mend it")
    return ArrayTable(name, {"src": array[:, 0], "dst": array[:, 1]})


def _single(name: str, array: npt.NDArray[Any]) -> Table:
    if array.size != len(array):
        raise TableError(f"{name}: must be one value a row, got shape {array.shape}; choose another column")
    flat = array.reshape(-1)
    return ArrayTable(name, {"0": flat.view(np.uint8) if flat.dtype == np.bool_ else flat})


def _load(file: Path) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except DAMAGE as error:
        reason = " ".join(str(error).split())
        raise TableError(f"{file}: must be a whole npy file, got: {reason}; write it again") from error
    return array


def _inside(path: Path, name: str) -> Path:
    """Return the file that a description names, which must lie in its folder."""
    file = path.parent / name
    if not file.resolve().is_relative_to(path.parent.resolve()):
        raise TableError(f"{path}: files must lie in its folder, got {name!r}; copy them there")
    if not file.is_file():
        raise TableError(f"{file}: must be a file, got nothing there; check {path.name}")
    return file
