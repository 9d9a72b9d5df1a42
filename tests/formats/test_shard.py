"""The shard files: what is written is what is mapped, and damage is noticed."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from asepr import pipeline
from asepr.errors import ShardError
from asepr.formats.arrow_io import map_columns, write_columns
from asepr.formats.manifest import MANIFEST_NAME, Manifest, file_entry, read_manifest, write_manifest
from asepr.formats.shard import Shard, open_all
from tests.graphs import NAMED_GRAPHS


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    graph = NAMED_GRAPHS["skewed"]
    np.save(tmp_path / "f.npy", np.random.default_rng(0).standard_normal((graph.num_nodes, 3)).astype(np.float32))
    pipeline.partition(graph.source(), tmp_path / "out", num_parts=3, features=tmp_path / "f.npy")
    return tmp_path / "out"


def test_columns_come_back_as_they_were(tmp_path: Path, rng: np.random.Generator):
    columns = {
        "ids": np.arange(7),
        "parts": np.arange(7, dtype=np.int16),
        "rows": rng.standard_normal((7, 5)).astype(np.float32),
        "bytes": np.arange(7, dtype=np.uint8),
    }
    write_columns(tmp_path / "a.arrow", columns)
    found = map_columns(tmp_path / "a.arrow")
    for name, array in columns.items():
        assert np.array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_no_rows(tmp_path: Path):
    write_columns(tmp_path / "a.arrow", {"ids": np.empty(0, np.int64), "rows": np.empty((0, 4), np.float32)})
    found = map_columns(tmp_path / "a.arrow")
    assert found["ids"].shape == (0,)
    assert found["rows"].shape == (0, 4)


def test_any_arrow_reader_opens_the_files(dataset: Path):
    for shard in open_all(dataset, Shard):
        for name in shard.entry.files:
            with pa.OSFile(str(shard.path / name)) as file:
                table = pa.ipc.open_file(file).read_all()
            assert table.num_columns > 0
            assert all(column.null_count == 0 for column in table.columns)
        assert table.schema.names


def test_writing_into_a_mapped_array_leaves_the_file_alone(dataset: Path):
    before = file_entry(dataset / "part-00000" / "features.arrow")
    features = Shard(dataset, 0).features
    assert features is not None
    features[:] = 0
    assert file_entry(dataset / "part-00000" / "features.arrow") == before


def test_a_shard_needs_its_own_folder_and_the_manifest_alone(dataset: Path, tmp_path: Path):
    alone = tmp_path / "machine"
    alone.mkdir()
    (dataset / MANIFEST_NAME).rename(alone / MANIFEST_NAME)
    (dataset / "part-00001").rename(alone / "part-00001")
    shard = Shard(alone, 1)
    assert len(shard.nid) == shard.num_local
    assert shard.features is not None
    assert shard.plan.num_parts == 3


def damage(dataset: Path, name: str, column: str, change) -> None:
    """Rewrite one column of a file, and the manifest so that checksums agree."""
    path = dataset / "part-00001" / name
    columns = {key: values.copy() for key, values in map_columns(path).items()}
    columns[column] = change(columns[column])
    write_columns(path, columns)
    manifest = json.loads((dataset / MANIFEST_NAME).read_text())
    manifest["parts"][1]["files"][name] = file_entry(path).model_dump()
    write_manifest(dataset, Manifest.model_validate(manifest))


def bump(row: int, by: float = 1):
    def change(values: np.ndarray) -> np.ndarray:
        values[row] += by
        return values

    return change


def swap(first: int, second: int):
    def change(values: np.ndarray) -> np.ndarray:
        values[[first, second]] = values[[second, first]]
        return values

    return change


FAULTS = {
    "inner order": ("nodes.arrow", "nid", swap(0, 1), "inner nodes must be in ascending nid"),
    "halo order": ("nodes.arrow", "nid", swap(-1, -2), "halo nodes must be grouped by owner"),
    "owner": ("nodes.arrow", "owner", bump(0), "inner nodes must be owned here"),
    "degree": ("nodes.arrow", "in_degree", bump(0), "in_degree of node"),
    "edge end": ("edges.arrow", "src", lambda a: a + 10_000, "edges must join local rows"),
    "edge moved": ("edges.arrow", "src", np.zeros_like, "out_degree of node"),
    "edge twice": ("edges.arrow", "eid", lambda a: np.concatenate([a[:1], a[:-1]]), "eids must ascend"),
    "edge elsewhere too": ("edges.arrow", "eid", lambda a: np.arange(len(a)), "must be in one part, is in"),
    "send list": ("send.arrow", "row", lambda a: a[::-1].copy(), "the rows sent must be the halo rows expected"),
    "send out of range": ("send.arrow", "row", lambda a: a + 10_000, "send lists must name inner rows"),
    "receive": ("peers.arrow", "recv_offset", bump(1), "receive slices must cover the halo rows"),
    "copied feature": ("features.arrow", "feat", bump(-1), "features of copies must equal that of their originals"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_verify_finds_every_broken_invariant(case: str, dataset: Path):
    assert pipeline.verify(dataset) == []
    name, column, change, message = FAULTS[case]
    damage(dataset, name, column, change)
    faults = pipeline.verify(dataset)
    assert any(message in fault for fault in faults), faults


def test_verify_finds_damaged_files(dataset: Path):
    part = dataset / "part-00002"
    data = (part / "edges.arrow").read_bytes()
    (part / "edges.arrow").write_bytes(data[:-30] + bytes([data[-30] ^ 1]) + data[-29:])
    (part / "nodes.arrow").write_bytes((part / "nodes.arrow").read_bytes()[:-10])
    (part / "send.arrow").unlink()
    faults = "\n".join(pipeline.verify(dataset))
    assert "edges.arrow: must have SHA-256" in faults
    assert "nodes.arrow: must have" in faults
    assert "send.arrow: must be there, got nothing" in faults


def test_verify_finds_a_manifest_that_states_another_quality(dataset: Path):
    manifest = json.loads((dataset / MANIFEST_NAME).read_text())
    manifest["quality"]["replication_factor"] += 0.5
    (dataset / MANIFEST_NAME).write_text(json.dumps(manifest))
    assert "replication_factor must be" in pipeline.verify(dataset)[0]


def test_truncated_shard_is_one_clear_error(dataset: Path):
    path = dataset / "part-00000" / "nodes.arrow"
    data = path.read_bytes()
    for keep in (0, 7, len(data) // 2, len(data) - 3):
        path.write_bytes(data[:keep])
        with pytest.raises(ShardError, match=r"nodes\.arrow: must be a whole Arrow file, got: "):
            _ = Shard(dataset, 0).nid


def test_file_of_another_dataset(dataset: Path):
    other = dataset / "part-00001" / "edges.arrow"
    (dataset / "part-00000" / "edges.arrow").write_bytes(other.read_bytes())
    with pytest.raises(ShardError, match=r"column 'src' must have \d+ rows, got \d+; the file belongs to another"):
        _ = Shard(dataset, 0).src


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=2), "version: Input should be 1, got '2'"),
        (lambda m: m.update(format="other"), "format: "),
        (lambda m: m["parts"][0].update(folder="../../etc"), r"parts\.0\.folder: "),
        (lambda m: m["parts"][0].update(folder="part-00001"), r"parts\[0\]\.folder must be part-00000"),
        (lambda m: m["parts"][0]["files"].update({"../x": m["parts"][0]["files"]["nodes.arrow"]}), r"got '\.\./x'"),
        (lambda m: m["parts"].pop(), "parts must have 3 entries, got 2"),
        (lambda m: m.pop("layout"), "layout: Field required"),
        (lambda m: m.update(extra=1), "extra: Extra inputs are not permitted"),
        (lambda m: m["parts"][0]["files"]["nodes.arrow"].update(sha256="zz"), "sha256: "),
    ],
)
def test_manifest_that_is_not_what_it_must_be(change, message: str, dataset: Path):
    manifest = json.loads((dataset / MANIFEST_NAME).read_text())
    change(manifest)
    (dataset / MANIFEST_NAME).write_text(json.dumps(manifest))
    with pytest.raises(ShardError, match=message) as caught:
        read_manifest(dataset)
    assert "\n" not in str(caught.value)


def test_no_manifest_no_dataset(tmp_path: Path):
    with pytest.raises(ShardError, match=r"manifest.json: must be the manifest of a finished dataset, got: No such"):
        Shard(tmp_path, 0)


def test_rank_out_of_range(dataset: Path):
    with pytest.raises(ShardError, match=r"rank must be in \[0, 3\), got 3"):
        Shard(dataset, 3)
