"""Clusters of bounded weight on a graph in memory, and the graph of the clusters."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import kernel


@kernel
def propagate_labels(offsets, neighbour, edge_weight, weight, max_weight, part, order, num_passes, cluster, load):
    """Move each node to the neighbouring cluster with most of its edge weight, under bounds.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    edge_weight : int32 (2M,)
    weight : int64 (N, W)
        Several weights of each node.
    max_weight : int64 (W,)
        No move takes a cluster above any of them.
    part : int32 (N,)
        Only nodes of one part may share a cluster.
    order : int64 (N,), a permutation: the order of visits
    num_passes : int
    cluster : int32 (N,), state
    load : int64 (N, W), state: the weights of each cluster

    Notes
    -----
    O(M) time a pass; ends early when fewer than one node in a hundred moves. Ties stay, then go to
    the neighbour met first. Source: Meyerhenke, Sanders, Schulz, Partitioning complex networks via
    size-constrained clustering, 2014; several weights and the limit to parts are ours.
    """
    num_weights = weight.shape[1]
    edges_to = np.zeros(order.shape[0], dtype=np.int64)
    for _ in range(num_passes):
        moved = 0
        for v in order:
            old = cluster[v]
            for i in range(offsets[v], offsets[v + 1]):
                edges_to[cluster[neighbour[i]]] += edge_weight[i]
            best = old
            most = edges_to[old]
            for i in range(offsets[v], offsets[v + 1]):
                c = cluster[neighbour[i]]
                if edges_to[c] > most and part[neighbour[i]] == part[v]:
                    fits = True
                    for w in range(num_weights):
                        fits = fits and load[c, w] + weight[v, w] <= max_weight[w]
                    if fits:
                        best = c
                        most = edges_to[c]
                edges_to[c] = 0
            edges_to[old] = 0
            if best != old:
                for w in range(num_weights):
                    load[old, w] -= weight[v, w]
                    load[best, w] += weight[v, w]
                cluster[v] = best
                moved += 1
        if moved * 100 < order.shape[0]:
            return


@kernel
def number_clusters(cluster, number):
    """Renumber clusters 0, 1, ... by their first node, in place; return how many there are.

    Parameters
    ----------
    cluster : int32 (N,), state, values in [0, N)
    number : int32 (N,), all -1 on entry, state
    """
    count = 0
    for v in range(cluster.shape[0]):
        if number[cluster[v]] < 0:
            number[cluster[v]] = count
            count += 1
        cluster[v] = number[cluster[v]]
    return count


@kernel
def count_coarse_entries(offsets, neighbour, cluster, starts, members, coarse_offsets):
    """Count the distinct neighbouring clusters of each cluster into `coarse_offsets[c + 1]`.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    cluster : int32 (N,), in [0, C)
    starts : int64 (C + 1,), where each cluster's nodes begin in `members`
    members : int64 (N,), nodes grouped by cluster
    coarse_offsets : int64 (C + 1,), zeros on entry, out
    """
    num_clusters = starts.shape[0] - 1
    seen_by = np.full(num_clusters, -1, dtype=np.int32)
    for c in range(num_clusters):
        seen_by[c] = c
        for j in range(starts[c], starts[c + 1]):
            v = members[j]
            for i in range(offsets[v], offsets[v + 1]):
                d = cluster[neighbour[i]]
                if seen_by[d] != c:
                    seen_by[d] = c
                    coarse_offsets[c + 1] += 1


@kernel
def fill_coarse_rows(
    offsets, neighbour, edge_weight, cluster, starts, members, coarse_offsets, coarse_neighbour, coarse_weight
):
    """Write each cluster's neighbouring clusters and the edge weight between them.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    edge_weight : int32 (2M,)
    cluster : int32 (N,), in [0, C)
    starts : int64 (C + 1,)
    members : int64 (N,)
    coarse_offsets : int64 (C + 1,)
    coarse_neighbour : int32 (coarse entries,), out
    coarse_weight : int32 (coarse entries,), zeros on entry, out
    """
    num_clusters = starts.shape[0] - 1
    entry_of = np.full(num_clusters, -1, dtype=np.int64)
    for c in range(num_clusters):
        first = coarse_offsets[c]
        at = first
        for j in range(starts[c], starts[c + 1]):
            v = members[j]
            for i in range(offsets[v], offsets[v + 1]):
                d = cluster[neighbour[i]]
                if d == c:
                    continue
                # An entry of an earlier row is below `first`, so the table never needs clearing.
                if entry_of[d] < first:
                    entry_of[d] = at
                    coarse_neighbour[at] = d
                    at += 1
                coarse_weight[entry_of[d]] += edge_weight[i]
