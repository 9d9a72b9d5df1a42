"""A partition of the nodes as a prior for methods that place edges one pass at a time."""

from dataclasses import dataclass

import numpy as np

from asepr.contracts import PartArray, PartitionProblem
from asepr.partition.attribute_prior import agreement_lift, pack_clusters
from asepr.partition.node_partition import partition_by_weights
from asepr.stream.clustering import cluster_nodes

CLUSTERS_PER_PART = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class StructuralHome:
    """Where each node would live by the structure of the graph alone, and what that tells of edges.

    Attributes
    ----------
    home : int32 (N,), in [0, K)
    lift : float in [-1, 1)
        How much more often the ends of an edge share a home than chance would have it.
    """

    home: PartArray
    lift: float


def structural_home(problem: PartitionProblem) -> StructuralHome:
    """Partition the nodes in memory and measure how well edges agree with that.

    Notes
    -----
    Balanced in nodes and in degrees, since edges will follow their ends. Time and memory of
    `partition_nodes`, and one more pass over the edges.
    """
    degree = problem.degrees.total.astype(np.int64)
    weight = np.ascontiguousarray(np.stack([np.ones_like(degree), degree], axis=1))
    return _measured(problem, partition_by_weights(problem, weight))


def streamed_home(problem: PartitionProblem) -> StructuralHome:
    """Pack clusters found in one pass over the edges into parts; far less memory, far less to tell.

    Notes
    -----
    O(E) time, 24 bytes a node. Depends on the order of the edges; packing looks at volumes only.
    """
    degree = problem.degrees.total.astype(np.int64)
    bound = max(1, int(degree.sum() / (problem.num_parts * CLUSTERS_PER_PART)))
    cluster = np.unique(cluster_nodes(problem.source, degree, bound), return_inverse=True)[1]
    return _measured(problem, pack_clusters(cluster.astype(np.int32), problem))


def _measured(problem: PartitionProblem, home: PartArray) -> StructuralHome:
    return StructuralHome(home=home, lift=agreement_lift(problem.source, home, problem.num_parts))
