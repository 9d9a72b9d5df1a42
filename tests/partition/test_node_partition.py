"""Node partitions of problems: caps, every part in use, and the same result every time."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asepr.errors import CapacityError
from asepr.partition.metis import metis_owner
from asepr.partition.node_partition import partition_nodes
from asepr.partition.structural_prior import streamed_home, structural_home
from asepr.stream.scratch import ScratchDir
from tests.graphs import NAMED_GRAPHS, Graph, graph, graphs, problem, random_graph

quick = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
methods = pytest.mark.parametrize("method", [partition_nodes, metis_owner])


def check(graph: Graph, num_parts: int, method, scratch: ScratchDir, **options) -> np.ndarray:
    about = problem(graph, num_parts, "edge-cut", scratch, **options)
    part = method(about)
    nodes = np.bincount(part, minlength=num_parts)
    assert part.dtype == np.int32
    assert part.shape == (graph.num_nodes,)
    assert len(nodes) == num_parts
    assert (nodes <= about.caps(graph.num_nodes)).all()
    assert (nodes > 0).all()
    return part


@methods
@quick
@given(graph=graphs(), data=st.data())
def test_caps_hold_and_no_part_is_empty(
    tmp_path_factory: pytest.TempPathFactory, method, graph: Graph, data: st.DataObject
):
    num_parts = data.draw(st.integers(1, graph.num_nodes))
    with ScratchDir(tmp_path_factory.mktemp("n") / "scratch") as scratch:
        check(graph, num_parts, method, scratch)


@methods
@pytest.mark.parametrize("name", NAMED_GRAPHS)
def test_named_graphs_with_one_part_and_with_a_part_a_node(scratch: ScratchDir, method, name: str):
    check(NAMED_GRAPHS[name], 1, method, scratch)
    check(NAMED_GRAPHS[name], NAMED_GRAPHS[name].num_nodes, method, scratch)


@methods
def test_shares_of_parts_are_kept(scratch: ScratchDir, method):
    part = check(random_graph(1200, 6000), 3, method, scratch, capacities=[1, 2, 3])
    assert np.abs(np.bincount(part) / 1200 * 6 / [1, 2, 3] - 1).max() < 0.2


def test_training_nodes_and_in_edges_are_balanced(scratch: ScratchDir, rng: np.random.Generator):
    graph = random_graph(3000, 18000)
    train = rng.random(3000) < np.linspace(0.3, 0, 3000)
    part = check(graph, 5, partition_nodes, scratch, train=train)
    for load in (np.bincount(part, weights=train), np.bincount(part[graph.dst])):
        assert load.max() / load.mean() <= 1.06


def test_nodes_of_each_type_are_balanced_where_asked_for(scratch: ScratchDir):
    graph = random_graph(3000, 18000)
    # Types follow the structure, so that a good cut alone would keep them apart.
    ntype = check(graph, 3, partition_nodes, scratch).astype(np.int32)
    part = check(graph, 3, partition_nodes, scratch, ntype=ntype, balance=("nodes", "types"))
    loads = [np.bincount(part[ntype == code], minlength=3) for code in range(3)]
    assert max(load.max() / load.mean() for load in loads) <= 1.06
    free = check(graph, 3, partition_nodes, scratch, ntype=ntype)
    assert max((load := np.bincount(free[ntype == code], minlength=3)).max() / load.mean() for code in range(3)) > 1.5


def test_more_types_than_can_be_balanced(scratch: ScratchDir):
    graph = random_graph(200, 600)
    with pytest.raises(CapacityError, match="balance may name types up to 32 node types, got 100"):
        partition_nodes(
            problem(
                graph, 2, "edge-cut", scratch, ntype=np.arange(200, dtype=np.int32) % 100, balance=("nodes", "types")
            )
        )


def test_what_need_not_be_balanced_lets_fewer_edges_be_cut(scratch: ScratchDir):
    graph = random_graph(3000, 18000)
    cut = {}
    for balance in (("nodes",), ("nodes", "edges")):
        part = check(graph, 5, partition_nodes, scratch, balance=balance)
        cut[balance] = (part[graph.src] != part[graph.dst]).mean()
    alone = metis_owner(problem(graph, 5, "edge-cut", scratch))
    assert cut[("nodes",)] < cut[("nodes", "edges")]
    assert cut[("nodes",)] <= 1.02 * (alone[graph.src] != alone[graph.dst]).mean()


def test_result_depends_on_neither_chunks_nor_order_of_edges(scratch: ScratchDir, rng: np.random.Generator):
    first = random_graph(800, 4000)
    order = rng.permutation(first.num_edges)
    shuffled = Graph(num_nodes=800, src=first.src[order], dst=first.dst[order])
    expected = partition_nodes(problem(first, 4, "edge-cut", scratch))
    for other, chunk_edges in ((first, 77), (shuffled, 1 << 20)):
        found = partition_nodes(problem(other, 4, "edge-cut", scratch, chunk_edges=chunk_edges))
        assert np.array_equal(found, expected)


def test_two_cliques_are_two_homes(scratch: ScratchDir):
    left = [(i, j) for i in range(20) for j in range(i)]
    cliques = graph(40, [*left, *((i + 20, j + 20) for i, j in left), (0, 20)])
    for find in (structural_home, streamed_home):
        found = find(problem(cliques, 2, "vertex-cut", scratch))
        agree = found.home[cliques.src] == found.home[cliques.dst]
        assert found.lift <= agree.mean() - 0.4
        assert found.lift > (0.45 if find is structural_home else -0.1)
