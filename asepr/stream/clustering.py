"""Clusters of densely joined nodes, found while edges stream by."""

import numpy as np

from asepr.contracts import EdgeSource, IdArray
from asepr.stream.clustering_kernels import join_clusters


def cluster_nodes(source: EdgeSource, weight: IdArray, max_weight: int) -> IdArray:
    """Join nodes into clusters of bounded weight, one edge at a time.

    Every node starts as a cluster of its own. For each edge between two clusters, the end whose
    cluster is lighter moves to the other's cluster, if that stays within the bound.

    Parameters
    ----------
    source : EdgeSource
    weight : int64 (N,)
        What counts towards the bound; usually the degree.
    max_weight : int
        Most weight of a cluster of two or more nodes.

    Returns
    -------
    int64 (N,): a cluster number in [0, N) for each node; not all numbers occur

    Notes
    -----
    One pass, O(E) time, 16 bytes a node. Depends on the order of the edges. Source: Mayer, Orujzade,
    Jacobsen, Out-of-core edge partitioning at linear run-time, 2022 (2PS), phase 1; we bound the
    cluster that a node joins, not only the clusters before.
    """
    cluster = np.arange(source.num_nodes, dtype=np.int64)
    cluster_weight = weight.copy()
    for chunk in source:
        join_clusters(chunk.src, chunk.dst, weight, max_weight, cluster, cluster_weight)
    return cluster
