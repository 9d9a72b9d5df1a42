"""Edges in text formats of sparse matrices and graph partitioners: Matrix Market and METIS."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from asepr.contracts import IdArray
from asepr.errors import TableError
from asepr.formats.locations import StoredFile
from asepr.formats.text_lines import SPACE, read_lines
from asepr.formats.text_tables import FIRST_LOOK_BYTES, TextLayout, TextTable, first_line, parse_lines

FIELDS = {"pattern": None, "integer": pa.int64(), "real": pa.float64(), "double": pa.float64()}
SYMMETRIES = {"general": 0, "symmetric": 1, "skew-symmetric": -1}
"""What an entry off the diagonal is multiplied with to give its mirror image; 0: it has none."""

HUB_BYTES = 1 << 30
"""Longest line of a METIS file: a line holds all neighbours of a node."""


class MatrixMarketTable:
    """A sparse square matrix in Matrix Market's coordinate form: an edge from row to column an entry.

    A symmetric matrix stores one triangle; each entry off its diagonal gives a second edge, the other way round,
    right behind the first.
    """

    has_names = False
    is_text = False

    def __init__(self, file: StoredFile) -> None:
        self.name = file.name
        field, symmetry = _read_banner(file)
        self._kind = FIELDS[field]
        self._mirror = SYMMETRIES[symmetry]
        names = ("src", "dst") if self._kind is None else ("src", "dst", "weight")
        self.num_nodes, self._num_entries = _read_matrix_size(file)
        types = {"src": pa.int64(), "dst": pa.int64()} | ({} if self._kind is None else {"weight": self._kind})
        self.schema = pa.schema(list(types.items()))
        self._table = TextTable(file, TextLayout(separator=SPACE, names=names, skip_lines=1), types)

    @property
    def names(self) -> list[str]:
        """`src`, `dst`, and `weight` unless the matrix is a pattern."""
        return list(self.schema.names)

    def num_rows(self) -> int | None:
        """Return the number of entries, unless mirror images come on top."""
        return None if self._mirror else self._num_entries

    def bounds(self, columns: Sequence[str]) -> None:
        """Return None: the file must be read."""
        del columns

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield entries and their mirror images, ids from 0."""
        num_read = 0
        for batch in self._table.batches(self.names, batch_rows):
            yield self._edges(batch, num_read).select(list(columns))
            num_read += batch.num_rows
        if num_read != self._num_entries:
            raise TableError(
                f"{self.name}: must hold {self._num_entries} entries as its size line says, got {num_read}; "
                "write it again"
            )

    def _edges(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        src, dst, *weight = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        for name, ids in (("row", src), ("column", dst)):
            _require_range(self.name, f"entry {{}}: {name}", ids, self.num_nodes, first_row)
        src, dst = src - 1, dst - 1
        if self._mirror:
            times = np.where(src == dst, 1, 2)
            entry = np.repeat(np.arange(len(src)), times)
            is_image = np.diff(entry, prepend=-1) == 0
            src, dst = np.where(is_image, dst[entry], src[entry]), np.where(is_image, src[entry], dst[entry])
            weight = [np.where(is_image, self._mirror * values[entry], values[entry]) for values in weight]
        return pa.RecordBatch.from_arrays([pa.array(column) for column in (src, dst, *weight)], names=self.names)


class MetisTable:
    """A graph in the format of METIS, KaHIP and Chaco: line i lists the neighbours of node i, from 1.

    Each neighbour on line i gives an edge from i to it; as the format states each edge on both its lines, the
    edges come in both directions. Sizes and weights of nodes are passed over.
    """

    has_names = False
    is_text = False

    def __init__(self, file: StoredFile) -> None:
        self.name = file.name
        self._file = file
        with file.must_be_whole("METIS"):
            header = [int(text) for text in first_line(file, SPACE).split(SPACE)]
            if not 2 <= len(header) <= 4 or min(header[:2]) < 0:
                raise ValueError("a first line other than 'nodes edges [format [weights]]'")
            self.num_nodes, self._num_edges = header[:2]
            digits = f"{header[2] if len(header) > 2 else 0:03d}"
            if len(digits) > 3 or set(digits) - {"0", "1"}:
                raise ValueError(f"format {digits} where three digits 0 or 1 are known")
        has_sizes, has_node_weights, self._has_weight = (digit == "1" for digit in digits)
        self._skip = has_sizes + (header[3] if len(header) == 4 else 1) * has_node_weights
        fields = [("src", pa.int64()), ("dst", pa.int64()), ("weight", pa.int64())]
        self.schema = pa.schema(fields if self._has_weight else fields[:2])

    @property
    def names(self) -> list[str]:
        """`src`, `dst`, and `weight` where edges have one."""
        return list(self.schema.names)

    def num_rows(self) -> int:
        """Return twice the number of edges that the first line states."""
        return 2 * self._num_edges

    def bounds(self, columns: Sequence[str]) -> None:
        """Return None: the file must be read."""
        del columns

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the neighbours of some nodes after those of others."""
        num_lines = num_edges = 0
        for block in self._blocks():
            batch = self._edges(block, num_lines)
            num_lines += block.count(b"\n")
            num_edges += batch.num_rows
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows).select(list(columns))
        if num_lines < self.num_nodes or num_edges != self.num_rows():
            raise TableError(
                f"{self.name}: must hold {self.num_nodes} lines and {self.num_rows()} neighbours as its first line "
                f"says, got {num_lines} and {num_edges}; write it again"
            )

    def _blocks(self) -> Iterator[bytes]:
        """Yield the lines after the first; empty ones belong to nodes without neighbours."""
        is_first = True
        for block in read_lines(self._file, SPACE, line_bytes=HUB_BYTES):
            if is_first:
                block = block.lstrip(b"\n")
                is_first = not block
                block = block.partition(b"\n")[2]
            if block:
                yield block

    def _edges(self, block: bytes, first_node: int) -> pa.RecordBatch:
        numbers = self._numbers(block)
        line, place = _lines_and_places(block)
        kept = place >= self._skip
        numbers, line, place = numbers[kept], line[kept], place[kept] - self._skip
        weight: list[IdArray] = []
        if self._has_weight:
            if len(numbers) % 2 or (place[::2] % 2).any() or (line[::2] != line[1::2]).any():
                raise TableError(f"{self.name}: each neighbour must have a weight, got one without; write it again")
            weight, numbers, line = [numbers[1::2]], numbers[::2], line[::2]
        _require_range(self.name, "neighbour {}", numbers, self.num_nodes, 0)
        if len(line) and first_node + line[-1] >= self.num_nodes:
            raise TableError(f"{self.name}: must hold {self.num_nodes} lines, got more; write it again")
        columns = [first_node + line, numbers - 1, *weight]
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=self.names)

    def _numbers(self, block: bytes) -> IdArray:
        """Return all numbers of the block."""
        tokens = block.replace(b" ", b"\n")
        if not tokens.strip(b"\n"):
            return np.empty(0, dtype=np.int64)
        layout = TextLayout(separator=SPACE, names=("number",))
        table = parse_lines(self.name, layout, tokens, 0, {"number": pa.int64()})
        numbers: IdArray = table.column(0).to_numpy()
        return numbers


def _lines_and_places(block: bytes) -> tuple[IdArray, IdArray]:
    """Return for each number of a block the line that it is on, and how many stand before it on that line."""
    signs = np.frombuffer(block, dtype=np.uint8)
    is_end = signs == ord("\n")
    is_sign = ~is_end & (signs != ord(" "))
    is_start = is_sign & ~np.concatenate([[False], is_sign[:-1]])
    starts = np.flatnonzero(is_start)
    line = np.searchsorted(np.flatnonzero(is_end), starts)
    first = np.searchsorted(line, line)
    return line, np.arange(len(starts)) - first


def _require_range(name: str, what: str, ids: IdArray, num_nodes: int, first_row: int) -> None:
    is_bad = (ids < 1) | (ids > num_nodes)
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise TableError(
            f"{name}: {what.format(first_row + row)} must be in [1, {num_nodes}], got {ids[row]}; write it again"
        )


def _read_banner(file: StoredFile) -> tuple[str, str]:
    """Return field and symmetry of a Matrix Market file."""
    with file.must_be_whole("Matrix Market"), file.open_stream() as stream:
        line = stream.read(FIRST_LOOK_BYTES).partition(b"\n")[0].decode(errors="replace").lower().split()
    if line[:3] != ["%%matrixmarket", "matrix", "coordinate"] or len(line) != 5:
        raise TableError(
            f"{file.name}: must begin with '%%MatrixMarket matrix coordinate ...', got {' '.join(line)[:80]!r}; "
            "write a sparse matrix"
        )
    if line[3] not in FIELDS or line[4] not in SYMMETRIES:
        raise TableError(
            f"{file.name}: must be {', '.join(FIELDS)} and {', '.join(SYMMETRIES)}, got {line[3]} and {line[4]}; "
            "convert the matrix"
        )
    return line[3], line[4]


def _read_matrix_size(file: StoredFile) -> tuple[int, int]:
    """Return the number of rows, which are as many as the columns, and that of entries."""
    with file.must_be_whole("Matrix Market"):
        sizes = [int(text) for text in first_line(file, SPACE).split()]
        if len(sizes) != 3 or min(sizes) < 0:
            raise ValueError(f"a size line of {len(sizes)} numbers where rows, columns and entries must be")
    if sizes[0] != sizes[1]:
        raise TableError(
            f"{file.name}: an adjacency matrix must be square, got {sizes[0]} x {sizes[1]}; give rows and columns "
            "one range of ids"
        )
    return sizes[0], sizes[2]
