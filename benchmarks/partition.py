"""How well, how fast and in how much memory do our methods partition, beside what else can be installed?

    python -m benchmarks.partition [--quick] [--json FILE] [--data DIR] [--graphs a,b] [--parts 4,32]
                                   [--layouts vertex-cut] [--systems a,b] [--shuffle] [--seeds 3]

Every run gets a process of its own, one after the other. Figures are counted anew from what it wrote, by
the plain numpy of `recount`, not by the project's own code. A graph is NAME/edges.parquet or NAME.parquet
below --data, or is bundled; `python -m benchmarks.graphs` makes rmat20 and lfr1m.

`rf` is copies of nodes over nodes, `rf_x_balance` the same if every part were as full as the fullest.
`cpu_seconds` and `peak_mb` are of the whole process: interpreter, reading, writing. `work_cpu_seconds`
leaves out reading the input, writing the result (ours writes shards, a peer one array) and, of peers,
importing the library and, where it takes no arrays, writing its input. `own_mb` is the peak above that of
the same process on three edges. With several seeds, figures are medians, and `rf_spread` is largest less
smallest.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from asepr.partition.methods import METHODS
from asepr.partition.plan import Form
from benchmarks.common import ALL_MEMORY, BUNDLED, least_budget, options, run_apart, show, write_rmat
from benchmarks.peers import EDGE_PEERS, NODE_PEERS

LAYOUTS = ("vertex-cut", "edge-cut")
SEPARATE = Path(__file__).parent / "measured_separately.json"
QUICK = ("asepr", "asepr streaming", "pymetis", "kaminpar")


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """A graph in one order of its edges."""

    name: str
    order: str
    edges: Path
    num_nodes: int
    num_edges: int


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """One way to partition: by a method of ours, called with `options`, or by a peer."""

    name: str
    layout: str
    method: str | None = None
    form: Form | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What one run made, and what it took; or why there is none."""

    out: Path = Path()
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    work_cpu_seconds: float = 0.0
    peak_bytes: int = 0
    left_out: str = ""

    def costs(self, base_bytes: int | None) -> dict[str, float]:
        """Return the columns that say what it took; `base_bytes` is the peak on next to nothing."""
        columns = {
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "work_cpu_seconds": self.work_cpu_seconds,
            "peak_mb": self.peak_bytes / 1e6,
        }
        return columns if base_bytes is None else columns | {"own_mb": (self.peak_bytes - base_bytes) / 1e6}


def systems(layouts: Sequence[str]) -> list[System]:
    """Return ours, then the peers, in each layout."""
    found = []
    for layout in layouts:
        for method in METHODS:
            found.append(System(name=method, layout=layout, method=method))
            if method == "asepr" and layout == "vertex-cut":
                loose = ("--replica-imbalance", "inf")
                found.append(System(name="asepr streaming", layout=layout, method=method, form=Form.STREAMING))
                found.append(System(name="asepr loose copies", layout=layout, method=method, options=loose))
            if method == "asepr" and layout == "edge-cut":
                nodes = ("--balance", "nodes")
                found.append(System(name="asepr nodes alone", layout=layout, method=method, options=nodes))
        peers = [*NODE_PEERS, *EDGE_PEERS] if layout == "vertex-cut" else [*NODE_PEERS]
        found += [System(name=name, layout=layout) for name in peers]
    return found


def find_inputs(names: Sequence[str], data: Path | None, shuffle: bool, folder: Path, apart: Executor) -> list[Input]:
    """Return each graph in the order of its file and, where asked, shuffled into `folder`."""
    found = []
    bases = [base for base in (data, BUNDLED) if base is not None]
    for name in names:
        places = [base / relative for base in bases for relative in (f"{name}/edges.parquet", f"{name}.parquet")]
        edges = next((place for place in places if place.exists()), None)
        if edges is None:
            print(f"{name}: left out, there is no {name}/edges.parquet or {name}.parquet in --data", file=sys.stderr)
            continue
        orders = {"file": edges}
        if shuffle:
            orders["shuffled"] = apart.submit(shuffled, edges, folder / f"{name}-shuffled.parquet").result()
        num_nodes, num_edges = apart.submit(count, edges).result()
        found += [
            Input(name=name, order=order, edges=path, num_nodes=num_nodes, num_edges=num_edges)
            for order, path in orders.items()
        ]
    return found


def count(edges: Path) -> tuple[int, int]:
    """Return the largest id + 1, and the number of edges."""
    file = pq.ParquetFile(edges)
    batches = file.iter_batches(columns=["src", "dst"])
    largest = max((int(np.max(column)) for batch in batches for column in batch.columns if len(column)), default=-1)
    return largest + 1, file.metadata.num_rows


def shuffled(edges: Path, target: Path) -> Path:
    """Write the edges in random order, ids as they are, and return the file."""
    table = pq.read_table(edges, columns=["src", "dst"])
    pq.write_table(table.take(np.random.default_rng(0).permutation(len(table))), target)
    return target


def run_ours(system: System, graph: Input, num_parts: int, seed: int, folder: Path, limit: int) -> Run:
    """Partition by `asepr partition`, in a process of its own."""
    out = folder / "out"
    command = ["asepr.cli", "partition", graph.edges, "-o", out, "-k", num_parts, "--seed", seed, "--json"]
    command += ["--method", system.method, "--layout", system.layout, *system.options]
    memory = ALL_MEMORY
    if system.form is not None:
        memory = least_budget(system.form, graph.num_nodes, graph.num_edges, num_parts)
    ended = run_apart([*command, "--memory", memory], limit)
    if ended.fault:
        return Run(left_out=ended.fault)
    values = json.loads(ended.stdout)
    work = [values["phase_cpu_seconds"].get(phase, 0.0) for phase in ("cluster attributes", "assign")]
    return Run(
        out=out,
        seconds=ended.seconds,
        cpu_seconds=ended.cpu_seconds,
        work_cpu_seconds=sum(work),
        peak_bytes=values["peak_rss_bytes"],
    )


def run_peer(system: System, graph: Input, num_parts: int, seed: int, folder: Path, limit: int) -> Run:
    """Partition by a peer, in a process of its own."""
    out = folder / "peer"
    ended = run_apart(["benchmarks.peers", system.name, system.layout, graph.edges, num_parts, seed, out], limit)
    if ended.fault:
        return Run(left_out=ended.fault)
    taken = json.loads(Path(f"{out}.json").read_text())
    if "left_out" in taken:
        return Run(left_out=taken["left_out"])
    return Run(out=Path(f"{out}.npz"), seconds=ended.seconds, cpu_seconds=ended.cpu_seconds, **taken)


def recount(edges: Path, out: Path, num_parts: int, layout: str) -> dict[str, float]:
    """Count quality from the input and from what a system wrote, with plain arrays.

    Nodes without an edge count nowhere. In an edge-cut, a node is also in the part that owns it. The
    edge cut is of edges between owners; self-loops are never cut.
    """
    table = pq.read_table(edges, columns=["src", "dst"])
    src, dst = (np.asarray(table[column], dtype=np.int64) for column in ("src", "dst"))
    if out.is_dir():
        edge_part, owner = read_shards(out, len(src), num_parts)
    else:
        with np.load(out) as placed:
            edge_part, owner = placed["edge_part"], placed.get("owner")
    present = np.zeros((num_parts, int(max(src.max(), dst.max())) + 1), dtype=bool)
    present[edge_part, src] = present[edge_part, dst] = True
    has_edge = np.flatnonzero(present.any(axis=0))
    if layout == "edge-cut":
        present[owner[has_edge], has_edge] = True
    copies = present.sum(axis=1)
    rf, balance = copies.sum() / len(has_edge), copies.max() / copies.mean()
    counted = {"rf": rf, "rf_x_balance": rf * balance, "replica_balance": balance}
    counted["edge_balance"] = _balance(edge_part, num_parts)
    if owner is not None:
        counted["edge_cut"] = (owner[src] != owner[dst]).mean()
        counted["node_balance"] = _balance(owner[has_edge], num_parts)
    return {name: float(value) for name, value in counted.items()}


def read_shards(out: Path, num_edges: int, num_parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of each edge and the owner of each node, from the files of our shards.

    Raises
    ------
    ValueError
        An edge is in no part or in several, or a node has no owner or several.
    """
    rows_of, nodes_of = [], []
    for part in range(num_parts):
        folder = out / f"part-{part:05d}"
        rows_of.append(_column(folder / "edges.arrow", "eid"))
        nodes_of.append(_column(folder / "nodes.arrow", "nid")[_column(folder / "nodes.arrow", "owner") == part])
    found = []
    for ids in (rows_of, nodes_of):
        id_of, part_of = np.concatenate(ids), np.repeat(np.arange(num_parts), [len(part) for part in ids])
        if not np.array_equal(np.sort(id_of), np.arange(len(id_of))):
            raise ValueError(f"{out}: edges and nodes must each be in one part")
        found.append(part_of[np.argsort(id_of)])
    if len(found[0]) != num_edges:
        raise ValueError(f"{out}: edges must be {num_edges}, got {len(found[0])}")
    return found[0], found[1]


def _column(path: Path, name: str) -> np.ndarray:
    with pa.memory_map(str(path)) as file:
        return np.array(pa.ipc.open_file(file).read_all()[name])


def _balance(part: np.ndarray, num_parts: int) -> float:
    load = np.bincount(part, minlength=num_parts)
    return load.max() / load.mean()


class Bench:
    """Runs systems, all under the same limit, and remembers what each takes on next to nothing.

    Parameters
    ----------
    seeds : int
        Runs a cell.
    base_runs : int
        Runs of each system on three edges; the leanest counts, as the first may compile. 0: none.
    limit : int
        Most processor seconds of a run.
    folder : Path
        For what is written on the way.
    apart : Executor
        Counts in a process of its own, so that this one stays small: the peak that the system states for a
        child starts at that of its parent.
    """

    def __init__(self, seeds: int, base_runs: int, limit: int, folder: Path, apart: Executor) -> None:
        self._seeds, self._base_runs, self._limit, self._folder, self._apart = seeds, base_runs, limit, folder, apart
        self._base_bytes: dict[System, int | None] = {}
        tiny = folder / "tiny.parquet"
        pq.write_table(pa.table({"src": [0, 1, 2], "dst": [1, 2, 0]}), tiny)
        self._tiny = Input(name="tiny", order="file", edges=tiny, num_nodes=3, num_edges=3)

    def row(self, system: System, graph: Input, num_parts: int) -> dict[str, Any]:
        """Return what a system reaches on a graph, and what it takes."""
        row: dict[str, Any] = {"graph": graph.name, "order": graph.order, "k": num_parts}
        row |= {"layout": system.layout, "system": system.name}
        if system not in self._base_bytes:
            tried = [self._run(system, self._tiny, 2, seed=0) for _ in range(self._base_runs)]
            self._base_bytes[system] = min((run.peak_bytes for run, _ in tried if not run.left_out), default=None)
        found = []
        for seed in range(self._seeds):
            run, counted = self._run(system, graph, num_parts, seed)
            if run.left_out:
                return row | {"left_out": run.left_out}
            found.append(counted | run.costs(self._base_bytes[system]))
        row |= {name: statistics.median(values[name] for values in found) for name in found[0]}
        replication = [values["rf"] for values in found]
        return row | {"rf_spread": max(replication) - min(replication)}

    def _run(self, system: System, graph: Input, num_parts: int, seed: int) -> tuple[Run, dict[str, float]]:
        """Run once, and return what it took and what a recount says of it."""
        start = run_peer if system.method is None else run_ours
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            run = start(system, graph, num_parts, seed, Path(name), self._limit)
            if run.left_out:
                return run, {}
            return run, self._apart.submit(recount, graph.edges, run.out, num_parts, system.layout).result()


def measured_separately(graphs: Sequence[str], parts: Sequence[int]) -> list[dict[str, Any]]:
    """Return rows of programs that no wheel brings, as measured once on the same graphs, marked so."""
    rows = json.loads(SEPARATE.read_text())
    mark = {"order": "file", "layout": "vertex-cut", "left_out": "measured separately"}
    return [row | mark for row in rows if row["graph"] in graphs and row["k"] in parts]


def show_tables(rows: Sequence[dict[str, Any]]) -> None:
    """Print what a README shows: quality by system and cell, for each layout."""
    for layout, title, cell in (
        ("vertex-cut", "vertex-cut: RF (replica balance)", _replication_cell),
        ("edge-cut", "edge-cut: fraction cut (node balance)", _cut_cell),
    ):
        chosen = [row for row in rows if row["layout"] == layout]
        if not chosen:
            continue
        columns = list(dict.fromkeys((row["graph"], row["order"], row["k"]) for row in chosen))
        values = {(row["system"], row["graph"], row["order"], row["k"]): cell(row) for row in chosen}
        print(f"\n| {title} | " + " | ".join(f"{graph} ({order}) k = {k}" for graph, order, k in columns) + " |")
        print("|---" * (1 + len(columns)) + "|")
        for system in dict.fromkeys(row["system"] for row in chosen):
            print(f"| {system} | " + " | ".join(values.get((system, *column), "") for column in columns) + " |")


def _replication_cell(row: dict[str, Any]) -> str:
    if "rf" not in row:
        return "-"
    balance = f" ({row['replica_balance']:.2f})" if "replica_balance" in row else ""
    return f"{row['rf']:.3f}{balance}"


def _cut_cell(row: dict[str, Any]) -> str:
    return f"{row['edge_cut']:.3f} ({row['node_balance']:.2f})" if "edge_cut" in row else "-"


def cells(chosen: argparse.Namespace, folder: Path, apart: Executor) -> Iterator[dict[str, Any]]:
    """Yield a row for each graph, number of parts and system."""
    graphs, parts = chosen.graphs.split(","), [int(k) for k in chosen.parts.split(",")]
    wanted = chosen.systems.split(",") if chosen.systems else None
    ours_and_peers = [s for s in systems(chosen.layouts.split(",")) if wanted is None or s.name in wanted]
    bench = Bench(chosen.seeds, 0 if chosen.quick else 2, chosen.cpu_limit, folder, apart)
    for graph in find_inputs(graphs, chosen.data, chosen.shuffle, folder, apart):
        for num_parts in parts:
            for system in ours_and_peers:
                yield bench.row(system, graph, num_parts)
    yield from measured_separately(graphs, parts)


def main() -> None:
    """Run every combination."""
    parser = options(__doc__)
    parser.add_argument("--graphs", default="wordnet", help="names, as a,b")
    parser.add_argument("--parts", default="4,32", help="numbers of parts, as 4,32")
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help="names, as a,b")
    parser.add_argument("--systems", default="", help="names as in the rows, as a,b; empty: all")
    parser.add_argument("--shuffle", action="store_true", help="also with the edges in random order")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each cell")
    parser.add_argument("--cpu-limit", type=int, default=1800, help="most processor seconds of a run")
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart,
    ):
        if chosen.quick:
            chosen.data, chosen.graphs, chosen.parts = Path(name), "rmat", "4"
            chosen.layouts, chosen.systems = "vertex-cut", ",".join(QUICK)
            write_rmat(Path(name) / "rmat.parquet", scale=10, edge_factor=8)
        rows = []
        for row in cells(chosen, Path(name), apart):
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    show_tables(rows)
    show(rows, chosen.json)


if __name__ == "__main__":
    main()
