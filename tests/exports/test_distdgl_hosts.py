"""Servers and clients of real DistDGL on hosts of their own: network namespaces, each with its own /dev/shm."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dgl", reason="DGL is not installed")

from asepr.exporters.targets import export
from benchmarks.distdgl import CHECK, run_on_hosts
from tests.exports.datasets import make_source
from tests.graphs import random_graph

ROOT = Path(__file__).parents[2]
HOSTS_SCRIPT = Path(os.environ.get("ASEPR_HOSTS_SCRIPT", ROOT.parent / "shared" / "tools" / "hosts.sh"))
RUN_SECONDS = 150


@pytest.fixture(scope="module", autouse=True)
def hosts() -> None:
    """Skip where hosts cannot be made, and say what is missing."""
    if not HOSTS_SCRIPT.is_file():
        pytest.skip(f"{HOSTS_SCRIPT} is not there")
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("hosts need root and iproute2")
    if subprocess.run(["unshare", "--net", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("network namespaces are not allowed here")


def write_truth(path: Path, num_nodes: int, src: np.ndarray, dst: np.ndarray, **columns: np.ndarray) -> Path:
    """Keep the source for the clients, in input order."""
    np.savez(path, src=src, dst=dst, in_degree=np.bincount(dst, minlength=num_nodes), **columns)
    return path


@pytest.mark.parametrize("typed", [False, True], ids=["one type", "typed"])
def test_two_hosts_serve_every_edge_and_train(typed: bool, tmp_path: Path):
    # So few edges that one of the parts lacks some types of edges.
    graph = random_graph(80, 60) if typed else random_graph(80, 400)
    source = make_source(tmp_path / "data", "vertex-cut", typed=typed, num_parts=2, graph=graph)
    figures = export(source.path, tmp_path / "export", "distdgl")
    assert (0 < len(figures["without_features"]) < len(figures["edge_types"])) == typed
    labelled = source.label >= 0
    masks = {f"node_{n}_mask": (source.split == code) & labelled for code, n in enumerate(("train", "val", "test"), 1)}
    truth = write_truth(
        tmp_path / "truth.npz",
        source.graph.num_nodes,
        source.graph.src,
        source.graph.dst,
        node_feat=source.feat,
        node_label=source.label,
        edge_feat=source.edge_feat,
        edge_weight=source.weight,
        **masks,
    )
    config = tmp_path / "export" / "graph.json"
    run_on_hosts(HOSTS_SCRIPT, tmp_path, config, 2, CHECK, truth, tmp_path, timeout_s=RUN_SECONDS)
    for rank in range(2):
        answer = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert answer["sampled"] == source.graph.num_edges
        assert answer["steps"] >= 1
        assert np.isfinite(answer["last_loss"])
