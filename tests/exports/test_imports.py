"""Partitions made elsewhere become our shards, every owner and every edge where they were."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymetis
import pytest
from typer.testing import CliRunner

import asepr
from asepr.cli import app
from asepr.errors import AseprError
from asepr.exporters.targets import export
from asepr.formats.assignments import read_parts
from asepr.formats.shard import Shard, open_all
from asepr.partition.given import GivenParts
from tests.graphs import Graph, random_graph

PARTS = 3


@pytest.fixture
def graph() -> Graph:
    return random_graph(60, 300)


@pytest.fixture
def edges(graph: Graph, tmp_path: Path) -> Path:
    pq.write_table(pa.table({"src": graph.src, "dst": graph.dst}), tmp_path / "edges.parquet")
    return tmp_path / "edges.parquet"


def owners(path: Path) -> list[int]:
    owner = {int(nid): shard.rank for shard in open_all(path, Shard) for nid in shard.nid[: shard.num_inner]}
    return [owner[nid] for nid in range(len(owner))]


def run(*arguments: object) -> str:
    ended = CliRunner().invoke(app, ["import-assignment", *map(str, arguments)])
    return ended.output + (f" exit {ended.exit_code}" if ended.exit_code else "")


@pytest.mark.parametrize(
    ("target", "file"), [("metis", "graph.graph.part.3"), ("parquet", "owner.parquet"), ("distdgl", ".")]
)
@pytest.mark.parametrize("layout", ["vertex-cut", "edge-cut"])
def test_export_and_import_keep_every_owner(layout: str, target: str, file: str, edges: Path, tmp_path: Path):
    if target == "distdgl":
        pytest.importorskip("dgl", reason="DGL is not installed")
    asepr.partition(edges, tmp_path / "first", num_parts=PARTS, layout=layout, num_nodes=60)
    export(tmp_path / "first", tmp_path / "export", target)
    np.save(tmp_path / "features.npy", np.ones((60, 1)))  # Says that there are 60 nodes, isolated ones included.
    given = ["--features", tmp_path / "features.npy", "--layout", layout]
    run(edges, tmp_path / "export" / file, "-k", PARTS, "-o", tmp_path / "second", *given)
    assert owners(tmp_path / "second") == owners(tmp_path / "first")
    assert asepr.verify(tmp_path / "second") == []
    assert asepr.inspect(tmp_path / "second").edge_cut == pytest.approx(asepr.inspect(tmp_path / "first").edge_cut)


def test_parts_of_metis_itself(graph: Graph, edges: Path, tmp_path: Path):
    neighbours = [set() for _ in range(graph.num_nodes)]
    for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        if u != v:
            neighbours[u].add(v)
            neighbours[v].add(u)
    part = list(pymetis.part_graph(PARTS, adjacency=[sorted(row) for row in neighbours])[1])
    (tmp_path / "g.part.3").write_text("".join(f"{p}\n" for p in part))
    ids = np.random.default_rng(0).permutation(graph.num_nodes)
    pq.write_table(pa.table({"id": ids, "part": np.array(part)[ids]}), tmp_path / "part.parquet")
    np.save(tmp_path / "part.npy", np.array(part))
    for number, name in enumerate(("g.part.3", "part.parquet", "part.npy")):
        assert read_parts(tmp_path / name).tolist() == part
        run(edges, tmp_path / name, "-k", PARTS, "-o", tmp_path / f"out-{number}")
        assert owners(tmp_path / f"out-{number}") == part
    cut = np.mean(np.array(part)[graph.src] != np.array(part)[graph.dst])
    assert asepr.inspect(tmp_path / "out-0").edge_cut == pytest.approx(cut)


def test_parts_of_edges(graph: Graph, edges: Path, tmp_path: Path):
    part = np.random.default_rng(1).integers(0, PARTS, graph.num_edges)
    np.save(tmp_path / "part.npy", part)
    run(edges, tmp_path / "part.npy", "-k", PARTS, "-o", tmp_path / "out", "--of", "edges")
    found = {int(eid): shard.rank for shard in open_all(tmp_path / "out", Shard) for eid in shard.eid}
    assert [found[eid] for eid in range(graph.num_edges)] == part.tolist()
    assert asepr.verify(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("part", "options", "message"),
    [
        ([0, 1, 2] * 19, [], "parts must be one for each of the 60 nodes, got 57"),
        ([0, 1, 3] * 20, [], r"node 2: part must be in \[0, 3\), got 3; raise --parts"),
        ([0, 1, -1] * 20, [], r"node 2: part must be in \[0, 3\), got -1"),
        ([0, 1] * 30, [], "every part must own a node, got none in part 2"),
        ([0] * 300, ["--of", "edges", "--layout", "edge-cut"], "parts must be of nodes for an edge-cut"),
        ([0] * 300, ["--of", "both"], "--of must be nodes or edges, got 'both'"),
    ],
)
def test_parts_that_do_not_fit(part: list[int], options: list[str], message: str, edges: Path, tmp_path: Path):
    np.save(tmp_path / "part.npy", np.array(part))
    out = run(edges, tmp_path / "part.npy", "-k", PARTS, "-o", tmp_path / "out", *options)
    assert " exit 2" in out
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(" ".join(out.split()))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [0, 1, 1], "part": [0, 0, 0]}, "row 2: id must occur once, got 1 again"),
        ({"id": [0, 1, 3], "part": [0, 0, 0]}, r"row 2: id must be in \[0, 3\), got 3"),
        ({"id": [0, 1, 2], "part": [0, None, 0]}, "part must be whole numbers, got int64 with 1 nulls"),
        ({"id": [0, 1, 2], "block": [0, 0, 0]}, "must have a column 'part', got id, block"),
        ({"part": [0.5, 1.0]}, "part must be whole numbers, got double"),
    ],
)
def test_tables_of_parts_that_are_wrong(columns: dict, message: str, tmp_path: Path):
    pq.write_table(pa.table(columns), tmp_path / "part.parquet")
    with pytest.raises(AseprError, match=message):
        read_parts(tmp_path / "part.parquet")


def test_damaged_or_partial_distdgl_folder(edges: Path, tmp_path: Path):
    pytest.importorskip("dgl", reason="DGL is not installed")
    from asepr.exporters.distdgl_owners import read_owners

    with pytest.raises(AseprError, match="must hold one JSON file"):
        read_owners(tmp_path)
    asepr.partition(edges, tmp_path / "first", num_parts=2, layout="edge-cut", method="random", num_nodes=60)
    export(tmp_path / "first", tmp_path / "export", "distdgl")
    (tmp_path / "export" / "part1" / "orig_nids.dgl").write_bytes(b"no")
    with pytest.raises(AseprError, match=r"part1: must hold orig_nids\.dgl"):
        read_owners(tmp_path / "export")


def test_given_parts_from_python(graph: Graph, edges: Path, tmp_path: Path):
    part = np.arange(graph.num_nodes) % 2
    given = GivenParts(of="nodes", part=part, where="mine")
    result = asepr.partition(
        edges, tmp_path / "out", num_parts=2, layout="edge-cut", num_nodes=graph.num_nodes, given=given
    )
    assert owners(result.path) == part.tolist()
    assert result.manifest.method == "given"
