from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import asepr
from asepr.contracts import AGGREGATES
from asepr.errors import ConfigError
from asepr.formats.node_sources import DenseFeatures
from asepr.formats.shard import Shard, open_all
from asepr.stream import aggregates
from asepr.stream.aggregates import NeighbourAggregates
from asepr.stream.degrees import count_degrees
from asepr.stream.scratch import ScratchDir
from tests.graphs import NAMED_GRAPHS, Graph, random_graph


def by_scipy(kind: str, graph: Graph, features: np.ndarray) -> np.ndarray:
    """Return the same by sparse algebra; entry [v, u] of the matrix counts the edges u -> v."""
    shape = (graph.num_nodes, graph.num_nodes)
    matrix = sp.coo_matrix((np.ones(graph.num_edges), (graph.dst, graph.src)), shape).tocsr()
    in_degree, out_degree = (np.asarray(matrix.sum(axis)).reshape(-1) for axis in (1, 0))
    if kind == "mean":
        matrix = sp.diags(1 / np.where(in_degree == 0, 1, in_degree)) @ matrix
    if kind == "gcn":
        matrix = sp.diags((in_degree + 1) ** -0.5) @ matrix @ sp.diags((out_degree + 1) ** -0.5)
    return matrix @ features.astype(np.float64)


@pytest.mark.parametrize("kind", AGGREGATES)
@pytest.mark.parametrize("graph", NAMED_GRAPHS.values(), ids=NAMED_GRAPHS)
def test_aggregates_equal_sparse_algebra(
    graph: Graph, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = np.random.default_rng(1).standard_normal((graph.num_nodes, 5)).astype(np.float32)
    rows = np.arange(graph.num_nodes)
    found = []
    # Blocks of one edge, of three, and of all of a chunk.
    for num, (chunk_edges, block_bytes) in enumerate([(1000, 20), (7, 60), (1000, 1 << 20)]):
        monkeypatch.setattr(aggregates, "BLOCK_BYTES", block_bytes)
        source = graph.source(chunk_edges)
        with ScratchDir(tmp_path / str(num)) as scratch:
            made = NeighbourAggregates(kind, DenseFeatures(features, "test"), source, count_degrees(source), scratch)
            found.append(made.read(rows))
    np.testing.assert_allclose(found[0], by_scipy(kind, graph, features), rtol=1e-6, atol=1e-6)
    assert found[0].dtype == np.float32
    assert all(np.array_equal(other, found[0]) for other in found[1:]), "no result depends on blocks or chunks"


@pytest.mark.parametrize("layout", ["vertex-cut", "edge-cut"])
def test_shards_carry_them_for_inner_and_halo_rows(layout: str, tmp_path: Path):
    graph = random_graph(60, 300)
    features = np.random.default_rng(1).standard_normal((60, 4)).astype(np.float32)
    np.save(tmp_path / "features.npy", features)
    asepr.partition(
        graph.source(50),
        tmp_path / "out",
        features=tmp_path / "features.npy",
        num_parts=3,
        layout=layout,
        aggregate="gcn",
    )
    expected = by_scipy("gcn", graph, features)
    for shard in open_all(tmp_path / "out", Shard):
        assert shard.manifest.aggregate == "gcn"
        assert shard.num_halo
        np.testing.assert_allclose(shard.aggregates, expected[shard.nid], rtol=1e-6, atol=1e-6)
    assert asepr.verify(tmp_path / "out") == []


def test_shards_without(tmp_path: Path):
    asepr.partition(random_graph(20, 60).source(), tmp_path / "out", num_parts=2)
    shard = Shard(tmp_path / "out", 0)
    assert shard.manifest.aggregate is None
    assert shard.aggregates is None


def test_what_cannot_be_aggregated(tmp_path: Path):
    source = random_graph(20, 60).source()
    with pytest.raises(ConfigError, match="aggregate must come with node features, got 'mean' and none"):
        asepr.partition(source, tmp_path / "out", num_parts=2, aggregate="mean")
    with pytest.raises(ConfigError, match="aggregate must be one of mean, sum, gcn, got 'max'"):
        asepr.partition(source, tmp_path / "out", num_parts=2, aggregate="max")
    assert not (tmp_path / "out").exists()
