"""METIS through pymetis: the in-memory baseline, and the solver of coarse graphs."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pymetis

from asepr.contracts import IdArray, PartArray, PartitionProblem
from asepr.partition.adjacency import build_adjacency
from asepr.partition.node_caps import enforce_node_caps


def metis_owner(problem: PartitionProblem) -> PartArray:
    """Partition the nodes of the whole graph with METIS.

    Parameters
    ----------
    problem : PartitionProblem
        Layout vertex-cut: METIS balances degrees, since edges will follow their nodes. Layout
        edge-cut: it balances nodes.

    Returns
    -------
    int32 (N,), in [0, K)
        Each part owns a node; in the edge-cut layout the cap on nodes holds, by moving nodes out of
        parts that METIS overfilled.

    Notes
    -----
    The whole graph in memory, several times over. Source: Karypis, Kumar, A fast and high quality
    multilevel scheme for partitioning irregular graphs, 1998.
    """
    adjacency = build_adjacency(problem.source, is_weighted=problem.weigh_edges)
    weight = None
    if problem.layout == "vertex-cut":
        weight = np.diff(adjacency.offsets) + 1
    part = solve_with_metis(
        adjacency.offsets,
        adjacency.neighbour,
        capacities=problem.capacities,
        imbalance=problem.imbalance,
        seed=problem.seed,
        node_weight=weight,
        edge_weight=adjacency.multiplicity if problem.weigh_edges else None,
    )
    return enforce_node_caps(problem, adjacency, part)


def solve_with_metis(
    offsets: IdArray,
    neighbour: npt.NDArray[Any],
    *,
    capacities: npt.NDArray[np.float64],
    imbalance: float,
    seed: int,
    node_weight: IdArray | None = None,
    edge_weight: npt.NDArray[Any] | None = None,
) -> PartArray:
    """Cut as little edge weight as METIS can at the given shares of node weight.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : integer (2M,), both directions, no self-loops, no parallel edges
    capacities : float64 (K,), shares that sum to 1
    imbalance : float
        Aimed at; METIS does not promise it.
    seed : int
    node_weight : int64 (N,), optional
    edge_weight : integer (2M,), optional

    Returns
    -------
    int32 (N,), in [0, K); all zeros where no edge says anything
    """
    num_parts = len(capacities)
    if num_parts == 1 or not len(neighbour):
        return np.zeros(len(offsets) - 1, dtype=np.int32)
    options = pymetis.Options(ufactor=max(1, int(1000 * imbalance)), seed=seed)
    _, part = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(_as_indices(offsets), _as_indices(neighbour)),
        vweights=None if node_weight is None else _as_indices(node_weight),
        eweights=None if edge_weight is None else _as_indices(edge_weight),
        tpwgts=None if np.allclose(capacities, 1 / num_parts) else capacities.tolist(),
        options=options,
    )
    return np.asarray(part, dtype=np.int32)


def _as_indices(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(values, dtype=np.int64)
