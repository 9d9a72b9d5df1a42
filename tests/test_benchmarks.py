"""Every script runs, quickly, and writes the rows it prints."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import asepr
from benchmarks.common import run_apart
from benchmarks.partition import recount
from benchmarks.peers import EDGE_PEERS, NODE_PEERS, Task, UnavailableError, place
from tests.graphs import Graph, copies_of, random_graph

ROOT = Path(__file__).parent.parent
NOT_SCRIPTS = ("__init__", "common", "distdgl_check", "hosts", "peers")
SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in NOT_SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_quick_run(script: str, tmp_path: Path):
    command = [sys.executable, "-m", f"benchmarks.{script}", "--quick", "--json", str(tmp_path / "rows.json")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert rows
    assert ended.stdout.count("\n|") >= len(rows)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return random_graph(60, 400)


@pytest.fixture
def edges(graph: Graph, tmp_path: Path) -> Path:
    pq.write_table(pa.table({"src": graph.src, "dst": graph.dst}), tmp_path / "edges.parquet")
    return tmp_path / "edges.parquet"


def test_recount_of_an_edge_placement_equals_a_plain_loop(graph: Graph, edges: Path, tmp_path: Path):
    edge_part = np.random.default_rng(0).integers(0, 3, graph.num_edges)
    np.savez(tmp_path / "placed.npz", edge_part=edge_part)
    found = recount(edges, tmp_path / "placed.npz", 3, "vertex-cut")
    held = [parts for parts in copies_of(graph, edge_part) if parts]
    by_part = [sum(p in parts for parts in held) for p in range(3)]
    assert found["rf"] == pytest.approx(sum(map(len, held)) / len(held))
    assert found["replica_balance"] == pytest.approx(max(by_part) * 3 / sum(by_part))
    assert found["edge_balance"] == pytest.approx(np.bincount(edge_part).max() * 3 / graph.num_edges)
    assert "edge_cut" not in found, "no owners, no cut"


@pytest.mark.parametrize("layout", ["vertex-cut", "edge-cut"])
def test_recount_of_shards_agrees_with_inspect(layout: str, graph: Graph, edges: Path, tmp_path: Path):
    result = asepr.partition(edges, tmp_path / "out", num_parts=3, layout=layout)
    found = recount(edges, tmp_path / "out", 3, layout)
    assert found["edge_cut"] == pytest.approx(result.quality.edge_cut)
    assert found["edge_balance"] == pytest.approx(result.quality.edge_balance)
    assert found["rf"] == pytest.approx(result.quality.replication_factor)


def test_recount_refuses_shards_that_lost_an_edge(edges: Path, tmp_path: Path):
    asepr.partition(edges, tmp_path / "out", num_parts=2)
    table = pq.read_table(edges)
    pq.write_table(pa.concat_tables([table, table[:1]]), edges)
    with pytest.raises(ValueError, match="edges must be 461, got 460"):
        recount(edges, tmp_path / "out", 2, "vertex-cut")


def test_a_run_says_why_it_failed():
    assert run_apart(["asepr.cli", "verify", "nowhere"]).fault.startswith(
        "asepr: error: nowhere/manifest.json: must be"
    )
    assert (
        run_apart(["timeit", "-n", "1", "while True: pass"], cpu_limit=1).fault == "stopped after 1 processor seconds"
    )


@pytest.mark.parametrize("layout", ["vertex-cut", "edge-cut"])
@pytest.mark.parametrize("name", ["pymetis", "kaminpar", "kahip edges"])
def test_peers_give_every_edge_a_part(name: str, layout: str, graph: Graph):
    if name in EDGE_PEERS and layout == "edge-cut":
        pytest.skip("places edges only")
    task = Task(src=graph.src, dst=graph.dst, num_parts=4, seed=0, layout=layout)
    try:
        placed = place(name, task)
    except (UnavailableError, ImportError) as error:
        pytest.skip(str(error))
    assert placed["edge_part"].shape == (graph.num_edges,)
    assert set(placed["edge_part"].tolist()) == {0, 1, 2, 3}
    if name in NODE_PEERS and layout == "edge-cut":
        assert np.array_equal(placed["edge_part"], placed["owner"][graph.dst])
    elif name in NODE_PEERS:
        owner, ends = placed["owner"], np.stack([graph.src, graph.dst])
        uncut = owner[graph.src] == owner[graph.dst]
        assert np.array_equal(placed["edge_part"][uncut], owner[graph.src][uncut])
        assert (placed["edge_part"] == owner[ends]).any(axis=0).all()
