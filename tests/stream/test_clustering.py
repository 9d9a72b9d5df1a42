import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asepr.stream.clustering import cluster_nodes
from tests.graphs import Graph, graph, graphs


def cluster_plainly(graph: Graph, weight: list[int], bound: int) -> list[int]:
    cluster = list(range(graph.num_nodes))
    for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        total = [sum(w for w, c in zip(weight, cluster, strict=True) if c == cluster[x]) for x in (u, v)]
        if cluster[u] == cluster[v]:
            continue
        mover, target = (u, v) if total[0] <= total[1] else (v, u)
        if max(total) + weight[mover] <= bound:
            cluster[mover] = cluster[target]
    return cluster


@given(graphs(), st.integers(1, 20), st.integers(1, 5))
def test_clusters_equal_a_plain_loop(graph: Graph, bound: int, chunk_edges: int):
    weight = np.bincount(graph.src, minlength=graph.num_nodes) + np.bincount(graph.dst, minlength=graph.num_nodes)
    weight = weight.astype(np.int64)
    found = cluster_nodes(graph.source(chunk_edges), weight, bound)
    assert found.tolist() == cluster_plainly(graph, weight.tolist(), bound)


def test_two_cliques_become_two_clusters():
    left = [(i, j) for i in range(5) for j in range(i)]
    right = [(i + 5, j + 5) for i, j in left]
    joined = graph(10, left + right + [(0, 5)])
    cluster = cluster_nodes(joined.source(), np.full(10, 1), 5)
    assert len(set(cluster[:5])) == len(set(cluster[5:])) == 1
    assert cluster[0] != cluster[9]
