"""Graphs in memory give the same shards, byte for byte, as the same graph in files."""

from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

import asepr
from asepr.errors import AseprError
from tests.formats.test_dgl_graphs import GRAPH, node_columns, parts, write_parquet


def test_pyg_data(tmp_path: Path, rng: np.random.Generator):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    from torch_geometric.data import Data

    columns, weight = node_columns(rng, 60), rng.random(GRAPH.num_edges).astype(np.float32)
    edge_feat = rng.standard_normal((GRAPH.num_edges, 2)).astype(np.float32)
    tensors = {key: torch.from_numpy(values) for key, values in columns.items()}
    data = Data(
        x=tensors.pop("feat"),
        y=tensors.pop("label"),
        edge_index=torch.from_numpy(np.stack([GRAPH.src, GRAPH.dst])),
        edge_attr=torch.from_numpy(edge_feat),
        edge_weight=torch.from_numpy(weight),
        **tensors,
    )
    given = write_parquet(tmp_path, columns, weight, edge_feat)
    asepr.partition(tmp_path / "edges.parquet", tmp_path / "a", num_parts=3, **given)
    asepr.partition(asepr.from_pyg(data), tmp_path / "b", num_parts=3)
    assert parts(tmp_path / "a") == parts(tmp_path / "b")


TYPED = """\
nodes:
  - {type: user, files: [user.parquet]}
  - {type: item, files: [item.parquet]}
edges:
  - {type: "user:buys:item", files: [buys.parquet]}
  - {type: "item:like:item", files: [like.parquet]}
"""


def test_pyg_heterodata(tmp_path: Path, rng: np.random.Generator):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    from torch_geometric.data import HeteroData

    data = HeteroData()
    (tmp_path / "graph.yaml").write_text(TYPED)
    sizes = {"user": 12, "item": 7}
    feat = rng.standard_normal((12, 3)).astype(np.float32)
    pq.write_table(pa.table({"id": np.arange(12), "feat": feat.tolist()}), tmp_path / "user.parquet")
    pq.write_table(pa.table({"id": np.arange(7), "label": np.arange(7)}), tmp_path / "item.parquet")
    data["user"].x = torch.from_numpy(feat)
    data["item"].y, data["item"].num_nodes = torch.arange(7), 7
    for source, relation, target in (("user", "buys", "item"), ("item", "like", "item")):
        src, dst = rng.integers(0, sizes[source], 25), rng.integers(0, sizes[target], 25)
        pq.write_table(pa.table({"src": src, "dst": dst}), tmp_path / f"{relation}.parquet")
        data[source, relation, target].edge_index = torch.from_numpy(np.stack([src, dst]))
    asepr.partition(tmp_path / "graph.yaml", tmp_path / "a", num_parts=2)
    manifest = asepr.partition(asepr.from_pyg(data), tmp_path / "b", num_parts=2).manifest
    assert parts(tmp_path / "a") == parts(tmp_path / "b")
    assert manifest.node_types == ["user", "item"]
    assert manifest.edge_types == [("user", "buys", "item"), ("item", "like", "item")]
    assert asepr.lookup(tmp_path / "b", "6", "item")[0]["nid"] == 18


@pytest.mark.parametrize("kind", ["coo", "csr", "csc"])
def test_scipy(kind: str, tmp_path: Path, rng: np.random.Generator):
    weight = rng.random(GRAPH.num_edges)
    matrix = scipy.sparse.coo_array((weight, (GRAPH.src, GRAPH.dst)), shape=(60, 60)).asformat(kind)
    scipy.sparse.save_npz(tmp_path / "e.npz", matrix)
    feat = scipy.sparse.random_array((60, 5), density=0.3, format="csr", rng=rng)
    scipy.sparse.save_npz(tmp_path / "f.npz", feat)
    asepr.partition(tmp_path / "e.npz", tmp_path / "a", num_parts=3, features=tmp_path / "f.npz")
    asepr.partition(asepr.from_scipy(matrix, features=feat), tmp_path / "b", num_parts=3)
    assert parts(tmp_path / "a") == parts(tmp_path / "b")


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.Graph, nx.MultiDiGraph, nx.MultiGraph])
def test_networkx(kind: type, tmp_path: Path):
    graph = kind()
    for number, name in enumerate("abcdefgh"):
        graph.add_node(name, label=number % 3, split=("train", "test")[number % 2], feat=[float(number), 1.0])
    for u, v in zip("aabbcdegg", "bcddaffga", strict=True):
        graph.add_edge(u, v, weight=ord(u) / 7)
    edges = [(u, v, w) for u, v, w in graph.edges(data="weight")]
    if not graph.is_directed():
        edges = [row for u, v, w in edges for row in ([(u, v, w)] if u == v else [(u, v, w), (v, u, w)])]
    src, dst, weight = zip(*edges, strict=True)
    pq.write_table(pa.table({"src": src, "dst": dst, "weight": weight}), tmp_path / "e.parquet")
    attributes = {key: [graph.nodes[name][key] for name in graph] for key in ("label", "split", "feat")}
    pq.write_table(pa.table({"id": list(graph), **attributes}), tmp_path / "n.parquet")
    asepr.partition(tmp_path / "e.parquet", tmp_path / "a", num_parts=2, nodes=tmp_path / "n.parquet")
    asepr.partition(asepr.from_networkx(graph), tmp_path / "b", num_parts=2)
    assert parts(tmp_path / "a") == parts(tmp_path / "b")
    assert asepr.original_ids(tmp_path / "b")["id"].to_pylist() == list(graph)


def test_what_is_no_graph_is_one_clear_error(tmp_path: Path):
    with pytest.raises(AseprError, match=r"must be a square scipy\.sparse matrix, got \(2, 3\)"):
        asepr.from_scipy(scipy.sparse.csr_array((2, 3)))
    with pytest.raises(AseprError, match=r"label must have 2 rows, got \(3,\)"):
        asepr.from_scipy(scipy.sparse.eye_array(2), label=[0, 1, 2])
    with pytest.raises(AseprError, match="label must be one integer a node, got float64"):
        asepr.from_scipy(scipy.sparse.eye_array(2), label=[0.5, 1])
    with pytest.raises(AseprError, match="features must be finite, got nan"):
        asepr.from_scipy(scipy.sparse.eye_array(2), features=[[0.5], [np.nan]])
    graph = nx.Graph()
    with pytest.raises(AseprError, match="nodes must be all integers or all strings, got none"):
        asepr.from_networkx(graph)
    graph.add_edge("a", 1)
    with pytest.raises(AseprError, match="nodes must be all integers or all strings, got int, str"):
        asepr.from_networkx(graph)
    graph = asepr.from_scipy(scipy.sparse.eye_array(2))
    with pytest.raises(AseprError, match="a whole graph must stand alone, got --nodes"):
        asepr.partition(graph, tmp_path / "out", num_parts=1, nodes="n.parquet")
