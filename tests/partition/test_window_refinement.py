"""Refining run by run keeps the state of placing true, never adds to what copies are worth, and keeps to the caps."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asepr.partition import owned_edges, owner_split
from asepr.partition.owner_split import split_owners
from asepr.partition.window_refinement import Window
from asepr.stream.scratch import ScratchDir
from tests.graphs import NAMED_GRAPHS, Graph, copies_of, graph, graphs, problem


class Watched(Window):
    """A window that recounts, from all edges placed so far, what it says of the state."""

    parts_of: defaultdict[int, set[int]]
    load: Counter[int]

    def __init__(self, rows, local, bits, num_copies):
        super().__init__(rows, local, bits, num_copies)
        assert np.all(local == -1)
        self.edges = list(zip(rows.owner.tolist(), rows.other.tolist(), strict=True))

    def refine(self, part, bounds, unplaced, bits, num_copies, load, copies):
        k = len(load)
        value = {v: 1 / (1 + unplaced[v] / k) for edge in self.edges for v in edge}
        before = self._worth(part, value)
        super().refine(part, bounds, unplaced, bits, num_copies, load, copies)
        assert self._worth(part, value) <= before + 1e-4
        for (u, v), p in zip(self.edges, part.tolist(), strict=True):
            self.parts_of[u].add(p)
            self.parts_of[v].add(p)
            self.load[p] += 1
        for v, parts in self.parts_of.items():
            assert {p for p in range(k) if int(bits[v, p >> 6]) >> (p & 63) & 1} == parts
            assert num_copies[v] == len(parts)
        assert load.tolist() == [self.load[p] for p in range(k)]
        assert copies.tolist() == [sum(p in parts for parts in self.parts_of.values()) for p in range(k)]

    def _worth(self, part: np.ndarray, value: dict[int, float]) -> float:
        """Return what the copies are worth that the edges at hand add to those of earlier ones."""
        added = {(v, p) for edge, p in zip(self.edges, part.tolist(), strict=True) for v in edge}
        return sum(value[v] for v, p in added if p not in self.parts_of[v])


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    monkeypatch.setattr(owner_split, "Window", Watched)
    monkeypatch.setattr(owner_split, "CORE_DENSITY", 0.0)
    return Watched


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs(), num_parts=st.sampled_from([2, 3, 5, 70]), bucket_degree=st.sampled_from([4, 16, 1 << 20]))
def test_state_is_true_after_every_run(
    watched: type[Watched],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    graph: Graph,
    num_parts: int,
    bucket_degree: int,
):
    monkeypatch.setattr(owned_edges, "BUCKET_DEGREE", bucket_degree)
    watched.parts_of, watched.load = defaultdict(set), Counter()
    with ScratchDir(tmp_path_factory.mktemp("window") / "scratch") as scratch:
        part = split_owners(problem(graph, num_parts, "vertex-cut", scratch), refines=True)
    share = graph.num_edges / num_parts
    assert np.bincount(part, minlength=num_parts).max(initial=0) <= max(-(-graph.num_edges // num_parts), 1.05 * share)
    assert sum(watched.load.values()) == graph.num_edges


@pytest.mark.parametrize("name", sorted(NAMED_GRAPHS))
def test_named_graphs_need_no_more_copies(name: str, scratch: ScratchDir):
    graph = NAMED_GRAPHS[name]
    plain, refined = (
        sum(map(len, copies_of(graph, split_owners(problem(graph, 4, "vertex-cut", scratch), refines=refines))))
        for refines in (False, True)
    )
    assert refined <= plain


def test_communities_need_fewer_copies(scratch: ScratchDir, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(owned_edges, "BUCKET_DEGREE", 2000)
    block = rng.integers(0, 40, 4000) * 25
    outside = rng.random(4000) < 0.2
    src = block + rng.integers(0, 25, 4000)
    dst = np.where(outside, rng.integers(0, 1000, 4000), block + rng.integers(0, 25, 4000))
    communities = graph(1000, list(zip(src.tolist(), dst.tolist(), strict=True)))
    plain, refined = (
        sum(
            map(
                len,
                copies_of(communities, split_owners(problem(communities, 8, "vertex-cut", scratch), refines=refines)),
            )
        )
        for refines in (False, True)
    )
    assert refined < 0.98 * plain
