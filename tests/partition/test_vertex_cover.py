"""Vertex-cuts from node partitions, against exact covers."""

import networkx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asepr.partition.edges_by_owner import edges_to_lower_degree_owner
from asepr.partition.vertex_cover import cover_cut_edges
from asepr.stream.scratch import ScratchDir
from tests.graphs import Graph, copies_of, graph, graphs, problem, random_graph

quick = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def smallest_cover(graph: Graph, home: np.ndarray) -> int:
    """Return the size of the smallest cover of all pairs' bipartite graphs, by Koenig's theorem."""
    pairs = networkx.Graph()
    for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        if home[u] != home[v]:
            pairs.add_edge((u, int(home[v])), (v, int(home[u])))
    return len(networkx.max_weight_matching(pairs, maxcardinality=True))


def copies_away(graph: Graph, home: np.ndarray, part: np.ndarray) -> int:
    return sum(len(parts - {int(home[node])}) for node, parts in enumerate(copies_of(graph, part)))


@quick
@given(graph=graphs(), num_parts=st.integers(1, 4), chunk_edges=st.integers(1, 9), data=st.data())
def test_every_edge_lies_at_an_end_and_copies_are_within_twice_the_smallest_cover(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, num_parts: int, chunk_edges: int, data: st.DataObject
):
    home = np.array([data.draw(st.integers(0, num_parts - 1)) for _ in range(graph.num_nodes)], dtype=np.int32)
    with ScratchDir(tmp_path_factory.mktemp("c") / "scratch") as scratch:
        about = problem(graph, num_parts, "vertex-cut", scratch, imbalance=100, chunk_edges=chunk_edges)
        part = np.array(cover_cut_edges(about, home))
    assert ((part == home[graph.src]) | (part == home[graph.dst])).all()
    assert copies_away(graph, home, part) <= 2 * smallest_cover(graph, home)


@quick
@given(parents=st.lists(st.integers(0, 100), max_size=20), data=st.data())
def test_covers_of_forests_are_the_smallest(
    tmp_path_factory: pytest.TempPathFactory, parents: list[int], data: st.DataObject
):
    tree = graph(len(parents) + 1, [(i + 1, parent % (i + 1)) for i, parent in enumerate(parents)])
    home = np.array([data.draw(st.integers(0, 2)) for _ in range(tree.num_nodes)], dtype=np.int32)
    with ScratchDir(tmp_path_factory.mktemp("t") / "scratch") as scratch:
        part = np.array(cover_cut_edges(problem(tree, 3, "vertex-cut", scratch, imbalance=100), home))
    assert copies_away(tree, home, part) == smallest_cover(tree, home)


@quick
@given(graph=graphs(), num_parts=st.integers(1, 5))
def test_the_cap_on_edges_holds(tmp_path_factory: pytest.TempPathFactory, graph: Graph, num_parts: int):
    with ScratchDir(tmp_path_factory.mktemp("e") / "scratch") as scratch:
        about = problem(graph, num_parts, "vertex-cut", scratch)
        part = np.array(cover_cut_edges(about, np.zeros(graph.num_nodes, dtype=np.int32)))
        assert (np.bincount(part, minlength=num_parts) <= about.caps(graph.num_edges)).all()


def test_a_cover_needs_fewer_copies_than_following_lower_degrees(scratch: ScratchDir, rng: np.random.Generator):
    graph = random_graph(2000, 12000)
    home = rng.integers(0, 4, 2000).astype(np.int32)
    about = problem(graph, 4, "vertex-cut", scratch, imbalance=1)
    covered = np.array(cover_cut_edges(about, home))
    followed = np.array(edges_to_lower_degree_owner(about, home))
    assert copies_away(graph, home, covered) < 0.98 * copies_away(graph, home, followed)
