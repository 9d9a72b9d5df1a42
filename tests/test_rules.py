"""Rules for edges, all the way into shards: what is stored, what is stated, and that nothing leaks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import asepr
from asepr.census import census_lines
from asepr.errors import AseprError, ShardError
from asepr.formats.arrow_io import map_columns, write_columns
from asepr.formats.edge_sources import ArrayEdgeSource
from asepr.formats.manifest import MANIFEST_NAME, file_entry
from asepr.formats.shard import Shard, open_all

LAYOUTS = ("vertex-cut", "edge-cut")
RNG = np.random.default_rng(5)
SRC, DST = RNG.integers(0, 60, (2, 500))
ETYPE = RNG.integers(0, 3, 500)


def edges_in_shards(folder: Path, *columns: str) -> dict[int, tuple[Any, ...]]:
    """Return ends and the columns named, by eid, of all edges of all shards."""
    found = {}
    for shard in open_all(folder, Shard):
        known = [shard.nid[shard.src], shard.nid[shard.dst], *(getattr(shard, name) for name in columns)]
        found |= dict(zip(shard.eid.tolist(), zip(*(c.tolist() for c in known), strict=True), strict=True))
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("typed", [False, True])
def test_held_out_edges_lie_with_the_owner_of_their_destination_and_nothing_else_joins_their_ends(
    tmp_path: Path, layout: Any, typed: bool
):
    source = ArrayEdgeSource(SRC, DST, 60, etype=ETYPE if typed else None)
    out = tmp_path / "o"
    result = asepr.partition(
        source, out, num_parts=3, layout=layout, add_reverse=True, edge_split=(0.8, 0.1, 0.1), seed=2
    )
    assert asepr.verify(out) == []
    joined = {tuple(sorted(ends)) for ends in edges_in_shards(out).values()}
    held = set()
    for shard in open_all(out, Shard):
        inner = set(shard.nid[: shard.num_inner].tolist())
        for split in ("valid", "test"):
            table = shard.held_out_edges(split)
            assert table.column_names[:5] == ["src", "dst", "eid", "src_row", "dst_row"]
            assert [table.schema.field(n).type for n in ("src", "dst", "eid")] == [pa.int64()] * 3
            assert ("etype" in table.column_names) == typed
            for row in table.to_pylist():
                assert row["dst"] in inner
                assert row["eid"] >= result.manifest.num_edges
                assert (row["src"], row["dst"]) == (SRC[row["input_row"]], DST[row["input_row"]])
                assert not typed or row["etype"] == ETYPE[row["input_row"]]
                assert shard.nid[row["dst_row"]] == row["dst"]
                assert row["src_row"] == -1 or shard.nid[row["src_row"]] == row["src"]
                assert tuple(sorted((row["src"], row["dst"]))) not in joined
                held.add(row["eid"])
    assert held == set(range(result.manifest.num_edges, result.manifest.num_edges + len(held)))
    assert len(held) == sum(result.manifest.held_out_sizes.values())
    degree = sum(int(shard.in_degree[: shard.num_inner].sum()) for shard in open_all(out, Shard))
    assert degree == result.manifest.num_edges, "degrees must not know of held-out edges"


def test_held_out_edges_of_a_dataset_without_any_are_refused(tmp_path: Path):
    asepr.partition(ArrayEdgeSource(SRC, DST, 60), tmp_path / "o", num_parts=2)
    shard = Shard(tmp_path / "o", 0)
    with pytest.raises(ShardError, match="must hold out edges, got none"):
        shard.held_out_edges("test")
    with pytest.raises(ShardError, match="split must be valid or test, got 'val'"):
        shard.held_out_edges("val")


@pytest.mark.parametrize(
    ("column", "change", "message"),
    [
        ("dst_row", lambda v: v * 0 - 1, "destinations must be inner nodes"),
        ("src_row", lambda v: v * 0 - 1, "src_row must be the row of src"),
        ("split", lambda v: v * 0 + 2, "valid edges held out must be"),
        ("eid", lambda v: v + 1, "eids of held-out edges must be"),
    ],
)
def test_verify_finds_held_out_edges_that_are_wrong(tmp_path: Path, column: str, change: Any, message: str):
    out = tmp_path / "o"
    asepr.partition(ArrayEdgeSource(SRC, DST, 60), out, num_parts=2, edge_split=(0.8, 0.1, 0.1))
    path = out / "part-00001" / "held_out.arrow"
    columns = {name: values.copy() for name, values in map_columns(path).items()}
    columns[column] = change(columns[column])
    rewrite(out, path, columns)
    assert any(message in fault for fault in asepr.verify(out))


def test_verify_finds_a_leak(tmp_path: Path):
    out = tmp_path / "o"
    asepr.partition(ArrayEdgeSource(SRC, DST, 60), out, num_parts=1, edge_split=(0.8, 0.1, 0.1))
    path = out / "part-00000" / "held_out.arrow"
    columns = {name: values.copy() for name, values in map_columns(path).items()}
    shard = Shard(out, 0)
    for name, row in (("src", shard.src[0]), ("dst", shard.dst[0])):
        columns[name][0] = shard.nid[row]
        columns[f"{name}_row"][0] = row
    rewrite(out, path, columns)
    assert any("edges between nodes whose edges are held out must be 0" in fault for fault in asepr.verify(out))


def split_files(tmp_path: Path) -> tuple[Path, Path, list[str]]:
    """Write edges with a column `which`, and an npz of the same rows; return both and the column."""
    which = np.random.default_rng(1).choice(["train", "val", "test"], len(SRC), p=[0.8, 0.1, 0.1]).tolist()
    pq.write_table(pa.table({"src": SRC, "dst": DST, "which": which}), tmp_path / "edges.parquet")
    rows = {name: np.flatnonzero(np.array(which) == name) for name in ("train", "val", "test")}
    np.savez(tmp_path / "rows.npz", **rows)
    return tmp_path / "edges.parquet", tmp_path / "rows.npz", which


def held_rows(folder: Path, split: str) -> list[int]:
    rows = [shard.held_out_edges(split).column("input_row").to_pylist() for shard in open_all(folder, Shard)]
    return sorted(row for part in rows for row in part)


@pytest.mark.parametrize("ids", ["dense", "map"])
def test_a_split_of_the_data_is_taken_as_it_is(tmp_path: Path, ids: Any):
    edges, rows, which = split_files(tmp_path)
    asepr.partition(edges, tmp_path / "column", num_parts=3, edge_split="which", ids=ids, add_reverse=True)
    result = asepr.partition(edges, tmp_path / "rows", num_parts=3, edge_split=str(rows), ids=ids, add_reverse=True)
    assert bytes_of(tmp_path / "column") == bytes_of(tmp_path / "rows")
    assert asepr.verify(tmp_path / "rows") == []
    assert held_rows(tmp_path / "rows", "valid") == [row for row, name in enumerate(which) if name == "val"]
    assert held_rows(tmp_path / "rows", "test") == [row for row, name in enumerate(which) if name == "test"]
    pairs = [tuple(sorted(ends)) for ends in zip(SRC.tolist(), DST.tolist(), strict=True)]
    held = {pair for pair, name in zip(pairs, which, strict=True) if name != "train"}
    kept = [pair for pair, name in zip(pairs, which, strict=True) if name == "train"]
    assert result.manifest.leaking_edges == sum((2 - (u == v)) * ((u, v) in held) for u, v in kept)


def test_merging_keeps_what_the_data_hold_out_apart(tmp_path: Path):
    table = {"src": [0, 0, 0, 1], "dst": [1, 1, 1, 2], "split": ["train", "val", "train", "test"]}
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    asepr.partition(tmp_path / "e.parquet", tmp_path / "o", num_parts=2, edge_split="split", duplicates="merge")
    assert sorted(edges_in_shards(tmp_path / "o").values()) == [(0, 1)]
    assert (held_rows(tmp_path / "o", "valid"), held_rows(tmp_path / "o", "test")) == ([1], [3])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"test": [0]}, "must have an array 'val'"),
        ({"val": [0], "test": [500]}, r"rows must be in \[0, 500\), got 500"),
        ({"val": [0, 1], "test": [1]}, "once in all arrays"),
        ({"val": [3, 3], "test": [1]}, "once in all arrays"),
        ({"train": [5], "val": [0], "test": [1]}, "every row of 500 must be in an array, got none with row 2"),
        ({"val": [0.5], "test": [1]}, "must be a flat array of whole numbers"),
    ],
)
def test_a_bad_file_of_held_out_rows_is_refused(tmp_path: Path, arrays: dict[str, list[float]], message: str):
    np.savez(tmp_path / "rows.npz", **{name: np.array(rows) for name, rows in arrays.items()})
    with pytest.raises(AseprError, match=message):
        asepr.partition(
            ArrayEdgeSource(SRC, DST, 60), tmp_path / "o", num_parts=2, edge_split=str(tmp_path / "rows.npz")
        )
    (tmp_path / "rows.npz").write_bytes(b"no zip")
    with pytest.raises(AseprError, match="must be an npz of arrays"):
        asepr.partition(
            ArrayEdgeSource(SRC, DST, 60), tmp_path / "o", num_parts=2, edge_split=str(tmp_path / "rows.npz")
        )
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


def test_a_split_column_must_be_there_and_full(tmp_path: Path):
    pq.write_table(pa.table({"src": [0, 1], "dst": [1, 0], "split": ["val", None]}), tmp_path / "e.parquet")
    with pytest.raises(AseprError, match="row 1: split must be train, val or test, got none"):
        asepr.partition(tmp_path / "e.parquet", tmp_path / "o", num_parts=1, edge_split="split")
    with pytest.raises(AseprError, match="must have the column 'which'"):
        asepr.partition(tmp_path / "e.parquet", tmp_path / "o", num_parts=1, edge_split="which")
    with pytest.raises(AseprError, match="must be shares or an npz file where edges have no named columns"):
        asepr.partition(ArrayEdgeSource(SRC, DST, 60), tmp_path / "o", num_parts=1, edge_split="which")


def test_a_description_names_the_column_of_held_out_edges(tmp_path: Path):
    path = described(tmp_path, "")
    (tmp_path / "b.csv").write_text("src,dst,which\na,x,train\nc,x,test\nc,y,val\nc,y,train\n")
    path.write_text(path.read_text().replace("files: [b.csv]", "files: [b.csv], split: which"))
    result = asepr.partition(path, tmp_path / "o", num_parts=2)
    assert named_edges(tmp_path / "o") == [*FOLLOWS, BUYS[0], BUYS[3]]
    assert result.manifest.leaking_edges == 1, "c buys y twice"
    assert asepr.verify(tmp_path / "o") == []
    path.write_text(path.read_text() + "edge_split: [0.8, 0.1, 0.1]")
    with pytest.raises(AseprError, match="edges must have no split where one is drawn"):
        asepr.partition(path, tmp_path / "p", num_parts=2)
    asepr.partition(path, tmp_path / "p", num_parts=2, edge_split=(0.4, 0.3, 0.3), replace_split=True)
    assert Shard(tmp_path / "p", 0).manifest.leaking_edges == 0


def rewrite(out: Path, path: Path, columns: dict[str, Any]) -> None:
    """Write a file of a part again, and its checksum into the manifest."""
    write_columns(path, columns)
    manifest = json.loads((out / MANIFEST_NAME).read_text())
    rank = int(path.parent.name[-5:])
    manifest["parts"][rank]["files"][path.name] = file_entry(path).model_dump()
    (out / MANIFEST_NAME).write_text(json.dumps(manifest))


def test_bad_fractions_leave_nothing_behind(tmp_path: Path):
    with pytest.raises(AseprError, match="edge_split must be three fractions"):
        asepr.partition(ArrayEdgeSource(SRC, DST, 60), tmp_path / "o", num_parts=2, edge_split=(0.5, 0.6, 0.1))
    assert list(tmp_path.iterdir()) == []


def test_what_went_in_and_what_came_out_is_stated(tmp_path: Path):
    label = np.arange(60) % 4
    pq.write_table(pa.table({"id": np.arange(60), "label": label, "ntype": np.arange(60) % 2}), tmp_path / "n.parquet")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((60, 7), np.float32))
    np.save(tmp_path / "e.npy", np.arange(500, dtype=np.float32)[:, None])
    result = asepr.partition(
        ArrayEdgeSource(SRC, DST, 60, etype=ETYPE),
        tmp_path / "o",
        num_parts=3,
        nodes=tmp_path / "n.parquet",
        features=tmp_path / "x.npy",
        edge_features=tmp_path / "e.npy",
        reduce_features=3,
        add_reverse=True,
        self_loops="add",
        split=(0.5, 0.25, 0.25),
    )
    loops = np.unique(SRC[SRC == DST])
    reverses = int(np.count_nonzero(SRC != DST))
    assert result.counts == {
        "nodes": {"in": 60, "out": 60},
        "edges": {
            "in": 500,
            "reverses_added": reverses,
            "self_loops_added": 60 - len(loops),
            "out": 560 + reverses - len(loops),
        },
        "node_types": {"in": 2, "out": 2},
        "edge_types": {"in": 7, "out": 7},
        "feature_columns": {"in": 7, "out": 3},
        "edge_feature_columns": {"in": 1, "out": 1},
    }
    assert result.node_types is not None
    assert {name: sum(by_part) for name, by_part in result.node_types.items()} == {"0": 30, "1": 30}
    assert result.edge_types is not None
    forward = np.bincount(ETYPE, minlength=3)
    back = np.bincount(ETYPE[SRC != DST], minlength=3)
    assert [sum(by_part) for by_part in result.edge_types.values()] == [*forward, *back, 60 - len(loops)]
    assert result.manifest.split_sizes == {"train": 30, "val": 15, "test": 15}
    lines = [line.split(" in shards")[0] for line in census_lines(result.counts)]
    assert lines[1].startswith(f"edges: 500 in + {reverses:,} reverses added + ")
    assert lines[4] == "feature columns: 7 in -> 3"
    for shard in open_all(tmp_path / "o", Shard):
        assert shard.edge_features is not None
        row = shard.input_row
        assert shard.edge_features[:, 0].tolist() == np.where(row >= 0, row, 0).tolist()
    assert asepr.verify(tmp_path / "o") == []


def test_a_split_that_nodes_have_is_replaced_only_where_asked(tmp_path: Path):
    table = pa.table({"id": np.arange(60), "split": ["train"] * 60})
    pq.write_table(table, tmp_path / "n.parquet")
    source = ArrayEdgeSource(SRC, DST, 60)
    options: dict[str, Any] = {"num_parts": 2, "nodes": tmp_path / "n.parquet", "split": (0.5, 0.25, 0.25)}
    with pytest.raises(AseprError, match="split: nodes must have none where one is drawn, got one of 60 nodes"):
        asepr.partition(source, tmp_path / "o", **options)
    result = asepr.partition(source, tmp_path / "o", replace_split=True, **options)
    assert result.manifest.split_sizes == {"train": 30, "val": 15, "test": 15}


DESCRIBED = """
nodes:
  - {type: user}
  - {type: item}
edges:
  - {type: 'user:follows:user', files: [f.csv]}
  - {type: 'user:buys:item', files: [b.csv]}
"""


def described(tmp_path: Path, more: str) -> Path:
    (tmp_path / "f.csv").write_text("src,dst\na,b\nb,a\na,a\nb,c\nb,c\n")
    (tmp_path / "b.csv").write_text("src,dst\na,x\nc,x\nc,y\nc,y\n")
    (tmp_path / "graph.yaml").write_text(DESCRIBED + more)
    return tmp_path / "graph.yaml"


def named_edges(folder: Path) -> list[tuple[str, str, str]]:
    """Return source, relation and target of all edges by their names in the input, in order of their eids."""
    nodes = {row["nid"]: row["id"] for name in "abcxy" for row in asepr.lookup(folder, name)}
    relations = [name[1] for name in Shard(folder, 0).manifest.edge_types]
    found = edges_in_shards(folder, "etype")
    return [(nodes[u], relations[t], nodes[v]) for _, (u, v, t) in sorted(found.items())]


FOLLOWS = [("a", "follows", "b"), ("b", "follows", "a"), ("a", "follows", "a"), *[("b", "follows", "c")] * 2]
BUYS = [("a", "buys", "x"), ("c", "buys", "x"), *[("c", "buys", "y")] * 2]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", FOLLOWS + BUYS),
        (
            "add_reverse: true",
            FOLLOWS
            + BUYS
            + [("b", "rev_follows", "a"), ("a", "rev_follows", "b"), *[("c", "rev_follows", "b")] * 2]
            + [("x", "rev_buys", "a"), ("x", "rev_buys", "c"), *[("y", "rev_buys", "c")] * 2],
        ),
        (
            "undirected: true\nduplicates: merge\nself_loops: drop",
            [
                FOLLOWS[0],
                FOLLOWS[1],
                FOLLOWS[3],
                *BUYS[:3],
                ("c", "follows", "b"),
                ("x", "rev_buys", "a"),
                ("x", "rev_buys", "c"),
                ("y", "rev_buys", "c"),
            ],
        ),
        ("self_loops: add", FOLLOWS + BUYS + [(name, "self", name) for name in "bcxy"]),
    ],
)
def test_a_description_says_what_its_edges_stand_for(tmp_path: Path, more: str, expected: list[tuple[str, str, str]]):
    asepr.partition(described(tmp_path, more), tmp_path / "o", num_parts=2)
    assert named_edges(tmp_path / "o") == expected
    assert asepr.verify(tmp_path / "o") == []


def test_options_go_before_the_description(tmp_path: Path):
    path = described(tmp_path, "add_reverse: true\nduplicates: merge")
    asepr.partition(path, tmp_path / "o", num_parts=2, add_reverse=False, self_loops="drop")
    assert named_edges(tmp_path / "o") == [FOLLOWS[0], FOLLOWS[1], FOLLOWS[3], *BUYS[:3]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("self_loops: remove", "line 8: self_loops: .* got 'remove'"),
        ("edge_split: [0.5, 0.5]", "line 8: edge_split"),
        ("edge_split: [0.5, 0.5, 0.5]", "edge_split must be three fractions"),
        ("split: [0.5, 0.5, 0.5]", "split must be three fractions"),
        ("undirected: true\nadd_reverse: true", "add_reverse must not come with undirected"),
    ],
)
def test_a_description_with_rules_that_make_no_sense_is_refused(tmp_path: Path, more: str, message: str):
    with pytest.raises(AseprError, match=message):
        asepr.partition(described(tmp_path, more), tmp_path / "o", num_parts=2)
    assert not (tmp_path / "o").exists()


def test_a_relation_of_the_name_of_reverses_is_refused(tmp_path: Path):
    path = described(tmp_path, "add_reverse: true")
    path.write_text(path.read_text().replace("user:buys:item", "user:rev_follows:user"))
    with pytest.raises(AseprError, match="user:rev_follows:user must not be an edge type already"):
        asepr.partition(path, tmp_path / "o", num_parts=2)


@pytest.mark.parametrize("chunk_edges", [1, 7, 1000])
def test_the_same_bytes_for_any_chunks(tmp_path: Path, chunk_edges: int):
    weight = np.random.default_rng(0).random(500)
    for name, size in (("a", chunk_edges), ("b", 64)):
        asepr.partition(
            ArrayEdgeSource(SRC, DST, 60, weight=weight, chunk_edges=size),
            tmp_path / name,
            num_parts=3,
            undirected=True,
            duplicates="merge",
            self_loops="add",
            edge_split=(0.8, 0.1, 0.1),
            split=(0.8, 0.1, 0.1),
            chunk_edges=size,
            memory_bytes=200_000_000 + size,
        )
    ours, theirs = bytes_of(tmp_path / "a"), bytes_of(tmp_path / "b")
    ours.pop("manifest.json"), theirs.pop("manifest.json")
    assert ours == theirs


def bytes_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != "report.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("self_loops", ["keep", "drop"])
def test_an_undirected_merged_graph_equals_scipy(tmp_path: Path, self_loops: Any):
    weight = np.random.default_rng(1).integers(1, 9, 500)
    source = ArrayEdgeSource(SRC, DST, 60, weight=weight)
    out = tmp_path / "o"
    asepr.partition(source, out, num_parts=2, undirected=True, duplicates="merge", self_loops=self_loops)
    given = sparse.coo_array((weight, (SRC, DST)), shape=(60, 60)).tocsr()
    loops = sparse.diags_array(given.diagonal(), dtype=np.int64)
    expected = (given + given.T - loops - (loops if self_loops == "drop" else 0 * loops)).tocoo()
    got = {(u, v): w for u, v, w in edges_in_shards(out, "weight").values()}
    assert got == {
        (u, v): w
        for u, v, w in zip(expected.row.tolist(), expected.col.tolist(), expected.data.tolist(), strict=True)
        if w
    }
