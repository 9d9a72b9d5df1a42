"""Label propagation of clusters, and moves between parts."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import kernel


@kernel
def settle_clusters(offsets, neighbour, multiplicity, order, weight, max_weight, num_passes, cluster, cluster_weight):
    """Move each node to the neighbouring cluster with most of its edges, under a bound on weight.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    multiplicity : int32 (2M,)
    order : int64 (N,), a permutation: the order of visits
    weight : int64 (N,)
    max_weight, num_passes : int
    cluster : int64 (N,), state
    cluster_weight : int64 (N,), state: weight by cluster number
    """
    edges_to = np.zeros(cluster_weight.shape[0], dtype=np.int64)
    for _ in range(num_passes):
        moved = 0
        for v in order:
            old = cluster[v]
            for i in range(offsets[v], offsets[v + 1]):
                edges_to[cluster[neighbour[i]]] += multiplicity[i]
            best = old
            for i in range(offsets[v], offsets[v + 1]):
                c = cluster[neighbour[i]]
                if edges_to[c] > edges_to[best] and cluster_weight[c] + weight[v] <= max_weight:
                    best = c
            for i in range(offsets[v], offsets[v + 1]):
                edges_to[cluster[neighbour[i]]] = 0
            if best != old:
                cluster_weight[old] -= weight[v]
                cluster_weight[best] += weight[v]
                cluster[v] = best
                moved += 1
        if moved * 1000 < order.shape[0]:
            return


@kernel
def refine_parts(offsets, neighbour, multiplicity, in_degree, node_cap, edge_cap, loss_limits, part):
    """Move nodes to the part where most of their edges end, and out of parts above a cap.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    multiplicity : int32 (2M,)
    in_degree : int64 (N,)
    node_cap, edge_cap : int64 (K,)
        A move never takes its target above either.
    loss_limits : int64 (passes,)
        Cut edges that leaving a part above a cap may cost, pass by pass.
    part : int32 (N,), state
    """
    num_parts = node_cap.shape[0]
    nodes = np.zeros(num_parts, dtype=np.int64)
    edges = np.zeros(num_parts, dtype=np.int64)
    for v in range(part.shape[0]):
        nodes[part[v]] += 1
        edges[part[v]] += in_degree[v]
    edges_to = np.zeros(num_parts, dtype=np.int64)
    for loss_limit in loss_limits:
        for v in range(part.shape[0]):
            p = part[v]
            must_leave = nodes[p] > node_cap[p] or edges[p] > edge_cap[p]
            for i in range(offsets[v], offsets[v + 1]):
                edges_to[part[neighbour[i]]] += multiplicity[i]
            best = -1
            # A node that must leave may go anywhere, others only where they have neighbours.
            num_candidates = num_parts if must_leave else offsets[v + 1] - offsets[v]
            for j in range(num_candidates):
                q = j if must_leave else part[neighbour[offsets[v] + j]]
                if q == p or nodes[q] >= node_cap[q] or edges[q] + in_degree[v] > edge_cap[q]:
                    continue
                if best < 0 or is_better(q, best, edges_to, edges, edge_cap):
                    best = q
            if best >= 0:
                gain = edges_to[best] - edges_to[p]
                lighter = (edges[best] + in_degree[v]) * edge_cap[p] < edges[p] * edge_cap[best]
                if gain > 0 or (gain == 0 and lighter) or (must_leave and gain >= -loss_limit):
                    part[v] = best
                    nodes[p] -= 1
                    nodes[best] += 1
                    edges[p] -= in_degree[v]
                    edges[best] += in_degree[v]
            for i in range(offsets[v], offsets[v + 1]):
                edges_to[part[neighbour[i]]] = 0


@kernel
def is_better(q, best, edges_to, edges, edge_cap):
    """Return whether more edges end in q than in `best` (ties: the emptier for its cap)."""
    if edges_to[q] != edges_to[best]:
        return edges_to[q] > edges_to[best]
    return edges[q] * edge_cap[best] < edges[best] * edge_cap[q]
