"""Folders as OGB lays them out, against OGB's own reader."""

import gzip
import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

import asepr
from asepr.errors import AseprError
from asepr.estimate import estimate_time
from asepr.formats.shard import Shard, open_all
from asepr.pipeline import PipelineConfig, plan
from tests.graphs import random_graph

SPLITS = ("train", "valid", "test")
GRAPH = random_graph(60, 400)


def write(path: Path, rows: np.ndarray | list) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(map(str, np.atleast_1d(row).tolist())) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()))


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A dataset of one type, as `ogbn-arxiv` is."""
    raw = tmp_path / "ogbn_toy" / "raw"
    write(raw / "edge.csv.gz", np.stack([GRAPH.src, GRAPH.dst], axis=1))
    write(raw / "num-node-list.csv.gz", [60])
    write(raw / "num-edge-list.csv.gz", [GRAPH.num_edges])
    write(raw / "node-feat.csv.gz", rng.standard_normal((60, 3)).astype(np.float32))
    write(raw / "edge-feat.csv.gz", rng.integers(0, 9, (GRAPH.num_edges, 2)))
    write(raw / "node-label.csv.gz", [*rng.integers(0, 4, 58), "nan", "2.0"])
    for rows, name in zip(np.split(rng.permutation(60)[:50], [30, 40]), SPLITS, strict=True):
        write(raw.parent / "split" / "time" / f"{name}.csv.gz", rows)
    return raw.parent


def read_whole(out: Path) -> dict[str, np.ndarray]:
    """Return the graph of all shards, by nid and eid."""
    shards = open_all(out, Shard)
    manifest = shards[0].manifest
    ends = np.full((manifest.num_edges, 3), -1)
    found = {"ends": ends}
    for shard in shards:
        etype = 0 if shard.etype is None else shard.etype
        ends[shard.eid] = np.stack([shard.nid[shard.src], shard.nid[shard.dst], etype + 0 * shard.src], axis=1)
        columns = {"label": shard.label, "split": shard.split, "ntype": shard.ntype, "features": shard.features}
        for name, rows, values in [
            *((name, shard.nid, values) for name, values in columns.items()),
            ("edge_features", shard.eid, shard.edge_features),
            ("weight", shard.eid, shard.weight),
            ("time", shard.eid, shard.time),
        ]:
            if values is not None:
                size = manifest.num_edges if rows is shard.eid else manifest.num_nodes
                found.setdefault(name, np.zeros((size, *values.shape[1:]), values.dtype))[rows] = values
    return found


def ogb_reader(name: str, folder: Path) -> dict:
    if importlib.util.find_spec("ogb") is None:
        pytest.skip("OGB is not installed")
    # `import ogb` asks the network for newer versions; its readers do without the package.
    spec = importlib.util.find_spec("ogb")
    path = Path(spec.submodule_search_locations[0]) / "io" / "read_graph_raw.py"
    names = {}
    text = path.read_text().replace("from ogb.utils.url import decide_download, download_url, extract_zip", "")
    exec(compile(text, str(path), "exec"), names)
    (graph,) = names[name](str(folder / "raw"))
    return graph


def test_one_type_as_ogb_reads_it(folder: Path):
    asepr.partition(folder, folder / "out", num_parts=3)
    graph, found = ogb_reader("read_csv_graph_raw", folder), read_whole(folder / "out")
    assert found["ends"][:, :2].T.tolist() == graph["edge_index"].tolist()
    assert found["features"].tolist() == graph["node_feat"].tolist()
    assert found["edge_features"].tolist() == graph["edge_feat"].tolist()
    assert found["label"].tolist()[-2:] == [-1, 2]
    for code, name in enumerate(SPLITS, start=1):
        text = gzip.decompress((folder / "split" / "time" / f"{name}.csv.gz").read_bytes()).decode()
        assert sorted(map(int, text.split())) == np.flatnonzero(found["split"] == code).tolist()
    assert asepr.verify(folder / "out") == []
    assert asepr.lookup(folder / "out", "59")[0]["nid"] == 59


def test_same_shards_from_the_raw_folder_and_chunk_size_is_of_no_matter(folder: Path):
    asepr.partition(folder, folder / "a", num_parts=2)
    asepr.partition(folder / "raw", folder / "b", num_parts=2, chunk_edges=7)
    files = [path.relative_to(folder / "a") for path in (folder / "a").rglob("*") if path.is_file()]
    assert all((folder / "a" / f).read_bytes() == (folder / "b" / f).read_bytes() for f in files if f.stem != "report")


def test_dry_run(folder: Path):
    config = PipelineConfig(num_parts=2, method="random")
    planned = plan(folder, config)
    assert (planned.num_nodes, planned.num_edges) == (60, GRAPH.num_edges)
    assert estimate_time(folder, config, planned).sample_edges == GRAPH.num_edges


@pytest.fixture
def typed(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A dataset of several types, as `ogbn-mag` is."""
    raw = tmp_path / "ogbn_typed" / "raw"
    write(raw / "triplet-type-list.csv.gz", ["paper,cites,paper", "author,writes,paper"])
    write(raw / "num-node-dict.csv.gz", ["author,paper", "5,20"])
    for triplet, shape in (("paper___cites___paper", (20, 20)), ("author___writes___paper", (5, 20))):
        ends = np.stack([rng.integers(0, size, 40) for size in shape], axis=1)
        write(raw / "relations" / triplet / "edge.csv.gz", ends)
        write(raw / "relations" / triplet / "num-edge-list.csv.gz", [40])
    write(raw / "node-feat" / "paper" / "node-feat.csv.gz", rng.standard_normal((20, 3)).astype(np.float32))
    write(raw / "node-label" / "paper" / "node-label.csv.gz", rng.integers(0, 4, 20))
    write(raw / "nodetype-has-label.csv.gz", ["author,paper", "False,True"])
    write(raw.parent / "split" / "time" / "nodetype-has-split.csv.gz", ["author,paper", "False,True"])
    for rows, name in zip(np.split(rng.permutation(20), [10, 15]), SPLITS, strict=True):
        write(raw.parent / "split" / "time" / "paper" / f"{name}.csv.gz", rows)
    return raw.parent


def test_several_types_as_ogb_reads_them(typed: Path):
    result = asepr.partition(typed, typed / "out", num_parts=2)
    graph, found = ogb_reader("read_csv_heterograph_raw", typed), read_whole(typed / "out")
    assert result.manifest.node_types == ["author", "paper"]
    assert result.manifest.edge_types == sorted(graph["edge_index_dict"])
    first = {"author": 0, "paper": 5}
    for code, (source, relation, target) in enumerate(result.manifest.edge_types):
        rows = found["ends"][found["ends"][:, 2] == code]
        expected = graph["edge_index_dict"][source, relation, target]
        assert rows[:, 0].tolist() == (expected[0] + first[source]).tolist()
        assert rows[:, 1].tolist() == (expected[1] + first[target]).tolist()
    for shard in open_all(typed / "out", Shard):
        papers = shard.nid[shard.ntype == 1] - 5
        assert shard.features_of("paper").tolist() == graph["node_feat_dict"]["paper"][papers].tolist()
        assert shard.features_of("author") is None
    assert (found["split"][:5] == 0).all()
    assert np.bincount(found["split"][5:]).tolist() == [0, 10, 5, 5]
    assert (found["label"][:5] == -1).all()
    assert asepr.verify(typed / "out") == []


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("raw/num-node-list.csv.gz", [30, 30], r"num-node-list.csv.gz: must hold one graph, .* got 30, 30; split"),
        ("raw/num-node-list.csv.gz", [59], "node-label.csv.gz: rows must be one a node, 59, got another number"),
        ("raw/edge.csv.gz", [[0, 60]], r"edge.csv.gz: row 0: dst must be in \[0, 60\), got 60"),
        ("raw/num-edge-list.csv.gz", [3], "raw: edges must have 3 rows, got 460 or more"),
        ("raw/num-edge-list.csv.gz", [999], "raw: edges must have 999 rows, got 460; write it again"),
        ("raw/edge.csv.gz", [[0, "x"]], "edge.csv.gz: row 0: 1 must be a whole number"),
        ("raw/edge.csv.gz", [[0, -1]], "edge.csv.gz: row 0: dst must not be negative, got -1"),
        ("raw/node-feat.csv.gz", [[0, 1]] * 59, "node-feat.csv.gz: rows must be 60, got 59"),
        ("raw/node-feat.csv.gz", [[0, "nan"]] * 60, "node-feat.csv.gz: row 0: features must be finite, got nan"),
        ("raw/edge-feat.csv.gz", [[0, 1]] * 500, "edge-feat.csv.gz: rows must be 460, got 500 or more"),
        ("raw/node-label.csv.gz", [[0, 1]] * 60, "labels must be one column, got 2; leave them out with --label ''"),
        ("raw/node-label.csv.gz", [1.5] * 60, "row 0: label must be a whole number from -1, got 1.5"),
        ("raw/node-label.csv.gz", [1] * 61, "node-label.csv.gz: rows must be one a node, 60, got another"),
        ("split/time/test.csv.gz", [60], r"test.csv.gz: row 0: a node must be in \[0, 60\), got 60"),
        ("split/other/train.csv.gz", [1], "split: must hold one split, got other, time; keep one"),
    ],
)
def test_mistakes_are_one_line_that_says_where(file: str, rows: list, message: str, folder: Path):
    write(folder / file, rows)
    with pytest.raises(AseprError, match=message):
        asepr.partition(folder, folder / "out", num_parts=2)
    assert not (folder / "out").exists()


def test_a_node_in_two_splits(folder: Path):
    train = gzip.decompress((folder / "split" / "time" / "train.csv.gz").read_bytes()).decode().split()
    write(folder / "split" / "time" / "test.csv.gz", train[:1])
    with pytest.raises(AseprError, match=r"test.csv.gz: row 0: a node must be in one split, got "):
        asepr.partition(folder, folder / "out", num_parts=2)


@pytest.mark.parametrize("name", ["edge", "num-edge-list", "node-feat", "node-label"])
def test_damaged_files(name: str, folder: Path, rng: np.random.Generator):
    path = folder / "raw" / f"{name}.csv.gz"
    data = path.read_bytes()
    for keep in rng.choice(len(data), 8, replace=False).tolist():
        path.write_bytes(data[:keep])
        with pytest.raises(AseprError, match=rf"{name}\.csv\.gz: "):
            asepr.partition(folder, folder / "out", num_parts=2)


def write_binary(folder: Path) -> Path:
    """Write the graph of a folder again, as `ogbn-papers100M` is laid out."""
    graph = ogb_reader("read_csv_graph_raw", folder)
    raw = folder.parent / "binary" / "raw"
    raw.mkdir(parents=True)
    arrays = {name: np.ascontiguousarray(graph[name]) for name in ("edge_index", "node_feat", "edge_feat")}
    counts = {"num_nodes_list": [60], "num_edges_list": [graph["edge_index"].shape[1]]}
    np.savez_compressed(raw / "data.npz", node_year=np.zeros((60, 1), np.int64), **arrays, **counts)
    label = gzip.decompress((folder / "raw" / "node-label.csv.gz").read_bytes()).decode().split()
    np.savez_compressed(raw / "node-label.npz", node_label=np.array(label, dtype=np.float32)[:, None])
    shutil.copytree(folder / "split", raw.parent / "split")
    return raw.parent


def test_arrays_give_the_shards_of_text(folder: Path, tmp_path: Path):
    binary = write_binary(folder)
    asepr.partition(folder, tmp_path / "text", num_parts=3)
    asepr.partition(binary, tmp_path / "arrays", num_parts=3)
    graph, found = ogb_reader("read_binary_graph_raw", binary), read_whole(tmp_path / "arrays")
    assert found["ends"][:, :2].T.tolist() == graph["edge_index"].tolist()
    assert found["features"].tolist() == graph["node_feat"].tolist()
    expected = read_whole(tmp_path / "text")
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("name", ["data.npz", "node-label.npz"])
def test_damaged_arrays(name: str, folder: Path, tmp_path: Path, rng: np.random.Generator):
    path = write_binary(folder) / "raw" / name
    data = path.read_bytes()
    for place in rng.choice(len(data), 12, replace=False).tolist():
        path.write_bytes(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
        try:
            asepr.partition(path.parent, tmp_path / f"out-{place}", num_parts=2)
        except AseprError:
            continue
        # A byte that no checksum covers, as a date in the archive.
        asepr.partition(folder, tmp_path / f"text-{place}", num_parts=2)
        found, expected = (read_whole(tmp_path / f"{kind}-{place}") for kind in ("out", "text"))
        for key, values in expected.items():
            np.testing.assert_array_equal(found[key], values, err_msg=key)


def test_names_of_types_stay_inside_the_folder(typed: Path):
    write(typed / "raw" / "triplet-type-list.csv.gz", ["paper,../../x,paper"])
    with pytest.raises(AseprError, match="names of types must be plain, got "):
        asepr.partition(typed, typed / "out", num_parts=2)
