from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from asepr.contracts import NodeTable
from asepr.errors import TableError
from asepr.formats.node_sources import NodeColumns, open_node_table
from asepr.stream.scratch import ScratchDir


def open_table(
    scratch: ScratchDir, nodes: Path | None = None, features: Path | None = None, num_nodes: int | None = None
) -> NodeTable | None:
    return open_node_table(nodes, features, NodeColumns(), num_nodes, scratch)


def test_rows_in_any_order_come_back_by_id(tmp_path: Path, scratch: ScratchDir, rng: np.random.Generator):
    nid = rng.permutation(50)
    feat = rng.standard_normal((50, 3)).astype(np.float32)
    label = [None if i % 7 == 0 else i % 4 for i in nid.tolist()]
    split = [("train", "val", "test", "", None)[i % 5] for i in nid.tolist()]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(feat[nid].reshape(-1)), 3)
    columns = {"id": nid, "label": label, "split": split, "ntype": nid % 2, "feat": lists, "feat_x": nid * 1.0}
    pq.write_table(pa.table(columns), tmp_path / "n.parquet")
    table = open_table(scratch, tmp_path / "n.parquet")
    assert table is not None
    ids = np.arange(50)
    assert table.label is not None
    assert table.split is not None
    assert table.ntype is not None
    assert table.features is not None
    assert table.label.tolist() == np.where(ids % 7 == 0, -1, ids % 4).tolist()
    assert table.split.tolist() == np.array([1, 2, 3, 0, 0])[ids % 5].tolist()
    assert table.ntype.tolist() == (ids % 2).tolist()
    assert np.array_equal(table.features.read(ids), np.concatenate([feat, ids[:, None]], axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint8])
def test_dense_features_of_any_number_type(dtype: type, tmp_path: Path, scratch: ScratchDir):
    array = np.arange(20).reshape(5, 4).astype(dtype)
    np.save(tmp_path / "f.npy", array)
    table = open_table(scratch, features=tmp_path / "f.npy")
    assert table is not None
    assert table.features is not None
    found = table.features.read(np.array([4, 0, 4]))
    assert found.dtype == np.float32
    assert found.tolist() == array[[4, 0, 4]].tolist()


def test_sparse_features_are_filled_out(tmp_path: Path, scratch: ScratchDir):
    dense = np.array([[0, 1, 0], [2, 0, 0], [0, 0, 0]], dtype=np.float32)
    scipy.sparse.save_npz(tmp_path / "f.npz", scipy.sparse.csr_matrix(dense))
    table = open_table(scratch, features=tmp_path / "f.npz")
    assert table is not None
    assert table.features is not None
    assert table.features.read(np.array([2, 1])).tolist() == dense[[2, 1]].tolist()
    assert table.features.read_as_stored(np.array([0, 1])).nnz == 2


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.uint64()])
def test_columns_of_any_integer_type(kind: pa.DataType, tmp_path: Path, scratch: ScratchDir):
    columns = {"id": pa.array([1, 0], kind), "label": pa.array([3, None], kind), "ntype": pa.array([1, 0], kind)}
    pq.write_table(pa.table(columns), tmp_path / "n.parquet")
    table = open_table(scratch, tmp_path / "n.parquet")
    assert table is not None
    assert table.label is not None
    assert table.ntype is not None
    assert (table.label.tolist(), table.ntype.tolist()) == ([-1, 3], [0, 1])
    assert (table.label.dtype, table.ntype.dtype) == (np.int64, np.int32)


def test_nothing_says_how_many_nodes(scratch: ScratchDir):
    assert open_table(scratch) is None


def nodes(**columns: object) -> Callable[[Path], dict[str, Path]]:
    def write(folder: Path) -> dict[str, Path]:
        pq.write_table(pa.table(columns), folder / "n.parquet")
        return {"nodes": folder / "n.parquet"}

    return write


def features(array: np.ndarray) -> Callable[[Path], dict[str, Path]]:
    def write(folder: Path) -> dict[str, Path]:
        np.save(folder / "f.npy", array)
        return {"features": folder / "f.npy"}

    return write


def sparse(array: list[list[float]]) -> Callable[[Path], dict[str, Path]]:
    def write(folder: Path) -> dict[str, Path]:
        scipy.sparse.save_npz(folder / "f.npz", scipy.sparse.csr_matrix(np.array(array)))
        return {"features": folder / "f.npz"}

    return write


def both(**columns: object) -> Callable[[Path], dict[str, Path]]:
    return lambda folder: nodes(**columns)(folder) | features(np.zeros((3, 2)))(folder)


def raw(name: str, data: bytes) -> Callable[[Path], dict[str, Path]]:
    def write(folder: Path) -> dict[str, Path]:
        (folder / name).write_bytes(data)
        return {"nodes" if name.endswith("parquet") else "features": folder / name}

    return write


BAD_INPUT = {
    "no id column": (nodes(nid=[0]), r"must have a column 'id', got nid; name it with --id"),
    "id too large": (nodes(id=[0, 2]), r"row 1: id must be in \[0, 2\), got 2"),
    "id negative": (nodes(id=[-1, 0]), r"row 0: id must be in \[0, 2\), got -1"),
    "id twice": (nodes(id=[1, 0, 1]), r"row 2: id must occur once, got 1 again"),
    "string ids": (nodes(id=["a"]), r"column 'id' must be the integers 0 .. N-1, got 1 values of string"),
    "no rows": (nodes(id=pa.array([], pa.int64())), r"column 'id' must be the integers 0 .. N-1, got 0 values"),
    "label below -1": (nodes(id=[0, 1], label=[0, -2]), r"row 1: label must be at least -1, got -2"),
    "label of words": (nodes(id=[0], label=["cat"]), r"column 'label' must be integers .*, got string"),
    "unknown split": (nodes(id=[0, 1], split=["train", "dev"]), r"row 1: split must be train, val, test .*'dev'"),
    "ntype null": (nodes(id=[0, 1], ntype=[1, None]), r"column 'ntype' must be integers without nulls"),
    "feature NaN": (features(np.array([[1.0, 2.0], [np.nan, 0.0]])), r"row 1: features must be finite, got nan"),
    "feature inf": (features(np.array([[1.0, np.inf]])), r"row 0: features must be finite, got inf"),
    "sparse feature NaN": (sparse([[0, 1], [0, 0], [float("nan"), 0]]), r"row 2: features must be finite, got nan"),
    "feature column NaN": (nodes(id=[1, 0], feat_a=[1.0, float("nan")]), r"row 0: features must be finite, got nan"),
    "feature column null": (nodes(id=[1, 0], feat_a=[1.0, None]), r"row 1: feat_a must have a value, got null"),
    "ragged features": (nodes(id=[0, 1], feat=[[1.0, 2.0], [3.0]]), r"row 1: feat must have 2 values .*, got 1"),
    "features of words": (nodes(id=[0], feat=["x"]), r"column 'feat' must be numbers or lists of numbers, got string"),
    "wrong number of rows": (both(id=[0, 1]), r"rows must be one a node everywhere, got .* has 2, .* has 3"),
    "features twice": (both(id=[0, 1, 2], feat=[1, 2, 3]), r"features must come from one place"),
    "flat features": (features(np.zeros(4)), r"must be a real array of shape \(rows, F\), got float64 of shape \(4,\)"),
    "truncated nodes": (raw("n.parquet", b"PAR1xxxx"), r"must be a whole Parquet file, got: "),
    "truncated npz": (raw("f.npz", b"PK\x03\x04"), r"must be a whole feature file, got: "),
    "empty npy": (raw("f.npy", b""), r"must be a whole feature file, got: "),
    "unknown suffix": (raw("f.pt", b"x"), r"suffix must be .npy \(dense\) or .npz \(scipy CSR\), got '.pt'"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_clear_error(case: str, tmp_path: Path, scratch: ScratchDir):
    write, message = BAD_INPUT[case]
    with pytest.raises(TableError, match=message) as caught:
        open_table(scratch, **write(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
