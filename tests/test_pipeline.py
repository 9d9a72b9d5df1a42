"""The whole road: nothing is lost, nothing is doubled, and the same input gives the same bytes."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asepr
from asepr.errors import AseprError, CapacityError, ConfigError, NodeSourceError
from asepr.formats.edge_sources import ArrayEdgeSource
from asepr.formats.shard import Shard, open_all
from asepr.partition.methods import METHODS
from asepr.pipeline import PipelineConfig
from tests.graphs import NAMED_GRAPHS, Graph, graphs

LAYOUTS = ("vertex-cut", "edge-cut")


def check_conservation(graph: Graph, folder: Path) -> None:
    """Check by plain loops that shards hold the input, and that halo plans mirror each other."""
    shards = open_all(folder, Shard)
    edges: dict[int, tuple[int, int]] = {}
    owner: dict[int, int] = {}
    for shard in shards:
        nid = shard.nid.tolist()
        for eid, u, v in zip(shard.eid.tolist(), shard.src.tolist(), shard.dst.tolist(), strict=True):
            assert eid not in edges
            edges[eid] = (nid[u], nid[v])
            assert shard.manifest.layout == "vertex-cut" or v < shard.num_inner
        for node in nid[: shard.num_inner]:
            assert node not in owner
            owner[node] = shard.rank
    assert [edges[eid] for eid in range(graph.num_edges)] == list(
        zip(graph.src.tolist(), graph.dst.tolist(), strict=True)
    )
    assert sorted(owner) == list(range(graph.num_nodes))
    for shard in shards:
        nid, plan = shard.nid.tolist(), shard.plan
        used = set(shard.src.tolist()) | set(shard.dst.tolist())
        assert used >= set(range(shard.num_inner, shard.num_local)), "no halo node without an edge"
        assert [owner[node] for node in nid] == shard.owner.tolist()
        for peer in shards:
            sent = plan.send_rows[plan.send_offsets[peer.rank] : plan.send_offsets[peer.rank + 1]]
            expected = peer.nid[peer.plan.recv_offsets[shard.rank] : peer.plan.recv_offsets[shard.rank + 1]]
            assert [nid[row] for row in sent.tolist()] == expected.tolist()


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Return every file of the dataset, without the report of how long the run took."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "report.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=30)
@given(data=st.data(), graph=graphs())
def test_any_small_graph_is_conserved(
    layout: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, graph: Graph
):
    folder = tmp_path_factory.mktemp("p")
    method = data.draw(st.sampled_from(list(METHODS)))
    num_parts = data.draw(st.integers(1, graph.num_nodes))
    seed = data.draw(st.integers(0, 3))
    outputs = []
    for chunk_edges in (1 << 20, data.draw(st.integers(1, 5))):
        out = folder / str(len(outputs))
        config = PipelineConfig(num_parts=num_parts, method=method, layout=layout, seed=seed)
        asepr.partition(graph.source(chunk_edges), out, config)
        check_conservation(graph, out)
        assert asepr.verify(out) == []
        outputs.append(bytes_of(out))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMED_GRAPHS)
def test_named_graphs_are_conserved(name: str, layout: str, tmp_path: Path):
    graph = NAMED_GRAPHS[name]
    asepr.partition(graph.source(), tmp_path / "out", num_parts=min(2, graph.num_nodes), layout=layout)
    check_conservation(graph, tmp_path / "out")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A graph on disk with everything that may travel along."""
    graph = NAMED_GRAPHS["skewed"]
    rng = np.random.default_rng(0)
    n, e = graph.num_nodes, graph.num_edges
    edges = {"src": graph.src, "dst": graph.dst, "etype": rng.integers(0, 3, e), "weight": rng.random(e)}
    split = rng.choice(["train", "val", "test", ""], n)
    nodes = {"id": np.arange(n), "label": rng.integers(-1, 4, n), "split": split, "ntype": rng.integers(0, 2, n)}
    pq.write_table(pa.table(edges), tmp_path / "edges.parquet")
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    np.save(tmp_path / "features.npy", rng.standard_normal((n, 40)))
    np.save(tmp_path / "edge_features.npy", rng.standard_normal((e, 2)))
    return {path.stem: path for path in tmp_path.iterdir()}


def partition(files: dict[str, Path], out: Path, **options) -> asepr.PartitionResult:
    return asepr.partition(
        files["edges"],
        out,
        nodes=files["nodes"],
        features=files["features"],
        edge_features=files["edge_features"],
        **options,
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_columns_arrive_where_they_belong(layout: str, files: dict[str, Path], tmp_path: Path):
    partition(files, tmp_path / "out", num_parts=3, layout=layout)
    edges, nodes = pq.read_table(files["edges"]), pq.read_table(files["nodes"])
    features = np.load(files["features"]).astype(np.float32)
    edge_features = np.load(files["edge_features"]).astype(np.float32)
    codes = {"": 0, "train": 1, "val": 2, "test": 3}
    split = np.array([codes[value] for value in nodes["split"].to_pylist()])
    for shard in asepr.open_shards(tmp_path / "out"):
        assert np.array_equal(shard.etype, edges["etype"].to_numpy()[shard.eid])
        assert np.array_equal(shard.weight, edges["weight"].to_numpy()[shard.eid].astype(np.float32))
        assert np.array_equal(shard.edge_features, edge_features[shard.eid])
        assert np.array_equal(shard.features, features[shard.nid])
        assert np.array_equal(shard.label, nodes["label"].to_numpy()[shard.nid])
        assert np.array_equal(shard.ntype, nodes["ntype"].to_numpy()[shard.nid])
        assert np.array_equal(shard.split, split[shard.nid])
    usable = nodes["label"].to_numpy() >= 0
    counts = {name: int(((split == codes[name]) & usable).sum()) for name in ("train", "val", "test")}
    assert shard.manifest.split_sizes == counts


def test_same_seed_same_bytes_with_attributes(files: dict[str, Path], tmp_path: Path):
    for name in ("a", "b"):
        partition(files, tmp_path / name, num_parts=4, reduce_features=8)
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    partition(files, tmp_path / "c", num_parts=4, reduce_features=8, method="random", seed=1)
    partition(files, tmp_path / "d", num_parts=4, reduce_features=8, method="random", seed=2)
    assert bytes_of(tmp_path / "c") != bytes_of(tmp_path / "d")


def test_attributes_never_break_the_cap_and_labels_gather(tmp_path: Path):
    # Two communities with attributes that tell them apart: homes and edges agree.
    rng = np.random.default_rng(0)
    side = rng.integers(0, 2, 400)
    ends = rng.integers(0, 400, (2, 6000))
    ends = ends[:, (side[ends[0]] == side[ends[1]]) | (rng.random(6000) < 0.02)]
    np.save(tmp_path / "f.npy", side[:, None] * 10 + rng.standard_normal((400, 3)))
    source = ArrayEdgeSource(ends[0], ends[1], 400)
    told = asepr.partition(source, tmp_path / "told", num_parts=2, imbalance=0.2, features=tmp_path / "f.npy")
    untold = asepr.partition(source, tmp_path / "untold", num_parts=2, imbalance=0.2)
    assert told.quality.edge_balance <= 1.2
    assert told.quality.replication_factor <= 1.01 * untold.quality.replication_factor


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_a_weight_of_attributes_that_is_none_is_refused(weight: float):
    with pytest.raises(ConfigError, match=r"attr_weight must be at least 0 and finite, got .*; 0.25 is strong"):
        PipelineConfig(num_parts=2, attr_weight=weight)


def test_json_object_has_the_documented_keys(files: dict[str, Path], tmp_path: Path):
    values = partition(files, tmp_path / "out", num_parts=2).to_dict()
    assert {"num_nodes", "num_edges", "num_parts", "method", "layout", "replication_factor"} <= set(values)
    assert values["seconds"] == pytest.approx(sum(values["phase_seconds"].values()))
    assert values["peak_rss_bytes"] > 20e6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_parts": 0}, r"num_parts must be in \[1, 4096\], got 0"),
        ({"num_parts": 5000}, r"num_parts must be in \[1, 4096\], got 5000"),
        ({"method": "foo"}, "method must be one of asepr, random, dbh, hdrf, metis, got 'foo'"),
        ({"layout": "both"}, "layout must be one of vertex-cut, edge-cut, got 'both'"),
        ({"imbalance": -0.1}, r"imbalance must be in \[0, 100\), got -0.1"),
        ({"imbalance": float("nan")}, r"imbalance must be in \[0, 100\), got nan"),
        ({"balance": ("edges",)}, "balance must name nodes and may name edges, train, types, got 'edges'"),
        ({"balance": ("nodes", "rows")}, "balance must name nodes and may name edges, train, types, got 'nodes,rows'"),
        ({"seed": -1}, r"seed must be in \[0, 2\*\*31\), got -1"),
        ({"capacities": (1.0,)}, r"capacities must be 2 positive numbers, got \(1.0,\)"),
        ({"capacities": (1.0, 0.0)}, "capacities must be 2 positive numbers"),
        ({"num_nodes": 0}, "num_nodes must be at least 1, got 0"),
        ({"reduce_features": 0}, "reduce_features must be at least 1, got 0"),
        ({"chunk_edges": 0}, "chunk_edges must be at least 1, got 0"),
    ],
)
def test_options_out_of_range(options: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        PipelineConfig(**{"num_parts": 2} | options)


def test_more_parts_than_nodes_leaves_nothing_behind(tmp_path: Path):
    with pytest.raises(CapacityError, match="num_parts must be at most 3, the nodes, got 4"):
        asepr.partition(NAMED_GRAPHS["multigraph"].source(), tmp_path / "out", num_parts=4)
    assert not list(tmp_path.iterdir())


def test_edge_features_of_another_length(files: dict[str, Path], tmp_path: Path):
    np.save(files["edge_features"], np.zeros((3, 2)))
    with pytest.raises(NodeSourceError, match="rows must be one an edge, 460, got 3"):
        partition(files, tmp_path / "out", num_parts=2)
    assert not (tmp_path / "out").exists()


def test_full_disk_while_writing_shards(files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = set(tmp_path.iterdir())
    monkeypatch.setattr("asepr.formats.shard_writer.write_columns", no_space)
    with pytest.raises(AseprError, match="the disk is full"):
        partition(files, tmp_path / "out", num_parts=2)
    assert set(tmp_path.iterdir()) == before


def test_copies_that_are_not_to_be_balanced_leave_a_manifest_any_reader_takes(tmp_path: Path):
    asepr.partition(NAMED_GRAPHS["skewed"].source(), tmp_path / "out", num_parts=3, replica_imbalance=float("inf"))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(), parse_constant=refuse)
    assert manifest["config"]["replica_imbalance"] is None
    assert asepr.verify(tmp_path / "out") == []


def test_partition_is_a_function_and_a_package():
    import asepr.partition.hdrf as module

    assert callable(asepr.partition)
    assert asepr.partition.hdrf is module
    with pytest.raises(AttributeError, match="module 'asepr' has no attribute 'foo'"):
        _ = asepr.foo


def test_a_label_that_would_need_a_count_of_its_own_for_every_number_below_it(tmp_path: Path):
    pq.write_table(pa.table({"src": [0, 1], "dst": [1, 0]}), tmp_path / "e.parquet")
    pq.write_table(pa.table({"id": [0, 1], "label": [0, 10**12]}), tmp_path / "n.parquet")
    with pytest.raises(AseprError, match=r"label of node 1 must be below 1048576, got 1000000000000"):
        asepr.partition(tmp_path / "e.parquet", tmp_path / "o", num_parts=1, nodes=tmp_path / "n.parquet")
