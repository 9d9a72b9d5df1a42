"""How fast is each reader of edges beside its library's own bulk read, and how much memory do both take?

    python -m benchmarks.readers [--quick] [--json FILE]

An R-MAT of 4 M edges in each format (quick: 260,000, in three). Each read runs in a process of its own, twice, the
second time counted; processor time of all threads, and peak resident memory of the process beyond that before the first
read. The bulk read holds all edges at once: pyarrow, duckdb, numpy or scipy. Ours yields checked 64-bit ids, a batch at
a time.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse

from asepr.formats.edge_readers import EdgeColumns, TableEdgeReader
from asepr.formats.edge_sources import CHUNK_EDGES
from asepr.formats.tables import open_table
from asepr.pipeline import peak_rss_bytes
from benchmarks.common import options, run_apart, show, write_rmat

BULK: dict[str, tuple[str, Callable[[str], Any]]] = {
    "edges.parquet": ("pyarrow", pq.read_table),
    "edges.arrow": ("pyarrow", lambda path: pyarrow.feather.read_table(path, memory_map=False)),
    "edges.csv": ("pyarrow", pyarrow.csv.read_csv),
    "edges.csv.gz": ("pyarrow", pyarrow.csv.read_csv),
    "edges.tsv": ("duckdb", lambda path: duckdb.sql(f"SELECT * FROM read_csv('{path}')").to_arrow_table()),
    "edges.npy": ("numpy", np.load),
    "edges.npz": ("numpy", lambda path: {name: array[:] for name, array in np.load(path).items()}),
    "matrix.npz": ("scipy", scipy.sparse.load_npz),
    "edges.mtx": ("scipy", scipy.io.mmread),
}


def write_all(folder: Path, scale: int) -> int:
    """Write one graph in every format; return its number of edges."""
    write_rmat(folder / "edges.parquet", scale, 16)
    table = pq.read_table(folder / "edges.parquet")
    src, dst = (table.column(name).to_numpy() for name in ("src", "dst"))
    pyarrow.feather.write_feather(table, str(folder / "edges.arrow"), compression="uncompressed")
    pyarrow.csv.write_csv(table, folder / "edges.csv")
    with pa.output_stream(str(folder / "edges.csv.gz"), compression="gzip") as stream:
        pyarrow.csv.write_csv(table, stream)
    pyarrow.csv.write_csv(table, folder / "edges.tsv", pyarrow.csv.WriteOptions(delimiter="\t"))
    np.save(folder / "edges.npy", np.stack([src, dst], axis=1))
    np.savez(folder / "edges.npz", src=src, dst=dst)
    matrix = scipy.sparse.coo_array((np.ones(len(src), np.float32), (src, dst)), shape=(1 << scale, 1 << scale))
    scipy.sparse.save_npz(folder / "matrix.npz", matrix, compressed=False)
    scipy.io.mmwrite(folder / "edges.mtx", scipy.sparse.coo_matrix(matrix), field="integer")
    return len(src)


def read_ours(path: Path) -> int:
    """Read all batches, and return the number of edges."""
    return sum(len(batch) for batch in TableEdgeReader(open_table(path), EdgeColumns()).batches(CHUNK_EDGES))


def measure(path: Path, *, ours: bool) -> dict[str, float]:
    """Read twice, and say what the second read took."""
    before = peak_rss_bytes()
    for _ in range(2):
        since, cpu_since = time.perf_counter(), time.process_time()
        kept = read_ours(path) if ours else BULK[path.name][1](str(path))
        seconds, cpu_seconds = time.perf_counter() - since, time.process_time() - cpu_since
        del kept
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "mb": (peak_rss_bytes() - before) / 1e6}


def row(path: Path, num_edges: int) -> dict[str, Any]:
    """Measure both reads of one file."""
    found = {}
    for who in ("ours", "bulk"):
        ended = run_apart(["benchmarks.readers", "--worker", who, path])
        if ended.fault:
            raise RuntimeError(f"{path.name}: {ended.fault}")
        found[who] = json.loads(ended.stdout)
    return {
        "file": path.name,
        "beside": BULK[path.name][0],
        "Medges/s": num_edges / found["ours"]["seconds"] / 1e6,
        "bulk Medges/s": num_edges / found["bulk"]["seconds"] / 1e6,
        "cpu ratio": found["ours"]["cpu_seconds"] / found["bulk"]["cpu_seconds"],
        "MB": found["ours"]["mb"],
        "bulk MB": found["bulk"]["mb"],
    }


def main() -> None:
    """Measure every format, or one read where called as a worker."""
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(measure(Path(sys.argv[3]), ours=sys.argv[2] == "ours")))
        return
    chosen = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        num_edges = write_all(Path(name), 14 if chosen.quick else 18)
        files = list(BULK)[:3] if chosen.quick else list(BULK)
        show([row(Path(name) / file, num_edges) for file in files], chosen.json)


if __name__ == "__main__":
    main()
