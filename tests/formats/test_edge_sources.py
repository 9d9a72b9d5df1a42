import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from asepr.errors import EdgeSourceError, TableError
from asepr.formats.edge_readers import EdgeColumns
from asepr.formats.edge_sources import ArrayEdgeSource, FileEdgeSource, open_edge_source
from tests.graphs import Graph, random_graph


def write_parquet(path: Path, graph: Graph) -> None:
    pq.write_table(pa.table({"src": graph.src, "dst": graph.dst}), path, row_group_size=37)


def write_parquet_without_statistics(path: Path, graph: Graph) -> None:
    pq.write_table(pa.table({"src": graph.src, "dst": graph.dst}), path, write_statistics=False)


def write_npy(path: Path, graph: Graph) -> None:
    np.save(path, np.stack([graph.src, graph.dst], axis=1))


def write_text(separator: str, header: str = "", ending: str = "\n") -> Callable[[Path, Graph], None]:
    def write(path: Path, graph: Graph) -> None:
        rows = [f"{u}{separator}{v}" for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True)]
        text = header + ending.join(rows) + ending
        data = text.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)

    return write


WRITERS: dict[str, Callable[[Path, Graph], None]] = {
    "plain.parquet": write_parquet,
    "bare.parquet": write_parquet_without_statistics,
    "pairs.npy": write_npy,
    "header.csv": write_text(",", "src,dst\n"),
    "bare.csv": write_text(","),
    "crlf.csv": write_text(",", "src,dst\r\n", "\r\n"),
    "bom.csv": write_text(",", "\ufeffsrc,dst\n"),
    "quoted.csv": write_text(",", '"src","dst"\n'),
    "header.tsv": write_text("\t", "src\tdst\n"),
    "snap.txt": write_text("\t", "# Directed graph\n# Nodes: 60 Edges: 460\n# FromNodeId\tToNodeId\n"),
    "spaces.txt": write_text("   ", "% a comment\n\n"),
    "packed.txt.gz": write_text(" ", "# a comment\n"),
    "packed.csv.gz": write_text(",", "src,dst\n"),
}


def read(source: FileEdgeSource) -> tuple[np.ndarray, np.ndarray, list[int]]:
    chunks = list(source)
    assert all(len(chunk) for chunk in chunks)
    firsts = [chunk.first_eid for chunk in chunks]
    assert firsts == np.cumsum([0, *(len(chunk) for chunk in chunks[:-1])]).tolist()
    return (
        np.concatenate([chunk.src for chunk in chunks]),
        np.concatenate([chunk.dst for chunk in chunks]),
        [len(chunk) for chunk in chunks],
    )


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("chunk_edges", [1, 50, 1 << 20])
def test_every_format_gives_the_same_chunks(name: str, chunk_edges: int, tmp_path: Path):
    graph = random_graph(60, 400)
    WRITERS[name](tmp_path / name, graph)
    source = open_edge_source(tmp_path / name, EdgeColumns(), 60, chunk_edges)
    for _ in range(2):
        src, dst, lengths = read(source)
        assert src.tolist() == graph.src.tolist()
        assert dst.tolist() == graph.dst.tolist()
        assert set(lengths[:-1]) <= {chunk_edges}
    assert (source.num_edges, source.num_nodes) == (graph.num_edges, 60)
    assert src.dtype == dst.dtype == np.int64
    assert not source.has_etype
    assert not source.has_weight


@pytest.mark.parametrize("name", ["plain.parquet", "bare.parquet", "pairs.npy", "bare.csv"])
def test_number_of_nodes_is_one_more_than_the_largest_id(name: str, tmp_path: Path):
    graph = Graph(num_nodes=9, src=np.array([0, 5]), dst=np.array([8, 2]))
    WRITERS[name](tmp_path / name, graph)
    assert open_edge_source(tmp_path / name, EdgeColumns()).num_nodes == 9


def test_types_and_weights_travel(tmp_path: Path):
    table = {"a": [0, 1, 2], "b": [1, 2, 0], "kind": [2, 0, 1], "weight": [0.5, 1.0, 2.0]}
    columns = EdgeColumns(src="a", dst="b", etype="kind")
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    lines = ["b,kind,a,weight", *(f"{b},{k},{a},{w}" for a, b, k, w in zip(*table.values(), strict=True))]
    (tmp_path / "e.csv").write_text("\n".join(lines))
    for name in ("e.parquet", "e.csv"):
        chunks = list(open_edge_source(tmp_path / name, columns, chunk_edges=2))
        assert [c.src.tolist() for c in chunks] == [[0, 1], [2]]
        assert [c.dst.tolist() for c in chunks] == [[1, 2], [0]]
        assert [c.etype.tolist() for c in chunks if c.etype is not None] == [[2, 0], [1]]
        assert [c.weight.tolist() for c in chunks if c.weight is not None] == [[0.5, 1.0], [2.0]]


def test_ids_above_32_bits_stay_apart(tmp_path: Path):
    big = Graph(num_nodes=0, src=np.array([5_000_000_000, 705_032_704]), dst=np.array([2**53 + 1, 2**53]))
    for name in ("plain.parquet", "pairs.npy", "bare.csv"):
        WRITERS[name](tmp_path / name, big)
        src, dst, _ = read(open_edge_source(tmp_path / name, EdgeColumns(), 2**60))
        assert src.tolist() == big.src.tolist()
        assert dst.tolist() == big.dst.tolist()


def parquet(**columns: object) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(columns), path)


def text(content: str | bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


BAD_INPUT = {
    "wrong column": ("e.parquet", parquet(u=[0], v=[1]), r"must have a column 'src', got u, v; name the columns"),
    "wrong column in text": ("e.csv", text("u,v\n0,1\n"), r"must have a column 'src', got u, v; name the columns"),
    "negative id": ("e.parquet", parquet(src=[0, 1, -3], dst=[1, 2, 0]), r"row 2: src must not be negative, got -3"),
    "negative id in text": ("e.csv", text("0,1\n1,-1\n"), r"row 1: dst must not be negative, got -1"),
    "too large id": ("e.parquet", parquet(src=[0, 1], dst=[1, 10]), r"row 1: dst must be in \[0, 10\), got 10"),
    "too large id in text": ("e.txt", text("0 1\n99 1\n"), r"row 1: src must be in \[0, 10\), got 99"),
    "null id": ("e.parquet", parquet(src=[0, None], dst=[1, 1]), r"row 1: src must have a value, got null"),
    "missing id in text": ("e.csv", text("src,dst\n0,1\n4,\n"), r"row 1: dst must have a value, got null"),
    "float ids": ("e.parquet", parquet(src=[0.0], dst=[1.0]), r"column 'src' must be integers, got double"),
    "fraction in text": ("e.csv", text("src,dst\n0,1\n1.5,2\n"), r"row 1: src must be a whole number .*, got '1.5'"),
    "word in text": ("e.csv", text("src,dst\n0,1\nabc,2\n"), r"row 1: src must be a whole number .*, got 'abc'"),
    "id beyond 63 bits": ("e.csv", text("src,dst\n0,1\n99999999999999999999,2\n"), r"row 1: src must be .*2\*\*63"),
    "unsigned beyond 63 bits": (
        "e.parquet",
        parquet(src=pa.array([2**63 + 5], pa.uint64()), dst=[0]),
        r"row 0: src must be below 2\*\*63, got 9223372036854775813",
    ),
    "string ids": ("e.parquet", parquet(src=["a"], dst=["b"]), r"column 'src' must be integers, got string"),
    "empty file": ("e.parquet", text(""), r"must hold rows, got an empty file"),
    "only comments": ("e.txt", text("# nothing\n"), r"must hold rows, got only comments or blank lines"),
    "not Parquet": ("e.parquet", text("hello, world" * 9), r"must be a whole Parquet file, got: "),
    "not npy": ("e.npy", text("hello"), r"must be a whole npy file, got: "),
    "npy of three columns": (
        "e.npy",
        lambda path: np.save(path, np.zeros((4, 3), dtype=int)),
        r"must be an integer array of shape \(E, 2\) or \(2, E\), got int64 of shape \(4, 3\)",
    ),
    "pickled npy": (
        "e.npy",
        lambda path: np.save(path, np.array([{}, {}], dtype=object)),
        r"must be a whole npy file, got: .*",
    ),
    "one column of text": ("e.txt", text("1\n2\n"), r"each line must hold two ids, got one field a line"),
    "ragged text": ("e.csv", text("0,1\n1,2,3,4\n"), r"row 1: must have 2 fields as the first line, got 4: '1,2,3,4'"),
    "not utf-8": ("e.csv", text(b"src,dst\n0,\xff\xfe\n"), r"row 0: dst must be UTF-8 text, got '\ufffd\ufffd'"),
    "cut short gzip": (
        "e.csv.gz",
        text(gzip.compress(b"0,1\n" * 100_000)[:-20]),
        r"must be a whole text file, got: .*",
    ),
    "unknown suffix": ("e.xyz", text("0 1"), r"suffix must be one of \.parquet, .*, got '\.xyz'"),
    "weight is NaN": (
        "e.parquet",
        parquet(src=[0, 1], dst=[1, 0], weight=[1.0, float("nan")]),
        r"row 1: weight must be a finite number, got .*nan",
    ),
    "null weight": (
        "e.parquet",
        parquet(src=[0, 1], dst=[1, 0], weight=[1.0, None]),
        r"row 1: weight must have a value, got null",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_clear_error(case: str, tmp_path: Path):
    name, write, message = BAD_INPUT[case]
    path = tmp_path / name
    write(path)
    with pytest.raises(TableError, match=message) as caught:
        read(open_edge_source(path, EdgeColumns(), 10))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_truncated_parquet(tmp_path: Path):
    write_parquet(tmp_path / "e.parquet", random_graph(60, 400))
    data = (tmp_path / "e.parquet").read_bytes()
    for keep in (10, len(data) // 2, len(data) - 5):
        (tmp_path / "cut.parquet").write_bytes(data[:keep])
        with pytest.raises(TableError, match="must be a whole Parquet file, got: "):
            open_edge_source(tmp_path / "cut.parquet", EdgeColumns())


def test_missing_file(tmp_path: Path):
    with pytest.raises(TableError, match="must be a file, got nothing there; check the path"):
        open_edge_source(tmp_path / "none.parquet", EdgeColumns())


def test_no_edges_need_a_number_of_nodes(tmp_path: Path):
    parquet(src=pa.array([], pa.int64()), dst=pa.array([], pa.int64()))(tmp_path / "e.parquet")
    assert open_edge_source(tmp_path / "e.parquet", EdgeColumns(), 3).num_edges == 0
    with pytest.raises(EdgeSourceError, match="must hold at least one edge, got none"):
        open_edge_source(tmp_path / "e.parquet", EdgeColumns())


def test_arrays_of_two_lengths():
    with pytest.raises(EdgeSourceError, match=r"columns must have one length, got \[1, 2\]"):
        ArrayEdgeSource([0, 1], [1])


def test_arrays_of_floats():
    with pytest.raises(EdgeSourceError, match="src must be a one-dimensional integer array, got float64"):
        ArrayEdgeSource([0.0], [1])
