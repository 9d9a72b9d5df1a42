"""Parquet and METIS exports, read by other readers and compared with the input."""

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from asepr.exporters.targets import export, find_export_faults
from asepr.formats.shard import Shard, open_all
from tests.exports.datasets import NUM_PARTS, Source, make_source


@pytest.fixture(scope="module", params=[False, True], ids=["one type", "typed"])
def source(request, tmp_path_factory) -> Source:
    return make_source(tmp_path_factory.mktemp("source") / "data", "vertex-cut", typed=request.param)


def owners(source: Source) -> np.ndarray:
    owner = np.full(source.graph.num_nodes, -1)
    for shard in open_all(source.path, Shard):
        owner[shard.nid[: shard.num_inner]] = shard.rank
    return owner


def test_parquet_holds_each_shard(source: Source, tmp_path: Path):
    export(source.path, tmp_path / "out", "parquet")
    seen = []
    for shard in open_all(source.path, Shard):
        folder = tmp_path / "out" / f"part-{shard.rank:05d}"
        edges = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("edges/*.parquet"))])
        assert set(edges.eid) == set(shard.eid.tolist())
        assert (source.graph.src[edges.eid] == edges.src).all()
        assert (source.graph.dst[edges.eid] == edges.dst).all()
        assert np.array_equal(np.stack(edges.feat), source.edge_feat[edges.eid])
        nodes = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("nodes/*.parquet"))])
        assert np.array_equal(np.stack(nodes.feat), source.feat[nodes.nid])
        seen += nodes.nid.tolist()
    assert sorted(seen) == list(range(source.graph.num_nodes))
    table = pd.read_parquet(tmp_path / "out" / "owner.parquet")
    assert np.array_equal(table.part, owners(source))


def test_metis_text_is_the_undirected_graph(source: Source, tmp_path: Path):
    figures = export(source.path, tmp_path / "out", "metis")
    lines = (tmp_path / "out" / "graph.graph").read_text().splitlines()
    expected = nx.Graph((u, v) for u, v in zip(source.graph.src, source.graph.dst, strict=True) if u != v)
    assert list(map(int, lines[0].split())) == [source.graph.num_nodes, expected.number_of_edges()]
    assert figures["undirected_edges"] == expected.number_of_edges()
    assert len(lines) == 1 + source.graph.num_nodes
    for node, line in enumerate(lines[1:]):
        neighbours = sorted(expected[node]) if node in expected else []
        assert [int(word) - 1 for word in line.split()] == neighbours
    parts = np.loadtxt(tmp_path / "out" / f"graph.graph.part.{NUM_PARTS}", dtype=int)
    assert np.array_equal(parts, owners(source))


@pytest.mark.parametrize("target", ["parquet", "metis"])
def test_own_check_catches_damage(target: str, source: Source, tmp_path: Path):
    export(source.path, tmp_path / "out", target)
    assert find_export_faults(source.path, tmp_path / "out", target) == []
    path = next((tmp_path / "out").rglob("edges/*.parquet" if target == "parquet" else "*.graph"))
    if target == "parquet":
        frame = pd.read_parquet(path)
        frame.loc[0, "src"] = (frame.src[0] + 1) % source.graph.num_nodes
        frame.to_parquet(path, index=False)
    else:
        path.write_text(path.read_text().replace(" 1\n", " 2\n").replace("\n2 ", "\n3 "))
    assert len(find_export_faults(source.path, tmp_path / "out", target)) >= 1


def test_chunks_are_the_graph_by_the_metadata_alone(source: Source, tmp_path: Path):
    out = tmp_path / "out"
    export(source.path, out, "dgl-chunked")
    metadata = json.loads((out / "metadata.json").read_text())

    def column(kind: str, name: str, key: str) -> np.ndarray:
        return np.concatenate([np.load(out / path) for path in metadata[kind][name][key]["data"]])

    nid_of, seen = {}, []
    for name, total in zip(metadata["node_type"], metadata["num_nodes_per_type"], strict=True):
        nid_of[name] = column("node_data", name, "orig_id")
        assert len(nid_of[name]) == total
        assert np.array_equal(column("node_data", name, "feat"), source.feat[nid_of[name]])
        parts = np.loadtxt(out / "assignment" / f"{name}.txt", dtype=int, ndmin=1)
        assert np.array_equal(parts, owners(source)[nid_of[name]])
    for name in metadata["edge_type"]:
        eid = column("edge_data", name, "orig_id")
        frame = pd.concat([pd.read_parquet(out / path) for path in metadata["edges"][name]["data"]])
        src_type, _, dst_type = name.split(":")
        assert (nid_of[src_type][frame.src] == source.graph.src[eid]).all()
        assert (nid_of[dst_type][frame.dst] == source.graph.dst[eid]).all()
        assert np.array_equal(column("edge_data", name, "feat"), source.edge_feat[eid])
        seen += eid.tolist()
    assert sorted(seen) == list(range(source.graph.num_edges))
    assert sorted(np.concatenate(list(nid_of.values()))) == list(range(source.graph.num_nodes))
    assert find_export_faults(source.path, out, "dgl-chunked") == []
    path = out / metadata["edges"][metadata["edge_type"][0]]["data"][0]
    pd.read_parquet(path).iloc[::-1].to_parquet(path, index=False)
    assert find_export_faults(source.path, out, "dgl-chunked") == [f"{path}: must equal the shard's"]
