"""The example loops run, agree with each other, and learn."""

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import asepr
from asepr.exporters.targets import export

pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

EXAMPLES = Path(__file__).parent.parent / "examples"
LIBRARY = {"dgl_loop": "dgl", "pyg_loop": "torch_geometric"}


def partition_example(folder: Path, num_parts: int) -> Path:
    """Return shards of a graph whose classes are told by features and edges."""
    rng = np.random.default_rng(0)
    label = np.arange(120) % 3
    src = rng.integers(0, 120, 600)
    dst = (src + 3 * rng.integers(0, 40, 600)) % 120
    pq.write_table(pa.table({"src": src, "dst": dst}), folder / "edges.parquet")
    split = np.array(["train", "val", "test"])[np.arange(120) // 3 % 3]
    pq.write_table(pa.table({"id": np.arange(120), "label": label, "split": split}), folder / "nodes.parquet")
    np.save(folder / "features.npy", np.eye(3)[label] + rng.standard_normal((120, 3)))
    asepr.partition(
        folder / "edges.parquet",
        folder / "out",
        nodes=folder / "nodes.parquet",
        features=folder / "features.npy",
        num_parts=num_parts,
        layout="edge-cut",
    )
    return folder / "out"


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return partition_example(tmp_path_factory.mktemp("example"), num_parts=2)


@pytest.mark.parametrize("name", LIBRARY)
def test_loop_learns(name: str, shards: Path):
    pytest.importorskip(LIBRARY[name], reason=f"{LIBRARY[name]} is not installed")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [*command, EXAMPLES / f"{name}.py", shards, "12"], capture_output=True, text=True, timeout=250, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    accuracy = [float(line.split()[-1]) for line in ended.stdout.splitlines() if line.startswith("epoch")]
    assert len(accuracy) == 12
    assert accuracy[-1] > 0.85


def test_distdgl_trains_on_an_export(tmp_path: Path):
    pytest.importorskip("dgl", reason="dgl is not installed")
    partition_example(tmp_path, num_parts=1)
    export(tmp_path / "out", tmp_path / "export", "distdgl")
    with socket.socket() as server, socket.socket() as master:
        server.bind(("127.0.0.1", 0))
        master.bind(("127.0.0.1", 0))
        port, master_port = server.getsockname()[1], master.getsockname()[1]
    (tmp_path / "ip_config.txt").write_text(f"127.0.0.1 {port}\n")
    command = [sys.executable, EXAMPLES / "distdgl_launch.py", "--trainers", "2", "--master-port", str(master_port)]
    command += [tmp_path / "export" / "graph.json", tmp_path / "ip_config.txt", EXAMPLES / "distdgl_train.py", "30"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    accuracy = next(line for line in ended.stdout.splitlines() if line.startswith("test accuracy"))
    assert float(accuracy.split()[-1]) > 0.85


@pytest.mark.parametrize("addresses", [["192.0.2.1"], ["127.0.0.1"]], ids=["no address of ours", "a failing script"])
def test_distdgl_launcher_ends_with_a_fault(addresses: list[str], tmp_path: Path):
    (tmp_path / "ip_config.txt").write_text("".join(f"{address} 30999\n" for address in addresses))
    (tmp_path / "fails.py").write_text("raise SystemExit('as it was told')\n")
    command = [EXAMPLES / "distdgl_launch.py", "graph.json", tmp_path / "ip_config.txt", tmp_path / "fails.py"]
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    said = "as it was told" if addresses == ["127.0.0.1"] else "must have an address of this machine, got 192.0.2.1"
    assert said in ended.stderr
