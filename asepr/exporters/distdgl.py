"""DistDGL's partition folder, written by DGL's own `save_graphs` and `save_tensors`."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("DGLBACKEND", "pytorch")

import dgl
import numpy as np
import numpy.typing as npt
import torch
from dgl.data.utils import load_tensors, save_tensors

from asepr.contracts import IdArray
from asepr.exporters.export_graph import ExportGraph, ExportPart
from asepr.formats.arrow_io import Columns

NEEDS_IN_EDGES = True
"""DistDGL samples a node's neighbours at its owner alone: an in-edge elsewhere is lost without a word."""

GRAPH_NAME = "graph"


def write(graph: ExportGraph, folder: Path) -> dict[str, Any]:
    """Write `graph.json` and `part<p>/{graph,node_feat,edge_feat,orig_nids,orig_eids}.dgl`.

    Parameters
    ----------
    graph : ExportGraph
    folder : Path

    Returns
    -------
    dict
        `config`, the name of the file to give to DistDGL; `without_features`, the types whose features are left out.

    Notes
    -----
    Ids are part-major, then by type, then by nid or eid. Inner nodes come first, in that order, then
    halo nodes in ascending id; edges are the in-edges of inner nodes in ascending id, and no others: an edge into
    a halo node makes DGL count neighbours twice (dmlc/dgl#7473).

    A server puts each feature in shared memory, fails to make an array without rows there, and serves only
    features that all parts have. So a type that is missing in a part has no features in any; its original ids remain
    in `orig_nids.dgl` or `orig_eids.dgl`.
    """
    for part in graph.parts():
        place = folder / f"part{part.rank}"
        place.mkdir()
        dgl.save_graphs(str(place / "graph.dgl"), [_part_graph(graph, part)])
        for name, tensors in _tensors(graph, part).items():
            save_tensors(str(place / name), tensors)
    (folder / f"{GRAPH_NAME}.json").write_text(json.dumps(_config(graph), indent=1) + "\n")
    return {"config": f"{GRAPH_NAME}.json", "without_features": _without_features(graph)}


def find_faults(graph: ExportGraph, folder: Path) -> Iterator[str]:
    """Compare a folder with the shards, edge by edge, as DGL's readers see it.

    Ids of the export are turned back into nids by its `orig_nids.dgl` alone, so a wrong order, range, edge
    or feature shows, and so does an in-edge that lies in another part.
    """
    path = folder / f"{GRAPH_NAME}.json"
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        yield f"{path}: must be DistDGL's partition config, got: {error}"
        return
    yield from _config_faults(path, config, _config(graph))
    nid_of = np.full(graph.manifest.num_nodes, -1, dtype=np.int64)
    try:
        for rank in range(graph.num_parts):
            _read_nids(graph, folder / f"part{rank}", rank, nid_of)
        for part in graph.parts():
            for fault in _part_faults(graph, folder / f"part{part.rank}", part, nid_of):
                yield f"{folder / f'part{part.rank}'}: {fault}"
    except (dgl.DGLError, OSError, KeyError, IndexError, ValueError, RuntimeError) as error:
        yield f"{folder}: must be whole, got: {' '.join(str(error).split())[:200]}"


def _id_starts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return int64 (K, types): the first id of each part's nodes or edges of each type."""
    starts: npt.NDArray[np.int64] = np.cumsum(counts) - counts.ravel()
    return starts.reshape(counts.shape)


def _ids(graph: ExportGraph, nid: IdArray, code: int) -> IdArray:
    """Return the ids in the export of nodes that all are of one type."""
    ids: IdArray = _id_starts(graph.num_nodes_of)[graph.owner[nid], code] + graph.position[nid]
    return ids


def _config(graph: ExportGraph) -> dict[str, Any]:
    node_names, edge_names = graph.types.nodes, [":".join(edge) for edge in graph.types.edges]
    return {
        "graph_name": GRAPH_NAME,
        "num_nodes": graph.manifest.num_nodes,
        "num_edges": graph.manifest.num_edges,
        "part_method": graph.manifest.method,
        "num_parts": graph.num_parts,
        "halo_hops": 1,
        "node_map": _ranges(node_names, graph.num_nodes_of),
        "edge_map": _ranges(edge_names, graph.num_edges_of),
        "node_map_dtype": "int64",
        "edge_map_dtype": "int64",
        "ntypes": {name: code for code, name in enumerate(node_names)},
        "etypes": {name: code for code, name in enumerate(edge_names)},
    } | {
        f"part-{rank}": {
            "node_feats": f"part{rank}/node_feat.dgl",
            "edge_feats": f"part{rank}/edge_feat.dgl",
            "part_graph": f"part{rank}/graph.dgl",
        }
        for rank in range(graph.num_parts)
    }


def _ranges(names: Any, counts: npt.NDArray[np.int64]) -> dict[str, list[list[int]]]:
    starts = _id_starts(counts)
    ends = starts + counts
    return {name: np.stack([starts[:, code], ends[:, code]], axis=1).tolist() for code, name in enumerate(names)}


def _part_graph(graph: ExportGraph, part: ExportPart) -> dgl.DGLGraph:
    num_inner, num_edges = len(part.nid), len(part.edges)
    first_node = int(_id_starts(graph.num_nodes_of)[part.rank, 0])
    first_edge = int(_id_starts(graph.num_edges_of)[part.rank, 0])
    src = np.empty(num_edges, dtype=np.int64)
    dst = np.empty(num_edges, dtype=np.int64)
    for code, (src_type, _, dst_type) in enumerate(graph.types.edges):
        rows = part.edges_of(code)
        src[rows] = _ids(graph, part.edges["src"][rows], graph.types.nodes.index(src_type))
        dst[rows] = _ids(graph, part.edges["dst"][rows], graph.types.nodes.index(dst_type))
    outside = (src < first_node) | (src >= first_node + num_inner)
    halo = np.unique(src[outside])
    local_src = src - first_node
    local_src[outside] = num_inner + np.searchsorted(halo, src[outside])
    result = dgl.graph(
        (torch.from_numpy(local_src), torch.from_numpy(dst - first_node)), num_nodes=num_inner + len(halo)
    )
    ids = np.concatenate([np.arange(first_node, first_node + num_inner), halo])
    # Ranges that are empty share their start with the next: the last of those that start at or before an id has it.
    starts = _id_starts(graph.num_nodes_of).ravel()
    cell = np.searchsorted(starts, ids, side="right") - 1
    result.ndata[dgl.NID] = torch.from_numpy(ids)
    result.ndata[dgl.NTYPE] = torch.from_numpy((cell % len(graph.types.nodes)).astype(np.int32))
    result.ndata["part_id"] = torch.from_numpy(cell // len(graph.types.nodes))
    result.ndata["inner_node"] = torch.from_numpy((np.arange(len(ids)) < num_inner).astype(np.uint8))
    result.edata[dgl.EID] = torch.arange(first_edge, first_edge + num_edges)
    result.edata[dgl.ETYPE] = torch.from_numpy(part.edges["etype"].copy())
    result.edata["inner_edge"] = torch.ones(num_edges, dtype=torch.uint8)
    return result


def _tensors(graph: ExportGraph, part: ExportPart) -> dict[str, dict[str, torch.Tensor]]:
    """Return the tensors of each file of a part but the graph's."""
    nodes: dict[str, torch.Tensor] = {}
    edges: dict[str, torch.Tensor] = {}
    orig_nids: dict[str, torch.Tensor] = {}
    orig_eids: dict[str, torch.Tensor] = {}
    for code, name in enumerate(graph.types.nodes):
        orig_nids[name] = torch.from_numpy(part.nid[part.nodes_of(code)].copy())
        if graph.num_nodes_of[:, code].all():
            nodes |= {f"{name}/orig_id": orig_nids[name]} | _named(name, graph.node_data(part, code))
    for code, edge_type in enumerate(graph.types.edges):
        name = ":".join(edge_type)
        orig_eids[name] = torch.from_numpy(part.edges["eid"][part.edges_of(code)].copy())
        if graph.num_edges_of[:, code].all():
            edges |= {f"{name}/orig_id": orig_eids[name]} | _named(name, graph.edge_data(part, code))
    return {
        "node_feat.dgl": nodes,
        "edge_feat.dgl": edges,
        "orig_nids.dgl": orig_nids,
        "orig_eids.dgl": orig_eids,
    }


def _without_features(graph: ExportGraph) -> list[str]:
    """Return the types of which some part has no node or edge."""
    nodes = [name for code, name in enumerate(graph.types.nodes) if not graph.num_nodes_of[:, code].all()]
    return nodes + [
        ":".join(name) for code, name in enumerate(graph.types.edges) if not graph.num_edges_of[:, code].all()
    ]


def _named(type_name: str, columns: Columns) -> dict[str, torch.Tensor]:
    return {f"{type_name}/{name}": torch.from_numpy(values) for name, values in columns.items()}


def _config_faults(path: Path, found: Any, expected: dict[str, Any]) -> Iterator[str]:
    if not isinstance(found, dict):
        yield f"{path}: must be one JSON object"
        return
    for key, value in expected.items():
        if found.get(key) != value:
            yield f"{path}: {key} must be {str(value)[:80]}, got {str(found.get(key))[:80]}"


def _read_nids(graph: ExportGraph, place: Path, rank: int, nid_of: IdArray) -> None:
    """Fill in which nid each id of a part stands for, by the export alone."""
    original = load_tensors(str(place / "orig_nids.dgl"))
    starts = _id_starts(graph.num_nodes_of)
    for code, name in enumerate(graph.types.nodes):
        nids = original[name].numpy()
        nid_of[starts[rank, code] : starts[rank, code] + len(nids)] = nids


def _part_faults(graph: ExportGraph, place: Path, part: ExportPart, nid_of: IdArray) -> Iterator[str]:
    loaded = dgl.load_graphs(str(place / "graph.dgl"))[0][0]
    if loaded.num_edges() != len(part.edges):
        yield f"must hold the {len(part.edges)} in-edges of its nodes, got {loaded.num_edges()}"
        return
    ids = loaded.ndata[dgl.NID].numpy()
    inner = loaded.ndata["inner_node"].numpy()
    num_inner = len(part.nid)
    if inner.sum() != num_inner or not inner[:num_inner].all():
        yield f"its {num_inner} inner nodes must come first, got {int(inner.sum())} inner nodes"
        return
    if not np.array_equal(nid_of[ids[:num_inner]], part.nid):
        yield "inner nodes must be those that the shard owns, by type, then nid"
    for code, name in enumerate(graph.types.nodes):
        if not (loaded.ndata[dgl.NTYPE].numpy()[part.nodes_of(code)] == code).all():
            yield f"nodes of type {name} must have that type"
    src, dst = (nid_of[ids[rows.numpy()]] for rows in loaded.edges(order="eid"))
    stored = _tensors(graph, part)
    eids = np.concatenate([values.numpy() for values in stored["orig_eids.dgl"].values()])
    for end, found in (("src", src), ("dst", dst)):
        wrong = found != part.edges[end]
        if wrong.any():
            row = int(np.argmax(wrong))
            yield f"edge {eids[row]}: {end} must be node {part.edges[end][row]}, got {found[row]} ({wrong.sum()} wrong)"
    for name, tensors in stored.items():
        found_tensors = load_tensors(str(place / name))
        for key in sorted(tensors.keys() | found_tensors.keys()):
            if key not in found_tensors or key not in tensors:
                yield f"{name}: {key} must be there in shards and export alike"
            elif not torch.equal(found_tensors[key].to(tensors[key].dtype), tensors[key]):
                yield f"{name}: {key} must equal the shard's"
