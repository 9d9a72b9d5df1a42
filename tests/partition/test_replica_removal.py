"""Refinement equals the same rule in plain Python, never adds copies, and keeps to both bounds."""

import contextlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asepr.partition import replica_removal
from asepr.partition.owned_edges import OwnedEdges
from asepr.partition.owner_split import split_owners
from asepr.partition.ranking import rank_nodes
from asepr.partition.replica_removal import remove_replicas
from asepr.stream.scratch import ScratchDir
from tests.graphs import NAMED_GRAPHS, Graph, copies_of, graph, graphs, problem, random_graph


def num_copies(graph: Graph, part: np.ndarray) -> int:
    return sum(len(parts) for parts in copies_of(graph, part))


def balance(graph: Graph, part: np.ndarray, num_parts: int) -> float:
    held = Counter(p for parts in copies_of(graph, part) for p in parts)
    return max(held.values(), default=0) * num_parts / max(sum(held.values()), 1)


def limit(graph: Graph, num_parts: int) -> int:
    share = graph.num_edges / num_parts
    return max(-(-graph.num_edges // num_parts), int(1.05 * share), 1)


class Plain:
    """The rule of `remove_replicas` with counters and lists; one pass a call."""

    def __init__(self, graph: Graph, part: list[int], k: int):
        self.k, self.cap, self.num_edges = k, limit(graph, k), graph.num_edges
        pairs = list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
        self.degree = [sum((u == x) + (v == x) for u, v in pairs) for x in range(graph.num_nodes)]
        order = sorted(range(graph.num_nodes), key=lambda x: (-self.degree[x], x))
        rank = {x: r for r, x in enumerate(order)}
        self.groups: dict[int, list[tuple[int, int, int]]] = {}
        for eid, (u, v) in enumerate(pairs):
            low, owner = sorted((u, v), key=lambda x: rank[x])
            self.groups.setdefault(owner, []).append((rank[low], low, eid))
        self.owners = sorted(self.groups, key=lambda x: -rank[x])
        self.part = list(part)
        self.held = [Counter[int]() for _ in range(graph.num_nodes)]
        for (u, v), p in zip(pairs, part, strict=True):
            self.held[u][p] += 1
            self.held[v][p] += 1
        self.load = [part.count(p) for p in range(k)]

    def run(self) -> None:
        for r in self.owners:
            self.replace(r, [(u, eid) for _, u, eid in sorted(self.groups[r])])

    def copies(self) -> list[int]:
        return [sum(held[p] > 0 for held in self.held) for p in range(self.k)]

    def move(self, r: int, u: int, p: int, step: int) -> int:
        """Add (+1) or take (-1) an edge; return how many copies came or went."""
        self.load[p] += step
        changed = 0
        for x in (u, r):
            self.held[x][p] += step
            changed += self.held[x][p] == (1 if step > 0 else 0)
        return changed

    def replace(self, r: int, group: list[tuple[int, int]]) -> None:
        k = self.k
        total = sum(self.copies())
        x = [load * k / self.num_edges for load in self.load]
        y = [c * k / total for c in self.copies()]
        edge_price = [0.2 * v + 20 * max(0, v - 1.03) for v in x]
        copy_price = [0.2 * v + 20 * max(0, v - 1.05) for v in y]
        old = [self.part[eid] for _, eid in group]
        before = sum(self.move(r, u, p, -1) for (u, _), p in zip(group, old, strict=True))
        left = [u for u in dict.fromkeys(u for u, _ in group) if u != r and 0 < self.count(u) < k]
        opened: list[int] = []
        worth: dict[int, float] = {}

        def gain(p: int) -> float:
            return sum(1 - 0.8 / (1 + self.held[u][p]) for u in left if self.held[u][p])

        def covers(p: int) -> int:
            return sum(self.held[u][p] > 0 for u in left)

        def open_part(p: int) -> None:
            opened.append(p)
            worth[p] = gain(p)
            left[:] = [u for u in left if not self.held[u][p]]

        room = [p for p in range(k) if self.load[p] < self.cap]
        for p in room:
            if self.held[r][p]:
                open_part(p)
        if not opened:
            w = len(group)
            open_part(max(room, key=lambda p: gain(p) - w * edge_price[p] - (w - covers(p) + 1) * copy_price[p]))
        while True:
            moved = edge_price[opened[0]] + copy_price[opened[0]]
            score = {
                p: gain(p) - 1 - covers(p) * (edge_price[p] - moved) - copy_price[p]
                for p in room
                if p not in opened and covers(p)
            }
            best = max(score, key=lambda p: score[p], default=-1)
            if best < 0 or score[best] <= 0:
                break
            open_part(best)
        after = 0
        for u, eid in group:
            p = self.choose(r, u, opened, worth, len(group), edge_price, copy_price)
            self.part[eid] = p
            after += self.move(r, u, p, 1)
        if after > before:
            for u, eid in group:
                self.move(r, u, self.part[eid], -1)
            for (u, eid), p in zip(group, old, strict=True):
                self.part[eid] = p
                self.move(r, u, p, 1)

    def count(self, u: int) -> int:
        return sum(n > 0 for n in self.held[u].values())

    def choose(self, r, u, opened, worth, w, edge_price, copy_price) -> int:
        candidates = [p for p in opened if self.load[p] < self.cap]
        holding = [p for p in candidates if u == r or self.held[u][p]]
        if holding:
            return min(holding, key=lambda p: edge_price[p] + (0 if u == r else 0.8 / (1 + self.held[u][p])))
        if candidates:
            return min(candidates, key=lambda p: edge_price[p] + copy_price[p] - worth[p] / w)
        return min(
            (p for p in range(self.k) if self.load[p] < self.cap),
            key=lambda p: edge_price[p] + (1 + copy_price[p]) * sum(not self.held[x][p] for x in {r, u}),
        )


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), graph=graphs(max_nodes=9, max_edges=30), num_parts=st.integers(2, 5))
def test_one_pass_equals_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, graph: Graph, num_parts: int
):
    deck = [p for p in range(num_parts) for _ in range(limit(graph, num_parts))]
    start = data.draw(st.permutations(deck))[: graph.num_edges]
    with ScratchDir(tmp_path_factory.mktemp("r") / "scratch") as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_removal, "NUM_PASSES", 1)
        given_problem = problem(graph, num_parts, "vertex-cut", scratch)
        found = np.array(remove_replicas(given_problem, np.array(start, dtype=np.int16), replica_imbalance=1.10))
    plain = Plain(graph, list(start), num_parts)
    plain.run()
    begun, ended = np.array(start, dtype=np.int64), np.array(plain.part, dtype=np.int64)
    before, after = ((max(1.10, balance(graph, part, num_parts)), num_copies(graph, part)) for part in (begun, ended))
    assert found.tolist() == (plain.part if after < before else list(start))


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), graph=graphs(max_nodes=12, max_edges=40), num_parts=st.integers(1, 70))
def test_never_more_copies_and_never_above_a_cap(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, graph: Graph, num_parts: int
):
    shares = data.draw(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=num_parts, max_size=num_parts))
    with ScratchDir(tmp_path_factory.mktemp("r") / "scratch") as scratch:
        given_problem = problem(graph, num_parts, "vertex-cut", scratch, capacities=shares)
        begun = np.array(split_owners(given_problem))
        kept = begun.copy()
        found = np.array(remove_replicas(given_problem, begun))
    assert np.array_equal(begun, kept)
    assert num_copies(graph, found) <= num_copies(graph, begun)
    assert (np.bincount(found, minlength=num_parts) <= given_problem.caps(graph.num_edges)).all()


@pytest.mark.parametrize("name", NAMED_GRAPHS)
def test_named_graphs_keep_every_edge_in_a_part(scratch: ScratchDir, name: str):
    given_problem = problem(NAMED_GRAPHS[name], 3, "vertex-cut", scratch)
    found = np.array(remove_replicas(given_problem, split_owners(given_problem)))
    assert found.shape == (NAMED_GRAPHS[name].num_edges,)
    assert ((found >= 0) & (found < 3)).all()


def test_two_triangles_cut_across_are_mended(scratch: ScratchDir):
    triangles = graph(6, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])
    found = remove_replicas(
        problem(triangles, 2, "vertex-cut", scratch, imbalance=0.4), np.array([0, 0, 1, 1, 1, 0], dtype=np.int16)
    )
    assert num_copies(triangles, found) == 6


def test_clearly_fewer_copies_within_both_bounds(scratch: ScratchDir, rng: np.random.Generator):
    skewed = random_graph(3000, 30000)
    given_problem = problem(skewed, 8, "vertex-cut", scratch)
    begun = rng.permutation(np.arange(skewed.num_edges) % 8).astype(np.int16)
    found = np.array(remove_replicas(given_problem, begun, replica_imbalance=1.05))
    assert num_copies(skewed, found) < 0.7 * num_copies(skewed, begun)
    assert balance(skewed, found, 8) <= 1.05
    assert np.bincount(found, minlength=8).max() <= limit(skewed, 8)


def test_chunk_size_changes_nothing(scratch: ScratchDir):
    skewed = random_graph(300, 3000)
    given_problem = problem(skewed, 8, "vertex-cut", scratch)
    begun = np.array(split_owners(given_problem))
    small_chunks = problem(skewed, 8, "vertex-cut", scratch, chunk_edges=17)
    assert np.array_equal(remove_replicas(small_chunks, begun), remove_replicas(given_problem, begun))


def test_edges_by_owner_that_are_there_already_change_nothing(scratch: ScratchDir):
    given_problem = problem(random_graph(300, 3000), 8, "vertex-cut", scratch)
    begun = np.array(split_owners(given_problem))
    refined = np.array(remove_replicas(given_problem, begun))
    with contextlib.closing(OwnedEdges(given_problem, *rank_nodes(given_problem))) as owned:
        for _ in range(2):
            assert np.array_equal(split_owners(given_problem, owned=owned), begun)
            assert np.array_equal(remove_replicas(given_problem, begun, owned=owned), refined)
