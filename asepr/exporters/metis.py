"""METIS's text: the graph without directions, and a file of one part number a line."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import IdArray
from asepr.exporters.export_graph import ExportGraph

NEEDS_IN_EDGES = False
GRAPH_NAME = "graph"
RANGE_EDGES = 1 << 22
"""About how many ends of edges are held at once."""
_PAIR = np.dtype([("node", "<i8"), ("neighbour", "<i8")])


def write(graph: ExportGraph, folder: Path) -> dict[str, Any]:
    """Write `graph.graph` and `graph.graph.part.<K>`; line i + 1 is node i.

    METIS wants each edge from both ends, once, and no self-loops: directions, types and parallel
    edges are not in the file.

    Parameters
    ----------
    graph : ExportGraph
    folder : Path

    Returns
    -------
    dict
        `undirected_edges`: the edges in the file.
    """
    ends = 0
    path = folder / f"{GRAPH_NAME}.graph"
    header = f"{graph.manifest.num_nodes} {{:<20}}\n"
    with path.open("w", encoding="ascii") as file:
        file.write(header.format(0))
        for first, stop, pairs in _adjacency(graph):
            ends += len(pairs)
            bounds = np.searchsorted(pairs["node"], np.arange(first, stop + 1))
            numbers = (pairs["neighbour"] + 1).astype(str).tolist()
            file.writelines(" ".join(numbers[low:high]) + "\n" for low, high in itertools.pairwise(bounds))
        file.seek(0)
        file.write(header.format(ends // 2))
    np.savetxt(part_path(folder, graph), graph.owner, fmt="%d")
    return {"undirected_edges": ends // 2}


def find_faults(graph: ExportGraph, folder: Path) -> Iterator[str]:
    """Compare neighbours and parts, line by line, with the shards."""
    path = folder / f"{GRAPH_NAME}.graph"
    try:
        owner = np.loadtxt(part_path(folder, graph), dtype=np.int64, ndmin=1)
        if not np.array_equal(owner, graph.owner):
            yield f"{part_path(folder, graph)}: each line must be the owner of a node"
        with path.open(encoding="ascii") as file:
            stated = [int(word) for word in file.readline().split()]
            ends = 0
            for first, stop, pairs in _adjacency(graph):
                ends += len(pairs)
                lines = [np.array(file.readline().split(), dtype=np.int64) - 1 for _ in range(first, stop)]
                node = np.repeat(np.arange(first, stop), [len(line) for line in lines])
                if not np.array_equal(node, pairs["node"]) or not np.array_equal(
                    np.concatenate(lines), pairs["neighbour"]
                ):
                    yield f"{path}: lines {first + 2} to {stop + 1} must be their nodes' neighbours"
            if stated != [graph.manifest.num_nodes, ends // 2]:
                yield f"{path}: must state {graph.manifest.num_nodes} nodes and {ends // 2} edges, got {stated}"
    except (OSError, ValueError) as error:
        yield f"{folder}: must hold METIS's text, got: {error}"


def part_path(folder: Path, graph: ExportGraph) -> Path:
    """Return the path of the file of parts, named as METIS names it."""
    return folder / f"{GRAPH_NAME}.graph.part.{graph.num_parts}"


def _adjacency(graph: ExportGraph) -> Iterator[tuple[int, int, npt.NDArray[Any]]]:
    """Yield (first node, one past the last, pairs by node, then neighbour) over ranges of nids."""
    num_nodes = graph.manifest.num_nodes
    width = -(-num_nodes // min(num_nodes, 1 + 2 * graph.manifest.num_edges // RANGE_EDGES))
    num_ranges = -(-num_nodes // width)
    buckets = graph.scratch.buckets("adjacency", num_ranges, _PAIR)
    for part in graph.parts():
        for node, neighbour in (("src", "dst"), ("dst", "src")):
            pairs = _pairs(part.edges[node], part.edges[neighbour])
            buckets.append(pairs["node"] // width, pairs)
    for number in range(num_ranges):
        pairs = np.unique(buckets.read(number))
        yield number * width, min((number + 1) * width, num_nodes), pairs
    buckets.close()


def _pairs(node: IdArray, neighbour: IdArray) -> npt.NDArray[Any]:
    keep = node != neighbour
    pairs = np.empty(int(keep.sum()), dtype=_PAIR)
    pairs["node"], pairs["neighbour"] = node[keep], neighbour[keep]
    return pairs
