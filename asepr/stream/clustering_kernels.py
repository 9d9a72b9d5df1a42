"""Streaming clustering, one chunk of edges at a time."""
# mypy: disable-error-code="no-untyped-def"

from asepr.jit import kernel


@kernel
def join_clusters(src, dst, weight, max_weight, cluster, cluster_weight):
    """Move, for each edge between clusters, the end in the lighter cluster to the heavier one.

    Parameters
    ----------
    src, dst : int64 (E_chunk,)
    weight : int64 (N,)
    max_weight : int
    cluster : int64 (N,), state: the cluster of each node
    cluster_weight : int64 (N,), state: the weight of each cluster

    Notes
    -----
    Equal clusters: the source moves.
    """
    for i in range(src.shape[0]):
        mover, target = src[i], dst[i]
        if cluster[mover] == cluster[target]:
            continue
        if cluster_weight[cluster[mover]] > cluster_weight[cluster[target]]:
            mover, target = target, mover
        old, new = cluster[mover], cluster[target]
        if cluster_weight[new] + weight[mover] <= max_weight:
            cluster_weight[old] -= weight[mover]
            cluster_weight[new] += weight[mover]
            cluster[mover] = new
