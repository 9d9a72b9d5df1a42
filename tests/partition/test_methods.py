"""What every method must keep, in both layouts, on graphs small enough to count by hand."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asepr.contracts import Assignment, Layout
from asepr.errors import CapacityError, ConfigError
from asepr.partition.methods import METHODS, get_method
from asepr.stream.scratch import ScratchDir
from tests.graphs import NAMED_GRAPHS, Graph, copies_of, graphs, problem

LAYOUTS: tuple[Layout, ...] = ("vertex-cut", "edge-cut")


def assign(graph: Graph, method: str, layout: Layout, num_parts: int, path: Path, **options) -> Assignment:
    with ScratchDir(path / "scratch") as scratch:
        found = get_method(method).assign(problem(graph, num_parts, layout, scratch, **options))
        edge_part = None if found.edge_part is None else np.array(found.edge_part)
        return Assignment(
            layout=layout, num_parts=num_parts, owner=found.owner, copies=found.copies, edge_part=edge_part
        )


def part_of_edges(graph: Graph, found: Assignment) -> np.ndarray:
    return found.owner[graph.dst] if found.edge_part is None else found.edge_part


def check(graph: Graph, found: Assignment, imbalance: float = 0.05) -> None:
    num_parts = found.num_parts
    edge_part = part_of_edges(graph, found)
    assert edge_part.shape == (graph.num_edges,)
    assert found.owner.shape == (graph.num_nodes,)
    assert ((edge_part >= 0) & (edge_part < num_parts)).all()
    assert set(found.owner.tolist()) == set(range(num_parts)), "every part owns a node"
    total, counted = graph.num_edges, edge_part
    if found.layout == "edge-cut":
        total, counted = graph.num_nodes, found.owner
    cap = max(-(-total // num_parts), int((1 + imbalance) * total / num_parts))
    assert np.bincount(counted, minlength=num_parts).max() <= max(cap, 1)
    held = copies_of(graph, edge_part)
    for nid, parts in enumerate(held):
        parts.add(int(found.owner[nid]))
        bits = {p for p in range(num_parts) if int(found.copies[nid, p // 64]) >> (p % 64) & 1}
        assert bits == parts


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("graph", NAMED_GRAPHS.values(), ids=NAMED_GRAPHS)
def test_named_graphs(graph: Graph, method: str, layout: Layout, tmp_path: Path):
    for number, num_parts in enumerate(sorted({1, 2, min(3, graph.num_nodes), graph.num_nodes})):
        if num_parts <= graph.num_nodes:
            check(graph, assign(graph, method, layout, num_parts, tmp_path / str(number)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=25)
@given(data=st.data(), graph=graphs())
def test_any_small_graph(
    method: str, layout: Layout, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, graph: Graph
):
    num_parts = data.draw(st.integers(1, graph.num_nodes))
    imbalance = data.draw(st.sampled_from([0.0, 0.05, 1.0]))
    found = assign(graph, method, layout, num_parts, tmp_path_factory.mktemp("m"), imbalance=imbalance)
    check(graph, found, imbalance)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", METHODS)
def test_neither_chunk_size_nor_another_run_changes_a_thing(method: str, layout: Layout, tmp_path: Path):
    graph = NAMED_GRAPHS["skewed"]
    cluster = np.arange(graph.num_nodes, dtype=np.int32) % 5
    runs = [
        assign(graph, method, layout, 4, tmp_path / str(chunk), chunk_edges=chunk, attribute_cluster=cluster)
        for chunk in (1, 7, 1 << 20)
    ]
    for other in runs[1:]:
        assert np.array_equal(runs[0].owner, other.owner)
        assert np.array_equal(part_of_edges(graph, runs[0]), part_of_edges(graph, other))


@pytest.mark.parametrize("method", METHODS)
def test_unequal_capacities_are_hard_caps(method: str, tmp_path: Path):
    graph = NAMED_GRAPHS["skewed"]
    found = assign(graph, method, "vertex-cut", 3, tmp_path, capacities=[1, 1, 2])
    load = np.bincount(part_of_edges(graph, found), minlength=3)
    shares = np.array([0.25, 0.25, 0.5]) * graph.num_edges
    assert (load <= np.maximum(np.ceil(shares), np.floor(1.05 * shares))).all()
    assert load[2] > 1.5 * load[0]


@pytest.mark.parametrize("method", METHODS)
def test_many_parts_use_more_than_one_word_of_bits(method: str, tmp_path: Path):
    graph = NAMED_GRAPHS["skewed"]
    num_parts = graph.num_nodes
    wide = Graph(
        num_nodes=3 * num_parts,
        src=np.concatenate([graph.src + i * num_parts for i in range(3)]),
        dst=np.concatenate([graph.dst + i * num_parts for i in range(3)]),
    )
    check(wide, assign(wide, method, "vertex-cut", 130, tmp_path))


def test_more_parts_than_nodes(tmp_path: Path):
    with pytest.raises(CapacityError, match="num_parts must be at most 3, the nodes, got 4; ask for fewer"):
        assign(NAMED_GRAPHS["multigraph"], "hdrf", "vertex-cut", 4, tmp_path)


def test_unknown_method_lists_the_known():
    with pytest.raises(ConfigError, match=r"must be one of asepr, random, dbh, hdrf, metis, got 'foo'"):
        get_method("foo")
