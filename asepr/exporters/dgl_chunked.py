"""DGL's chunked graph and its assignment text files, for DGL's dispatch pipeline and GraphStorm."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from asepr.contracts import IdArray
from asepr.exporters.export_graph import ExportGraph, ExportPart

NEEDS_IN_EDGES = True
"""A chunk is a part, and dispatch gives an edge to the owner of its destination."""

T = TypeVar("T")
GRAPH_NAME = "graph"
PARTITION_META = "assignment/partition_meta.json"
"""Dispatch reads the number of parts from it, and stops where it is missing."""


def write(graph: ExportGraph, folder: Path) -> dict[str, Any]:
    """Write `metadata.json`, `edges/`, `node_data/`, `edge_data/` and `assignment/`.

    Chunk p is part p. Nodes of a type are numbered part by part, by nid within one, so an assignment file
    says 0, 0, ..., 1, 1, ...; the nid is there as `orig_id`. What a part has none of has no chunk, and a type that
    no part has is not named: dispatch counts chunks without rows as absent, and takes those after them for others.

    Parameters
    ----------
    graph : ExportGraph
    folder : Path

    Returns
    -------
    dict
        `metadata` and `assignment`: what DGL's dispatch takes.
    """
    for part in graph.parts():
        for name, array in _arrays(graph, part):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.startswith("edges/"):
                pq.write_table(pa.table({"src": array[:, 0], "dst": array[:, 1]}), path)
            else:
                np.save(path, array)
    (folder / "assignment").mkdir()
    for code, name in _present(graph.types.nodes, graph.num_nodes_of):
        parts = np.repeat(np.arange(graph.num_parts), graph.num_nodes_of[:, code])
        np.savetxt(folder / "assignment" / f"{name}.txt", parts, fmt="%d")
    (folder / PARTITION_META).write_text(json.dumps(_partition_meta(graph)) + "\n")
    (folder / "metadata.json").write_text(json.dumps(_metadata(graph), indent=1) + "\n")
    return {"metadata": "metadata.json", "assignment": "assignment"}


def find_faults(graph: ExportGraph, folder: Path) -> Iterator[str]:
    """Compare every array and the assignment with the shards."""
    try:
        for meta, expected in (("metadata.json", _metadata(graph)), (PARTITION_META, _partition_meta(graph))):
            if json.loads((folder / meta).read_text()) != json.loads(json.dumps(expected)):
                yield f"{folder / meta}: must describe the shards' graph"
        for part in graph.parts():
            for name, array in _arrays(graph, part):
                if not np.array_equal(_read(folder / name), array):
                    yield f"{folder / name}: must equal the shard's"
        for code, name in _present(graph.types.nodes, graph.num_nodes_of):
            path = folder / "assignment" / f"{name}.txt"
            found = np.array(path.read_text().split(), dtype=np.int64)
            if not np.array_equal(np.bincount(found, minlength=graph.num_parts), graph.num_nodes_of[:, code]):
                yield f"{path}: must give each part the nodes that it owns"
            elif (np.diff(found) < 0).any():
                yield f"{path}: must ascend"
    except (OSError, ValueError, pa.ArrowException) as error:
        yield f"{folder}: must be whole, got: {' '.join(str(error).split())[:200]}"


def _read(path: Path) -> npt.NDArray[Any]:
    if path.suffix == ".npy":
        array: npt.NDArray[Any] = np.load(path, allow_pickle=False)
        return array
    table = pq.read_table(path)
    return np.stack([table.column(name).to_numpy() for name in ("src", "dst")], axis=1)


def _present(names: Sequence[T], counts: npt.NDArray[np.int64]) -> Iterator[tuple[int, T]]:
    """Yield code and name of the types that some part, or the one part given, has."""
    for code, name in enumerate(names):
        if counts[..., code].any():
            yield code, name


def _arrays(graph: ExportGraph, part: ExportPart) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield each chunk of a part: the path of its file, and what it holds."""
    for code, name in _present(graph.types.nodes, graph.num_nodes_of[part.rank]):
        yield _path("node_data", name, "orig_id", part.rank), part.nid[part.nodes_of(code)]
        for key, values in graph.node_data(part, code).items():
            yield _path("node_data", name, key, part.rank), values
    for code, edge_type in _present(graph.types.edges, graph.num_edges_of[part.rank]):
        name, rows = "__".join(edge_type), part.edges[part.edges_of(code)]
        ends = [
            _numbers(graph, rows[end], graph.types.nodes.index(node_type))
            for end, node_type in (("src", edge_type[0]), ("dst", edge_type[2]))
        ]
        yield f"edges/{name}/part-{part.rank:05d}.parquet", np.stack(ends, axis=1)
        yield _path("edge_data", name, "orig_id", part.rank), np.ascontiguousarray(rows["eid"])
        for key, values in graph.edge_data(part, code).items():
            yield _path("edge_data", name, key, part.rank), values


def _path(kind: str, type_name: str, column: str, rank: int) -> str:
    return f"{kind}/{type_name}/{column}/part-{rank:05d}.npy"


def _numbers(graph: ExportGraph, nid: IdArray, code: int) -> IdArray:
    """Return the number within its type of each node, all of one type."""
    numbers: IdArray = graph.type_offsets(graph.num_nodes_of)[graph.owner[nid], code] + graph.position[nid]
    return numbers


def _partition_meta(graph: ExportGraph) -> dict[str, Any]:
    # Dispatch knows two names of algorithms, and does nothing more with them.
    return {"version": "1.0.0", "num_parts": graph.num_parts, "algo_name": "metis"}


def _metadata(graph: ExportGraph) -> dict[str, Any]:
    nodes = dict(_chunks(graph.types.nodes, graph.num_nodes_of))
    edges = dict(_chunks(graph.types.edges, graph.num_edges_of))
    first = graph.part(0)

    def files(kind: str, name: str, columns: Any, ranks: list[int]) -> dict[str, Any]:
        return {
            column: {"format": {"name": "numpy"}, "data": [_path(kind, name, column, rank) for rank in ranks]}
            for column in ("orig_id", *columns)
        }

    return {
        "graph_name": GRAPH_NAME,
        "node_type": list(nodes),
        # Versions of DGL differ in which of the two they read, and whether per type or per chunk (dmlc/dgl#7905).
        "num_nodes_per_chunk": [list(chunks.values()) for chunks in nodes.values()],
        "num_nodes_per_type": [sum(chunks.values()) for chunks in nodes.values()],
        "edge_type": [":".join(edge) for edge in edges],
        "num_edges_per_chunk": [list(chunks.values()) for chunks in edges.values()],
        "num_edges_per_type": [sum(chunks.values()) for chunks in edges.values()],
        "edges": {
            ":".join(edge): {
                "format": {"name": "parquet"},
                "data": [f"edges/{'__'.join(edge)}/part-{rank:05d}.parquet" for rank in chunks],
            }
            for edge, chunks in edges.items()
        },
        "node_data": {
            name: files("node_data", name, graph.node_data(first, graph.types.nodes.index(name)), list(chunks))
            for name, chunks in nodes.items()
        },
        "edge_data": {
            ":".join(edge): files(
                "edge_data", "__".join(edge), graph.edge_data(first, graph.types.edges.index(edge)), list(chunks)
            )
            for edge, chunks in edges.items()
        },
    }


def _chunks(names: Sequence[T], counts: npt.NDArray[np.int64]) -> Iterator[tuple[T, dict[int, int]]]:
    """Yield each type that is there, with the rows of each part that has some."""
    for code, name in _present(names, counts):
        yield name, {rank: int(rows) for rank, rows in enumerate(counts[:, code]) if rows}
