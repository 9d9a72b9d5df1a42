"""The folder of `torch_geometric.distributed`: plain tensors, loadable with `weights_only=True`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asepr.contracts import IdArray
from asepr.exporters.export_graph import ExportGraph, ExportPart

NEEDS_IN_EDGES = True
"""PyG samples a node's in-neighbours in the part that owns the node."""

_NODE_NAMES = {"feat": "x", "label": "y"}
_EDGE_NAMES = {"feat": "edge_attr", "weight": "edge_weight"}


def write(graph: ExportGraph, folder: Path) -> dict[str, Any]:
    """Write `META.json`, `node_map`, `edge_map` and `part_<p>/{graph,node_feats,edge_feats}.pt`.

    Parameters
    ----------
    graph : ExportGraph
    folder : Path

    Returns
    -------
    dict
        Nothing more than every export has.

    Notes
    -----
    With one type of nodes and of edges, ids are nids and eids. With several, PyG numbers each type
    by itself: in the order of nids and eids. Edges are sorted by destination.
    """
    numbers = _Numbers(graph)
    for part in graph.parts():
        place = folder / f"part_{part.rank}"
        place.mkdir()
        for name, content in _contents(graph, part, numbers).items():
            torch.save(content, place / name)
    for name, content in _maps(graph, numbers).items():
        (folder / name).parent.mkdir(exist_ok=True)
        torch.save(content, folder / name)
    (folder / "META.json").write_text(json.dumps(_meta(graph)) + "\n")
    return {}


def find_faults(graph: ExportGraph, folder: Path) -> Iterator[str]:
    """Load every file as PyG does and compare every tensor with the shards."""
    numbers = _Numbers(graph)
    expected_meta = _meta(graph)
    try:
        if json.loads((folder / "META.json").read_text()) != json.loads(json.dumps(expected_meta)):
            yield f"{folder / 'META.json'}: must be {expected_meta}"
        for name, content in _maps(graph, numbers).items():
            if not _equal(torch.load(folder / name, weights_only=True), content):
                yield f"{folder / name}: must name the part of each node or edge"
        for part in graph.parts():
            for name, content in _contents(graph, part, numbers).items():
                path = folder / f"part_{part.rank}" / name
                if not _equal(torch.load(path, weights_only=True), content):
                    yield f"{path}: must equal the shard"
    except (OSError, ValueError, RuntimeError, EOFError) as error:
        yield f"{folder}: must be whole, got: {' '.join(str(error).split())[:200]}"


class _Numbers:
    """PyG's number of each node and edge within its type."""

    def __init__(self, graph: ExportGraph) -> None:
        self.node_type = np.zeros(graph.manifest.num_nodes, dtype=np.int32)
        self.edge_type = np.zeros(graph.manifest.num_edges, dtype=np.int32)
        self.edge_part = np.zeros(graph.manifest.num_edges, dtype=np.int32)
        for part in graph.parts():
            self.node_type[part.nid] = np.repeat(np.arange(len(graph.types.nodes)), np.diff(part.node_offsets))
            self.edge_type[part.edges["eid"]] = part.edges["etype"]
            self.edge_part[part.edges["eid"]] = part.rank
        self.node = _number_by_type(self.node_type, len(graph.types.nodes))
        self.edge = _number_by_type(self.edge_type, len(graph.types.edges))


def _number_by_type(codes: Any, num_types: int) -> IdArray:
    numbers = np.empty(len(codes), dtype=np.int64)
    for code in range(num_types):
        here = codes == code
        numbers[here] = np.arange(int(here.sum()))
    return numbers


def _is_hetero(graph: ExportGraph) -> bool:
    return len(graph.types.nodes) > 1 or len(graph.types.edges) > 1


def _meta(graph: ExportGraph) -> dict[str, Any]:
    hetero = _is_hetero(graph)
    totals = graph.num_nodes_of.sum(axis=0)
    return {
        "num_parts": graph.num_parts,
        "node_types": list(graph.types.nodes) if hetero else None,
        "edge_types": [list(edge) for edge in graph.types.edges] if hetero else None,
        "node_offset": (np.cumsum(totals) - totals).tolist() if hetero else None,
        "is_hetero": hetero,
        "is_sorted": True,
    }


def _maps(graph: ExportGraph, numbers: _Numbers) -> dict[str, torch.Tensor]:
    owner, edge_part = graph.owner.astype(np.int64), numbers.edge_part.astype(np.int64)
    if not _is_hetero(graph):
        return {"node_map.pt": torch.from_numpy(owner), "edge_map.pt": torch.from_numpy(edge_part)}
    nodes = {
        f"node_map/{name}.pt": torch.from_numpy(owner[numbers.node_type == code])
        for code, name in enumerate(graph.types.nodes)
    }
    return nodes | {
        f"edge_map/{'__'.join(edge)}.pt": torch.from_numpy(edge_part[numbers.edge_type == code])
        for code, edge in enumerate(graph.types.edges)
    }


def _contents(graph: ExportGraph, part: ExportPart, numbers: _Numbers) -> dict[str, Any]:
    totals = graph.num_nodes_of.sum(axis=0)
    nodes: dict[Any, Any] = {}
    links: dict[Any, Any] = {}
    edges: dict[Any, Any] = {}
    for code, name in enumerate(graph.types.nodes):
        nid = numbers.node[part.nid[part.nodes_of(code)]]
        nodes[name] = {"global_id": torch.from_numpy(nid), "id": torch.from_numpy(nid)}
        nodes[name]["feats"] = {
            _NODE_NAMES.get(key, key): torch.from_numpy(values) for key, values in graph.node_data(part, code).items()
        }
    for code, edge_type in enumerate(graph.types.edges):
        rows = part.edges[part.edges_of(code)]
        src, dst, eid = numbers.node[rows["src"]], numbers.node[rows["dst"]], numbers.edge[rows["eid"]]
        order = np.lexsort((src, dst))
        links[edge_type] = {
            "edge_id": torch.from_numpy(eid[order]),
            "row": torch.from_numpy(src[order]),
            "col": torch.from_numpy(dst[order]),
            "size": tuple(int(totals[graph.types.nodes.index(end)]) for end in (edge_type[0], edge_type[2])),
        }
        edges[edge_type] = {"global_id": links[edge_type]["edge_id"]}
        edges[edge_type]["feats"] = {
            _EDGE_NAMES[name]: torch.from_numpy(values[order]) for name, values in graph.edge_data(part, code).items()
        }
    if _is_hetero(graph):
        return {"graph.pt": links, "node_feats.pt": nodes, "edge_feats.pt": edges}
    one_node, one_edge = graph.types.nodes[0], graph.types.edges[0]
    return {"graph.pt": links[one_edge], "node_feats.pt": nodes[one_node], "edge_feats.pt": edges[one_edge]}


def _equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(_equal(found[key], value) for key, value in expected.items())
        )
    if isinstance(expected, torch.Tensor):
        return isinstance(found, torch.Tensor) and found.dtype == expected.dtype and torch.equal(found, expected)
    return bool(found == expected)
