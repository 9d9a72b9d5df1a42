"""The example loops run, agree with each other, and learn."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

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
    said = launch(tmp_path, EXAMPLES / "distdgl_train.py", "30").stdout
    accuracy = next(line for line in said.splitlines() if line.startswith("test accuracy"))
    assert float(accuracy.split()[-1]) > 0.85


def launch(folder: Path, script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a DistDGL script on the one part of folder/export, with two trainers."""
    with socket.socket() as server, socket.socket() as master:
        server.bind(("127.0.0.1", 0))
        master.bind(("127.0.0.1", 0))
        port, master_port = server.getsockname()[1], master.getsockname()[1]
    (folder / "ip_config.txt").write_text(f"127.0.0.1 {port}\n")
    command = [sys.executable, EXAMPLES / "distdgl_launch.py", "--trainers", "2", "--master-port", master_port]
    command += [folder / "export" / "graph.json", folder / "ip_config.txt", script, *arguments]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=250, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended


@pytest.fixture(scope="module")
def wordnet_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the export that the GraphStorm example asks for, of a few of WordNet's nodes."""
    pytest.importorskip("dgl", reason="dgl is not installed")
    folder, wordnet = tmp_path_factory.mktemp("graphstorm"), EXAMPLES / "data" / "wordnet"
    nodes = pd.read_parquet(wordnet / "nodes.parquet")
    chosen = nodes.groupby("ntype").head(1000).sort_values("id")
    number = pd.Series(np.arange(len(chosen)), index=chosen["id"])
    edges = pd.read_parquet(wordnet / "edges.parquet")
    edges = edges[edges["src"].isin(number.index) & edges["dst"].isin(number.index)]
    edges = edges.assign(src=number[edges["src"]].to_numpy(), dst=number[edges["dst"]].to_numpy())
    edges.to_parquet(folder / "edges.parquet", index=False)
    chosen.assign(id=number.to_numpy()).to_parquet(folder / "nodes.parquet", index=False)
    np.save(folder / "features.npy", np.eye(45)[chosen["label"]].astype(np.float32))
    files = {"nodes": folder / "nodes.parquet", "features": folder / "features.npy"}
    asepr.partition(folder / "edges.parquet", folder / "out", **files, num_parts=1, layout="edge-cut")
    export(folder / "out", folder / "export", "distdgl")
    return folder


def test_graphstorm_config_names_what_the_export_has(wordnet_export: Path):
    from dgl.data.utils import load_tensors

    gsf = yaml.safe_load((EXAMPLES / "graphstorm_nc.yaml").read_text())["gsf"]
    config = wordnet_export / "export" / Path(gsf["basic"]["part_config"]).name
    types = json.loads(config.read_text())["ntypes"]
    task, tensors = gsf["node_classification"], load_tensors(str(config.parent / "part0" / "node_feat.dgl"))
    assert [name.split(":") for name in gsf["basic"]["node_feat_name"]] == [[name, "feat"] for name in types]
    assert {name.replace(":", "/") for name in gsf["basic"]["node_feat_name"]} <= set(tensors)
    for column in (task["label_field"], "train_mask", "val_mask", "test_mask"):
        assert f"{task['target_ntype']}/{column}" in tensors
    labels = pd.read_parquet(EXAMPLES / "data" / "wordnet" / "nodes.parquet")["label"]
    assert task["num_classes"] == labels.max() + 1


def test_graphstorm_trains_on_an_export(wordnet_export: Path):
    graphstorm = pytest.importorskip("graphstorm", reason="graphstorm is not installed")
    script = Path(graphstorm.__file__).parent / "run" / "gsgnn_np" / "gsgnn_np.py"
    paths = ["--part-config", wordnet_export / "export" / "graph.json", "--ip-config", wordnet_export / "ip_config.txt"]
    ended = launch(wordnet_export, script, "--cf", EXAMPLES / "graphstorm_nc.yaml", *paths)
    assert "best_test_score" in ended.stdout + ended.stderr


@pytest.mark.parametrize("addresses", [["192.0.2.1"], ["127.0.0.1"]], ids=["no address of ours", "a failing script"])
def test_distdgl_launcher_ends_with_a_fault(addresses: list[str], tmp_path: Path):
    (tmp_path / "ip_config.txt").write_text("".join(f"{address} 30999\n" for address in addresses))
    (tmp_path / "fails.py").write_text("raise SystemExit('as it was told')\n")
    command = [EXAMPLES / "distdgl_launch.py", "graph.json", tmp_path / "ip_config.txt", tmp_path / "fails.py"]
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    said = "as it was told" if addresses == ["127.0.0.1"] else "must have an address of this machine, got 192.0.2.1"
    assert said in ended.stderr
