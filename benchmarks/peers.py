"""One partitioner that a wheel brings, on one graph, in this process alone; `benchmarks.partition` starts it.

    python -m benchmarks.peers NAME LAYOUT EDGES.parquet K SEED OUT

OUT.npz gets `edge_part` (E,) and, where nodes have parts, `owner` (N,); OUT.json what it took. Vertex
partitioners see the graph without directions, self-loops and parallel edges (weighted by how many there
were). For a vertex-cut they balance degrees, and an edge between parts goes to that of its end of lower
degree, ties to the source; for an edge-cut they balance nodes, and an edge goes to the part of its
destination.
"""

import contextlib
import json
import resource
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp

IMBALANCE = 0.05
KAHIP_EDGE_PARTITIONING = Path(sysconfig.get_path("purelib")) / "bin" / "edge_partitioning"


class UnavailableError(Exception):
    """The peer is not installed, or cannot run here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What a peer is asked for; `src` and `dst` are int64 (E,)."""

    src: np.ndarray
    dst: np.ndarray
    num_parts: int
    seed: int
    layout: str

    @property
    def num_nodes(self) -> int:
        """Number of nodes, up to the largest id."""
        return int(max(self.src.max(), self.dst.max())) + 1

    def adjacency(self) -> sp.csr_array:
        """Return int64 (N, N): how many edges join two nodes, in either direction; none to itself."""
        shape = (self.num_nodes, self.num_nodes)
        joins = sp.coo_array((np.ones(len(self.src), dtype=np.int64), (self.src, self.dst)), shape=shape).tocsr()
        joins = (joins + joins.T).tocsr()
        joins.setdiag(0)
        joins.eliminate_zeros()
        return joins

    def node_weight(self, adjacency: sp.csr_array) -> np.ndarray:
        """Return int64 (N,): what a vertex partitioner has to balance for the layout."""
        if self.layout == "edge-cut":
            return np.ones(self.num_nodes, dtype=np.int64)
        return np.diff(adjacency.indptr).astype(np.int64) + 1


def pymetis(task: Task) -> np.ndarray:
    """Multilevel k-way by the METIS that `pymetis` brings."""
    import pymetis

    adjacency = task.adjacency()
    indptr, indices = adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64)
    _, part = pymetis.part_graph(
        task.num_parts,
        pymetis.CSRAdjacency(indptr, indices),
        vweights=task.node_weight(adjacency),
        eweights=adjacency.data,
        options=pymetis.Options(ufactor=int(1000 * IMBALANCE), seed=task.seed),
    )
    return np.asarray(part, dtype=np.int32)


def kaminpar(task: Task) -> np.ndarray:
    """KaMinPar on one thread, default configuration; arrays reach it through a file."""
    import kaminpar

    adjacency = task.adjacency()
    with tempfile.TemporaryDirectory() as folder, _outside_the_work():
        path = Path(folder) / "graph.parhip"
        _write_parhip(path, adjacency, task.node_weight(adjacency))
        graph = kaminpar.load_graph(str(path), kaminpar.GraphFileFormat.PARHIP)
    kaminpar.reseed(task.seed)
    solver = kaminpar.KaMinPar(1, kaminpar.default_context())
    return np.asarray(solver.compute_partition(graph, task.num_parts, eps=IMBALANCE), dtype=np.int32)


def dgl_metis(task: Task) -> np.ndarray:
    """DGL's METIS as its partitioning calls it, with its balancing of edges for a vertex-cut."""
    dgl = _import_dgl()
    graph = dgl.graph((task.src, task.dst), num_nodes=task.num_nodes)
    return dgl.metis_partition_assignment(graph, task.num_parts, balance_edges=task.layout == "vertex-cut").numpy()


def dgl_libra(task: Task) -> np.ndarray:
    """Libra, the vertex-cut of DGL's DistGNN, without its conversion to graphs and features."""
    _import_dgl()
    import torch
    from dgl._sparse_ops import libra_vertex_cut

    src, dst = torch.from_numpy(task.src), torch.from_numpy(task.dst)
    degree = torch.from_numpy(np.bincount(np.concatenate([task.src, task.dst]), minlength=task.num_nodes))
    edge_part = torch.zeros(len(src), dtype=torch.int32)
    with tempfile.TemporaryDirectory() as folder:
        libra_vertex_cut(
            task.num_parts,
            degree,
            degree.clone(),
            torch.zeros(task.num_parts, dtype=torch.int64),
            src,
            dst,
            torch.ones(len(src), dtype=torch.int64),
            edge_part,
            task.num_nodes,
            len(src),
            folder,
        )
    return edge_part.numpy()


def kahip_edges(task: Task) -> np.ndarray:
    """KaHIP's edge partitioning, its `fast` configuration, through files; parallel edges share a part."""
    if not KAHIP_EDGE_PARTITIONING.exists():
        raise UnavailableError("the kahip wheel, or its edge_partitioning program, is not installed")
    adjacency = task.adjacency()
    with tempfile.TemporaryDirectory() as folder:
        graph, placed = Path(folder) / "graph.metis", Path(folder) / "parts"
        with _outside_the_work():
            _write_metis(graph, adjacency)
        command = [KAHIP_EDGE_PARTITIONING, graph, f"--k={task.num_parts}", "--preconfiguration=fast"]
        command += [f"--seed={task.seed}", f"--imbalance={int(100 * IMBALANCE)}", f"--output_filename={placed}"]
        subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
        part = np.loadtxt(placed, dtype=np.int32)
    return _part_of_each_edge(task, adjacency, part)


NODE_PEERS: dict[str, Callable[[Task], np.ndarray]] = {
    "pymetis": pymetis,
    "kaminpar": kaminpar,
    "dgl metis": dgl_metis,
}
EDGE_PEERS: dict[str, Callable[[Task], np.ndarray]] = {"kahip edges": kahip_edges, "dgl libra": dgl_libra}


def place(name: str, task: Task) -> dict[str, np.ndarray]:
    """Return `edge_part` and, from a vertex partitioner, `owner`."""
    if name in EDGE_PEERS:
        return {"edge_part": EDGE_PEERS[name](task)}
    owner = NODE_PEERS[name](task)
    if task.layout == "edge-cut":
        return {"edge_part": owner[task.dst], "owner": owner}
    degree = np.bincount(np.concatenate([task.src, task.dst]), minlength=task.num_nodes)
    lower = np.where(degree[task.dst] < degree[task.src], task.dst, task.src)
    return {"edge_part": owner[lower], "owner": owner}


def _import_dgl():
    with _outside_the_work():
        try:
            import dgl
        except Exception as error:  # a wheel of DGL fails in many ways beside a torch it was not made for
            raise UnavailableError(f"dgl cannot be imported: {str(error).splitlines()[0]}") from error
    return dgl


def _write_parhip(path: Path, adjacency: sp.csr_array, node_weight: np.ndarray) -> None:
    """Write ParHIP's binary format, all numbers of 64 bits, with both weights."""
    num_nodes, num_entries = adjacency.shape[0], adjacency.nnz
    first_byte = 8 * (3 + num_nodes + 1)
    with path.open("wb") as file:
        for values in (
            [0, num_nodes, num_entries],
            first_byte + 8 * adjacency.indptr.astype(np.int64),
            adjacency.indices,
            node_weight,
            adjacency.data,
        ):
            np.asarray(values, dtype=np.int64).tofile(file)


def _write_metis(path: Path, adjacency: sp.csr_array) -> None:
    adjacency.sort_indices()
    names = np.char.mod("%d", np.arange(1, adjacency.shape[0] + 1)).tolist()
    with path.open("w") as file:
        print(adjacency.shape[0], adjacency.nnz // 2, file=file)
        for first, last in zip(adjacency.indptr[:-1].tolist(), adjacency.indptr[1:].tolist(), strict=True):
            print(*map(names.__getitem__, adjacency.indices[first:last].tolist()), file=file)


def _part_of_each_edge(task: Task, adjacency: sp.csr_array, part: np.ndarray) -> np.ndarray:
    """Look up each edge among the entries of the adjacency, row by row, as KaHIP numbers them; loops go to part 0."""
    row = np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr))
    key = row * task.num_nodes + adjacency.indices
    if len(part) != len(key):
        raise UnavailableError(f"edge_partitioning gave {len(part)} parts for {len(key)} directed edges")
    place = np.minimum(np.searchsorted(key, task.src * task.num_nodes + task.dst), len(key) - 1)
    return np.where(task.src == task.dst, 0, part[place])


_outside = 0.0


@contextlib.contextmanager
def _outside_the_work() -> Iterator[None]:
    """Leave out of the work's processor time what only loads a library or hands it a graph as a file."""
    global _outside
    before = _cpu_seconds()
    yield
    _outside += _cpu_seconds() - before


def _cpu_seconds() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


def _peak_rss_bytes() -> int:
    """Return the peak of this program alone, not of the process that started it, or of one that it ran."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    ran = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return 1024 * max(int(status["VmHWM"].split()[0]), ran)


def main() -> None:
    """Run the peer, and write what it made and what it took."""
    name, layout, edges, num_parts, seed, out = sys.argv[1:]
    table = pq.read_table(edges, columns=["src", "dst"])
    src, dst = (np.asarray(table[column], dtype=np.int64) for column in ("src", "dst"))
    task = Task(src=src, dst=dst, num_parts=int(num_parts), seed=int(seed), layout=layout)
    taken: dict[str, object] = {}
    since = _cpu_seconds()
    try:
        placed = place(name, task)
        taken["work_cpu_seconds"] = _cpu_seconds() - since - _outside
        taken["peak_bytes"] = _peak_rss_bytes()
        np.savez(f"{out}.npz", **placed)
    except (UnavailableError, ImportError) as error:
        taken["left_out"] = str(error)
    Path(f"{out}.json").write_text(json.dumps(taken))


if __name__ == "__main__":
    main()
