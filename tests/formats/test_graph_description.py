"""Typed graphs by `graph.yaml`: every node, edge and feature comes back under its own name."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import asepr
from asepr.errors import AseprError
from asepr.estimate import estimate_time
from asepr.formats.shard import Shard, open_all
from asepr.pipeline import PipelineConfig, plan

GRAPH = """\
nodes:
  - type: user
    files: [users.csv]
    id: name
    feature_columns: [age, height]
  - type: item
    files: [things.parquet]
    where: {kind: item}
    features: things.npy
  - type: tag
edges:
  - type: user:buys:item
    files: [buys-1.csv, buys-2.csv]
    src: who
    dst: what
    time: day
  - type: item:has:tag
    files: [has.parquet]
  - type: user:knows:user
    files: [knows.parquet]
"""
USERS = {"ann": (30.0, 1.5), "bob": (40.0, 1.75), "7": (50.0, 2.0)}
ITEMS = [10, 30]
BUYS = [("ann", 10, 5), ("7", 30, 6), ("bob", 30, 7), ("ann", 30, 8)]
HAS = [(10, "red"), (30, "blue"), (10, "blue")]
KNOWS = [("ann", "bob"), ("bob", "7")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "graph.yaml").write_text(GRAPH)
    lines = [f"{name},{age},{height}" for name, (age, height) in USERS.items()]
    (tmp_path / "users.csv").write_text("\n".join(["name,age,height", *lines, ""]))
    things = {"id": [10, 20, 30], "kind": ["item", "other", "item"]}
    pq.write_table(pa.table(things), tmp_path / "things.parquet")
    np.save(tmp_path / "things.npy", np.array([[1.0], [2.0], [3.0]]))
    for number, rows in ((1, BUYS[:2]), (2, BUYS[2:])):
        lines = [f"{who},{what},{day}" for who, what, day in rows]
        (tmp_path / f"buys-{number}.csv").write_text("\n".join(["who,what,day", *lines, ""]))
    for name, rows in (("has", HAS), ("knows", KNOWS)):
        pq.write_table(
            pa.table({"src": [a for a, _ in rows], "dst": [b for _, b in rows]}), tmp_path / f"{name}.parquet"
        )
    return tmp_path


@pytest.mark.parametrize("layout", ["vertex-cut", "edge-cut"])
def test_round_trip_to_the_names_of_the_input(layout: str, folder: Path):
    out = folder / "out"
    result = asepr.partition(folder / "graph.yaml", out, num_parts=2, layout=layout, method="random")
    manifest = result.manifest
    assert manifest.node_types == ["user", "item", "tag"]
    assert manifest.edge_types == [("user", "buys", "item"), ("item", "has", "tag"), ("user", "knows", "user")]
    assert manifest.node_type_offsets == [0, 3, 5, 7]
    ids = [name for kind in manifest.node_types for name in asepr.original_ids(out, node_type=kind)["id"].to_pylist()]
    assert ids == [*USERS, *ITEMS, "red", "blue"]
    found, feature = {}, {}
    for shard in open_all(out, Shard):
        for eid, u, v, kind in zip(shard.eid, shard.src, shard.dst, shard.etype, strict=True):
            time = int(shard.time[np.flatnonzero(shard.eid == eid)[0]])
            found[int(eid)] = (int(kind), ids[shard.nid[u]], ids[shard.nid[v]], time)
        for code in (0, 1):
            rows = shard.nid[shard.ntype == code]
            feature |= {ids[nid]: tuple(row) for nid, row in zip(rows, shard.features_of(code).tolist(), strict=True)}
        assert shard.features_of("tag") is None
    expected = [(0, *edge) for edge in BUYS] + [(1, *edge, 0) for edge in HAS] + [(2, *edge, 0) for edge in KNOWS]
    assert [found[eid] for eid in range(len(expected))] == expected
    assert feature == USERS | {10: (1.0,), 30: (3.0,)}
    assert asepr.verify(out) == []


def test_heterograph_has_each_type_in_local_order(folder: Path):
    pytest.importorskip("dgl", reason="DGL is not installed")
    asepr.partition(folder / "graph.yaml", folder / "out", num_parts=2, layout="edge-cut", method="random")
    for shard in asepr.open_shards(folder / "out"):
        graph = shard.dgl_graph()
        for code, name in enumerate(shard.manifest.node_types):
            assert graph.nodes[name].data["_ID"].tolist() == shard.nid[shard.ntype == code].tolist()
        for code, name in enumerate(shard.manifest.edge_types):
            mine = shard.etype == code
            src, dst = graph.edges(etype=name)
            assert graph.nodes[name[0]].data["_ID"][src].tolist() == shard.nid[shard.src[mine]].tolist()
            assert graph.nodes[name[2]].data["_ID"][dst].tolist() == shard.nid[shard.dst[mine]].tolist()
            assert graph.edges[name].data["_ID"].tolist() == shard.eid[mine].tolist()
        assert graph.nodes["user"].data["feat"].tolist() == shard.features_of("user").tolist()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("id: name", "idd: name", "line 4: nodes.0.idd: Extra inputs are not permitted"),
        ("files: [has.parquet]", "files: []", "line 18: edges.1.files: List should have at least 1 item"),
        ("item:has:tag", "item-has-tag", "line 17: edges.1.type: String should match pattern"),
        ("item:has:tag", "item:has:label", "both ends must be of the node types user, item, tag, got label"),
        ("  - type: tag", "  - type: user", "node types must differ, got user again"),
        ("src: who", "src: whom", "user:buys:item: .*buys-1.csv must have a column 'whom', got who, what, day"),
        ("{kind: item}", "{sort: item}", "must have the column 'sort' that rows are chosen by"),
        ("users.csv", "nobody.csv", "nobody.csv: must be a file"),
        ("nodes:", "nodes: [", "must be a YAML file that can be read"),
    ],
)
def test_mistakes_are_one_line_that_says_where(old: str, new: str, message: str, folder: Path):
    (folder / "graph.yaml").write_text(GRAPH.replace(old, new, 1))
    with pytest.raises(AseprError, match=message):
        asepr.partition(folder / "graph.yaml", folder / "out", num_parts=2)
    assert not (folder / "out").exists()


def test_dry_run_reads_it_too(folder: Path):
    config = PipelineConfig(num_parts=2, method="random")
    planned = plan(folder / "graph.yaml", config)
    assert (planned.num_nodes, planned.num_edges) == (7, 9)
    assert estimate_time(folder / "graph.yaml", config, planned).sample_edges == 2


def test_description_stands_alone(folder: Path):
    with pytest.raises(AseprError, match=r"graph.yaml: a whole graph must stand alone, got --nodes"):
        asepr.partition(folder / "graph.yaml", folder / "out", num_parts=2, nodes=folder / "users.csv")
