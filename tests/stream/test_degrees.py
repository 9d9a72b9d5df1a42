import numpy as np
import pytest

from asepr.stream.degrees import count_degrees
from tests.graphs import NAMED_GRAPHS, Graph


@pytest.mark.parametrize("graph", NAMED_GRAPHS.values(), ids=NAMED_GRAPHS)
@pytest.mark.parametrize("chunk_edges", [1, 3, 1000])
def test_degrees_equal_bincount(graph: Graph, chunk_edges: int):
    degrees = count_degrees(graph.source(chunk_edges))
    assert degrees.out_degree.tolist() == np.bincount(graph.src, minlength=graph.num_nodes).tolist()
    assert degrees.in_degree.tolist() == np.bincount(graph.dst, minlength=graph.num_nodes).tolist()
    assert degrees.total.sum() == 2 * graph.num_edges
