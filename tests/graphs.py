"""Small graphs, hypothesis strategies of them, and problems about them."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from asepr.contracts import DEFAULT_MEMORY_BYTES, USUAL_BALANCE, BalanceName, Layout, PartitionProblem, Scratch
from asepr.formats.edge_sources import ArrayEdgeSource
from asepr.stream.degrees import count_degrees


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Edges as two lists, and how many nodes there are."""

    num_nodes: int
    src: np.ndarray
    dst: np.ndarray

    @property
    def num_edges(self) -> int:
        return len(self.src)

    def source(self, chunk_edges: int = 1 << 20) -> ArrayEdgeSource:
        return ArrayEdgeSource(self.src, self.dst, self.num_nodes, chunk_edges=chunk_edges)


def graph(num_nodes: int, pairs: list[tuple[int, int]]) -> Graph:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Graph(num_nodes=num_nodes, src=array[:, 0].copy(), dst=array[:, 1].copy())


def random_graph(num_nodes: int, num_edges: int, seed: int = 0) -> Graph:
    """Skewed degrees, with self-loops, parallel and reciprocal edges, and isolated nodes."""
    rng = np.random.default_rng(seed)
    ends = np.minimum((num_nodes * rng.random((2, num_edges)) ** 2.5).astype(np.int64), num_nodes - 1)
    src, dst = np.concatenate([ends, ends[:, : num_edges // 20], ends[::-1, : num_edges // 10]], axis=1)
    shuffled = rng.permutation(num_nodes)
    return Graph(num_nodes=num_nodes, src=shuffled[src], dst=shuffled[dst])


NAMED_GRAPHS = {
    "no edges": graph(3, []),
    "one node": graph(1, []),
    "one self-loop": graph(1, [(0, 0)]),
    "star": graph(9, [(0, i) for i in range(1, 9)]),
    "star inwards": graph(9, [(i, 0) for i in range(1, 9)]),
    "clique": graph(6, [(i, j) for i in range(6) for j in range(6) if i != j]),
    "two components": graph(7, [(0, 1), (1, 2), (4, 5), (5, 6)]),
    "multigraph": graph(3, [(0, 1)] * 5 + [(1, 0)] * 3 + [(1, 2), (2, 2), (2, 2)]),
    "isolated tail": graph(10, [(0, 1), (1, 2)]),
    "path": graph(8, [(i, i + 1) for i in range(7)]),
    "skewed": random_graph(60, 400),
}


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 12, max_edges: int = 30) -> Graph:
    num_nodes = draw(st.integers(1, max_nodes))
    node = st.integers(0, num_nodes - 1)
    return graph(num_nodes, draw(st.lists(st.tuples(node, node), max_size=max_edges)))


def problem(
    graph: Graph,
    num_parts: int,
    layout: Layout,
    scratch: Scratch,
    *,
    chunk_edges: int = 1 << 20,
    imbalance: float = 0.05,
    capacities: list[float] | None = None,
    attribute_cluster: np.ndarray | None = None,
    train: np.ndarray | None = None,
    seed: int = 0,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    replica_imbalance: float = 0.10,
    attr_weight: float | None = None,
    balance: tuple[BalanceName, ...] = USUAL_BALANCE,
    ntype: np.ndarray | None = None,
) -> PartitionProblem:
    source = graph.source(chunk_edges)
    shares = np.array(capacities or [1.0] * num_parts)
    return PartitionProblem(
        source=source,
        degrees=count_degrees(source),
        num_parts=num_parts,
        layout=layout,
        capacities=shares / shares.sum(),
        imbalance=imbalance,
        seed=seed,
        scratch=scratch,
        attribute_cluster=attribute_cluster,
        train=train,
        memory_bytes=memory_bytes,
        replica_imbalance=replica_imbalance,
        attr_weight=attr_weight,
        balance=balance,
        ntype=ntype,
    )


def copies_of(graph: Graph, edge_part: np.ndarray) -> list[set[int]]:
    """Return the parts that hold an edge of each node, by a plain loop."""
    held: list[set[int]] = [set() for _ in range(graph.num_nodes)]
    for u, v, p in zip(graph.src.tolist(), graph.dst.tolist(), np.asarray(edge_part).tolist(), strict=True):
        held[u].add(p)
        held[v].add(p)
    return held
