"""What `inspect` prints equals a naive recount from the shards, and KaHIP's count."""

import itertools
import re
import subprocess
import sysconfig
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from asepr import pipeline
from asepr.errors import ConfigError
from asepr.formats.edge_sources import ArrayEdgeSource
from asepr.formats.shard import Shard, open_all
from asepr.partition.methods import METHODS
from tests.graphs import NAMED_GRAPHS, Graph, random_graph

KAHIP = Path(sysconfig.get_path("purelib")) / "bin"


def recount(dataset: Path) -> dict[str, float]:
    """Count everything with sets and loops."""
    present, inner, edges, owner_of = [], [], [], {}
    for shard in open_all(dataset, Shard):
        nids = shard.nid.tolist()
        present.append(set(nids))
        inner.append(set(nids[: shard.num_inner]))
        edges.append([(nids[u], nids[v]) for u, v in zip(shard.src.tolist(), shard.dst.tolist(), strict=True)])
        owner_of |= dict.fromkeys(nids[: shard.num_inner], shard.rank)
    all_edges = [edge for part in edges for edge in part]
    with_edge = {nid for edge in all_edges for nid in edge}
    num_parts = len(present)

    def balance(loads: list[int]) -> float:
        return max(loads) * num_parts / sum(loads) if sum(loads) else 1.0

    sent = [[len((present[q] - inner[q]) & inner[p]) for q in range(num_parts)] for p in range(num_parts)]
    return {
        "replication_factor": sum(len(p & with_edge) for p in present) / len(with_edge) if with_edge else 1.0,
        "edge_cut": sum(owner_of[u] != owner_of[v] for u, v in all_edges) / max(len(all_edges), 1),
        "edge_balance": balance([len(part) for part in edges]),
        "replica_balance": balance([len(part) for part in present]),
        "node_balance": balance([len(part) for part in inner]),
        "halo_nodes": [len(p - i) for p, i in zip(present, inner, strict=True)],
        "comm_matrix": sent,
    }


@pytest.mark.parametrize("layout", ["vertex-cut", "edge-cut"])
@pytest.mark.parametrize("name", NAMED_GRAPHS)
def test_inspect_equals_a_naive_recount(name: str, layout: str, tmp_path: Path):
    graph = NAMED_GRAPHS[name]
    pipeline.partition(graph.source(), tmp_path / "out", num_parts=min(3, graph.num_nodes), layout=layout)
    found = pipeline.inspect(tmp_path / "out").to_dict()
    for key, value in recount(tmp_path / "out").items():
        np.testing.assert_allclose(found[key], value, err_msg=key)


@pytest.mark.parametrize("method", METHODS)
def test_edge_cut_equals_that_of_kahip(method: str, tmp_path: Path):
    if not (KAHIP / "evaluator").exists():
        pytest.skip("the kahip wheel brings no evaluator here")
    graph = simple(random_graph(200, 1500))
    pipeline.partition(graph.source(), tmp_path / "out", num_parts=4, method=method, layout="edge-cut")
    shards = open_all(tmp_path / "out", Shard)
    owner = np.empty(graph.num_nodes, dtype=int)
    for shard in shards:
        owner[shard.nid[: shard.num_inner]] = shard.rank
    judged = evaluate_with_kahip(graph, owner, tmp_path)
    found = pipeline.inspect(tmp_path / "out")
    assert found.edge_cut * graph.num_edges == pytest.approx(2 * judged["cut"])
    assert found.node_balance == pytest.approx(judged["balance"], abs=1e-4)
    assert sum(found.halo_nodes) == judged["total comm vol"]
    assert max(map(sum, found.comm_matrix)) == judged["max comm vol"]


@pytest.mark.parametrize("layout", ["vertex-cut", "edge-cut"])
def test_labels_and_attributes_equal_plain_loops(layout: str, tmp_path: Path):
    graph = random_graph(80, 300)
    rng = np.random.default_rng(1)
    label = rng.integers(-1, 5, 80)
    features = rng.standard_normal((80, 3)).astype(np.float32)
    features[::9] = 0
    pq.write_table(pa.table({"id": np.arange(80), "label": label}), tmp_path / "nodes.parquet")
    np.save(tmp_path / "features.npy", features)
    pipeline.partition(
        graph.source(),
        tmp_path / "out",
        nodes=tmp_path / "nodes.parquet",
        features=tmp_path / "features.npy",
        num_parts=3,
        layout=layout,
    )
    found = pipeline.inspect(tmp_path / "out")
    inner = [shard.nid[: shard.num_inner].tolist() for shard in open_all(tmp_path / "out", Shard)]
    labelled = [[int(label[v]) for v in part if label[v] >= 0] for part in inner]
    everyone = list(itertools.chain(*labelled))
    expected = [
        sum(max(0.0, part.count(c) / len(part) - everyone.count(c) / len(everyone)) for c in range(5))
        for part in labelled
    ]
    assert found.label_divergence_by_part == pytest.approx(expected)
    assert found.label_divergence == pytest.approx(
        sum(d * len(part) for d, part in zip(expected, labelled, strict=True)) / len(everyone)
    )
    assert found.attribute_coherence == pytest.approx(mean_cosine(features, inner))
    assert found.attribute_coherence_whole == pytest.approx(mean_cosine(features, [list(itertools.chain(*inner))]))
    assert found.attribute_coherence_whole <= found.attribute_coherence <= 1
    assert found.peak_replication == pytest.approx(found.replication_factor * found.replica_balance)


def mean_cosine(features: np.ndarray, parts: list[list[int]]) -> float:
    """Return the mean cosine of each node's features with the mean direction of its part, node by node."""
    cosines = []
    for part in parts:
        units = [features[v] / np.linalg.norm(features[v]) for v in part if features[v].any()]
        mean = np.mean(units, axis=0)
        cosines += [unit @ mean / np.linalg.norm(mean) for unit in units]
    return float(np.mean(cosines))


def test_parts_of_one_label_and_one_direction_each_are_extreme(tmp_path: Path):
    side = np.repeat([0, 1], 10)
    ends = np.concatenate([np.arange(9), np.arange(10, 19)])
    pq.write_table(pa.table({"id": np.arange(20), "label": side}), tmp_path / "nodes.parquet")
    np.save(tmp_path / "features.npy", np.eye(2, dtype=np.float32)[side] * (1 + np.arange(20))[:, None])
    pipeline.partition(
        Graph(num_nodes=20, src=ends, dst=ends + 1).source(),
        tmp_path / "out",
        nodes=tmp_path / "nodes.parquet",
        features=tmp_path / "features.npy",
        num_parts=2,
        method="metis",
        layout="edge-cut",
    )
    found = pipeline.inspect(tmp_path / "out")
    assert found.edge_cut == 0
    assert found.label_divergence == pytest.approx(0.5)
    assert found.attribute_coherence == pytest.approx(1.0)
    assert found.attribute_coherence_whole == pytest.approx(0.5**0.5)


def test_without_labels_and_features_nothing_is_said_of_them(tmp_path: Path):
    pipeline.partition(NAMED_GRAPHS["path"].source(), tmp_path / "out", num_parts=2)
    found = pipeline.inspect(tmp_path / "out").to_dict()
    names = ("label_divergence", "label_divergence_by_part", "attribute_coherence", "attribute_coherence_whole")
    assert [found[name] for name in names] == [None] * 4


def simple(graph: Graph) -> Graph:
    """Both directions of every edge once, no self-loops: the graphs that KaHIP reads."""
    undirected = nx.Graph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    undirected.remove_edges_from(list(nx.selfloop_edges(undirected)))
    ends = np.array(undirected.to_directed().edges)
    return Graph(num_nodes=graph.num_nodes, src=ends[:, 0], dst=ends[:, 1])


def evaluate_with_kahip(graph: Graph, owner: np.ndarray, folder: Path) -> dict[str, float]:
    rows: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        rows[u].append(v + 1)
    lines = [f"{graph.num_nodes} {graph.num_edges // 2}", *(" ".join(map(str, sorted(row))) for row in rows)]
    (folder / "g.graph").write_text("\n".join(lines) + "\n")
    (folder / "g.part").write_text("\n".join(map(str, owner.tolist())) + "\n")
    command = [
        KAHIP / "evaluator",
        folder / "g.graph",
        f"--k={owner.max() + 1}",
        f"--input_partition={folder / 'g.part'}",
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return {name.strip(): float(value) for name, value in re.findall(r"^([a-z ]+?)\s+([\d.]+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("method", ["asepr", "metis"])
def test_weighed_edges_are_cut_by_what_they_weigh(tmp_path: Path, rng: np.random.Generator, method: str):
    """Heavy edges follow one grouping of the nodes, light ones, which are more, another."""
    ends = rng.integers(0, 400, (2, 8000))
    group, other = np.arange(400) % 4, np.arange(400) // 100
    heavy = (group[ends[0]] == group[ends[1]]) & (rng.random(8000) < 0.4)
    light = other[ends[0]] == other[ends[1]]
    src, dst = ends[:, heavy | light]
    weight = np.where(heavy, 20.0, 1.0)[heavy | light]
    source = ArrayEdgeSource(src, dst, 400, weight=weight)
    cut = {}
    for weigh in (False, True):
        out = tmp_path / str(weigh)
        result = pipeline.partition(
            source, out, num_parts=4, layout="edge-cut", method=method, weigh_edges=weigh, imbalance=0.1
        )
        owner = np.empty(400, dtype=np.int64)
        for shard in open_all(out, Shard):
            owner[shard.nid[: shard.num_inner]] = shard.rank
        expected = weight[owner[src] != owner[dst]].sum() / weight.sum()
        cut[weigh] = pipeline.inspect(out).weight_cut
        assert cut[weigh] == pytest.approx(expected)
        assert result.to_dict()["weight_cut"] == cut[weigh]
    assert cut[True] < 0.1 < cut[False]


def test_weighing_what_has_no_weight_or_no_cut_is_refused(tmp_path: Path):
    graph = random_graph(20, 60)
    with pytest.raises(ConfigError, match="weigh_edges must come with weights of edges"):
        pipeline.partition(graph.source(), tmp_path / "o", num_parts=2, layout="edge-cut", weigh_edges=True)
    for options in ({"layout": "vertex-cut"}, {"layout": "edge-cut", "method": "hdrf"}):
        with pytest.raises(ConfigError, match="weigh_edges must come with layout edge-cut and method asepr or metis"):
            pipeline.PipelineConfig(num_parts=2, weigh_edges=True, **options)
    assert not (tmp_path / "o").exists()
