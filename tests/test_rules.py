"""Rules for edges, all the way into shards: what is stored, what is stated, and that nothing leaks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import asepr
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
    assert any("no edge must join nodes whose edges are held out" in fault for fault in asepr.verify(out))


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
