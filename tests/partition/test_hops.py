"""Halos of an edge-cut that are several hops deep, against networkx, and what verify says of damaged ones."""

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asepr import pipeline
from asepr.errors import ConfigError
from asepr.formats.arrow_io import map_columns, write_columns
from asepr.formats.edge_sources import ArrayEdgeSource
from asepr.formats.manifest import MANIFEST_NAME, file_entry
from asepr.formats.shard import Shard, open_all
from tests.graphs import Graph, graphs, random_graph

quick = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def check(graph: Graph, folder: Path, num_parts: int, hops: int) -> None:
    """Compare nodes, their distances and the edges repeated of every part with a search from its inner nodes."""
    pipeline.partition(graph.source(5), folder, num_parts=num_parts, layout="edge-cut", method="random", halo_hops=hops)
    assert pipeline.verify(folder) == []
    towards = nx.MultiDiGraph()
    towards.add_nodes_from(range(graph.num_nodes))
    towards.add_edges_from((v, u, eid) for eid, (u, v) in enumerate(zip(graph.src, graph.dst, strict=True)))
    for shard in open_all(folder, Shard):
        inner = shard.nid[: shard.num_inner].tolist()
        found = nx.multi_source_dijkstra_path_length(towards, set(inner), cutoff=hops, weight=lambda *_: 1)
        assert dict(zip(shard.nid.tolist(), shard.hop.tolist(), strict=True)) == found
        whole = {node for node, distance in found.items() if 0 < distance < hops}
        expected = [
            (eid, int(u), int(v))
            for eid, (u, v) in enumerate(zip(graph.src, graph.dst, strict=True))
            if int(v) in whole
        ]
        if hops == 1:
            assert shard.outer_edges == {}
            continue
        outer = shard.outer_edges
        nids = [outer["eid"].tolist(), *(shard.nid[outer[name]].tolist() for name in ("src", "dst"))]
        assert list(zip(*nids, strict=True)) == expected


@quick
@given(graph=graphs(), hops=st.integers(1, 4), data=st.data())
def test_any_graph(tmp_path_factory: pytest.TempPathFactory, graph: Graph, hops: int, data: st.DataObject):
    num_parts = data.draw(st.integers(1, graph.num_nodes))
    check(graph, tmp_path_factory.mktemp("h") / "out", num_parts, hops)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_more_parts_than_bits_of_a_word(hops: int, tmp_path: Path):
    check(random_graph(300, 400), tmp_path / "out", 130, hops)


def test_what_edges_carry_is_repeated(tmp_path: Path, rng: np.random.Generator):
    graph = random_graph(40, 120)
    etype, weight = rng.integers(0, 3, graph.num_edges), rng.random(graph.num_edges).astype(np.float32)
    source = ArrayEdgeSource(graph.src, graph.dst, 40, etype=etype, weight=weight)
    pipeline.partition(source, tmp_path / "out", num_parts=3, layout="edge-cut", halo_hops=2, add_reverse=True)
    assert pipeline.verify(tmp_path / "out") == []
    for shard in open_all(tmp_path / "out", Shard):
        outer = shard.outer_edges
        rows = outer["input_row"]
        assert len(rows)
        assert outer["weight"].tolist() == weight[rows].tolist()
        assert outer["etype"].tolist() == (etype[rows] + 3 * outer["is_reverse"]).tolist()


def test_a_vertex_cut_has_no_deep_halos(tmp_path: Path):
    with pytest.raises(ConfigError, match="halo_hops must be at least 1, and 1 unless the layout is edge-cut"):
        pipeline.partition(random_graph(9, 9).source(), tmp_path / "o", num_parts=2, halo_hops=2)
    with pytest.raises(ConfigError, match="halo_hops must be at least 1"):
        pipeline.PipelineConfig(num_parts=2, layout="edge-cut", halo_hops=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: {name: values[:-1] for name, values in c.items()}, "those nearer must have all their in-edges"),
        (lambda c: c | {"src": np.zeros_like(c["src"])}, "edges of halo nodes must be those of part-"),
        (lambda c: c | {"eid": c["eid"] + 1000}, "edges of halo nodes must be those of part-"),
        (lambda c: c | {"dst": c["dst"] + 1000}, "edges of halo nodes must join local rows"),
    ],
)
def test_verify_finds_edges_of_halo_nodes_that_are_wrong(change: Any, message: str, tmp_path: Path):
    out = tmp_path / "out"
    pipeline.partition(random_graph(40, 120).source(), out, num_parts=3, layout="edge-cut", halo_hops=2)
    path = out / "part-00001" / "outer_edges.arrow"
    write_columns(path, change({name: values.copy() for name, values in map_columns(path).items()}))
    manifest = json.loads((out / MANIFEST_NAME).read_text())
    entry = manifest["parts"][1]
    entry["files"][path.name] = file_entry(path).model_dump()
    entry["num_outer_edges"] = len(map_columns(path)["eid"])
    (out / MANIFEST_NAME).write_text(json.dumps(manifest))
    assert any(message in fault for fault in pipeline.verify(out))
