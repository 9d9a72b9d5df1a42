"""The command line as a user meets it: in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.graphs import NAMED_GRAPHS, random_graph


def asepr(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "asepr.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    graph = NAMED_GRAPHS["skewed"]
    pq.write_table(pa.table({"src": graph.src, "dst": graph.dst}), tmp_path / "edges.parquet")
    return tmp_path / "edges.parquet"


def test_partition_inspect_verify(edges: Path, tmp_path: Path):
    out = tmp_path / "out"
    made = asepr("partition", edges, "-k", 3, "-o", out, "--json")
    assert made.returncode == 0, made.stderr
    assert made.stderr == "", "quiet where no terminal is"
    values = json.loads(made.stdout)
    keys = {"num_nodes", "num_edges", "num_parts", "method", "layout", "replication_factor", "seconds"}
    assert keys | {"peak_rss_bytes"} <= set(values)
    assert (values["num_edges"], values["num_parts"], values["method"]) == (460, 3, "asepr")
    found = json.loads(asepr("inspect", out, "--json").stdout)
    expected = {
        "replication_factor",
        "edge_cut",
        "edge_balance",
        "replica_balance",
        "node_balance",
        "train_balance",
        "halo_nodes",
        "feature_bytes",
        "comm_matrix",
    }
    assert expected <= set(found)
    assert found["replication_factor"] == values["replication_factor"]
    assert found["run"]["phase_seconds"] == values["phase_seconds"]
    shown = asepr("inspect", out, "--html", tmp_path / "r.html").stdout
    assert "replication factor" in shown
    assert "made in" in shown
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads(asepr("verify", out, "--json").stdout) == {"ok": True, "faults": []}
    (out / "part-00001" / "send.arrow").unlink()
    broken = asepr("verify", out)
    assert broken.returncode == 1
    assert "send.arrow: must be there, got nothing" in broken.stdout


def write_edges(**columns: object) -> Callable[[Path], list[object]]:
    def write(folder: Path) -> list[object]:
        pq.write_table(pa.table(columns), folder / "e.parquet")
        return [folder / "e.parquet", "-k", 2]

    return write


def write_features(rows: list[list[float]]) -> Callable[[Path], list[object]]:
    def write(folder: Path) -> list[object]:
        np.save(folder / "f.npy", np.array(rows))
        return [*write_edges(src=[0, 1], dst=[1, 2])(folder), "--features", folder / "f.npy"]

    return write


def write_nodes_and_features(folder: Path) -> list[object]:
    pq.write_table(pa.table({"id": [0, 1, 2, 3]}), folder / "n.parquet")
    return [*write_features([[0.0]] * 3)(folder), "--nodes", folder / "n.parquet"]


def write_raw(data: bytes) -> Callable[[Path], list[object]]:
    def write(folder: Path) -> list[object]:
        (folder / "e.parquet").write_bytes(data)
        return [folder / "e.parquet", "-k", 2]

    return write


def with_parts(num_parts: int) -> Callable[[Path], list[object]]:
    return lambda folder: [*write_edges(src=[0, 1], dst=[1, 2])(folder)[:1], "-k", num_parts]


def write_output(folder: Path) -> list[object]:
    (folder / "out").mkdir()
    (folder / "out" / "mine").write_text("keep")
    return write_edges(src=[0, 1], dst=[1, 2])(folder)


BAD_INPUT: dict[str, tuple[Callable[[Path], list[object]], str]] = {
    "wrong column": (write_edges(a=[0], b=[1]), "must have a column 'src', got a, b; name the columns"),
    "negative id": (write_edges(src=[0, -1], dst=[1, 1]), "row 1: src must not be negative, got -1; drop the row"),
    "too large id": (
        lambda folder: [*write_edges(src=[0, 9], dst=[1, 1])(folder), "--num-nodes", 5],
        "row 1: src must be in [0, 5), got 9; give the node",
    ),
    "NaN feature": (write_features([[0], [1], [float("nan")]]), "row 2: features must be finite, got nan; fill"),
    "wrong rows": (write_nodes_and_features, "rows must be one a node everywhere, got "),
    "empty file": (write_raw(b""), "must hold rows, got an empty file; write it again"),
    "truncated Parquet": (write_raw(b"PAR1" + b"\0" * 99), "must be a whole Parquet file, got: "),
    "k = 0": (with_parts(0), "num_parts must be in [1, 4096], got 0; ask for"),
    "k > N": (with_parts(4), "num_parts must be at most 3, the nodes, got 4; ask for fewer"),
    "output not empty": (write_output, "must not exist or be an empty folder, got one with content; choose"),
    "unknown method": (
        lambda folder: [*with_parts(2)(folder), "--method", "foo"],
        "method must be one of asepr, random, dbh, hdrf, metis, got 'foo'; choose",
    ),
    "memory of words": (
        lambda folder: [*with_parts(2)(folder), "--memory", "lots"],
        "--memory must be a size as 500MB or 2GB, got 'lots'; mend it",
    ),
    "capacities of words": (
        lambda folder: [*with_parts(2)(folder), "--capacities", "a,b"],
        "--capacities must be numbers as 1,1,2, got 'a,b'; mend",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_2(case: str, tmp_path: Path):
    write, message = BAD_INPUT[case]
    arguments = write(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    ended = asepr("partition", *arguments, "-o", tmp_path / "out")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("asepr: error: ")
    assert message in ended.stderr
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before, "nothing is left behind, nothing is lost"


def test_dry_run_says_what_would_be_held_and_does_nothing(edges: Path, tmp_path: Path):
    out = tmp_path / "out"
    values = json.loads(asepr("partition", edges, "-k", 3, "-o", out, "--dry-run", "--json").stdout)
    assert (values["num_nodes"], values["num_edges"], values["form"]) == (60, 460, "in-memory")
    assert values["memory_bytes"] == sum(values["memory"].values())
    assert values["estimated_from_edges"] == 460
    assert 0 < values["estimated_seconds"] < 60
    assert (
        "60 nodes and 460 edges: the in-memory form"
        in asepr("partition", edges, "-k", 3, "-o", out, "--dry-run").stdout
    )
    ended = asepr("partition", edges, "-k", 3, "-o", out, "--dry-run", "--memory", "1MB")
    assert ended.returncode == 2
    assert "memory must be at least" in ended.stderr
    assert list(tmp_path.iterdir()) == [edges]


def test_inspect_of_what_is_no_dataset(tmp_path: Path):
    for command in ("inspect", "verify"):
        ended = asepr(command, tmp_path)
        assert ended.returncode == 2
        assert "must be the manifest of a finished dataset" in ended.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_stopped_run_leaves_no_dataset_and_the_next_one_cleans_up(number: int, code: int, tmp_path: Path):
    graph = random_graph(20_000, 600_000)
    pq.write_table(pa.table({"src": graph.src, "dst": graph.dst}), tmp_path / "edges.parquet")
    arguments = ["partition", tmp_path / "edges.parquet", "-k", 64, "--method", "hdrf", "-o", tmp_path / "out"]
    command = [sys.executable, "-m", "asepr.cli", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list((tmp_path / ".out.partial").glob("scratch/edge-part*")):
        assert time.monotonic() < deadline
        assert process.poll() is None
    process.send_signal(number)
    assert process.wait(timeout=60) == code
    assert not (tmp_path / "out").exists()
    if number != signal.SIGKILL:
        assert not (tmp_path / ".out.partial").exists()
    assert asepr(*arguments).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.parquet", "out"]


def test_help_imports_nothing_heavy():
    code = "import sys; from asepr.cli import app; import asepr; print(*sys.modules)"
    environment = os.environ | {"PYTHONWARNINGS": "error"}
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=environment
    ).stdout.split()
    assert not {"numpy", "numba", "pyarrow", "torch", "sklearn", "dgl"} & set(loaded)
    assert "partition" in asepr("--help").stdout
