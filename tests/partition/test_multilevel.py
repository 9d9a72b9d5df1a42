"""The multilevel partitioner's kernels, each against a recount."""

import networkx
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from asepr.partition.adjacency import build_adjacency
from asepr.partition.coarsening_kernels import (
    count_coarse_entries,
    fill_coarse_rows,
    number_clusters,
    propagate_labels,
)
from asepr.partition.multilevel import Balance, MultilevelConfig, partition_graph
from asepr.partition.multilevel import Graph as WeightedGraph
from asepr.partition.refinement_kernels import anneal, climb, fill_gains, move_greedily, unload_parts
from tests.graphs import Graph, graphs, random_graph


def weighted(graph: Graph) -> WeightedGraph:
    """Return the undirected graph with multiplicities as edge weights, and nodes and in-edges as weights."""
    adjacency = build_adjacency(graph.source())
    in_degree = np.bincount(graph.dst, minlength=graph.num_nodes)
    return WeightedGraph(
        offsets=adjacency.offsets,
        neighbour=adjacency.neighbour,
        edge_weight=adjacency.multiplicity,
        weight=np.ascontiguousarray(np.stack([np.ones_like(in_degree), in_degree], axis=1)),
    )


def matrix(graph: WeightedGraph) -> np.ndarray:
    shape = (graph.num_nodes, graph.num_nodes)
    return scipy.sparse.csr_matrix((graph.edge_weight, graph.neighbour, graph.offsets), shape).toarray()


def recount(graph: WeightedGraph, part: np.ndarray) -> int:
    return int(np.triu(matrix(graph) * (part[:, None] != part)).sum())


def loads(graph: WeightedGraph, part: np.ndarray, num_parts: int) -> np.ndarray:
    load = np.zeros((num_parts, 2), dtype=np.int64)
    np.add.at(load, part, graph.weight)
    return load


def draw_part(data: st.DataObject, num_nodes: int, num_parts: int) -> np.ndarray:
    part = st.lists(st.integers(0, num_parts - 1), min_size=num_nodes, max_size=num_nodes)
    return np.array(data.draw(part), dtype=np.int32)


@given(graphs(), st.data())
def test_cut_equals_a_recount(graph: Graph, data: st.DataObject):
    part = draw_part(data, graph.num_nodes, 3)
    assert weighted(graph).cut(part) == recount(weighted(graph), part)


@given(graphs(), st.data())
def test_contraction_equals_a_matrix_product(graph: Graph, data: st.DataObject):
    fine = weighted(graph)
    cluster = draw_part(data, graph.num_nodes, graph.num_nodes)
    expected_number = {c: i for i, c in enumerate(dict.fromkeys(cluster.tolist()))}
    expected_cluster = [expected_number[c] for c in cluster.tolist()]
    count = number_clusters(cluster, np.full(graph.num_nodes, -1, dtype=np.int32))
    assert cluster.tolist() == expected_cluster
    starts = np.concatenate([[0], np.cumsum(np.bincount(cluster))])
    members = np.argsort(cluster, kind="stable")
    offsets = np.zeros(count + 1, dtype=np.int64)
    count_coarse_entries(fine.offsets, fine.neighbour, cluster, starts, members, offsets)
    offsets = np.cumsum(offsets)
    neighbour = np.empty(offsets[-1], dtype=np.int32)
    edge_weight = np.zeros(offsets[-1], dtype=np.int32)
    arrays = (fine.offsets, fine.neighbour, fine.edge_weight, cluster, starts, members)
    fill_coarse_rows(*arrays, offsets, neighbour, edge_weight)
    joins = np.eye(count, dtype=np.int64)[cluster]
    expected = joins.T @ matrix(fine) @ joins
    np.fill_diagonal(expected, 0)
    found = scipy.sparse.csr_matrix((edge_weight, neighbour, offsets), (count, count))
    assert found.toarray().tolist() == expected.tolist()
    assert found.nnz == np.count_nonzero(expected)


@given(graphs(), st.integers(1, 6), st.data())
def test_clusters_keep_bounds_and_parts_and_cut_no_more(graph: Graph, bound: int, data: st.DataObject):
    fine = weighted(graph)
    part = draw_part(data, graph.num_nodes, 2)
    cluster = np.arange(graph.num_nodes, dtype=np.int32)
    load = fine.weight.copy()
    most = np.array([bound, 2 * bound])
    order = np.arange(graph.num_nodes)[::-1].copy()
    arrays = (fine.offsets, fine.neighbour, fine.edge_weight, fine.weight)
    propagate_labels(*arrays, most, part, order, 4, cluster, load)
    assert load.tolist() == loads(fine, cluster, graph.num_nodes).tolist()
    singles = np.bincount(cluster, minlength=graph.num_nodes) <= 1
    assert (singles[:, None] | (load <= most)).all()
    assert all(len(set(part[cluster == c].tolist())) <= 1 for c in range(graph.num_nodes))


@given(graphs(max_nodes=15, max_edges=50), st.integers(1, 4), st.data())
def test_refinement_reports_its_gain_and_keeps_caps(graph: Graph, num_parts: int, data: st.DataObject):
    fine = weighted(graph)
    part = draw_part(data, graph.num_nodes, num_parts)
    load = loads(fine, part, num_parts)
    cap = load + data.draw(st.integers(1, 3))
    arrays = (fine.offsets, fine.neighbour, fine.edge_weight, fine.weight, cap)
    before = recount(fine, part)
    gain = move_greedily(*arrays, load, part)
    assert gain >= 0
    assert recount(fine, part) == before - gain
    edges_to = np.zeros((graph.num_nodes, num_parts), dtype=np.int32)
    fill_gains(*arrays[:3], part, edges_to)
    assert edges_to.tolist() == (matrix(fine) @ np.eye(num_parts, dtype=int)[part]).tolist()
    gain += climb(*arrays, 10, edges_to, load, part)
    assert recount(fine, part) == before - gain
    assert edges_to.tolist() == (matrix(fine) @ np.eye(num_parts, dtype=int)[part]).tolist()
    assert load.tolist() == loads(fine, part, num_parts).tolist()
    assert (load <= cap).all()


@given(graphs(max_nodes=15, max_edges=50), st.integers(1, 4), st.data())
def test_unloading_lessens_the_excess(graph: Graph, num_parts: int, data: st.DataObject):
    fine = weighted(graph)
    part = draw_part(data, graph.num_nodes, num_parts)
    load = loads(fine, part, num_parts)
    cap = np.maximum(-(-fine.weight.sum(axis=0) // num_parts), 1) * np.ones((num_parts, 1), dtype=np.int64)
    before = (np.maximum(load - cap, 0) / cap).sum()
    moves = unload_parts(fine.offsets, fine.neighbour, fine.edge_weight, fine.weight, cap, load, part)
    after = (np.maximum(load - cap, 0) / cap).sum()
    assert load.tolist() == loads(fine, part, num_parts).tolist()
    assert after < before - 1e-9 if moves else after == before


@given(graphs(max_nodes=15, max_edges=50), st.data())
def test_annealing_keeps_its_books(graph: Graph, data: st.DataObject):
    fine = weighted(graph)
    part = draw_part(data, graph.num_nodes, 3)
    load = loads(fine, part, 3)
    edges_to = np.zeros((graph.num_nodes, 3), dtype=np.int32)
    arrays = (fine.offsets, fine.neighbour, fine.edge_weight)
    fill_gains(*arrays, part, edges_to)
    cap = np.maximum(load, 1)
    schedule = np.geomspace(2.0, 0.1, 4)
    anneal(*arrays, fine.weight, cap, 3.0, schedule, 20, np.random.default_rng(0), edges_to, load, part)
    assert load.tolist() == loads(fine, part, 3).tolist()
    assert edges_to.tolist() == (matrix(fine) @ np.eye(3, dtype=int)[part]).tolist()


def planted(num_blocks: int, block: int, seed: int) -> Graph:
    blocks = networkx.random_partition_graph([block] * num_blocks, 0.3, 0.005, seed=seed)
    src, dst = np.array(blocks.edges).T.astype(np.int64)
    flip = np.random.default_rng(seed).random(len(src)) < 0.5
    return Graph(num_nodes=num_blocks * block, src=np.where(flip, dst, src), dst=np.where(flip, src, dst))


@pytest.mark.parametrize("whole_entries", [0, 1 << 20], ids=["contracted first", "METIS on the whole"])
def test_planted_blocks_are_found(whole_entries: int):
    graph = planted(8, 60, 3)
    fine = weighted(graph)
    cap = np.ceil(fine.weight.sum(axis=0) / 4 * 1.05).astype(np.int64) * np.ones((4, 1), dtype=np.int64)
    balance = Balance(capacities=np.full(4, 0.25), cap=cap, imbalance=0.05)
    config = MultilevelConfig(whole_entries=whole_entries, shrink=4, min_solver_nodes=40, solver_nodes_per_part=8)
    part = partition_graph(fine, balance, 0, config)
    between = recount(fine, np.arange(480) // 60)
    assert recount(fine, part) < between
    assert (loads(fine, part, 4) <= cap).all()


def test_both_caps_hold_where_in_edges_pile_up():
    fine = weighted(random_graph(1500, 9000))
    cap = np.ceil(fine.weight.sum(axis=0) / 6 * 1.05).astype(np.int64) * np.ones((6, 1), dtype=np.int64)
    balance = Balance(capacities=np.full(6, 1 / 6), cap=cap, imbalance=0.05)
    part = partition_graph(fine, balance, 0, MultilevelConfig())
    assert (loads(fine, part, 6) <= cap).all()
