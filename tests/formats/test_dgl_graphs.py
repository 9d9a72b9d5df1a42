"""Graphs of DGL: its own files, its chunks, its objects; each the same graph as from Parquet."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import asepr
from asepr.errors import AseprError
from asepr.exporters.targets import export
from asepr.formats.shard import Shard, open_all
from tests.exports.datasets import make_source
from tests.formats.test_ogb_folders import read_whole
from tests.graphs import random_graph

GRAPH = random_graph(60, 400)
SIZES = {"user": 12, "item": 7}
EDGES = {("user", "buys", "item"): 30, ("user", "knows", "user"): 20, ("item", "like", "item"): 5}


@pytest.fixture
def dgl():
    pytest.importorskip("dgl", reason="DGL is not installed")
    import dgl

    return dgl


def node_columns(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    split = rng.integers(0, 4, count)
    masks = {f"{name}_mask": split == code for code, name in enumerate(("train", "val", "test"), start=1)}
    return {"feat": rng.standard_normal((count, 3)).astype(np.float32), "label": rng.integers(-1, 4, count), **masks}


def write_parquet(folder: Path, columns: dict[str, np.ndarray], weight: np.ndarray, edge_feat: np.ndarray) -> dict:
    split = sum(code * columns[f"{name}_mask"] for code, name in enumerate(("train", "val", "test"), start=1))
    nodes = {
        "id": np.arange(60),
        "label": columns["label"],
        "split": np.array(["", "train", "val", "test"])[split],
        "feat": columns["feat"].tolist(),
    }
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")
    pq.write_table(pa.table({"src": GRAPH.src, "dst": GRAPH.dst, "weight": weight}), folder / "edges.parquet")
    np.save(folder / "edge_feat.npy", edge_feat)
    return {"nodes": folder / "nodes.parquet", "edge_features": folder / "edge_feat.npy"}


def parts(out: Path) -> dict[Path, bytes]:
    return {f.relative_to(out): f.read_bytes() for f in out.rglob("part-*/*") if "ids-" not in f.name}


def test_file_of_one_type_gives_the_shards_of_parquet(dgl, tmp_path: Path, rng: np.random.Generator):
    import torch

    columns, weight = node_columns(rng, 60), rng.random(GRAPH.num_edges).astype(np.float32)
    edge_feat = rng.standard_normal((GRAPH.num_edges, 2)).astype(np.float32)
    graph = dgl.graph((GRAPH.src, GRAPH.dst), num_nodes=60)
    graph.ndata.update({key: torch.from_numpy(values) for key, values in columns.items()})
    graph.edata.update({"weight": torch.from_numpy(weight), "feat": torch.from_numpy(edge_feat)})
    dgl.save_graphs(str(tmp_path / "graph.bin"), graph)
    given = write_parquet(tmp_path, columns, weight, edge_feat)
    asepr.partition(tmp_path / "edges.parquet", tmp_path / "a", num_parts=3, **given)
    asepr.partition(tmp_path / "graph.bin", tmp_path / "b", num_parts=3)
    asepr.partition(asepr.from_dgl(graph), tmp_path / "c", num_parts=3)
    assert parts(tmp_path / "a") == parts(tmp_path / "b") == parts(tmp_path / "c")


def test_file_of_several_types(dgl, tmp_path: Path, rng: np.random.Generator):
    import torch

    ends = {kind: [rng.integers(0, SIZES[kind[end]], n) for end in (0, 2)] for kind, n in EDGES.items()}
    graph = dgl.heterograph({kind: tuple(pair) for kind, pair in ends.items()}, SIZES)
    graph.nodes["user"].data["feat"] = torch.rand(12, 3)
    graph.nodes["item"].data["label"] = torch.arange(7)
    graph.edges["buys"].data["weight"] = torch.rand(30)
    dgl.save_graphs(str(tmp_path / "graph.bin"), [graph])
    manifest = asepr.partition(tmp_path / "graph.bin", tmp_path / "out", num_parts=2).manifest
    assert manifest.node_types == graph.ntypes
    assert manifest.edge_types == graph.canonical_etypes
    found = read_whole(tmp_path / "out")
    first = dict(zip(manifest.node_types, manifest.node_type_offsets, strict=False))
    eid = 0
    for code, kind in enumerate(manifest.edge_types):
        src, dst = ends[kind]
        expected = np.stack([src + first[kind[0]], dst + first[kind[2]], np.full(len(src), code)], axis=1)
        assert found["ends"][eid : eid + len(src)].tolist() == expected.tolist()
        weight = graph.edges[kind].data["weight"] if kind[1] == "buys" else torch.ones(len(src))
        assert found["weight"][eid : eid + len(src)].tolist() == weight.tolist()
        eid += len(src)
    for shard in open_all(tmp_path / "out", Shard):
        users = shard.nid[shard.ntype == graph.ntypes.index("user")] - first["user"]
        assert shard.features_of("user").tolist() == graph.nodes["user"].data["feat"][users].tolist()
    labels = found["label"][first["item"] : first["item"] + 7]
    assert labels.tolist() == list(range(7))
    assert asepr.verify(tmp_path / "out") == []


def test_file_of_two_graphs(dgl, tmp_path: Path):
    dgl.save_graphs(str(tmp_path / "g.bin"), [dgl.graph(([0], [1]))] * 2)
    with pytest.raises(AseprError, match=r"g\.bin: must hold one graph, got 2; save the graphs apart"):
        asepr.partition(tmp_path / "g.bin", tmp_path / "out", num_parts=1)


def test_damaged_files_never_end_the_process(dgl, tmp_path: Path, rng: np.random.Generator):
    dgl.save_graphs(str(tmp_path / "g.bin"), dgl.graph((GRAPH.src, GRAPH.dst)))
    data = (tmp_path / "g.bin").read_bytes()
    for damaged in (b"", b"\x80\x04K\x01.", data[:8], data[:100], data[: len(data) // 2]):
        (tmp_path / "g.bin").write_bytes(damaged)
        with pytest.raises(AseprError, match=r"g\.bin: must be a (whole )?file of dgl\.save_graphs, got"):
            asepr.partition(tmp_path / "g.bin", tmp_path / "out", num_parts=1)


@pytest.mark.parametrize("typed", [False, True])
def test_exported_chunks_read_back_as_the_same_graph(typed: bool, tmp_path: Path):
    source = make_source(tmp_path / "source", "vertex-cut", typed=typed)
    export(source.path, tmp_path / "chunks", "dgl-chunked")
    result = asepr.partition(tmp_path / "chunks", tmp_path / "again", num_parts=2)
    assert (result.manifest.num_nodes, result.manifest.num_edges) == (80, source.graph.num_edges)
    found = read_whole(tmp_path / "again")
    metadata = json.loads((tmp_path / "chunks" / "metadata.json").read_text())
    nid, eid = (original(tmp_path / "chunks", metadata, kind) for kind in ("node", "edge"))
    assert sorted(nid) == list(range(80))
    assert sorted(eid) == list(range(source.graph.num_edges))
    assert nid[found["ends"][:, 0]].tolist() == source.graph.src[eid].tolist()
    assert nid[found["ends"][:, 1]].tolist() == source.graph.dst[eid].tolist()
    assert found["weight"].tolist() == source.weight[eid].tolist()
    assert found["edge_features"].tolist() == source.edge_feat[eid].tolist()
    assert found["label"].tolist() == source.label[nid].tolist()
    assert found["split"].tolist() == np.where(source.label == -1, 0, source.split)[nid].tolist()
    if not typed:
        assert found["features"].tolist() == source.feat[nid].tolist()
        return
    assert found["ntype"].tolist() == source.ntype[nid].tolist()
    for shard in open_all(tmp_path / "again", Shard):
        for code in range(3):
            rows = nid[shard.nid[shard.ntype == code]]
            assert shard.features_of(code).tolist() == source.feat[rows].tolist()


def original(folder: Path, metadata: dict, kind: str) -> np.ndarray:
    """Return `orig_id` of all nodes or edges, in the order of the chunks."""
    data = metadata[f"{kind}_data"]
    files = [file for name in metadata[f"{kind}_type"] for file in data[name]["orig_id"]["data"]]
    return np.concatenate([np.load(folder / file) for file in files])


@pytest.fixture
def chunks(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A graph of one type in two chunks, each kind of file among them."""
    folder = tmp_path / "chunks"
    folder.mkdir()
    columns, weight = node_columns(rng, 60), rng.random(GRAPH.num_edges).astype(np.float32)
    write_parquet(tmp_path, columns, weight, np.zeros((GRAPH.num_edges, 0)))
    half = GRAPH.num_edges // 2
    data = {}
    for name, kind, values in [
        ("edges", "csv", np.stack([GRAPH.src, GRAPH.dst], axis=1)),
        ("weight", "csv", weight),
        ("feat", "parquet", columns["feat"]),
        ("label", "csv", columns["label"]),
        *((f"{split}_mask", "parquet", columns[f"{split}_mask"]) for split in ("train", "val", "test")),
    ]:
        cut = half if len(values) == GRAPH.num_edges else 25
        files = [f"{name}-{number}.{kind}" for number in range(2)]
        for file, rows in zip(files, (values[:cut], values[cut:]), strict=True):
            table = pa.table({str(i): column for i, column in enumerate(np.atleast_2d(rows.T))})
            if kind == "parquet":
                pq.write_table(table, folder / file)
            else:
                options = pa.csv.WriteOptions(include_header=False, delimiter=" " if name == "edges" else ",")
                pa.csv.write_csv(table, folder / file, options)
        data[name] = {"format": {"name": kind, "delimiter": " " if name == "edges" else ","}, "data": files}
    metadata = {
        "graph_name": "g",
        "node_type": ["n"],
        "num_nodes_per_chunk": [[25, 35]],
        "edge_type": ["n:to:n"],
        "num_edges_per_chunk": [[half, GRAPH.num_edges - half]],
        "edges": {"n:to:n": data.pop("edges")},
        "edge_data": {"n:to:n": {"weight": data.pop("weight")}},
        "node_data": {"n": data},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


def test_chunks_in_text_and_parquet_give_the_shards_of_parquet(chunks: Path):
    edges, nodes = chunks.parent / "edges.parquet", chunks.parent / "nodes.parquet"
    asepr.partition(edges, chunks.parent / "a", nodes=nodes, num_parts=3)
    asepr.partition(chunks, chunks.parent / "b", num_parts=3)
    asepr.partition(chunks / "metadata.json", chunks.parent / "c", num_parts=3)
    assert parts(chunks.parent / "a") == parts(chunks.parent / "b") == parts(chunks.parent / "c")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[25, 35]", "[25, 36]", "rows must be 61, got 60|must have 61 rows, got 60"),
        ("[25, 35]", "[25]", r"must have 25 rows, got 60 or more"),
        ('"n:to:n": {"format"', '"n:at:n": {"format"', "edge types must be source:relation:destination"),
        ('["n:to:n"]', '["n:to:m"]', "edge types must be source:relation:destination of node types"),
        ('"name": "csv"', '"name": "xml"', "must describe a chunked graph, got"),
        ("edges-0.csv", "../edges.parquet", r"files must lie in its folder, got '\.\./edges\.parquet'"),
        ("edges-0.csv", "gone.csv", r"gone\.csv: must be a file, got nothing there"),
        ("{", "", "must describe a chunked graph, got"),
    ],
)
def test_mistakes_in_the_description(old: str, new: str, message: str, chunks: Path):
    text = (chunks / "metadata.json").read_text()
    assert old in text
    (chunks / "metadata.json").write_text(text.replace(old, new, 1))
    with pytest.raises(AseprError, match=message):
        asepr.partition(chunks, chunks.parent / "out", num_parts=2)
    assert not (chunks.parent / "out").exists()


@pytest.mark.parametrize("name", ["edges-0.csv", "label-1.csv", "feat-0.parquet", "train_mask-1.parquet"])
def test_damaged_chunks(name: str, chunks: Path):
    data = (chunks / name).read_bytes()
    for damaged in (data[: len(data) // 2], b"", b"\xff\xfe" + data):
        (chunks / name).write_bytes(damaged)
        with pytest.raises(AseprError, match="chunks"):
            asepr.partition(chunks, chunks.parent / "out", num_parts=2)
