"""Streaming vertex-cut: every edge is placed by its end of lower degree, hubs first, out of core."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from asepr.contracts import DegreeArray, EdgePartArray, PartArray, PartitionProblem
from asepr.partition.owned_edges import OwnedEdges, OwnedRows, owned_edges
from asepr.partition.owner_split_kernels import (
    COPY_WALL_AT,
    EDGE_WALL_AT,
    HEAD_START,
    place_in_turn,
    place_owners,
)
from asepr.partition.ranking import rank_nodes
from asepr.partition.replica_removal_kernels import Bounds
from asepr.partition.window_refinement import Window

NO_HOME = -1

CORE_SLACK = 0.9
"""How much of the allowed imbalance of copies a dense core may use up."""

REFINED_CORE_SLACK = 1.45
"""The same where replica removal comes next, which evens copies out."""

MAX_CORE_IMBALANCE = 0.25

CORE_DENSITY = 0.25
"""A core must have at most this share of the nodes, relative to its share of the edges, to be placed apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """Where nodes would rather be, for reasons that one ordered pass cannot see.

    Attributes
    ----------
    home : int32 (N,), in [0, K), or NO_HOME
    weight : float
        What being at home is worth, in replicas.
    """

    home: PartArray
    weight: float


def split_owners(
    problem: PartitionProblem,
    prior: Prior | None = None,
    *,
    refines: bool = False,
    core_slack: float = CORE_SLACK,
    owned: OwnedEdges | None = None,
) -> EdgePartArray:
    """Place every edge by the greedy choice of its owner, its end of lower degree.

    Nodes are ranked by descending degree (ties by id) and take their turn in that order. When a
    node's turn comes no part holds it yet, while its neighbours of higher degree may be anywhere.
    The edges it owns, those to these neighbours, go to a few parts that it opens greedily as in
    facility location: opening a part costs one copy of the owner, and saves a copy of each neighbour
    that the part holds already and no part opened before does. Savings are discounted by how likely
    the copy is to come about anyway, `1 / (1 + unplaced edges / K)`. Edges and copies have prices of
    their own that rise steeply near the bounds, which keeps both balanced; the cap on edges is hard.

    Parameters
    ----------
    problem : PartitionProblem
    prior : Prior, optional
        Adds `weight` to the gain of a part that is the home of the owner, or of a neighbour that no
        part holds yet.
    refines : bool
        Place each bucket twice more by `Window.refine` before the next is read. Left out where hubs form a dense
        core: there it gains next to nothing.
    core_slack : float
        How much of the allowed imbalance of copies a dense core may use up.
    owned : OwnedEdges, optional
        Of the problem, where they are on disk already.

    Returns
    -------
    int16 (E,), in [0, K); `problem.caps(E)` holds

    Notes
    -----
    O(E K / 64 + N K) time; three passes over the edges and one over a temporary copy of 16 bytes an
    edge (24 from 2**31 nodes on). Memory: about 20 bytes a node, 8 ceil(K / 64) more for the copies,
    and one bucket. The result does not depend on the order of the input rows, but for which of
    several parallel edges goes where. Source: ours; facility location greedy after Hochbaum,
    Heuristics for the fixed cost median problem, 1982.
    """
    order, ranked_degree = rank_nodes(problem)
    home = np.full(len(order), NO_HOME, dtype=np.int16) if prior is None else prior.home[order].astype(np.int16)
    with owned_edges(problem, order, ranked_degree, owned) as edges:
        del order
        core_end = _find_core(problem, edges, int(np.count_nonzero(ranked_degree)), core_slack)
        weight = 0.0 if prior is None else prior.weight
        state = _State(problem, ranked_degree, home, weight, refines=refines and core_end == 0)
        edge_part = problem.scratch.scattered("edge-part", problem.source.num_edges, np.int16)
        for rows in edges:
            core, rest = rows.split(int(np.searchsorted(rows.owner, core_end)))
            if len(core.eid):
                edge_part.put(core.eid, state.place_core(core))
            if len(rest.eid):
                edge_part.put(rest.eid, state.place(rest))
    return edge_part.finish()


def _find_core(problem: PartitionProblem, owned: OwnedEdges, num_nodes: int, slack: float) -> int:
    """Return how many of the first ranks form a core to be placed apart; 0 where none is dense enough."""
    share = slack * (1 - 1 / (1 + min(problem.replica_imbalance, MAX_CORE_IMBALANCE)))
    num_edges = int(share * problem.source.num_edges)
    if num_edges == 0:
        return 0
    core_end = owned.owner_of_row(num_edges)
    return core_end if core_end <= CORE_DENSITY * share * num_nodes else 0


class _State:
    """What is known after some owners had their turn; changed by `place`."""

    def __init__(
        self,
        problem: PartitionProblem,
        ranked_degree: DegreeArray,
        home: npt.NDArray[np.int16],
        weight: float,
        *,
        refines: bool,
    ) -> None:
        num_nodes, num_parts = len(ranked_degree), problem.num_parts
        self._capacities = problem.capacities
        self._cap = problem.caps(problem.source.num_edges)
        self._totals = np.array([problem.source.num_edges, np.count_nonzero(ranked_degree)], dtype=np.int64)
        self._unplaced = ranked_degree
        self._home, self._weight = home, weight
        self._has_core = False
        self._local = np.full(num_nodes, -1, dtype=np.int32) if refines else None
        self._bits = np.zeros((num_nodes, (num_parts + 63) // 64), dtype=np.uint64)
        self._num_copies = np.zeros(num_nodes, dtype=np.int16)
        self._load = np.zeros(num_parts, dtype=np.int64)
        self._copies = np.zeros(num_parts, dtype=np.int64)

    def place_core(self, rows: OwnedRows) -> EdgePartArray:
        """Fill the first parts, one after the other, with the edges of a bucket; return int16 (len(rows.owner),)."""
        part = np.empty(len(rows.owner), dtype=np.int16)
        place_in_turn(
            rows.owner,
            rows.other,
            self._cap,
            self._unplaced,
            self._bits,
            self._num_copies,
            self._load,
            self._copies,
            part,
        )
        self._has_core = True
        return part

    def _set_core_aside(self) -> None:
        """From now on balance what comes after the core, by the room that it left in each part."""
        left = np.maximum(self._capacities * self._totals[0] - self._load, 0.0)
        self._cap = np.where(left > 0, self._cap - self._load, 0)
        self._totals[0] -= self._load.sum()
        self._capacities = np.maximum(left / left.sum(), np.finfo(np.float64).tiny)
        self._load[:], self._copies[:] = 0, 0
        self._has_core = False

    def place(self, rows: OwnedRows) -> EdgePartArray:
        """Place the edges of one bucket, sorted by owner; return int16 (len(rows.owner),)."""
        if self._has_core:
            self._set_core_aside()
        part = np.empty(len(rows.owner), dtype=np.int16)
        window = None if self._local is None else Window(rows, self._local, self._bits, self._num_copies)
        place_owners(
            rows.owner,
            rows.other,
            self._home,
            self._weight,
            self._capacities,
            self._cap,
            self._totals,
            self._unplaced,
            self._bits,
            self._num_copies,
            self._load,
            self._copies,
            part,
        )
        if window is not None:
            window.refine(part, self._bounds(), self._unplaced, self._bits, self._num_copies, self._load, self._copies)
        return part

    def _bounds(self) -> Bounds:
        """Return the bounds that prices in `place_owners` follow too."""
        return Bounds(
            num_edges=float(self._load.sum() + HEAD_START * self._totals[0]),
            cap=self._cap,
            capacities=self._capacities,
            walls=np.array([EDGE_WALL_AT, COPY_WALL_AT]),
        )
