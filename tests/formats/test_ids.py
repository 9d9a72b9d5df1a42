"""Ids of any kind: kept apart, mapped the same way every time, and given back."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asepr
from asepr.errors import AseprError
from asepr.formats.shard import Shard, open_all


def write(folder: Path, src: list, dst: list, kind: pa.DataType | None = None, name: str = "edges") -> Path:
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({"src": pa.array(src, kind), "dst": pa.array(dst, kind)}), path)
    return path


def edges_by_original_id(out: Path) -> list[tuple]:
    """Read every edge from the shards, in input order, under the ids of the input."""
    ids = asepr.original_ids(out)["id"].to_pylist()
    found = {}
    for shard in open_all(out, Shard):
        nid = shard.nid.tolist()
        for eid, u, v in zip(shard.eid.tolist(), shard.src.tolist(), shard.dst.tolist(), strict=True):
            found[eid] = (ids[nid[u]], ids[nid[v]])
    return [found[eid] for eid in range(len(found))]


LARGE = [5000000000, 705032704, 2**53, 2**53 + 1, 2**63 - 1, 2**63 - 2, 7]


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.string(), pa.large_string()])
def test_ids_beyond_32_and_53_bits_stay_apart(kind: pa.DataType, tmp_path: Path):
    ids = [*LARGE, 2**64 - 1] if kind == pa.uint64() else LARGE
    ids = list(map(str, ids)) if pa.types.is_string(kind) or pa.types.is_large_string(kind) else ids
    edges = write(tmp_path, ids, ids[1:] + ids[:1], kind)
    result = asepr.partition(edges, tmp_path / "out", num_parts=2)
    assert result.ids.mode == "map"
    assert result.manifest.num_nodes == len(ids)
    assert edges_by_original_id(tmp_path / "out") == list(zip(ids, ids[1:] + ids[:1], strict=True))
    assert asepr.verify(tmp_path / "out") == []


@settings(max_examples=12)
@given(pairs=st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), min_size=1, max_size=30))
def test_any_strings_come_back_in_order_of_first_appearance(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
):
    folder = tmp_path_factory.mktemp("ids")
    edges = write(folder, [a for a, _ in pairs], [b for _, b in pairs], pa.string())
    asepr.partition(edges, folder / "out", num_parts=1, method="random")
    assert asepr.original_ids(folder / "out")["id"].to_pylist() == list(
        dict.fromkeys(x for pair in pairs for x in pair)
    )
    assert edges_by_original_id(folder / "out") == pairs


@pytest.mark.parametrize(
    ("src", "dst", "mode", "reason"),
    [
        ([0, 1, 2], [1, 2, 0], "dense", "3 of the 3 ids up to the largest"),
        ([0, 1], [1, 3], "dense", "3 of the 4 ids"),
        ([0, 1], [1, 4], "dense", "3 of the 5 ids"),
        ([0, 1], [1, 6], "map", "3 of the 7 ids"),
        ([0, 1], [1, 10**12], "map", "less than half of the ids"),
        (["a"], ["b"], "map", "column 'src' of edges.parquet holds string"),
    ],
)
def test_auto_looks_and_says_why(src: list, dst: list, mode: str, reason: str, tmp_path: Path):
    result = asepr.partition(write(tmp_path, src, dst), tmp_path / "out", num_parts=1, method="random")
    assert result.ids.mode == mode
    assert reason in result.ids.reason
    assert result.to_dict()["ids"] == mode
    assert reason in result.to_dict()["ids_reason"]
    assert result.manifest.config["ids_reason"] == result.ids.reason
    assert bool(result.manifest.id_maps) == (mode == "map")


def write_nodes(folder: Path, ids: list, **columns: list) -> Path:
    pq.write_table(pa.table({"id": ids, **columns}), folder / "nodes.parquet")
    return folder / "nodes.parquet"


def test_node_file_decides_the_order_and_carries_columns(tmp_path: Path):
    edges = write(tmp_path, ["b", "c"], ["a", "b"])
    nodes = write_nodes(
        tmp_path,
        ["a", "b", "c", "lonely"],
        label=[1, None, 0, 2],
        split=["train", "", "val", "test"],
        feat=[1.0, 2, 3, 4],
    )
    result = asepr.partition(edges, tmp_path / "out", nodes=nodes, num_parts=2)
    assert result.manifest.num_nodes == 4
    assert asepr.original_ids(tmp_path / "out")["id"].to_pylist() == ["a", "b", "c", "lonely"]
    for shard in open_all(tmp_path / "out", Shard):
        assert shard.label.tolist() == np.array([1, -1, 0, 2])[shard.nid].tolist()
        assert shard.split.tolist() == np.array([1, 0, 2, 3])[shard.nid].tolist()
        assert shard.features.tolist() == (shard.nid[:, None] + 1.0).tolist()
        assert (
            shard.original_ids().to_pylist()
            == np.array(["a", "b", "c", "lonely"])[shard.nid[: shard.num_inner]].tolist()
        )


def test_dense_and_mapped_node_files_are_told_apart(tmp_path: Path):
    edges = write(tmp_path, [10, 20], [20, 30])
    result = asepr.partition(edges, tmp_path / "a", nodes=write_nodes(tmp_path, [30, 20, 10]), num_parts=1)
    assert (result.ids.mode, result.ids.reason) == ("map", "the ids of the node file are not 0 .. N-1")
    edges = write(tmp_path, [1, 2], [2, 0])
    result = asepr.partition(edges, tmp_path / "b", nodes=write_nodes(tmp_path, [2, 0, 1]), num_parts=1)
    assert (result.ids.mode, result.ids.reason) == ("dense", "the ids of the node file are 0 .. N-1")


@pytest.mark.parametrize(
    ("src", "nodes", "options", "message"),
    [
        ([0, -1], None, {}, "row 1: src must not be negative, got -1; drop the row, or say --ids map"),
        (["a", None], None, {}, "row 1: src must have a value, got null; fill it or drop"),
        ([0.5, 1.0], None, {}, "column 'src' must be integers or strings to be ids, got double"),
        (["a", "x"], ["a", "b"], {}, "row 1: src must be an id of the node file, got 'x'; add the node"),
        (["a", "b"], ["b", "a", "b"], {}, "row 2: id must occur once, got 'b' again; drop one"),
        ([0, 1], None, {"ids": "some"}, "ids must be one of auto, dense, map, got 'some'"),
        (["a", "b"], None, {"ids": "dense"}, "column 'src' must be integers, got string"),
    ],
)
def test_bad_ids_are_one_clear_error(src: list, nodes: list | None, options: dict, message: str, tmp_path: Path):
    edges = write(tmp_path, src, src[:1] * 2)
    file = None if nodes is None else write_nodes(tmp_path, nodes)
    with pytest.raises(AseprError) as caught:
        asepr.partition(edges, tmp_path / "out", nodes=file, num_parts=1, **options)
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_number_of_nodes_does_not_go_with_mapped_ids(tmp_path: Path):
    with pytest.raises(AseprError, match="--num-nodes must not come with ids that are mapped"):
        asepr.partition(write(tmp_path, ["a"], ["b"]), tmp_path / "out", num_parts=1, num_nodes=3)


def test_negative_ids_are_ids_where_asked_for(tmp_path: Path):
    asepr.partition(write(tmp_path, [-1, 5], [5, -7]), tmp_path / "out", num_parts=1, ids="map")
    assert edges_by_original_id(tmp_path / "out") == [(-1, 5), (5, -7)]


def test_lookup_and_rows_given_back(tmp_path: Path, rng: np.random.Generator):
    names = [f"n{i}" for i in range(40)]
    ends = rng.integers(0, 40, (2, 200))
    edges = write(tmp_path, [names[i] for i in ends[0]], [names[i] for i in ends[1]])
    out = tmp_path / "out"
    asepr.partition(edges, out, num_parts=3)
    shards = asepr.open_shards(out)
    order = asepr.original_ids(out)["id"].to_pylist()
    for name in ("n0", "n17"):
        (found,) = asepr.lookup(out, name)
        assert order[found["nid"]] == name
        assert found["parts"] == [s.rank for s in shards if found["nid"] in s.nid]
        assert found["owner"] in found["parts"]
        assert found["nid"] in shards[found["owner"]].nid[: shards[found["owner"]].num_inner]
    with pytest.raises(AseprError, match="--id must be the id of a node, got 'absent'"):
        asepr.lookup(out, "absent")
    numbers = {name: float(name[1:]) for name in order}
    per_shard = [np.array([[numbers[n], 1] for n in s.original_ids().to_pylist()]) for s in shards]
    table = asepr.original_ids(out, per_shard)
    assert {row["id"]: row["value"][0] for row in table.to_pylist()} == numbers
    assert asepr.original_ids(shards[1], per_shard[1])["value"].to_pylist() == per_shard[1].tolist()
    with pytest.raises(AseprError, match="rows must be one a node, 40, got 3"):
        asepr.original_ids(out, np.zeros(3))


def test_same_bytes_and_damage_is_noticed(tmp_path: Path):
    edges = write(tmp_path, list("abcdef"), list("bcdefa"))
    for name in ("x", "y"):
        asepr.partition(edges, tmp_path / name, num_parts=2)
    found = (p.relative_to(tmp_path / "x") for p in (tmp_path / "x").rglob("*") if p.is_file())
    files = sorted(path for path in found if path.name != "report.json")
    assert all((tmp_path / "x" / f).read_bytes() == (tmp_path / "y" / f).read_bytes() for f in files)
    assert Path("ids/00000.parquet") in files
    assert Path("part-00001/ids-00000.parquet") in files
    (tmp_path / "y" / "ids" / "00000.parquet").write_bytes(b"PAR1")
    assert "ids/00000.parquet: must have" in asepr.verify(tmp_path / "y")[0]
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())
    manifest["id_maps"][0]["name"] = "../../x.parquet"
    (tmp_path / "x" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(AseprError, match=r"id_maps\.0\.name"):
        asepr.original_ids(tmp_path / "x")


def test_features_without_ids_do_not_go_with_mapped_ids(tmp_path: Path):
    np.save(tmp_path / "f.npy", np.zeros((3, 2)))
    edges = write(tmp_path, ["a", "b"], ["b", "c"])
    with pytest.raises(AseprError, match="--features: rows must belong to rows of a node file"):
        asepr.partition(edges, tmp_path / "out", features=tmp_path / "f.npy", num_parts=1)
