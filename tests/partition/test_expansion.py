"""Expansion equals the same rule with lists and sets, keeps its caps, and is the same every time."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asepr.partition.asepr import place_edges
from asepr.partition.expansion import expand_parts
from asepr.partition.owner_split import split_owners
from asepr.stream.scratch import ScratchDir
from tests.graphs import NAMED_GRAPHS, Graph, copies_of, graph, graphs, problem, random_graph

quick = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def num_copies(graph: Graph, part: np.ndarray) -> int:
    return sum(len(parts) for parts in copies_of(graph, part))


class Plain:
    """The rule of `expand_parts`: sets of unplaced edges, and the time when each node came to its number of them."""

    def __init__(self, graph: Graph):
        self.ends = list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
        self.edges_of: list[list[int]] = [[] for _ in range(graph.num_nodes)]
        for eid, ends in enumerate(self.ends):
            for v in set(ends):
                self.edges_of[v].append(eid)
        self.part = [-1] * graph.num_edges
        self.queued: dict[int, int] = {}
        self.reached: set[int] = set()
        self.room = self.clock = 0

    def grow(self, targets: list[int], seeds: list[int]) -> list[int]:
        for p, target in enumerate(targets):
            self.queued, self.reached, self.room = {}, set(), target
            while self.room and -1 in self.part:
                if self.queued:
                    v = min(self.queued, key=lambda v: (len(self.left(v)), -self.queued[v]))
                else:
                    v = next(v for v in seeds if self.left(v))
                    self.reach(v, p)
                self.queued.pop(v, None)
                for eid in reversed(self.edges_of[v]):
                    (u,) = set(self.ends[eid]) - {v} or {v}
                    if self.room and self.part[eid] < 0 and u not in self.reached:
                        self.reach(u, p)
        return self.part

    def left(self, v: int) -> list[int]:
        return [eid for eid in self.edges_of[v] if self.part[eid] < 0]

    def queue(self, v: int) -> None:
        self.queued.pop(v, None)
        if self.left(v):
            self.clock += 1
            self.queued[v] = self.clock

    def reach(self, v: int, p: int) -> None:
        self.reached.add(v)
        for eid in self.left(v):
            (u,) = set(self.ends[eid]) - {v} or {v}
            if u in self.reached and self.room:
                self.part[eid] = p
                self.room -= 1
                if u in self.queued:
                    self.queue(u)
        self.queue(v)


def targets(graph: Graph, num_parts: int) -> list[int]:
    """Return the caps, each lowered to what leaves the later parts half of their share."""
    share = graph.num_edges / num_parts
    cap = max(-(-graph.num_edges // num_parts), int(1.05 * share), 1)
    least = min(int(0.5 * share), cap)
    found: list[int] = []
    for p in range(num_parts):
        found.append(min(cap, graph.num_edges - sum(found) - least * (num_parts - 1 - p)))
    return found


def expand_plainly(graph: Graph, num_parts: int, seed: int) -> list[int]:
    degree = np.bincount(graph.src, minlength=graph.num_nodes) + np.bincount(graph.dst, minlength=graph.num_nodes)
    order = sorted(range(graph.num_nodes), key=lambda v: (-degree[v], v))
    seeds = [order[rank] for rank in np.random.default_rng(seed).permutation(graph.num_nodes)]
    return Plain(graph).grow(targets(graph, num_parts), seeds)


@quick
@given(graph=graphs(max_nodes=15, max_edges=50), num_parts=st.integers(1, 5), seed=st.integers(0, 3))
def test_any_small_graph_equals_the_plain_rule(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, num_parts: int, seed: int
):
    with ScratchDir(tmp_path_factory.mktemp("e") / "scratch") as scratch:
        found = np.array(expand_parts(problem(graph, num_parts, "vertex-cut", scratch, seed=seed)))
    assert found.tolist() == expand_plainly(graph, num_parts, seed)


@pytest.mark.parametrize("name", NAMED_GRAPHS)
@pytest.mark.parametrize("num_parts", [1, 2, 7, 130])
def test_named_graphs_equal_the_plain_rule(scratch: ScratchDir, name: str, num_parts: int):
    about = problem(NAMED_GRAPHS[name], num_parts, "vertex-cut", scratch)
    found = np.array(expand_parts(about))
    assert found.tolist() == expand_plainly(NAMED_GRAPHS[name], num_parts, 0)
    assert (np.bincount(found, minlength=num_parts) <= about.caps(len(found))).all()


def test_shares_are_kept_and_no_part_is_left_with_little(scratch: ScratchDir):
    graph = random_graph(2000, 20000)
    about = problem(graph, 4, "vertex-cut", scratch, capacities=[1, 1, 2, 4])
    load = np.bincount(np.array(expand_parts(about)), minlength=4)
    assert (load <= about.caps(graph.num_edges)).all()
    assert (load >= 0.49 * about.capacities * graph.num_edges).all()


def cliques(num_cliques: int, size: int) -> Graph:
    within = [(i, j) for i in range(size) for j in range(i)]
    return graph(num_cliques * size, [(c * size + i, c * size + j) for c in range(num_cliques) for i, j in within])


def test_cliques_of_the_size_of_a_part_stay_whole(scratch: ScratchDir):
    graph = cliques(6, 8)
    found = np.array(expand_parts(problem(graph, 6, "vertex-cut", scratch, imbalance=0)))
    assert num_copies(graph, found) == graph.num_nodes


def test_a_hub_with_all_edges_is_the_only_node_copied(scratch: ScratchDir):
    star = graph(400, [(0, i) for i in range(1, 400)])
    found = np.array(expand_parts(problem(star, 8, "vertex-cut", scratch)))
    assert num_copies(star, found) == 399 + 8


def test_the_seed_decides_and_chunks_do_not(scratch: ScratchDir):
    graph = random_graph(500, 4000)
    runs = [
        np.array(expand_parts(problem(graph, 5, "vertex-cut", scratch, seed=seed, chunk_edges=chunk)))
        for seed, chunk in ((3, 1 << 20), (3, 77), (4, 77))
    ]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_without_a_bound_on_copies_there_are_fewer(scratch: ScratchDir):
    graph = random_graph(3000, 20000)
    bounded = problem(graph, 8, "vertex-cut", scratch)
    unbounded = problem(graph, 8, "vertex-cut", scratch, replica_imbalance=np.inf)
    found = np.array(place_edges(unbounded))
    assert (np.bincount(found, minlength=8) <= unbounded.caps(graph.num_edges)).all()
    assert num_copies(graph, found) < num_copies(graph, np.array(place_edges(bounded)))
    assert num_copies(graph, found) < num_copies(graph, np.array(split_owners(unbounded)))
