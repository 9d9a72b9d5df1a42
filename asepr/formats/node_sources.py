"""Node files and feature files: labels, splits, types and rows of features, in nid order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse

from asepr.contracts import (
    NO_LABEL,
    NO_LABELS,
    SPLIT_CODES,
    ByteArray,
    FeatureSource,
    FloatArray,
    IdArray,
    NodeTable,
    PartArray,
    Scratch,
)
from asepr.errors import NodeSourceError
from asepr.formats.locations import DAMAGE
from asepr.formats.tables import Table, open_table, schema_of

BLOCK_ROWS = 1 << 16
"""Rows looked at together where a whole feature file is read through."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeColumns:
    """Names of the columns of a node file.

    Attributes
    ----------
    id : str
        Must be there; its values are 0 .. N-1 in any order.
    label, split, ntype : str
        Read where the file has a column of that name.
    features : tuple of str
        Columns of numbers or of lists of numbers, side by side in this order. Empty: every column
        called `feat` or `features`, or whose name starts with `feat_`.
    """

    id: str = "id"
    label: str = "label"
    split: str = "split"
    ntype: str = "ntype"
    features: tuple[str, ...] = ()

    def feature_names(self, names: Sequence[str]) -> list[str]:
        """Return the feature columns of a table with columns of these names."""
        return list(self.features) or [
            name for name in names if name in ("feat", "features") or name.startswith("feat_")
        ]


class DenseFeatures:
    """Rows of a two-dimensional array, in memory or mapped.

    Raises
    ------
    NodeSourceError
        A value is NaN or infinite.
    """

    def __init__(self, array: npt.NDArray[Any], where: Path | str) -> None:
        self._array = array
        self.num_rows, self.width = (int(n) for n in array.shape)
        for start in range(0, self.num_rows, BLOCK_ROWS):
            block = array[start : start + BLOCK_ROWS]
            if not np.isfinite(block).all():
                row = int(np.argmax(~np.isfinite(block).all(axis=1)))
                value = block[row][~np.isfinite(block[row])][0]
                raise NodeSourceError(
                    f"{where}: row {start + row}: features must be finite, got {value}; fill or drop the value"
                )

    def read(self, rows: IdArray) -> FloatArray:
        """Return float32 (len(rows), F)."""
        return np.ascontiguousarray(self._array[rows], dtype=np.float32)

    read_as_stored = read


class SparseFeatures:
    """Rows of a scipy CSR matrix in memory."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, where: Path | str) -> None:
        self._matrix = matrix.astype(np.float32)
        self.num_rows, self.width = (int(n) for n in matrix.shape)
        if not np.isfinite(matrix.data).all():
            entry = int(np.argmax(~np.isfinite(matrix.data)))
            row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
            raise NodeSourceError(
                f"{where}: row {row}: features must be finite, got {matrix.data[entry]}; fill or drop the value"
            )

    def read(self, rows: IdArray) -> FloatArray:
        """Return float32 (len(rows), F), filled out with zeros."""
        return np.ascontiguousarray(self._matrix[rows].toarray())

    def read_as_stored(self, rows: IdArray) -> scipy.sparse.csr_matrix:
        """Return the rows as a CSR matrix."""
        return self._matrix[rows]


def open_features(path: Path) -> FeatureSource:
    """Open a feature file: npy of shape (rows, F), or a scipy CSR matrix in npz.

    Raises
    ------
    NodeSourceError
        No such file, of no known kind, or with values that are not finite.
    """
    if not path.is_file():
        raise NodeSourceError(f"{path}: must be a file, got nothing there; check the path")
    try:
        if path.suffix == ".npz":
            with path.open("rb") as file:
                matrix = scipy.sparse.load_npz(file)
        elif path.suffix == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            raise NodeSourceError(
                f"{path}: suffix must be .npy (dense) or .npz (scipy CSR), got '{path.suffix}'; convert the file"
            )
    except DAMAGE as error:
        reason = " ".join(str(error).split())
        raise NodeSourceError(f"{path}: must be a whole feature file, got: {reason}; write it again") from error
    if path.suffix == ".npz":
        return SparseFeatures(scipy.sparse.csr_matrix(matrix), path)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise NodeSourceError(
            f"{path}: must be a real array of shape (rows, F), got {array.dtype} of shape {array.shape}; "
            "save one row a node"
        )
    return DenseFeatures(array, path)


def open_node_table(
    nodes: Path | str | None, features: Path | str | None, columns: NodeColumns, num_nodes: int | None, scratch: Scratch
) -> NodeTable | None:
    """Read what is known of the nodes, and check that files agree on how many there are.

    Parameters
    ----------
    nodes : path or str, optional
        A table in any format whose columns have names, one row a node.
    features : path or str, optional
        Feature file; its rows are in nid order.
    columns : NodeColumns
    num_nodes : int or None
        The number of nodes, where the caller states it.
    scratch : Scratch
        Holds feature columns of the node file in nid order.

    Returns
    -------
    NodeTable, or None where nothing says how many nodes there are

    Raises
    ------
    NodeSourceError
        A file, column or value is not what it must be, or row counts differ.
    """
    table = None if nodes is None else _read_node_file(nodes, columns, scratch)
    source = None if features is None else open_features(Path(features))
    counts = {}
    if num_nodes is not None:
        counts["--num-nodes"] = num_nodes
    if table is not None:
        counts[str(nodes)] = table.num_nodes
    if source is not None:
        counts[str(features)] = source.num_rows
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise NodeSourceError(
            f"{nodes or features}: rows must be one a node everywhere, got {listed}; mend the shorter"
        )
    if not counts:
        return None
    if table is None:
        return NodeTable(num_nodes=next(iter(counts.values())), features=source)
    if source is not None and table.features is not None:
        raise NodeSourceError(f"{nodes}: features must come from one place, got columns here and {features}; drop one")
    return replace(table, features=source if source is not None else table.features)


def _read_node_file(path: Path | str, columns: NodeColumns, scratch: Scratch) -> NodeTable:
    table = open_table(path)
    if columns.id not in table.names:
        raise NodeSourceError(
            f"{path}: must have a column '{columns.id}', got {', '.join(table.names)}; name it with --id"
        )
    wanted = (columns.id, columns.label, columns.split, columns.ntype)
    known = [name for name in wanted if name in table.names]
    small = pa.Table.from_batches(table.batches(known, BLOCK_ROWS), schema_of(table, known))
    nid = _dense_ids(path, columns.id, small.column(columns.id))
    has_many = columns.label in small.column_names and is_list(small.column(columns.label).type)
    return NodeTable(
        num_nodes=len(nid),
        label=None if has_many else _in_order(nid, _labels(path, columns.label, small)),
        labels=_in_order(nid, label_matrix(path, columns.label, small.column(columns.label))) if has_many else None,
        split=_in_order(nid, _splits(path, columns.split, small)),
        ntype=_in_order(nid, _types(path, columns.ntype, small)),
        features=_feature_columns(path, table, columns, nid, scratch),
    )


def _dense_ids(path: Path | str, name: str, column: pa.ChunkedArray) -> IdArray:
    if not pa.types.is_integer(column.type) or column.null_count or not len(column):
        raise NodeSourceError(
            f"{path}: column '{name}' must be the integers 0 .. N-1, got {len(column)} values of {column.type} "
            f"with {column.null_count} nulls; re-index the nodes from 0"
        )
    nid: IdArray = column.to_numpy().astype(np.int64)
    out_of_range = (nid < 0) | (nid >= len(nid))
    if out_of_range.any():
        row = int(np.argmax(out_of_range))
        raise NodeSourceError(
            f"{path}: row {row}: {name} must be in [0, {len(nid)}), got {nid[row]}; re-index the nodes from 0"
        )
    counts = np.bincount(nid, minlength=len(nid))
    if counts.max() > 1:
        twice = int(np.argmax(counts > 1))
        row = int(np.flatnonzero(nid == twice)[1])
        raise NodeSourceError(f"{path}: row {row}: {name} must occur once, got {twice} again; drop one of the rows")
    return nid


def _in_order(nid: IdArray, values: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
    if values is None:
        return None
    ordered = np.empty_like(values)
    ordered[nid] = values
    return ordered


def _labels(path: Path | str, name: str, table: pa.Table) -> IdArray | None:
    if name not in table.column_names:
        return None
    column = table.column(name)
    if not pa.types.is_integer(column.type):
        raise NodeSourceError(
            f"{path}: column '{name}' must be integers (null or -1: no label) or lists of 0 and 1, got {column.type}; "
            "number the classes"
        )
    label: IdArray = column.cast(pa.int64()).fill_null(NO_LABEL).to_numpy()
    if label.min() < NO_LABEL:
        row = int(np.argmin(label))
        raise NodeSourceError(f"{path}: row {row}: {name} must be at least -1, got {label[row]}; -1 means no label")
    return label


def label_matrix(where: Path | str, name: str, column: pa.ChunkedArray) -> ByteArray:
    """Return uint8 (rows, C) of a column of lists of 0 and 1; a row without a list is not known: `NO_LABELS`.

    Raises
    ------
    NodeSourceError
        Lists differ in length, are empty, or hold anything but 0 and 1.
    """
    known = column.combine_chunks().drop_null() if column.null_count else column.combine_chunks()
    lengths = np.unique(pc.list_value_length(known).to_numpy(zero_copy_only=False))
    if len(lengths) != 1 or lengths[0] == 0:
        raise NodeSourceError(
            f"{where}: column '{name}' must hold lists of one length, 0 or 1 for each class, got lengths "
            f"{lengths.tolist()[:5]}; pad the lists, and leave a node of unknown labels null"
        )
    values = pc.list_flatten(known)
    kind = values.type
    is_bit = np.zeros(len(values), dtype=np.bool_)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        found = pc.is_in(values.cast(pa.float64()), pa.array([0.0, 1.0]))
        is_bit = found.to_numpy(zero_copy_only=False)
    if not is_bit.all():
        bad = values[int(np.argmin(is_bit))].as_py()
        raise NodeSourceError(
            f"{where}: column '{name}' must hold lists of 0 and 1, one value a class, got {bad!r}; "
            "write a 1 for each label a node has"
        )
    labels = np.full((len(column), int(lengths[0])), NO_LABELS, dtype=np.uint8)
    flat = values.cast(pa.uint8()).to_numpy(zero_copy_only=False)
    labels[column.is_valid().to_numpy()] = flat.reshape(len(known), -1)
    return labels


def is_list(kind: pa.DataType) -> bool:
    """Return whether values are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _splits(path: Path | str, name: str, table: pa.Table) -> ByteArray | None:
    if name not in table.column_names:
        return None
    return split_codes(path, name, table.column(name), 0)


def split_codes(where: Path | str, name: str, column: pa.Array | pa.ChunkedArray, first_row: int) -> ByteArray:
    """Return the codes of train, val, test or nothing.

    Raises
    ------
    NodeSourceError
        A value is none of these.
    """
    texts = pc.fill_null(pc.cast(column, pa.string()), "")
    known = pa.array(list(SPLIT_CODES))
    index = pc.index_in(texts, known)
    if index.null_count:
        row = int(np.argmax(index.is_null().to_numpy(zero_copy_only=False)))
        raise NodeSourceError(
            f"{where}: row {first_row + row}: {name} must be train, val, test or empty, got {texts[row].as_py()!r}; "
            "rename the value"
        )
    codes: ByteArray = np.array(list(SPLIT_CODES.values()), dtype=np.uint8)[index.to_numpy()]
    return codes


def _types(path: Path | str, name: str, table: pa.Table) -> PartArray | None:
    if name not in table.column_names:
        return None
    column = table.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise NodeSourceError(
            f"{path}: column '{name}' must be integers without nulls, got {column.type}; number the types"
        )
    ntype: PartArray = column.to_numpy().astype(np.int32)
    return ntype


def _feature_columns(
    path: Path | str, table: Table, columns: NodeColumns, nid: IdArray, scratch: Scratch
) -> FeatureSource | None:
    names = columns.feature_names(table.names)
    for name in names:
        if name not in table.names:
            raise NodeSourceError(
                f"{path}: must have the feature column '{name}', got {', '.join(table.names)}; mend --feature-columns"
            )
    if not names:
        return None
    array: npt.NDArray[Any] | None = None
    for first_row, block in _feature_blocks(path, table, names):
        if array is None:
            array = scratch.array("features", (len(nid), block.shape[1]), np.float32)
        array[nid[first_row : first_row + len(block)]] = block
    assert array is not None  # the id column has at least one row
    return DenseFeatures(array, path)


def _feature_blocks(path: Path | str, table: Table, names: list[str]) -> Iterator[tuple[int, FloatArray]]:
    first_row = 0
    width: int | None = None
    for batch in table.batches(names, BLOCK_ROWS):
        block = feature_matrix(path, names, batch, first_row)
        if width is not None and block.shape[1] != width:
            raise NodeSourceError(
                f"{path}: row {first_row}: features must have one width, got {block.shape[1]} after {width}; "
                "mend the row"
            )
        width = block.shape[1]
        yield first_row, block
        first_row += batch.num_rows


def _as_matrix(path: Path | str, name: str, column: pa.Array, first_row: int) -> FloatArray:
    if column.null_count:
        row = first_row + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise NodeSourceError(f"{path}: row {row}: {name} must have a value, got null; fill it")
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        numbers: FloatArray = column.to_numpy(zero_copy_only=False).astype(np.float32)
        return numbers[:, None]
    if not (pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)):
        raise NodeSourceError(
            f"{path}: column '{name}' must be numbers or lists of numbers, got {column.type}; mend --feature-columns"
        )
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    if len(set(lengths.tolist())) > 1:
        row = first_row + int(np.argmax(lengths != lengths[0]))
        raise NodeSourceError(
            f"{path}: row {row}: {name} must have {lengths[0]} values as in row {first_row}, "
            f"got {lengths[row - first_row]}; mend the row"
        )
    flat: FloatArray = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    return flat.reshape(len(column), -1)


def feature_matrix(where: Path | str, names: list[str], batch: pa.RecordBatch, first_row: int) -> FloatArray:
    """Return columns of numbers, or of lists of numbers, side by side: float32 (rows, F).

    Raises
    ------
    NodeSourceError
        A value is missing, or no number; lists differ in length.
    """
    return np.concatenate([_as_matrix(where, name, batch.column(name), first_row) for name in names], axis=1)
