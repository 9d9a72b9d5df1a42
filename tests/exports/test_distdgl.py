"""DistDGL's folder, read with DGL's own loader and compared with the input, edge by edge."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dgl", reason="DGL is not installed")

import dgl
import torch
from dgl.data.utils import load_tensors
from dgl.distributed import load_partition

from asepr.errors import OutputError, ShardError
from asepr.exporters import distdgl
from asepr.exporters.targets import export, find_export_faults
from asepr.formats.shard import Shard, open_all
from tests.exports.datasets import NUM_PARTS, Source, make_source
from tests.graphs import NAMED_GRAPHS, random_graph

CASES = [(layout, typed) for layout in ("edge-cut", "vertex-cut") for typed in (False, True)]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}, {'typed' if case[1] else 'one type'}")
def exported(request, tmp_path_factory) -> tuple[Source, Path]:
    layout, typed = request.param
    folder = tmp_path_factory.mktemp("distdgl")
    source = make_source(folder / "data", layout, typed=typed)
    figures = export(source.path, folder / "export", "distdgl")
    assert (figures["moved_edges"] > 0) == (layout == "vertex-cut")
    return source, folder / "export"


def load(folder: Path):
    return [load_partition(str(folder / "graph.json"), rank) for rank in range(NUM_PARTS)]


def test_every_edge_is_with_the_owner_of_its_destination(exported):
    source, folder = exported
    owner = np.full(source.graph.num_nodes, -1)
    for shard in open_all(source.path, Shard):
        owner[shard.nid[: shard.num_inner]] = shard.rank
    seen = []
    nid_of = {}
    for _, node_feats, *_ in (parts := load(folder)):
        names = sorted(name for name in node_feats if name.endswith("/orig_id"))
        nid_of |= {len(nid_of) + i: nid for i, nid in enumerate(torch.cat([node_feats[n] for n in names]).tolist())}
    for rank, (graph, _, edge_feats, book, *_) in enumerate(parts):
        src, dst = graph.edges(order="eid")
        ids = graph.ndata[dgl.NID]
        names = [":".join(edge_type) for edge_type in book.canonical_etypes]
        eids = torch.cat([edge_feats[f"{name}/orig_id"] for name in names]).tolist()
        for eid, u, v in zip(eids, ids[src].tolist(), ids[dst].tolist(), strict=True):
            u, v = nid_of[u], nid_of[v]
            assert (source.graph.src[eid], source.graph.dst[eid]) == (u, v)
            assert owner[v] == rank
        seen += eids
        num_inner = int(graph.ndata["inner_node"].sum())
        assert (graph.ndata["inner_node"] == (torch.arange(graph.num_nodes()) < num_inner)).all()
        assert (graph.edata["inner_edge"] == 1).all()
        assert (torch.diff(graph.edata[dgl.EID]) == 1).all()
        owners = owner[[nid_of[i] for i in ids.tolist()]]
        assert (graph.ndata["part_id"].numpy() == owners).all()
        assert (book.nid2partid(ids).numpy() == owners).all()
        dtypes = {name: str(values.dtype) for name, values in graph.ndata.items()}
        assert dtypes == {
            "_ID": "torch.int64",
            "_TYPE": "torch.int32",
            "inner_node": "torch.uint8",
            "part_id": "torch.int64",
        }
    assert sorted(seen) == list(range(source.graph.num_edges))


def test_features_labels_and_masks_are_those_of_the_input(exported):
    source, folder = exported
    labelled = 0
    for _, node_feats, edge_feats, *_ in load(folder):
        types = {name.split("/")[0] for name in node_feats}
        for name in types:
            nid = node_feats[f"{name}/orig_id"].numpy()
            if source.ntype is not None:
                assert (source.ntype[nid] == int(name.removeprefix("type_"))).all()
            assert np.array_equal(node_feats[f"{name}/feat"], source.feat[nid])
            assert (f"{name}/label" in node_feats) == (name in ("_N", "type_0"))
            if f"{name}/label" in node_feats:
                labelled += len(nid)
                assert np.array_equal(node_feats[f"{name}/label"], source.label[nid])
                for code, split in enumerate(("train", "val", "test"), 1):
                    expected = (source.split[nid] == code) & (source.label[nid] >= 0)
                    assert np.array_equal(node_feats[f"{name}/{split}_mask"].bool(), expected)
        for name in {name.split("/")[0] for name in edge_feats}:
            eid = edge_feats[f"{name}/orig_id"].numpy()
            assert np.array_equal(edge_feats[f"{name}/feat"], source.edge_feat[eid])
            assert np.array_equal(edge_feats[f"{name}/weight"], source.weight[eid])
            if source.etype is not None:
                src, relation, dst = (int(part.removeprefix("type_")) for part in name.split(":"))
                assert (source.etype[eid] == relation).all()
                assert (source.ntype[source.graph.src[eid]] == src).all()
                assert (source.ntype[source.graph.dst[eid]] == dst).all()
    assert labelled == (source.graph.num_nodes if source.ntype is None else (source.ntype == 0).sum())


def test_a_type_that_a_part_lacks_has_no_features(tmp_path: Path):
    # DistDGL's server cannot share an array without rows, nor serve one that some parts lack.
    source = make_source(tmp_path / "data", "edge-cut", typed=True, graph=random_graph(14, 40))
    figures = export(source.path, tmp_path / "out", "distdgl")
    names, missing = [], set()
    for rank in range(NUM_PARTS):
        place = tmp_path / "out" / f"part{rank}"
        features = load_tensors(str(place / "node_feat.dgl")) | load_tensors(str(place / "edge_feat.dgl"))
        assert min(len(values) for values in features.values()) > 0
        names.append(set(features))
        ids = load_tensors(str(place / "orig_nids.dgl")) | load_tensors(str(place / "orig_eids.dgl"))
        missing |= {name for name, values in ids.items() if len(values) == 0}
        for name, values in ids.items():
            if name not in figures["without_features"]:
                assert torch.equal(features[f"{name}/orig_id"], values)
    assert names == [names[0]] * NUM_PARTS
    assert set(figures["without_features"]) == missing
    assert {name.split("/")[0] for name in names[0]}.isdisjoint(missing)
    assert missing
    assert find_export_faults(source.path, tmp_path / "out", "distdgl") == []


def test_own_check_passes_and_catches_wrong_edges(exported, tmp_path):
    source, folder = exported
    assert find_export_faults(source.path, folder, "distdgl") == []
    path = folder / "part1" / "graph.dgl"
    whole = path.read_bytes()
    graph = dgl.load_graphs(str(path))[0][0]
    src, dst = graph.edges(order="eid")
    # Two sources change places: every degree, count and range stays what it was.
    other = int((src != src[0]).nonzero()[0])
    src[[0, other]] = src[[other, 0]]
    wrong = dgl.graph((src, dst), num_nodes=graph.num_nodes())
    wrong.ndata.update(graph.ndata)
    wrong.edata.update(graph.edata)
    try:
        dgl.save_graphs(str(path), [wrong])
        faults = find_export_faults(source.path, folder, "distdgl")
        assert len(faults) == 1
        assert "src must be node" in faults[0]
        assert "2 wrong" in faults[0]
        dgl.save_graphs(str(path), [dgl.remove_edges(graph, [0])])
        faults = find_export_faults(source.path, folder, "distdgl")
        assert "in-edges of its nodes, got" in faults[0]
        path.write_bytes(whole[: len(whole) // 2])
        assert "must be whole" in find_export_faults(source.path, folder, "distdgl")[0]
    finally:
        path.write_bytes(whole)


def test_config_has_the_keys_of_old_and_new_versions(exported):
    source, folder = exported
    config = json.loads((folder / "graph.json").read_text())
    assert config["num_edges"] == source.graph.num_edges
    assert (config["node_map_dtype"], config["edge_map_dtype"]) == ("int64", "int64")
    if source.ntype is None:
        assert config["ntypes"] == {"_N": 0}
        assert config["etypes"] == {"_N:_E:_N": 0}
    spans = sorted(
        (config["ntypes"][name], part, span)
        for name in config["node_map"]
        for part, span in enumerate(config["node_map"][name])
    )
    by_part = [span for _, _, span in sorted(spans, key=lambda item: (item[1], item[0]))]
    assert by_part[0][0] == 0
    assert all(before[1] == after[0] for before, after in itertools.pairwise(by_part))


def test_types_can_be_ignored(exported, tmp_path):
    source, _ = exported
    figures = export(source.path, tmp_path / "plain", "distdgl", ignore_types=True)
    assert figures["edge_types"] == [["_N", "_E", "_N"]]


@pytest.mark.parametrize("name", ["no edges", "star", "multigraph", "isolated tail"])
def test_small_graphs(name: str, tmp_path: Path):
    source = make_source(tmp_path / "data", "edge-cut", typed=True, graph=NAMED_GRAPHS[name])
    export(source.path, tmp_path / "export", "distdgl")
    assert sum(graph.num_edges() for graph, *_ in load(tmp_path / "export")) == source.graph.num_edges


def test_nothing_is_left_where_it_fails(exported, tmp_path, monkeypatch):
    source, folder = exported
    with pytest.raises(OutputError, match="must not exist or be an empty folder"):
        export(source.path, folder, "distdgl")
    monkeypatch.setattr(distdgl, "find_faults", lambda graph, folder: iter(["a fault"]))
    with pytest.raises(ShardError, match="a fault; 1 faults in all"):
        export(source.path, tmp_path / "new", "distdgl")
    assert list(tmp_path.iterdir()) == []
