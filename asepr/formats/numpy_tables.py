"""Edges in numpy files: npy, and npz of arrays or of a scipy sparse matrix; read as streams, never as a whole."""

import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asepr.errors import TableError
from asepr.formats.locations import StoredFile

SPARSE_FORMATS = ("coo", "csr", "csc")
PAIR_KEYS = ("edge_index", "edges")
_SKIP_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class _Member:
    """One npy array within a file.

    Attributes
    ----------
    open : callable
        Returns a stream that stands at the array's header.
    shape : tuple of int
    is_fortran : bool
    dtype : dtype
    """

    open: Callable[[], Any]
    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """Columns that lie in one stream, row after row.

    Attributes
    ----------
    names : tuple of str
    member : _Member
    length : int
        Number of rows.
    skip : int
        Values between the array's start and the first row.
    """

    names: tuple[str, ...]
    member: _Member
    length: int
    skip: int = 0

    def open(self) -> "_Rows":
        stream = self.member.open()
        _read_header(stream)
        left = self.skip * self.member.dtype.itemsize
        while left and (data := stream.read(min(left, _SKIP_BYTES))):
            left -= len(data)
        return _Rows(stream, self)


class _Rows:
    def __init__(self, stream: Any, piece: _Piece) -> None:
        self.stream = stream
        self._piece = piece

    def read(self, count: int) -> dict[str, npt.NDArray[Any]]:
        """Return the next `count` rows, columns by name, native byte order."""
        rows = self.read_block(count)
        return {name: rows[:, i].copy() for i, name in enumerate(self._piece.names)}

    def read_block(self, count: int) -> npt.NDArray[Any]:
        """Return the next rows as they lie, (count, columns), native byte order."""
        width, dtype = len(self._piece.names), self._piece.member.dtype
        size = count * width * dtype.itemsize
        data = self.stream.read(size)
        if len(data) < size:
            raise EOFError(f"{len(data)} bytes where {size} must follow")
        return np.frombuffer(data, dtype=dtype).reshape(count, width).astype(dtype.newbyteorder("="), copy=False)


class NumpyTable:
    """Edges whose columns lie in one or more npy arrays of one file.

    Notes
    -----
    npy: (E, 2), or (2, E) where E is not 2. npz: one-dimensional arrays, each a column named by its key; or
    `edge_index` (2, E) or `edges` (E, 2), which give `src` and `dst`, beside such columns; or what
    `scipy.sparse.save_npz` writes, whose stored entries are edges from row to column with a weight.
    """

    is_text = False

    def __init__(self, file: StoredFile) -> None:
        self.name = file.name
        self.num_nodes: int | None = None
        self._file = file
        self._kind = file.suffixes[-1].removeprefix(".")
        self._starts: npt.NDArray[Any] | None = None
        with file.must_be_whole(self._kind):
            members = _members(file)
            if "" in members:
                self._pieces = _pair_pieces(file.name, members[""])
                self.has_names = False
            elif "format" in members:
                self._pieces = self._open_sparse(members)
                self.has_names = False
            else:
                self._pieces = _named_pieces(file.name, members)
                self.has_names = True
            counts = {piece.length for piece in self._pieces}
        if len(counts) != 1:
            raise TableError(f"{file.name}: arrays must have one length, got {sorted(counts)}; mend the shorter")
        self._num_rows = counts.pop()

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return list(self.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """Names and types."""
        fields = [
            (name, _arrow_type(self.name, name, piece.member.dtype)) for piece in self._pieces for name in piece.names
        ]
        return pa.schema(fields if self._starts is None else [self._row_field(fields[0][0]), *fields])

    def num_rows(self) -> int:
        """Return the length of the arrays."""
        return self._num_rows

    def bounds(self, columns: Sequence[str]) -> None:
        """Return None: the file must be read."""
        del columns

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield slices of the arrays."""
        with self._file.must_be_whole(self._kind), ExitStack() as streams:
            opened = [piece.open() for piece in self._pieces if set(columns) & set(piece.names)]
            for rows in opened:
                streams.enter_context(rows.stream)
            for start in range(0, self._num_rows, batch_rows):
                count = min(batch_rows, self._num_rows - start)
                found: dict[str, npt.NDArray[Any]] = {}
                for rows in opened:
                    found |= rows.read(count)
                if self._starts is not None:
                    entry = np.arange(start, start + count)
                    outer = np.searchsorted(self._starts, entry, side="right") - 1
                    found[self._row_field(self._pieces[0].names[0])[0]] = outer.astype(np.int64)
                yield pa.RecordBatch.from_arrays([pa.array(found[name]) for name in columns], names=list(columns))

    @staticmethod
    def _row_field(other: str) -> tuple[str, pa.DataType]:
        return ("src" if other == "dst" else "dst", pa.int64())

    def _open_sparse(self, members: Mapping[str, _Member]) -> list[_Piece]:
        kind = _load(members["format"]).item()
        kind = kind.decode() if isinstance(kind, bytes) else str(kind)
        if kind not in SPARSE_FORMATS:
            raise TableError(
                f"{self.name}: a sparse matrix must be one of {', '.join(SPARSE_FORMATS)}, got '{kind}'; convert it"
            )
        rows, columns = (int(n) for n in _load(members["shape"]))
        if rows != columns:
            raise TableError(
                f"{self.name}: an adjacency matrix must be square, got {rows} x {columns}; give rows and columns "
                "one range of ids"
            )
        self.num_nodes = rows
        weight = _flat("weight", members["data"])
        if kind == "coo":
            return [_flat("src", members["row"]), _flat("dst", members["col"]), weight]
        self._starts = _load(members["indptr"]).astype(np.int64)
        is_sound = len(self._starts) == rows + 1 and self._starts[0] == 0 and (np.diff(self._starts) >= 0).all()
        if not is_sound or self._starts[-1] != members["indices"].shape[0]:
            raise TableError(f"{self.name}: indptr must rise from 0 to the number of entries; write it again")
        return [_flat("dst" if kind == "csr" else "src", members["indices"]), weight]


class NumpyMatrix:
    """One array of a npz file, a row at a time: a column `0` of numbers, or of lists where the array has width.

    Parameters
    ----------
    file : StoredFile
    key : str
        An array of shape (rows,) or (rows, F).

    Raises
    ------
    TableError
        There is no such array, or it is no matrix of numbers stored row after row.
    """

    is_text, has_names, num_nodes = False, False, None
    names: ClassVar[list[str]] = ["0"]

    def __init__(self, file: StoredFile, key: str) -> None:
        self.name, self._file = file.name, file
        with file.must_be_whole("npz"):
            members = _members(file)
        if key not in members:
            raise TableError(f"{file.name}: must hold an array '{key}', got {', '.join(members)}; write it again")
        member = members[key]
        num_dims = len(member.shape)
        if not 1 <= num_dims <= 2 or member.dtype.kind not in "iuf" or (member.is_fortran and 1 not in member.shape):
            raise TableError(
                f"{file.name}: {key} must be numbers of shape (rows, F), stored row after row, got {member.dtype} of "
                f"shape {member.shape}; save it again"
            )
        self._num_rows, self.width = member.shape[0], member.shape[1] if num_dims == 2 else 1
        self._piece = _Piece(names=tuple(map(str, range(self.width))), member=member, length=self._num_rows)
        kind = pa.from_numpy_dtype(member.dtype.newbyteorder("="))
        self.schema = pa.schema([("0", kind if self.width == 1 else pa.list_(kind, self.width))])

    def num_rows(self) -> int:
        """Return the length of the array."""
        return self._num_rows

    def bounds(self, columns: Sequence[str]) -> None:
        """Return None: the array must be read."""
        del columns

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield rows of the array, at most 4 MB at a time."""
        del columns
        batch_rows = max(1, min(batch_rows, _SKIP_BYTES // (self.width * self._piece.member.dtype.itemsize)))
        with self._file.must_be_whole("npz"), self._piece.open().stream as stream:
            rows = _Rows(stream, self._piece)
            for start in range(0, self._num_rows, batch_rows):
                block = pa.array(rows.read_block(min(batch_rows, self._num_rows - start)).reshape(-1))
                if self.width > 1:
                    block = pa.FixedSizeListArray.from_arrays(block, self.width)
                yield pa.RecordBatch.from_arrays([block], schema=self.schema)


def _members(file: StoredFile) -> dict[str, _Member]:
    """Return the arrays of a file by key; that of an npy file has the key ''."""
    if file.suffixes[-1:] == [".npy"]:
        return {"": _look(file.open)}
    with file.open() as source, zipfile.ZipFile(source) as archive:
        names = archive.namelist()
    return {name.removesuffix(".npy"): _look(_opener(file, name)) for name in names}


def _opener(file: StoredFile, name: str) -> Callable[[], Any]:
    return lambda: zipfile.ZipFile(file.open()).open(name)


def _look(opener: Callable[[], Any]) -> _Member:
    with opener() as stream:
        shape, is_fortran, dtype = _read_header(stream)
    return _Member(open=opener, shape=shape, is_fortran=is_fortran, dtype=dtype)


def _read_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"npy version must be 1.0 or 2.0, got {version}")
    shape, is_fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("an array of Python objects; save integers")
    return shape, is_fortran, dtype


def _load(member: _Member) -> npt.NDArray[Any]:
    with member.open() as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _pair_pieces(name: str, member: _Member) -> list[_Piece]:
    """Return src and dst of an array of pairs, whichever way round it lies."""
    if len(member.shape) != 2 or 2 not in member.shape or member.dtype.kind not in "iuU":
        raise TableError(
            f"{name}: must be an integer array of shape (E, 2) or (2, E), got {member.dtype} of shape {member.shape}; "
            "save one row an edge: source id, destination id"
        )
    is_rows = member.shape[1] == 2
    length = member.shape[0] if is_rows else member.shape[1]
    if is_rows is not member.is_fortran:
        return [_Piece(names=("src", "dst"), member=member, length=length)]
    return [
        _Piece(names=("src",), member=member, length=length),
        _Piece(names=("dst",), member=member, length=length, skip=length),
    ]


def _named_pieces(name: str, members: Mapping[str, _Member]) -> list[_Piece]:
    columns = [_flat(key, member) for key, member in members.items() if len(member.shape) == 1]
    pairs = next((members[key] for key in PAIR_KEYS if key in members), None)
    if pairs is not None:
        ends = _pair_pieces(name, pairs)
        return [*ends, *(piece for piece in columns if piece.length == ends[0].length)]
    if not columns:
        raise TableError(f"{name}: must hold one-dimensional arrays, got {', '.join(members)}; save src and dst")
    return columns


def _flat(name: str, member: _Member) -> _Piece:
    return _Piece(names=(name,), member=member, length=math.prod(member.shape))


def _arrow_type(where: str, name: str, dtype: np.dtype[Any]) -> pa.DataType:
    if dtype.kind == "U":
        return pa.string()
    try:
        return pa.from_numpy_dtype(dtype.newbyteorder("="))
    except pa.ArrowException:
        raise TableError(f"{where}: {name} must be numbers or text, got {dtype}; convert the array") from None
