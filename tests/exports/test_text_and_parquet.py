"""Parquet and METIS exports, read by other readers and compared with the input."""

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from asepr.errors import ConfigError
from asepr.exporters.targets import export, find_export_faults
from asepr.formats.shard import Shard, open_all
from tests.exports.datasets import NUM_PARTS, Source, make_source
from tests.graphs import random_graph


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


@pytest.mark.parametrize(
    ("target", "reason"), [("graphar", "returns neither features nor weights"), ("csv", "target must be one of dgl-")]
)
def test_other_targets_are_refused_with_the_reason(target: str, reason: str, source: Source, tmp_path: Path):
    with pytest.raises(ConfigError, match=reason):
        export(source.path, tmp_path / "out", target)
    assert not (tmp_path / "out").exists()


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


DISPATCH_DTYPES = {"float32", "float64", "float16", "uint8", "int8", "int16", "int32", "int64", "bool"}


class Dispatch:
    """Chunks as DGL's dispatch reads them, by its documented rules and the metadata alone.

    A process for each part reads a contiguous share of the files of each column. Rows are numbered by the counts of
    those processes that have some, in order, and the r-th such count is taken for that of process r.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.metadata = json.loads((out / "metadata.json").read_text())
        meta = json.loads((out / "assignment" / "partition_meta.json").read_text())
        assert meta["version"] == "1.0.0"
        assert meta["algo_name"] in ("random", "metis")
        self.num_parts = meta["num_parts"]
        self.part_of = {name: self.assignment(name) for name in self.metadata["node_type"]}

    def assignment(self, name: str) -> np.ndarray:
        parts = pd.read_csv(self.out / "assignment" / f"{name}.txt", header=None)[0].to_numpy()
        assert parts.min() >= 0
        assert parts.max() < self.num_parts
        return parts

    def read(self, described: dict, rows: int) -> np.ndarray:
        shares = np.array_split(described["data"], self.num_parts)
        read_by = [[self.file(name, described["format"]["name"]) for name in share] for share in shares]
        counts = [sum(map(len, files)) for files in read_by]
        present = [count for count in counts if count]
        assert counts[: len(present)] == present, "a process without rows shifts the numbers of those after it"
        assert sum(counts) == rows
        return np.concatenate([array for files in read_by for array in files])

    def file(self, name: str, kind: str) -> np.ndarray:
        assert not Path(name).is_absolute()
        array = np.load(self.out / name) if kind == "numpy" else pd.read_parquet(self.out / name).to_numpy()
        assert array.ndim in (1, 2)
        assert array.dtype.name in DISPATCH_DTYPES
        return array

    def columns(self, kind: str) -> dict[str, dict[str, np.ndarray]]:
        names, rows = (self.metadata[f"{kind}_type"], self.metadata[f"num_{kind}s_per_type"])
        chunks = self.metadata[f"num_{kind}s_per_chunk"]
        assert list(map(sum, chunks)) == rows
        return {
            name: {key: self.read(column, count) for key, column in self.metadata[f"{kind}_data"][name].items()}
            for name, count in zip(names, rows, strict=True)
        }

    def edges(self) -> dict[str, np.ndarray]:
        counts = dict(zip(self.metadata["edge_type"], self.metadata["num_edges_per_type"], strict=True))
        return {name: self.read(self.metadata["edges"][name], count) for name, count in counts.items()}


def test_chunks_are_the_graph_to_dispatch(source: Source, tmp_path: Path):
    export_chunks(source, tmp_path / "out")


def test_chunks_without_rows_are_left_out(tmp_path: Path):
    # Fewer nodes of a type than parts, so some parts have none.
    source = make_source(tmp_path / "data", "edge-cut", typed=True, graph=random_graph(14, 40), num_parts=6)
    export_chunks(source, tmp_path / "out")


def export_chunks(source: Source, out: Path) -> None:
    export(source.path, out, "dgl-chunked")
    dispatch = Dispatch(out)
    nodes, seen = dispatch.columns("node"), []
    nid_of = {name: columns["orig_id"] for name, columns in nodes.items()}
    for name, columns in nodes.items():
        assert np.array_equal(columns["feat"], source.feat[nid_of[name]])
        assert np.array_equal(dispatch.part_of[name], owners(source)[nid_of[name]])
    edges = dispatch.edges()
    for name, columns in dispatch.columns("edge").items():
        eid, ends = columns["orig_id"], edges[name]
        src_type, _, dst_type = name.split(":")
        assert np.array_equal(nid_of[src_type][ends[:, 0]], source.graph.src[eid])
        assert np.array_equal(nid_of[dst_type][ends[:, 1]], source.graph.dst[eid])
        assert np.array_equal(columns["feat"], source.edge_feat[eid])
        seen += eid.tolist()
    assert sorted(seen) == list(range(source.graph.num_edges))
    assert sorted(np.concatenate(list(nid_of.values()))) == list(range(source.graph.num_nodes))


def test_own_check_catches_damaged_chunks(source: Source, tmp_path: Path):
    out = tmp_path / "out"
    export(source.path, out, "dgl-chunked")
    assert find_export_faults(source.path, out, "dgl-chunked") == []
    path = next(out.rglob("edges/*/*.parquet"))
    pd.read_parquet(path).iloc[::-1].to_parquet(path, index=False)
    assert find_export_faults(source.path, out, "dgl-chunked") == [f"{path}: must equal the shard's"]
    meta = out / "assignment" / "partition_meta.json"
    meta.unlink()
    assert "partition_meta.json" in find_export_faults(source.path, out, "dgl-chunked")[0]
