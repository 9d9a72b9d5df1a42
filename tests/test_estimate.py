"""An estimate comes from a run of the same form on edges of the same graph, and grows with the edges."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from asepr import estimate
from asepr.errors import TableError
from asepr.partition.plan import Form
from asepr.pipeline import PipelineConfig, plan
from tests.graphs import Graph, random_graph


@pytest.fixture(scope="module")
def graph() -> Graph:
    return random_graph(500, 4000)


@pytest.fixture
def edges(graph: Graph, tmp_path: Path) -> Path:
    pq.write_table(pa.table({"src": graph.src, "dst": graph.dst}), tmp_path / "edges.parquet")
    return tmp_path / "edges.parquet"


@pytest.mark.parametrize("form", list(Form))
def test_sample_takes_the_form_of_the_whole_run(form: Form, graph: Graph, edges: Path, monkeypatch: pytest.MonkeyPatch):
    config = PipelineConfig(num_parts=4)
    whole = plan(edges, config)
    if form is Form.STREAMING:
        config = PipelineConfig(num_parts=4, memory_bytes=whole.memory_bytes - 1)
        whole = plan(edges, config)
    assert whole.form is form
    monkeypatch.setattr(estimate, "SAMPLE_EDGES", 1000)
    runs = []

    def partition(source, out, config, **options):
        runs.append((source.num_nodes, source.num_edges, plan(source, config).form))
        return real(source, out, config, **options)

    real = estimate.partition
    monkeypatch.setattr(estimate, "partition", partition)
    found = estimate.estimate_time(edges, config, whole)
    mean_degree = graph.num_edges / graph.num_nodes
    assert runs == [(pytest.approx(1000 / mean_degree, abs=1), 1000, form)] * 2
    assert found.sample_edges == 1000
    assert found.seconds > 0


def test_seconds_of_the_sample_are_scaled_to_all_edges(edges: Path, monkeypatch: pytest.MonkeyPatch):
    config = PipelineConfig(num_parts=2, method="dbh")
    whole = plan(edges, config)
    monkeypatch.setattr(estimate, "SAMPLE_EDGES", whole.num_edges // 4)
    monkeypatch.setattr(estimate, "partition", lambda *_, **__: SimpleNamespace(seconds=1000.0))
    assert estimate.estimate_time(edges, config, whole).seconds == pytest.approx(4000, rel=0.01)


def test_more_parts_than_the_sample_has_nodes(edges: Path):
    config = PipelineConfig(num_parts=490, method="random")
    assert estimate.estimate_time(edges, config, plan(edges, config)).seconds > 0


def test_damaged_file_is_an_error_of_ours(edges: Path):
    config = PipelineConfig(num_parts=2)
    whole = plan(edges, config)
    edges.write_bytes(edges.read_bytes()[:100])
    with pytest.raises(TableError, match="must be a whole Parquet file"):
        estimate.estimate_time(edges, config, whole)


def test_stored_aggregates_are_in_the_plan_and_not_in_the_sample(edges: Path, graph: Graph, tmp_path: Path):
    np.save(tmp_path / "features.npy", np.ones((graph.num_nodes, 6), dtype=np.float32))
    config = PipelineConfig(num_parts=2, aggregate="mean")
    whole = plan(edges, config, features=tmp_path / "features.npy")
    assert whole.disk["aggregates of neighbours"] == 8 * 6 * graph.num_nodes
    assert estimate.estimate_time(edges, config, whole).seconds > 0
