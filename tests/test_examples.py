"""The example loops run, agree with each other, and learn."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import asepr

pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

EXAMPLES = Path(__file__).parent.parent / "examples"
LIBRARY = {"dgl_loop": "dgl", "pyg_loop": "torch_geometric"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return two shards of a graph whose classes are told by features and edges."""
    folder, rng = tmp_path_factory.mktemp("example"), np.random.default_rng(0)
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
        num_parts=2,
        layout="edge-cut",
    )
    return folder / "out"


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
