"""Damaged and odd files, each format: read right, or one clear error; never a crash or another graph."""

import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from asepr.errors import AseprError
from asepr.formats.edge_readers import EdgeColumns
from asepr.formats.edge_sources import open_edge_source
from tests.formats.test_formats import FORMATS
from tests.graphs import random_graph

Pairs = list[tuple[int, int]]
GRAPH = random_graph(60, 400)
BINARY = [
    name for name in FORMATS if name.endswith((".parquet", ".feather", ".arrow", ".npy", ".npz", ".gz", ".bz2", ".zst"))
]
CHECKED = ("packed.txt.gz", "packed.csv.gz", "packed.csv.bz2", "pattern.mtx.gz", "named.npz", "edge_index.npz")
"""Formats with a checksum over all data; elsewhere nothing tells a flipped bit, and a Parquet footer aborts pyarrow."""

TRIES = 40
NUMBERS = (
    "-1",
    "",
    "1.0",
    "1.5",
    "1e3",
    "abc",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "0x1f",
    "+5",
    "1_0",
    "NaN",
    "NA",
    '"7"',
    " 8 ",
    "\u0663",
    "5000000000",
    "007",
    "1;2",
    "#4",
    "true",
)


def read(path: Path) -> Pairs | None:
    """Return the edges, or None where there was one clear error."""
    try:
        chunks = list(open_edge_source(path, EdgeColumns(), 2**63 - 1, chunk_edges=64))
    except AseprError as error:
        message = str(error)
        assert "\n" not in message
        assert "; " in message, "no remedy"
        assert path.name in message
        return None
    return [pair for chunk in chunks for pair in zip(chunk.src.tolist(), chunk.dst.tolist(), strict=True)]


def whole() -> Pairs:
    return list(zip(GRAPH.src.tolist(), GRAPH.dst.tolist(), strict=True))


@pytest.mark.parametrize("name", BINARY)
def test_truncated_binary_is_an_error(name: str, tmp_path: Path, rng: np.random.Generator):
    FORMATS[name](tmp_path / name, GRAPH)
    data = (tmp_path / name).read_bytes()
    for keep in rng.choice(len(data), min(TRIES, len(data)), replace=False).tolist():
        (tmp_path / name).write_bytes(data[:keep])
        assert read(tmp_path / name) in (None, whole()), keep


@pytest.mark.parametrize("name", CHECKED)
def test_flipped_bits_where_a_checksum_tells(name: str, tmp_path: Path, rng: np.random.Generator):
    FORMATS[name](tmp_path / name, GRAPH)
    data = (tmp_path / name).read_bytes()
    for _ in range(TRIES):
        flipped = bytearray(data)
        flipped[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        (tmp_path / name).write_bytes(bytes(flipped))
        assert read(tmp_path / name) in (None, whole())


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt"])
@pytest.mark.parametrize("value", NUMBERS)
def test_odd_values_in_text(value: str, suffix: str, tmp_path: Path):
    """Oracle: Python's own integers."""
    separator = {".csv": ",", ".tsv": "\t", ".txt": " "}[suffix]
    (tmp_path / f"e{suffix}").write_text(f"src{separator}dst\n1{separator}2\n{value}{separator}3\n4{separator}5\n")
    plain = value.strip().strip('"' if suffix != ".txt" else "")
    is_comment = value.startswith("#")
    is_right = plain.isascii() and plain.isdigit() and int(plain) < 2**63 - 1
    expected = [(1, 2), (4, 5)] if is_comment else [(1, 2), (int(plain), 3), (4, 5)] if is_right else None
    assert read(tmp_path / f"e{suffix}") == expected


MUTATIONS = [
    b",",
    b"\t",
    b" ",
    b"\n",
    b"\r\n",
    b"\r",
    b'"',
    b"#",
    b"%",
    b"\xff",
    b"\x00",
    b"\xef\xbb\xbf",
    b"-",
    b".",
    b"e5",
    b"x",
    b"9" * 20,
]


@pytest.mark.parametrize("seed", range(8))
def test_mutated_csv_is_what_a_plain_parser_reads(seed: int, tmp_path: Path):
    """Oracle: lines split by hand; what it cannot take as two plain integers a line must be an error."""
    rng = np.random.default_rng(seed)
    lines = ["src,dst", *(f"{u},{v}" for u, v in whole()[:30])]
    base = "\n".join(lines).encode() + b"\n"
    for _ in range(60):
        place = int(rng.integers(len(base)))
        data = base[:place] + MUTATIONS[rng.integers(len(MUTATIONS))] + base[place + int(rng.integers(3)) :]
        (tmp_path / "e.csv").write_bytes(data)
        assert read(tmp_path / "e.csv") in (None, by_hand(data)), data


def by_hand(data: bytes) -> Pairs | None:
    text = data.removeprefix(b"\xef\xbb\xbf").decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    rows = [line for line in text.split("\n") if line.strip() and line[0] not in "#%"]
    fields = [[field.strip().strip('"') for field in row.split(",")] for row in rows]
    has_header = bool(fields) and not all(field.lstrip("-").replace(".", "").isdigit() for field in fields[0])
    header = fields[0] if has_header else ["src", "dst"]
    try:
        ends = header.index("src"), header.index("dst")
        return [(int(row[ends[0]]), int(row[ends[1]])) for row in fields[has_header:]]
    except (ValueError, IndexError):
        return None


@pytest.mark.parametrize("name", ["header.csv", "crlf.csv", "bom.csv", "quoted.csv", "header.tsv"])
def test_what_pandas_reads(name: str, tmp_path: Path):
    FORMATS[name](tmp_path / name, GRAPH)
    sep = "\t" if name.endswith("tsv") else ","
    lines = [line for line in (tmp_path / name).read_text("utf-8-sig").splitlines() if line[0] not in "#%"]
    frame = pd.read_csv(io.StringIO("\n".join(lines)), sep=sep, skipinitialspace=True)
    assert read(tmp_path / name) == list(zip(frame["src"].tolist(), frame["dst"].tolist(), strict=True))


CASES = {
    "no rows below the names": ("e.csv", b"src,dst\n", []),
    "blank": ("e.csv", b"\n\n", None),
    "semicolons": ("e.csv", b"src;dst\n1;2\n", None),
    "commas in white space text": ("e.txt", b"1,2\n3,4\n", None),
    "tabs in CSV": ("e.csv", b"1\t2\n", None),
    "UTF-16": ("e.csv", "src,dst\n1,2\n".encode("utf-16"), None),
    "short row": ("e.csv", b"src,dst,w\n1,2,3\n4,5\n", None),
    "open quote": ("e.csv", b'src,dst\n1,2\n"3,4\n5,6"\n', None),
    "line break in quotes": ("e.csv", b'src,dst,n\n1,2,"a\nb"\n', None),
    "names twice": ("e.csv", b"src,dst,src\n1,2,3\n", None),
    "one line without end": ("e.csv", b"1" * 5_000_000, None),
    "no last line end": ("e.csv", b"src,dst\n1,2", [(1, 2)]),
    "only NUL": ("e.txt", b"\0" * 100, None),
    "gzip in name only": ("e.csv.gz", b"src,dst\n1,2\n", None),
    "gzip of nothing": ("e.csv.gz", gzip.compress(b""), None),
    "two gzip members": ("e.csv.gz", gzip.compress(b"src,dst\n1,2\n") + gzip.compress(b"3,4\n"), [(1, 2), (3, 4)]),
    "mtx of arrays": ("e.mtx", b"%%MatrixMarket matrix array real general\n2 2\n1\n0\n0\n1\n", None),
    "mtx of complex": ("e.mtx", b"%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 0 0\n", None),
    "mtx without banner": ("e.mtx", b"3 3 1\n1 2\n", None),
    "mtx not square": ("e.mtx", b"%%MatrixMarket matrix coordinate pattern general\n3 4 1\n1 4\n", None),
    "mtx cut short": ("e.mtx", b"%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n", None),
    "mtx from 0": ("e.mtx", b"%%MatrixMarket matrix coordinate pattern general\n3 3 1\n0 2\n", None),
    "metis cut short": ("e.graph", b"3 2\n2\n1 3\n", None),
    "metis too long": ("e.graph", b"2 1\n2\n1\n1\n", None),
    "metis out of range": ("e.graph", b"2 1\n2\n3\n", None),
    "metis of words": ("e.graph", b"2 1\ntwo\n1\n", None),
    "metis isolated": ("e.graph", b"3 1\n3\n\n1\n", [(0, 2), (2, 0)]),
    "metis without a weight": ("e.graph", b"2 1 1\n2\n1 5\n", None),
}


@pytest.mark.parametrize("case", CASES)
def test_odd_files(case: str, tmp_path: Path):
    name, data, expected = CASES[case]
    (tmp_path / name).write_bytes(data)
    assert read(tmp_path / name) == expected


@pytest.mark.parametrize(
    "column",
    [pa.array([1.0, 2.0]), pa.array([1, None]), pa.array([True, False]), pa.array(["1", "2"]), pa.array([-1, 2]),
     pa.array([[1], [2]]), pa.array([2**63, 1], pa.uint64())],
    ids=["float", "null", "bool", "string", "negative", "list", "beyond 63 bits"],
)  # fmt: skip
def test_columns_that_hold_no_ids(column: pa.Array, tmp_path: Path):
    pq.write_table(pa.table({"src": column, "dst": pa.array([0, 1])}), tmp_path / "e.parquet")
    assert read(tmp_path / "e.parquet") is None
