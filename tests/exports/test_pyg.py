"""PyG's folder, loaded by PyG's own stores and compared with the input."""

import warnings
from pathlib import Path

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("torch_geometric", reason="torch-geometric is not installed")
    from torch_geometric.distributed import LocalFeatureStore, LocalGraphStore

import torch

from asepr.exporters.targets import export, find_export_faults
from tests.exports.datasets import NUM_PARTS, Source, make_source


@pytest.fixture(scope="module", params=[("edge-cut", False), ("vertex-cut", True)], ids=["one type", "typed"])
def exported(request, tmp_path_factory) -> tuple[Source, Path]:
    layout, typed = request.param
    folder = tmp_path_factory.mktemp("pyg")
    source = make_source(folder / "data", layout, typed=typed)
    export(source.path, folder / "export", "pyg")
    return source, folder / "export"


def node_numbers(source: Source) -> tuple[dict, dict]:
    """Return nids and eids by type: what PyG's number i of a type is."""
    if source.ntype is None:
        return {None: np.arange(source.graph.num_nodes)}, {None: np.arange(source.graph.num_edges)}
    nodes = {f"type_{code}": np.flatnonzero(source.ntype == code) for code in range(source.ntype.max() + 1)}
    ends = zip(source.ntype[source.graph.src], source.etype, source.ntype[source.graph.dst], strict=True)
    names = [tuple(f"type_{code}" for code in triple) for triple in ends]
    return nodes, {name: np.array([e for e, other in enumerate(names) if other == name]) for name in set(names)}


def test_stores_hold_every_edge_and_feature(exported):
    source, folder = exported
    nodes, edges = node_numbers(source)
    seen_edges, seen_nodes = [], []
    for rank in range(NUM_PARTS):
        graph, features = (store.from_partition(str(folder), rank) for store in (LocalGraphStore, LocalFeatureStore))
        for attr in graph.get_all_edge_attrs():
            kind = attr.edge_type
            ends = (None, None) if kind is None else (kind[0], kind[2])
            row, col = graph.get_edge_index(attr)
            eid = edges[kind][graph.get_edge_id(edge_type=kind, layout="coo").numpy()]
            assert (nodes[ends[0]][row.numpy()] == source.graph.src[eid]).all()
            assert (nodes[ends[1]][col.numpy()] == source.graph.dst[eid]).all()
            owners = graph.node_pb if kind is None else graph.node_pb[kind[2]]
            assert (owners[col] == rank).all(), "an in-edge is not with its destination's owner"
            assert (torch.diff(col) >= 0).all()
            group = (None, None) if kind is None else kind
            found = features.get_tensor(group_name=group, attr_name="edge_attr")
            assert np.array_equal(found, source.edge_feat[eid])
            seen_edges += eid.tolist()
        for kind, nids in nodes.items():
            nid = nids[features.get_global_id(kind).numpy()]
            assert np.array_equal(features.get_tensor(group_name=kind, attr_name="x"), source.feat[nid])
            if kind in (None, "type_0"):
                assert np.array_equal(features.get_tensor(group_name=kind, attr_name="y"), source.label[nid])
            seen_nodes += nid.tolist()
    assert sorted(seen_edges) == list(range(source.graph.num_edges))
    assert sorted(seen_nodes) == list(range(source.graph.num_nodes))


def test_own_check_catches_a_wrong_edge(exported):
    source, folder = exported
    assert find_export_faults(source.path, folder, "pyg") == []
    path = folder / "part_1" / "graph.pt"
    whole = path.read_bytes()
    content = torch.load(path, weights_only=True)
    rows = (content if source.ntype is None else next(iter(content.values())))["row"]
    rows[0] = (rows[0] + 1) % 2
    try:
        torch.save(content, path)
        assert find_export_faults(source.path, folder, "pyg") == [f"{path}: must equal the shard"]
    finally:
        path.write_bytes(whole)
