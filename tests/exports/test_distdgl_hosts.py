"""Servers and clients of real DistDGL on hosts of their own: network namespaces, each with its own /dev/shm."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dgl", reason="DGL is not installed")

from asepr.exporters.targets import export
from tests.exports.datasets import make_source
from tests.exports.distdgl_host import die_with_parent

ROOT = Path(__file__).parents[2]
HOSTS_SCRIPT = Path(os.environ.get("ASEPR_HOSTS_SCRIPT", ROOT.parent / "shared" / "tools" / "hosts.sh"))
RUN_SECONDS = 150


def why_not() -> str | None:
    """Say what is missing to make hosts."""
    if not HOSTS_SCRIPT.is_file():
        return f"{HOSTS_SCRIPT} is not there"
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "hosts need root and iproute2"
    probe = ["unshare", "--net", "--mount", "true"]
    if subprocess.run(probe, check=False, capture_output=True).returncode:
        return "network namespaces are not allowed here"
    return None


@pytest.fixture(scope="module")
def run_hosts() -> Iterator:
    reason = why_not()
    if reason:
        pytest.skip(reason)

    def run(num_hosts: int, config: Path, truth: Path, folder: Path) -> list[dict]:
        up = subprocess.run(["bash", HOSTS_SCRIPT, "up", str(num_hosts)], check=False, capture_output=True, text=True)
        if up.returncode:
            pytest.skip(f"hosts cannot be made: {up.stderr.strip()[-200:]}")
        ip_config = folder / "ip_config.txt"
        ip_config.write_text("".join(f"10.78.0.{rank + 1} 30050\n" for rank in range(num_hosts)))
        try:
            return _run_all(num_hosts, [config, ip_config, truth, folder], folder)
        finally:
            subprocess.run(["bash", HOSTS_SCRIPT, "down"], check=True, capture_output=True)

    return run


def _run_all(num_hosts: int, arguments: list[Path], folder: Path) -> list[dict]:
    script = Path(__file__).with_name("distdgl_host.py")
    processes = [
        subprocess.Popen(
            ["bash", HOSTS_SCRIPT, "run", str(rank), sys.executable, script, str(rank), str(num_hosts), *arguments],
            preexec_fn=die_with_parent,
        )
        for rank in range(num_hosts)
    ]
    with ThreadPoolExecutor(num_hosts) as pool:
        waiting = [pool.submit(process.wait, RUN_SECONDS) for process in processes]
        # One that fails leaves the others waiting for it, so it ends them all.
        for future in as_completed(waiting):
            if future.exception() or future.result():
                for process in processes:
                    process.kill()
    logs = "\n".join((folder / f"log-{rank}.txt").read_text()[-1500:] for rank in range(num_hosts))
    assert [process.returncode for process in processes] == [0] * num_hosts, logs
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(num_hosts)]


def write_truth(path: Path, num_nodes: int, src: np.ndarray, dst: np.ndarray, **columns: np.ndarray) -> Path:
    """Keep the source for the clients, in input order."""
    np.savez(path, src=src, dst=dst, in_degree=np.bincount(dst, minlength=num_nodes), **columns)
    return path


@pytest.mark.parametrize("typed", [False, True], ids=["one type", "typed"])
def test_two_hosts_serve_every_edge_and_train(typed: bool, run_hosts, tmp_path: Path):
    source = make_source(tmp_path / "data", "vertex-cut", typed=typed, num_parts=2)
    export(source.path, tmp_path / "export", "distdgl")
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
    answers = run_hosts(2, tmp_path / "export" / "graph.json", truth, tmp_path)
    for answer in answers:
        assert answer["sampled"] == source.graph.num_edges
        assert answer["steps"] >= 1
        assert np.isfinite(answer["last_loss"])
