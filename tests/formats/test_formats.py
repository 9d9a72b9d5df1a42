"""One graph through every format: the same chunks, and the same shards byte for byte."""

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse
import zstandard

import asepr
from asepr.errors import TableError
from asepr.formats.edge_readers import EdgeColumns
from asepr.formats.edge_sources import open_edge_source
from asepr.formats.tables import open_table, read_as, schema_of
from tests.graphs import Graph, random_graph

Writer = Callable[[Path, Graph], None]
PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.ZstdCompressor().compress}


def table_of(graph: Graph) -> pa.Table:
    return pa.table({"src": graph.src, "dst": graph.dst})


def parquet(**options: object) -> Writer:
    return lambda path, graph: pq.write_table(table_of(graph), path, **options)


def feather(compression: str) -> Writer:
    return lambda path, graph: pyarrow.feather.write_feather(
        table_of(graph), str(path), compression=compression, chunksize=70
    )


def text(separator: str, head: str = "", ending: str = "\n", tail: str = "") -> Writer:
    def write(path: Path, graph: Graph) -> None:
        rows = [f"{u}{separator}{v}" for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True)]
        rows.insert(len(rows) // 2, f"# a comment{ending}% another")
        data = (head + ending.join(rows) + ending + tail).encode()
        path.write_bytes(PACKERS.get(path.suffix, bytes)(data))

    return write


def quoted(path: Path, graph: Graph) -> None:
    rows = [f'"{u}", "{v}","a, b"' for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True)]
    path.write_text("\n".join(['"src","dst","note"', *rows]))


def npy(order: str, *, transposed: bool = False, dtype: str = "<i8") -> Writer:
    def write(path: Path, graph: Graph) -> None:
        pairs = np.stack([graph.src, graph.dst], axis=0 if transposed else 1)
        np.save(path, np.asarray(pairs, dtype=dtype, order=order))

    return write


def npz(path: Path, graph: Graph) -> None:
    np.savez_compressed(path, dst=graph.dst, src=graph.src.astype(np.int32))


def edge_index_npz(path: Path, graph: Graph) -> None:
    np.savez(path, edge_index=np.stack([graph.src, graph.dst]), x=np.zeros((graph.num_nodes, 2)))


def sparse(path: Path, graph: Graph) -> None:
    weight = np.ones(graph.num_edges, dtype=np.int8)
    shape = (graph.num_nodes, graph.num_nodes)
    scipy.sparse.save_npz(path, scipy.sparse.coo_array((weight, (graph.src, graph.dst)), shape=shape))


def matrix_market(path: Path, graph: Graph) -> None:
    rows = [f"{u + 1} {v + 1}" for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True)]
    size = f"{graph.num_nodes} {graph.num_nodes} {graph.num_edges}"
    text = "\n".join(["%%MatrixMarket matrix coordinate pattern general", "% by hand", "", size, *rows, ""])
    path.write_bytes(PACKERS.get(path.suffix, bytes)(text.encode()))


def folder(path: Path, graph: Graph) -> None:
    path.mkdir()
    half = graph.num_edges // 2
    pq.write_table(table_of(graph).slice(0, half), path / "part-0.parquet")
    pq.write_table(table_of(graph).slice(half, 0), path / "part-1.parquet")
    (path / "_SUCCESS").touch()
    (path / "part-2.csv").write_text("dst,src\n" + "\n".join(f"{v},{u}" for u, v in pairs(graph, half)))


def hive(path: Path, graph: Graph) -> None:
    half = graph.num_edges // 2
    for name, rows in (("day=01", table_of(graph).slice(0, half)), ("day=02", table_of(graph).slice(half))):
        (path / name).mkdir(parents=True)
        pq.write_table(rows, path / name / "0.parquet")


def pairs(graph: Graph, start: int) -> list[tuple[int, int]]:
    return list(zip(graph.src[start:].tolist(), graph.dst[start:].tolist(), strict=True))


FORMATS: dict[str, Writer] = {
    "groups.parquet": parquet(row_group_size=37),
    "bare.parquet": parquet(write_statistics=False),
    "plain.feather": feather("uncompressed"),
    "packed.arrow": feather("zstd"),
    "header.csv": text(",", "src,dst\n"),
    "bare.csv": text(","),
    "crlf.csv": text(",", "src,dst\r\n", "\r\n"),
    "mac.csv": text(",", "src,dst\r", "\r"),
    "bom.csv": text(",", "\ufeffsrc,dst\n"),
    "spaced.csv": text(" , ", "src , dst\n"),
    "quoted.csv": quoted,
    "header.tsv": text("\t", "src\tdst\n"),
    "snap.txt": text("\t", "# Directed graph\n# Nodes: 60 Edges: 460\n# FromNodeId\tToNodeId\n"),
    "aligned.txt": text("   \t ", "% a comment\n\n  ", " \n\n  "),
    "header.txt": text(" ", "src dst\n"),
    "packed.txt.gz": text(" ", "# a comment\n"),
    "packed.csv.gz": text(",", "src,dst\n"),
    "packed.csv.bz2": text(",", "src,dst\n"),
    "packed.tsv.zst": text("\t", "src\tdst\n"),
    "rows.npy": npy("C"),
    "columns.npy": npy("F"),
    "edge_index.npy": npy("C", transposed=True, dtype=">i4"),
    "edge_index_f.npy": npy("F", transposed=True, dtype="<u2"),
    "named.npz": npz,
    "edge_index.npz": edge_index_npz,
    "pattern.mtx": matrix_market,
    "pattern.mtx.gz": matrix_market,
    "folder": folder,
    "hive": hive,
}


def read(path: Path | str, chunk_edges: int = 100, **columns: str) -> tuple[list[int], list[int], list[float] | None]:
    chunks = list(open_edge_source(path, EdgeColumns(**columns), chunk_edges=chunk_edges))
    weights = [chunk.weight for chunk in chunks if chunk.weight is not None]
    return (
        np.concatenate([chunk.src for chunk in chunks]).tolist(),
        np.concatenate([chunk.dst for chunk in chunks]).tolist(),
        np.concatenate(weights).tolist() if weights else None,
    )


@pytest.fixture
def graph() -> Graph:
    """Every id up to the largest may occur or not; the largest does."""
    graph = random_graph(60, 400)
    src = graph.src.copy()
    src[0] = 59
    return Graph(num_nodes=60, src=src, dst=graph.dst)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("chunk_edges", [1, 50, 1 << 20])
def test_every_format_gives_the_same_chunks(name: str, chunk_edges: int, graph: Graph, tmp_path: Path):
    FORMATS[name](tmp_path / name, graph)
    source = open_edge_source(tmp_path / name, EdgeColumns(), None, chunk_edges)
    assert (source.num_nodes, source.num_edges) == (60, graph.num_edges)
    assert (source.has_etype, source.has_weight) == (False, False)
    for _ in range(2):
        chunks = list(source)
        assert {len(chunk) for chunk in chunks[:-1]} <= {chunk_edges}
        assert [chunk.first_eid for chunk in chunks] == list(range(0, graph.num_edges, chunk_edges))
        assert np.concatenate([chunk.src for chunk in chunks]).tolist() == graph.src.tolist()
        assert np.concatenate([chunk.dst for chunk in chunks]).tolist() == graph.dst.tolist()
        assert {chunk.src.dtype for chunk in chunks} | {chunk.dst.dtype for chunk in chunks} == {np.dtype(np.int64)}


def test_every_format_gives_the_same_shards(graph: Graph, tmp_path: Path):
    shards = {}
    for name, write in FORMATS.items():
        write(tmp_path / name, graph)
        asepr.partition(tmp_path / name, tmp_path / "out" / name, num_parts=2, method="random")
        files = sorted((tmp_path / "out" / name).rglob("*.arrow"))
        shards[name] = {str(file.relative_to(tmp_path / "out" / name)): file.read_bytes() for file in files}
    first = shards["groups.parquet"]
    assert len(first) > 4
    assert [name for name, files in shards.items() if files != first] == []


@pytest.mark.parametrize("kind", ["coo", "csr", "csc"])
def test_sparse_npz_is_what_scipy_loads(kind: str, graph: Graph, tmp_path: Path):
    weight = np.arange(1, graph.num_edges + 1, dtype=np.float32)
    matrix = scipy.sparse.coo_array((weight, (graph.src, graph.dst)), shape=(70, 70)).asformat(kind)
    scipy.sparse.save_npz(tmp_path / "a.npz", matrix)
    loaded = scipy.sparse.load_npz(tmp_path / "a.npz").tocoo()
    assert read(tmp_path / "a.npz") == (loaded.row.tolist(), loaded.col.tolist(), loaded.data.tolist())
    assert open_edge_source(tmp_path / "a.npz", EdgeColumns()).num_nodes == 70, "trailing nodes without edges count"


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_matrix_market_is_what_scipy_loads(field: str, symmetry: str, graph: Graph, tmp_path: Path):
    dense = np.zeros((9, 9))
    dense[graph.src % 9, graph.dst % 9] = (graph.src - 5) * (1 if field == "integer" else 0.5)
    if symmetry == "symmetric":
        dense = dense + dense.T
    if symmetry == "skew-symmetric":
        if field == "pattern":
            pytest.skip("a pattern has no signs")
        dense = dense - dense.T
    scipy.io.mmwrite(tmp_path / "a.mtx", scipy.sparse.coo_array(dense), field=field, symmetry=symmetry, precision=9)
    header = (tmp_path / "a.mtx").read_text().splitlines()[0]
    assert header == f"%%MatrixMarket matrix coordinate {field} {symmetry}"
    loaded = scipy.io.mmread(tmp_path / "a.mtx").toarray()
    src, dst, weight = read(tmp_path / "a.mtx", 7)
    assert len(set(zip(src, dst, strict=True))) == len(src) == np.count_nonzero(loaded)
    assert (weight is None) == (field == "pattern")
    assert np.array_equal(loaded[src, dst], np.ones(len(src)) if weight is None else np.array(weight))
    assert open_edge_source(tmp_path / "a.mtx", EdgeColumns()).num_nodes == 9


@pytest.mark.parametrize("form", ["", " 1", " 10", " 11", " 011 2", " 100", " 111 3"])
def test_metis_graph(form: str, graph: Graph, tmp_path: Path):
    """Oracle: a loop over lines and words."""
    digits = (form.split() or ["0"])[0].zfill(3)
    num_weights = int(form.split()[1]) if len(form.split()) > 1 else 1
    neighbours: list[set[int]] = [set() for _ in range(62)]
    for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        if u != v:
            neighbours[u].add(v)
            neighbours[v].add(u)
    num_edges = sum(map(len, neighbours)) // 2
    lines = ["% comment", f" 62  {num_edges}{form}"]
    for node, found in enumerate(neighbours):
        words = ["7"] * (digits[0] == "1") + ["3"] * (num_weights * (digits[1] == "1"))
        for other in sorted(found):
            words += [str(other + 1)] + [str(1 + min(node, other))] * (digits[2] == "1")
        lines.append("  ".join(words))
    lines.insert(20, "% another comment")
    (tmp_path / "a.graph").write_text("\n".join(lines) + "\n")
    src, dst, weight = read(tmp_path / "a.graph", 13)
    assert list(zip(src, dst, strict=True)) == [(u, v) for u in range(62) for v in sorted(neighbours[u])]
    assert weight == ([1 + min(u, v) for u, v in zip(src, dst, strict=True)] if digits[2] == "1" else None)
    assert open_edge_source(tmp_path / "a.graph", EdgeColumns()).num_nodes == 62


def test_hive_folders_give_columns(tmp_path: Path):
    for kind, rows in ((2, [[0, 1]]), (0, [[1, 2], [2, 0]])):
        (tmp_path / "g" / f"etype={kind}").mkdir(parents=True)
        pq.write_table(
            pa.table(dict(zip(["src", "dst"], map(list, zip(*rows, strict=True)), strict=True))),
            tmp_path / "g" / f"etype={kind}" / "a.parquet",
        )
    chunks = list(open_edge_source(tmp_path / "g", EdgeColumns()))
    assert [chunk.etype.tolist() for chunk in chunks if chunk.etype is not None] == [[0, 0, 2]]
    assert [chunk.src.tolist() for chunk in chunks] == [[1, 2, 0]]


def test_globs_and_order(tmp_path: Path):
    for name, value in (("b/2.csv", 2), ("b/10.csv", 10), ("a/1.csv", 1), ("b/x.tsv", 99), ("b/.hidden.csv", 98)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"src,dst\n{value},0\n")
    assert read(f"{tmp_path}/*/[0-9]*.csv")[0] == [1, 10, 2]
    assert read(f"{tmp_path}/**/[0-9]*.csv")[0] == [1, 10, 2]
    assert read(f"{tmp_path}/b/?.csv")[0] == [2]
    assert read(f"file://{tmp_path}/a")[0] == [1]


def test_types_of_text_hold_the_whole_file(tmp_path: Path):
    rows = [f"{i},{i},{i % 7},0{i},{i}" for i in range(200_000)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,d,e", *rows, "1,1.5,x,1,"]))
    table = open_table(tmp_path / "t.csv")
    kinds = {"a": pa.int64(), "b": pa.float64(), "c": pa.string(), "d": pa.string(), "e": pa.int64()}
    assert table.schema == pa.schema(list(kinds.items()))
    assert schema_of(table, ["c", "a"]) == pa.schema([("c", pa.string()), ("a", pa.int64())])
    batches = list(read_as(table, {"a": pa.string()}).batches(["d", "a", "e"], 1000))
    assert max(batch.num_rows for batch in batches) <= 1000
    found = pa.Table.from_batches(batches)
    assert found.column("d").to_pylist()[:3] == ["00", "01", "02"]
    assert found.column("a").to_pylist()[-2:] == ["199999", "1"]
    assert found.column("e").to_pylist()[-2:] == [199_999, None]


def test_numbers_of_a_table_as_text_and_back(tmp_path: Path):
    pq.write_table(pa.table({"src": [5_000_000_000, 7], "name": ["1", "x"]}), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    texts = next(iter(read_as(table, {"src": pa.string()}).batches(["src"], 10)))
    assert texts.column(0).to_pylist() == ["5000000000", "7"]
    with pytest.raises(TableError, match=r"row 1: name must be int64, got 'x'; mend the row"):
        list(read_as(table, {"name": pa.int64()}).batches(["name"], 10))
