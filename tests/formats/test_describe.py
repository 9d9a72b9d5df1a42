"""Drafts of graph descriptions load, and say of files what was put into them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import asepr
from asepr.cli import app
from asepr.errors import AseprError
from asepr.formats.describe import describe
from asepr.formats.shard import Shard, open_all

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two node types in one file, a third in one of its own; two relations in one file."""
    things = {"id": ["a", "b", "x", "y"], "kind": ["user", "user", "item", "item"], "label": [0, 1, -1, -1]}
    pq.write_table(pa.table(things), tmp_path / "things.parquet")
    np.save(tmp_path / "things.npy", np.array([[1.0], [2.0], [0.0], [0.0]]))
    (tmp_path / "tags.csv").write_text("name,split\nred,train\nblue,test\n")
    (tmp_path / "links.csv").write_text("source,target,relation,weight\na,x,buys,1\nb,y,buys,2\na,b,knows,3\n")
    (tmp_path / "has.tsv").write_text("from\tto\nx\tred\ny\tblue\n")
    (tmp_path / "notes.md").write_text("nothing")
    return tmp_path


def test_draft_loads_and_partitions(folder: Path):
    target = folder / "graph.yaml"
    draft = describe([folder], target)
    result = asepr.partition(target, folder / "out", num_parts=2, method="random")
    assert sorted(result.manifest.node_types) == ["item", "tags", "user"]
    assert sorted(result.manifest.edge_types) == [
        ("item", "has", "tags"),
        ("user", "buys", "item"),
        ("user", "knows", "user"),
    ]
    assert result.manifest.num_edges == 5
    assert yaml.safe_load(target.read_text()) == {"nodes": draft.nodes, "edges": draft.edges}
    users = next(entry for entry in draft.nodes if entry["type"] == "user")
    assert users["features"] == "things.npy"
    assert users["label"] == "label"
    assert any("notes.md" in note for note in draft.notes)
    assert "*" not in target.read_text()


def test_one_edge_file_is_enough(folder: Path):
    draft = describe([folder / "has.tsv"])
    assert draft.nodes == [{"type": "node"}]
    assert [entry["type"] for entry in draft.edges] == ["node:has:node"]


def test_command_prints_and_writes(folder: Path):
    run = CliRunner().invoke(app, ["describe", str(folder / "has.tsv"), "--json"])
    assert json.loads(run.output)["edges"][0]["src"] == "from"
    run = CliRunner().invoke(app, ["describe", str(folder / "has.tsv")])
    assert yaml.safe_load(run.output)["edges"][0]["dst"] == "to"


def test_mistakes_are_one_clear_error(folder: Path):
    with pytest.raises(AseprError, match=r"tags\.csv: must hold a table with two columns of ends, .* got tags\.csv"):
        describe([folder / "tags.csv"])
    with pytest.raises(AseprError, match=r"gone\.csv: must be a file, got nothing there"):
        describe([folder / "gone.csv"])
    (folder / "bad.csv").write_text("src,dst\na,red\nx,red\n")
    with pytest.raises(AseprError, match=r"edges of bad must have ids of one node type in src, got item, user; split"):
        describe([folder], folder / "graph.yaml")
    assert not (folder / "graph.yaml").exists()
    (folder / "graph.yaml").write_text("mine")
    with pytest.raises(AseprError, match=r"graph\.yaml: must not exist, got a file"):
        describe([folder / "has.tsv"], folder / "graph.yaml")
    assert (folder / "graph.yaml").read_text() == "mine"


@pytest.mark.parametrize("name", ["wn18rr", "debian-hetero"])
def test_real_graphs_in_under_their_names_and_back(name: str, tmp_path: Path):
    if not (SHARED / "unpack.py").exists():
        pytest.skip("needs the real graphs in ../shared/data")
    subprocess.run([sys.executable, SHARED / "unpack.py", name, tmp_path], check=True, stdout=subprocess.DEVNULL)
    raw = next(path.parent for path in tmp_path.rglob("edges.parquet"))
    meta = json.loads((raw / "meta.json").read_text())
    describe([raw], tmp_path / "graph.yaml")
    out = tmp_path / "out"
    manifest = asepr.partition(tmp_path / "graph.yaml", out, num_parts=4, method="random").manifest
    assert (manifest.num_nodes, manifest.num_edges) == (meta["nodes"], meta["edges"])
    table = pq.read_table(raw / "edges.parquet").to_pandas()
    ids = np.concatenate([asepr.original_ids(out, node_type=kind)["id"].to_numpy() for kind in manifest.node_types])
    found = []
    for shard in open_all(out, Shard):
        names = np.array([relation for _, relation, _ in manifest.edge_types])[shard.etype]
        found += zip(
            ids[shard.nid[shard.src]].tolist(), names.tolist(), ids[shard.nid[shard.dst]].tolist(), strict=True
        )
    names = np.array(meta["edge_types"])[table["etype"]]
    assert sorted(found) == sorted(zip(table["src"].tolist(), names.tolist(), table["dst"].tolist(), strict=True))
    shutil.rmtree(out)
