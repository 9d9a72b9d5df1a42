"""Multilevel partitioning of a graph in memory under several caps at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import IdArray, PartArray
from asepr.partition.coarsening_kernels import (
    count_coarse_entries,
    fill_coarse_rows,
    number_clusters,
    propagate_labels,
)
from asepr.partition.metis import solve_with_metis
from asepr.partition.refinement_kernels import anneal, climb, fill_gains, move_greedily, unload_parts


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """One level: an undirected graph with weights.

    Attributes
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,), both directions, no self-loops, no parallel edges
    edge_weight : int32 (2M,)
    weight : int64 (N, W)
        What parts are balanced in, one column a constraint.
    """

    offsets: IdArray
    neighbour: npt.NDArray[Any]
    edge_weight: npt.NDArray[np.int32]
    weight: IdArray

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return len(self.offsets) - 1

    def cut(self, part: PartArray) -> int:
        """Return the weight of the edges between parts."""
        total = 0
        for start in range(0, self.num_nodes, 1 << 16):
            stop = min(start + (1 << 16), self.num_nodes)
            rows = np.repeat(part[start:stop], np.diff(self.offsets[start : stop + 1]))
            span = slice(self.offsets[start], self.offsets[stop])
            total += int(self.edge_weight[span][rows != part[self.neighbour[span]]].sum(dtype=np.int64))
        return total // 2


@dataclass(frozen=True, kw_only=True, slots=True)
class MultilevelConfig:
    """What trades time and memory against the cut.

    Attributes
    ----------
    whole_entries : int
        A graph of at most this many adjacency entries goes to METIS as it is (about 60 bytes each).
    shrink : float
        Most weight of a cluster in multiples of the mean, so about how much a level shrinks.
    solver_nodes_per_part, min_solver_nodes : int
        A larger graph is coarsened for METIS to the larger of K times the first and the second.
    coarse_nodes_per_part : int
        A finished partition is coarsened to K times this many nodes.
    gain_entries : int
        Hill climbing needs N K gains of 4 bytes; levels with more than this are refined greedily.
    penalties : tuple of float
        For each time that the partition is coarsened again, within its parts, and refined anew: what
        exceeding a cap by its own size costs on the coarsest graph, in mean edge weights of a part.
    heat : (float, float)
        First and last temperature of annealing there, in mean edge weights of a node.
    sweeps : int
        Temperatures in between; at each, as many moves are proposed as there are nodes.
    """

    whole_entries: int = 3 << 20
    shrink: float = 32.0
    solver_nodes_per_part: int = 64
    min_solver_nodes: int = 2048
    coarse_nodes_per_part: int = 256
    gain_entries: int = 1 << 24
    penalties: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 2.0, 4.0)
    heat: tuple[float, float] = (0.2, 0.002)
    sweeps: int = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Balance:
    """Shares that parts are meant to hold, and the most they may.

    Attributes
    ----------
    capacities : float64 (K,), shares that sum to 1
    cap : int64 (K, W)
    imbalance : float
    """

    capacities: npt.NDArray[np.float64]
    cap: IdArray
    imbalance: float


def partition_graph(graph: Graph, balance: Balance, seed: int, config: MultilevelConfig) -> PartArray:
    """Partition a graph so that little edge weight is cut and every cap holds as far as moves can.

    Parameters
    ----------
    graph : Graph
    balance : Balance
    seed : int
    config : MultilevelConfig

    Returns
    -------
    int32 (N,), in [0, K)

    Notes
    -----
    Label propagation makes clusters of bounded weight, level by level; METIS partitions the last;
    each level, on the way back, is unloaded where a cap is exceeded and refined under the caps. Then
    the partition itself is coarsened and refined again. Sources: Meyerhenke, Sanders, Schulz 2014;
    Walshaw, Multilevel refinement for combinatorial optimisation problems, 2004, for the cycles.
    """
    num_parts = len(balance.capacities)
    anywhere = np.zeros(graph.num_nodes, dtype=np.int32)
    if num_parts == 1:
        return anywhere
    small = len(graph.neighbour) <= config.whole_entries
    solver_nodes = max(config.min_solver_nodes, num_parts * config.solver_nodes_per_part)
    levels = [] if small else list(_coarsen(graph, anywhere, solver_nodes, balance, config))
    part = _best_start(levels[-1].graph if levels else graph, balance, seed, config)
    return _refine_upwards(graph, levels, part, balance, config)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Level:
    """A graph of clusters, the cluster of each node of the level before, and the part of each."""

    graph: Graph
    cluster: PartArray
    part: PartArray


def _cycles(graph: Graph, part: PartArray, balance: Balance, seed: int, config: MultilevelConfig) -> PartArray:
    """Coarsen within parts and refine on the way back, some times; return the best partition met."""
    coarse_nodes = len(balance.cap) * config.coarse_nodes_per_part
    best, least = part, _badness(graph, part, balance)
    # Too large to anneal, a graph would only be refined the same way again.
    penalties = config.penalties if len(graph.neighbour) <= config.whole_entries else config.penalties[:1]
    for cycle, penalty in enumerate(penalties):
        levels = list(_coarsen(graph, best, coarse_nodes, balance, config))
        graphs = [graph, *(level.graph for level in levels)]
        part = (levels[-1].part if levels else best).copy()
        _anneal(graphs[-1], part, balance, seed + cycle, penalty, config)
        part = _refine(graphs[-1], part, balance, config)
        part = _refine_upwards(graph, levels, part, balance, config)
        found = _badness(graph, part, balance)
        if found < least:
            best, least = part, found
    return best


def _coarsen(
    graph: Graph, part: PartArray, coarse_nodes: int, balance: Balance, config: MultilevelConfig
) -> Iterator[_Level]:
    """Yield smaller and smaller levels, until small enough or no level is much smaller than the last."""
    bound = (graph.weight.sum(axis=0) * balance.capacities.min() / 16).astype(np.int64)
    while graph.num_nodes > coarse_nodes:
        cluster = _clusters(graph, part, bound, config.shrink)
        num_clusters = number_clusters(cluster, np.full(graph.num_nodes, -1, dtype=np.int32))
        if num_clusters > 0.95 * graph.num_nodes:
            return
        graph = _contract(graph, cluster, num_clusters)
        coarse_part = np.zeros(num_clusters, dtype=np.int32)
        coarse_part[cluster] = part
        part = coarse_part
        yield _Level(graph=graph, cluster=cluster, part=part)


def _clusters(graph: Graph, part: PartArray, bound: IdArray, shrink: float) -> PartArray:
    num_nodes = graph.num_nodes
    mean = np.ceil(shrink * graph.weight.sum(axis=0) / num_nodes)
    max_weight = np.minimum(np.maximum(mean, 2), np.maximum(bound, 1))
    cluster = np.arange(num_nodes, dtype=np.int32)
    order = np.argsort(np.diff(graph.offsets), kind="stable")
    propagate_labels(
        graph.offsets,
        graph.neighbour,
        graph.edge_weight,
        graph.weight,
        max_weight.astype(np.int64),
        part,
        order,
        4,
        cluster,
        graph.weight.copy(),
    )
    return cluster


def _contract(graph: Graph, cluster: PartArray, num_clusters: int) -> Graph:
    starts = np.zeros(num_clusters + 1, dtype=np.int64)
    np.cumsum(np.bincount(cluster, minlength=num_clusters), out=starts[1:])
    members = np.argsort(cluster, kind="stable")
    offsets = np.zeros(num_clusters + 1, dtype=np.int64)
    count_coarse_entries(graph.offsets, graph.neighbour, cluster, starts, members, offsets)
    np.cumsum(offsets, out=offsets)
    neighbour = np.empty(offsets[-1], dtype=np.int32)
    edge_weight = np.zeros(offsets[-1], dtype=np.int32)
    fill_coarse_rows(
        graph.offsets, graph.neighbour, graph.edge_weight, cluster, starts, members, offsets, neighbour, edge_weight
    )
    weight = np.stack([np.bincount(cluster, weights=w, minlength=num_clusters) for w in graph.weight.T], axis=1)
    return Graph(
        offsets=offsets,
        neighbour=neighbour,
        edge_weight=edge_weight,
        weight=np.ascontiguousarray(weight.astype(np.int64)),
    )


def _best_start(graph: Graph, balance: Balance, seed: int, config: MultilevelConfig) -> PartArray:
    """Return the best of METIS' partitions by the first weight alone and by the first two added up, refined."""
    node_weights = [graph.weight[:, 0]]
    if graph.weight.shape[1] > 1:
        scaled = graph.weight[:, :2] * (1e9 / np.maximum(graph.weight[:, :2].sum(axis=0), 1))
        node_weights.append(1 + scaled.sum(axis=1).astype(np.int64))
    starts = []
    for node_weight in node_weights:
        part = solve_with_metis(
            graph.offsets,
            graph.neighbour,
            capacities=balance.capacities,
            imbalance=balance.imbalance,
            seed=seed,
            node_weight=node_weight,
            edge_weight=graph.edge_weight,
        )
        # Dense graphs are sometimes mended better node by node than cluster by cluster.
        starts.append(_refine(graph, part.copy(), balance, config))
        starts.append(_cycles(graph, part, balance, seed, config))
    return min(starts, key=lambda part: _badness(graph, part, balance))


def _badness(graph: Graph, part: PartArray, balance: Balance) -> tuple[float, int]:
    """Return what to compare partitions by: first how far caps are exceeded, then the cut."""
    over = np.maximum(_loads(graph, part, balance) - balance.cap, 0) / balance.cap
    return round(float(over.sum()), 3), graph.cut(part)


def _loads(graph: Graph, part: PartArray, balance: Balance) -> IdArray:
    columns = [np.bincount(part, weights=w, minlength=len(balance.cap)) for w in graph.weight.T]
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int64))


def _refine_upwards(
    graph: Graph, levels: list[_Level], part: PartArray, balance: Balance, config: MultilevelConfig
) -> PartArray:
    """Carry the partition of the last level back to the graph, refining at every level."""
    graphs = [graph, *(level.graph for level in levels)]
    for finer, level in zip(reversed(graphs[:-1]), reversed(levels), strict=True):
        part = _refine(finer, part[level.cluster], balance, config)
    return part


def _refine(graph: Graph, part: PartArray, balance: Balance, config: MultilevelConfig) -> PartArray:
    """Unload parts above a cap, then move nodes while that cuts less; changes and returns `part`."""
    arrays = (graph.offsets, graph.neighbour, graph.edge_weight, graph.weight, balance.cap)
    load = _loads(graph, part, balance)
    for _ in range(3):
        if not (load > balance.cap).any() or unload_parts(*arrays, load, part) == 0:
            break
    enough = max(1, graph.cut(part) // 1000)
    for _ in range(8):
        if move_greedily(*arrays, load, part) < enough:
            break
    if graph.num_nodes * len(balance.cap) > config.gain_entries:
        return part
    edges_to = np.zeros((graph.num_nodes, len(balance.cap)), dtype=np.int32)
    fill_gains(*arrays[:3], part, edges_to)
    patience = max(200, graph.num_nodes // 50)
    for _ in range(8):
        if climb(*arrays, patience, edges_to, load, part) < enough:
            break
    return part


def _anneal(
    graph: Graph, part: PartArray, balance: Balance, seed: int, penalty: float, config: MultilevelConfig
) -> None:
    """Search the partitions of a coarse graph with caps as prices; changes `part`."""
    num_parts = len(balance.cap)
    too_large = graph.num_nodes * num_parts > config.gain_entries or len(graph.neighbour) > config.whole_entries
    if too_large or not len(graph.neighbour):
        return
    total = int(graph.edge_weight.sum(dtype=np.int64)) / 2
    edges_to = np.zeros((graph.num_nodes, num_parts), dtype=np.int32)
    fill_gains(graph.offsets, graph.neighbour, graph.edge_weight, part, edges_to)
    anneal(
        graph.offsets,
        graph.neighbour,
        graph.edge_weight,
        graph.weight,
        balance.cap,
        penalty * total / num_parts,
        np.geomspace(*config.heat, config.sweeps) * (total / graph.num_nodes),
        graph.num_nodes,
        np.random.default_rng(seed),
        edges_to,
        _loads(graph, part, balance),
        part,
    )
