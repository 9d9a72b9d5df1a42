"""Edge-cut: clusters, METIS on the graph of clusters, and refinement under caps."""

import numpy as np
import scipy.sparse

from asepr.contracts import EdgeSource, IdArray, PartArray, PartitionProblem
from asepr.partition.adjacency import Adjacency, build_adjacency
from asepr.partition.metis import solve_with_metis
from asepr.partition.node_caps import enforce_node_caps
from asepr.partition.node_partition_kernels import refine_parts, settle_clusters
from asepr.stream.clustering import cluster_nodes

COARSE_NODES = 1 << 16
CLUSTERS_PER_PART = 64
"""A cluster weighs at most what lets there be about this many: METIS cuts the better the finer they are."""

SETTLE_PASSES = 5
LOSS_LIMITS = np.array([0, 0, 0, 1, 1, 2, 4, 8, 1 << 40, 1 << 40], dtype=np.int64)
"""How many cut edges a node may cost that leaves an overfull part, pass by pass."""


def partition_nodes(problem: PartitionProblem) -> PartArray:
    """Partition the nodes so that few edges are cut and parts hold like numbers of nodes and in-edges.

    Clusters are found while edges stream by, settled by label propagation under a bound on their
    weight, and contracted; METIS solves the small graph of clusters; then nodes move to the part
    where most of their neighbours are, as long as caps hold, and out of parts above a cap.

    Parameters
    ----------
    problem : PartitionProblem

    Returns
    -------
    int32 (N,), in [0, K)
        `problem.caps(N)` holds on nodes and no part is empty. In-edges are held to the same
        imbalance as far as moves of single nodes can.

    Notes
    -----
    O(E) time a pass; 16 bytes an edge for the adjacency, where METIS alone needs several times that.
    Sources: Meyerhenke, Sanders, Schulz, Partitioning complex networks via size-constrained
    clustering, 2014; Karypis, Kumar 1998 for the coarse solver.
    """
    adjacency = build_adjacency(problem.source)
    in_degree = problem.degrees.in_degree
    # One weight stands for both balances while clusters are placed: a node, and its in-edges.
    weight = in_degree + max(1, problem.source.num_edges // problem.source.num_nodes)
    max_weight = int(weight.sum() / max(COARSE_NODES, problem.num_parts * CLUSTERS_PER_PART)) + 1
    cluster = _clusters(problem.source, adjacency, weight, max_weight)
    part = _solve_coarse(problem, adjacency, cluster, weight)[cluster]
    refine_parts(
        adjacency.offsets,
        adjacency.neighbour,
        adjacency.multiplicity,
        in_degree,
        problem.caps(adjacency.num_nodes),
        problem.caps(problem.source.num_edges),
        LOSS_LIMITS,
        part,
    )
    return enforce_node_caps(problem, adjacency, part)


def _clusters(source: EdgeSource, adjacency: Adjacency, weight: IdArray, max_weight: int) -> IdArray:
    """Return int64 (N,), a cluster in [0, C) for each node, all C in use."""
    cluster = cluster_nodes(source, weight, max_weight)
    cluster_weight = np.bincount(cluster, weights=weight, minlength=len(cluster)).astype(np.int64)
    order = np.argsort(np.diff(adjacency.offsets), kind="stable")
    settle_clusters(
        adjacency.offsets,
        adjacency.neighbour,
        adjacency.multiplicity,
        order,
        weight,
        max_weight,
        SETTLE_PASSES,
        cluster,
        cluster_weight,
    )
    return np.unique(cluster, return_inverse=True)[1]


def _solve_coarse(problem: PartitionProblem, adjacency: Adjacency, cluster: IdArray, weight: IdArray) -> PartArray:
    """Return int32 (C,): the part of each cluster."""
    rows = np.repeat(cluster, np.diff(adjacency.offsets))
    shape = (int(cluster.max()) + 1,) * 2
    coarse = scipy.sparse.coo_matrix(
        (adjacency.multiplicity, (rows, cluster[adjacency.neighbour])), shape=shape
    ).tocsr()
    coarse.setdiag(0)
    coarse.eliminate_zeros()
    return solve_with_metis(
        coarse.indptr.astype(np.int64),
        coarse.indices,
        capacities=problem.capacities,
        imbalance=problem.imbalance / 2,
        seed=problem.seed,
        node_weight=np.bincount(cluster, weights=weight).astype(np.int64),
        edge_weight=coarse.data,
    )
