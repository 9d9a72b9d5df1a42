"""Makes the two graphs that partitioners are compared on: one with hubs, one with communities.

    python -m benchmarks.graphs [--quick] [--json FILE] [--out DIR]

rmat20: an R-MAT of 2^20 ids and edge factor 16. lfr1m: 1 M nodes, communities of 50 to 5000 and degrees
that follow power laws, 30 % of edges anywhere. Both undirected and simple (src < dst), ids permuted and
without gaps, edges in random order, the same on every machine. lfr1m takes about 2 GB of memory.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import draw_rmat, options, show


def rmat(scale: int = 20, edge_factor: int = 16) -> np.ndarray:
    """Return int64 (E, 2): an R-MAT, made simple."""
    src, dst = np.empty((2, edge_factor << scale), dtype=np.int64)
    draw_rmat(scale, 42, src, dst)
    return _shuffled(_simple(src, dst), np.random.default_rng(1))


def communities(num_nodes: int = 1_000_000, num_drawn: int = 15_300_000, largest: int = 5000) -> np.ndarray:
    """Return int64 (E, 2): planted communities, degrees by a power law.

    Source: the model of Lancichinetti, Fortunato, Radicchi, Benchmark graphs for testing community
    detection algorithms, 2008; here ends are drawn by expected degree, so that it is made in one pass.
    """
    rng = np.random.default_rng(7)
    degree = _power_law(rng, 2.5, 6, 3000, num_nodes).astype(np.float64)
    start = [0]
    while start[-1] < num_nodes:
        size = int(_power_law(rng, 1.5, 50, largest, 1)[0])
        start.append(min(start[-1] + size, num_nodes))
    community = np.repeat(np.arange(len(start) - 1), np.diff(start))
    cumulated = np.concatenate([[0.0], np.cumsum(degree)])
    src, dst = np.empty((2, num_drawn), dtype=np.int64)
    _draw_communities(np.array(start), community, cumulated, 0.3, 8, src, dst)
    return _shuffled(_simple(src, dst), np.random.default_rng(2))


@numba.njit(cache=True)
def _draw_communities(start, community, cumulated, mixing, seed, src, dst):
    np.random.seed(seed)
    last = len(cumulated) - 2
    for i in range(src.shape[0]):
        u = min(np.searchsorted(cumulated, np.random.random() * cumulated[-1], side="right") - 1, last)
        low, high = 0.0, cumulated[-1]
        if np.random.random() >= mixing:
            low, high = cumulated[start[community[u]]], cumulated[start[community[u] + 1]]
        at = low + np.random.random() * (high - low)
        src[i], dst[i] = u, min(np.searchsorted(cumulated, at, side="right") - 1, last)


def _power_law(rng: np.random.Generator, exponent: float, low: int, high: int, size: int) -> np.ndarray:
    power = 1.0 - exponent
    drawn = ((high + 1) ** power - low**power) * rng.random(size) + low**power
    return np.floor(drawn ** (1 / power)).astype(np.int64)


def _simple(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    key = np.unique(((low << 32) | high)[low != high])
    return np.stack([key >> 32, key & 0xFFFFFFFF], axis=1)


def _shuffled(edges: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    used, place = np.unique(edges, return_inverse=True)
    edges = rng.permutation(len(used))[place.reshape(edges.shape)]
    return edges[rng.permutation(len(edges))]


def main() -> None:
    """Write both."""
    parser = options(__doc__)
    parser.add_argument("--out", type=Path, default=Path(), help="folder for rmat20.parquet and lfr1m.parquet")
    chosen = parser.parse_args()
    graphs: dict[str, Callable[[], np.ndarray]] = {"rmat20": rmat, "lfr1m": communities}
    if chosen.quick:
        graphs = {"rmat10": lambda: rmat(10), "lfr1k": lambda: communities(1000, 15_000, 100)}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) if chosen.quick else chosen.out
        for graph, make in graphs.items():
            edges = make()
            pq.write_table(
                pa.table({"src": edges[:, 0], "dst": edges[:, 1]}), folder / f"{graph}.parquet", compression="zstd"
            )
            degree = np.bincount(edges.ravel())
            rows.append(
                {"graph": graph, "nodes": len(degree), "edges": len(edges), "largest_degree": int(degree.max())}
            )
    show(rows, chosen.json)


if __name__ == "__main__":
    main()
