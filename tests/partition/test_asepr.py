"""The method `asepr` in both of its forms."""

import numpy as np
import pytest

from asepr.contracts import PartitionProblem
from asepr.partition.asepr import place_edges
from asepr.partition.plan import Form, choose_form, make_plan
from asepr.stream.scratch import ScratchDir
from tests.graphs import Graph, copies_of, problem, random_graph


def lean(about: PartitionProblem) -> int:
    """Return a budget for which the streaming form is all there is room for."""
    source = about.source
    wide = make_plan(source.num_nodes, source.num_edges, about.num_parts, "asepr", "vertex-cut", 10**12)
    return wide.memory_bytes - 1


def replication(graph: Graph, part: np.ndarray) -> float:
    held = copies_of(graph, part)
    return sum(map(len, held)) / sum(map(bool, held))


def grid(side: int) -> Graph:
    """Return a square lattice with ids in random order: geometry, and nothing else."""
    names = np.random.default_rng(0).permutation(side * side).reshape(side, side)
    src = np.concatenate([names[:, 1:].ravel(), names[1:].ravel()])
    dst = np.concatenate([names[:, :-1].ravel(), names[:-1].ravel()])
    return Graph(num_nodes=side * side, src=src, dst=dst)


@pytest.mark.parametrize("graph", [random_graph(3000, 30000), grid(60)], ids=["skewed", "grid"])
@pytest.mark.parametrize("num_parts", [2, 8, 70])
def test_memory_buys_fewer_copies_within_both_bounds(graph: Graph, num_parts: int, scratch: ScratchDir):
    about = problem(graph, num_parts, "vertex-cut", scratch)
    assert choose_form(about) is Form.IN_MEMORY
    refined = np.array(place_edges(about))
    streamed_about = problem(graph, num_parts, "vertex-cut", scratch, memory_bytes=lean(about))
    assert choose_form(streamed_about) is Form.STREAMING
    streamed = np.array(place_edges(streamed_about))
    assert replication(graph, refined) < replication(graph, streamed)
    cap = max(-(-graph.num_edges // num_parts), int(1.05 * graph.num_edges / num_parts))
    for part in (refined, streamed):
        assert np.bincount(part, minlength=num_parts).max() <= cap
    held = copies_of(graph, refined)
    copies = np.bincount([p for parts in held for p in parts], minlength=num_parts)
    assert copies.max() <= 1.1 * copies.mean() + 1


@pytest.mark.parametrize("form", Form)
def test_attributes_cost_at_most_one_copy_in_a_hundred_unless_asked_for(scratch: ScratchDir, form: Form):
    graph = random_graph(3000, 30000)
    degree = np.bincount(np.concatenate([graph.src, graph.dst]), minlength=graph.num_nodes)
    # Edges join hubs, so clusters by degree agree with edges, and keeping to them costs copies.
    cluster = (np.argsort(np.argsort(-degree)) * 8 // len(degree)).astype(np.int32)
    plain = problem(graph, 8, "vertex-cut", scratch)
    budget = lean(plain) if form is Form.STREAMING else plain.memory_bytes
    plain = problem(graph, 8, "vertex-cut", scratch, memory_bytes=budget)
    told = problem(graph, 8, "vertex-cut", scratch, memory_bytes=budget, attribute_cluster=cluster)
    forced = problem(graph, 8, "vertex-cut", scratch, memory_bytes=budget, attribute_cluster=cluster, attr_weight=5.0)
    without = problem(graph, 8, "vertex-cut", scratch, memory_bytes=budget, attribute_cluster=cluster, attr_weight=0.0)
    least = replication(graph, np.array(place_edges(plain)))
    assert replication(graph, np.array(place_edges(told))) <= 1.01 * least
    assert replication(graph, np.array(place_edges(forced))) > least
    assert np.array_equal(place_edges(without), place_edges(plain))


def test_geometry_is_found(scratch: ScratchDir):
    lattice = grid(60)
    part = np.array(place_edges(problem(lattice, 4, "vertex-cut", scratch)))
    # Four squares of a lattice share about two lines of nodes; a method blind to geometry shares far more.
    assert replication(lattice, part) < 1 + 3 * 60 / 3600
