"""Edge-cut: a multilevel partition of the nodes under caps on nodes, in-edges, training nodes and node types."""

import numpy as np

from asepr.contracts import IdArray, PartArray, PartitionProblem
from asepr.errors import CapacityError
from asepr.partition.adjacency import Adjacency, build_adjacency
from asepr.partition.multilevel import Balance, Graph, MultilevelConfig, partition_graph
from asepr.partition.node_caps import enforce_node_caps

MAX_TYPES = 32
"""A cap for each makes moves rare, and weights 8 bytes a node and type."""


def partition_nodes(problem: PartitionProblem) -> PartArray:
    """Partition the nodes so that few edges are cut and parts hold like numbers of nodes and in-edges.

    Parameters
    ----------
    problem : PartitionProblem

    Returns
    -------
    int32 (N,), in [0, K)
        `problem.caps(N)` holds on nodes and no part is empty. In-edges, and training nodes and nodes of each
        type where there are any, are held to the same imbalance as far as moves of nodes can; a node with more
        in-edges than a part may hold makes that impossible. What `problem.balance` leaves out is free.

    Notes
    -----
    Parallel edges count once, or as much as they weigh together where edges are weighed. A graph of up to
    `MultilevelConfig.whole_entries` adjacency entries (half as many edges) goes to METIS as it is, and is then
    refined under all caps; a larger one is contracted level by level first. The whole adjacency stays in memory, 8
    bytes an edge, beside the coarser levels. The result depends on the seed and not on the order of the edges.
    """
    return partition_by_weights(problem, _node_weights(problem))


def partition_by_weights(problem: PartitionProblem, weight: IdArray) -> PartArray:
    """Partition the nodes under a cap on nodes, hard, and one on each of the given weights.

    Parameters
    ----------
    problem : PartitionProblem
    weight : int64 (N, W)

    Returns
    -------
    int32 (N,), in [0, K)
    """
    adjacency = build_adjacency(problem.source, is_weighted=problem.weigh_edges)
    cap = np.stack([problem.caps(int(total)) for total in weight.sum(axis=0)], axis=1)
    balance = Balance(capacities=problem.capacities, cap=cap, imbalance=problem.imbalance)
    graph = _as_graph(adjacency, weight, has_weights=problem.weigh_edges)
    part = partition_graph(graph, balance, problem.seed, MultilevelConfig())
    return enforce_node_caps(problem, adjacency, part)


def _as_graph(adjacency: Adjacency, weight: IdArray, *, has_weights: bool) -> Graph:
    edge_weight = adjacency.multiplicity
    if not has_weights:
        # One value seen by all entries: unit weights then take no memory.
        edge_weight = np.broadcast_to(np.int32(1), adjacency.neighbour.shape)
    return Graph(offsets=adjacency.offsets, neighbour=adjacency.neighbour, edge_weight=edge_weight, weight=weight)


def _node_weights(problem: PartitionProblem) -> IdArray:
    """Return int64 (N, W): a node, and, where asked for, its in-edges, whether it is a training node, its type."""
    in_degree = problem.degrees.in_degree
    columns = [np.ones(len(in_degree), dtype=np.int64)]
    if "edges" in problem.balance:
        columns.append(in_degree.astype(np.int64))
    if "train" in problem.balance and problem.train is not None and problem.train.any():
        columns.append(problem.train.astype(np.int64))
    if "types" in problem.balance and problem.ntype is not None:
        columns += [(problem.ntype == code).astype(np.int64) for code in _several(problem.ntype)]
    return np.ascontiguousarray(np.stack(columns, axis=1))


def _several(ntype: PartArray) -> PartArray:
    """Return the types that occur; one alone is all nodes, and says nothing.

    Raises
    ------
    CapacityError
        There are too many to balance each.
    """
    codes = np.unique(ntype)
    if len(codes) > MAX_TYPES:
        raise CapacityError(
            f"balance may name types up to {MAX_TYPES} node types, got {len(codes)}; leave types out of --balance"
        )
    return codes if len(codes) > 1 else codes[:0]
