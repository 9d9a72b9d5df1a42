"""The method `asepr` for vertex-cuts: which form a run takes, and the best of a few candidates."""

import contextlib
import functools
from collections.abc import Iterator

import numpy as np

from asepr.contracts import EdgePartArray, IdArray, PartitionProblem
from asepr.partition.attribute_prior import attribute_prior
from asepr.partition.copies import mark_copies
from asepr.partition.copies_kernels import count_copies_by_part
from asepr.partition.expansion import expand_parts
from asepr.partition.owned_edges import OwnedEdges
from asepr.partition.owner_split import REFINED_CORE_SLACK, Prior, split_owners
from asepr.partition.plan import Form, choose_form
from asepr.partition.ranking import rank_nodes
from asepr.partition.replica_removal import remove_replicas
from asepr.partition.structural_prior import streamed_home, structural_home
from asepr.partition.vertex_cover import cover_cut_edges

MIN_STREAMED_LIFT = 0.1
"""Homes from streamed clusters must hold this much more of the edges than chance for structure to be worth a look."""

MIN_HOME_LIFT = 0.15
HOME_WEIGHT = 0.5

MAX_ATTRIBUTE_COST = 1.01
"""How many times the copies of the best vertex-cut without attributes one that follows them may need."""


def place_edges(problem: PartitionProblem) -> EdgePartArray:
    """Place every edge by the owner split, and refine: in memory where the budget allows, else bucket by bucket.

    In the in-memory form, where streamed clusters show that the graph has communities or geometry, two
    more candidates are made from a partition of the nodes: the owner split with that as its prior, and a
    vertex cover of the edges between its parts. Where copies need no balance, parts grown by expansion are
    one more. Each is refined by `remove_replicas`, and the one with the fewest copies within the bound on
    replica balance is kept.

    Where node attributes tell of edges, a candidate that follows them is kept if it needs at most
    `MAX_ATTRIBUTE_COST` times the copies of the best that does not; always if `problem.attr_weight` asks for it.

    Parameters
    ----------
    problem : PartitionProblem

    Returns
    -------
    int16 (E,), in [0, K); `problem.caps(E)` holds
    """
    prior = attribute_prior(problem)
    if problem.num_parts == 1 or choose_form(problem) is Form.STREAMING:
        return _Run(problem).best(prior)
    # Every start and refinement reads the same edges by owner.
    with contextlib.closing(OwnedEdges(problem, *rank_nodes(problem))) as owned:
        return _Run(problem, owned).best(prior)


class _VertexCut:
    """A candidate."""

    def __init__(self, problem: PartitionProblem, edge_part: EdgePartArray) -> None:
        self._problem = problem
        self.edge_part = edge_part

    @property
    def score(self) -> float:
        """Copies, raised by as much as the fullest part is above the bound."""
        return self._num_copies * max(1.0, self._balance / (1 + self._problem.replica_imbalance))

    @property
    def is_within_bound(self) -> bool:
        """Whether copies are balanced as asked."""
        return self._balance <= 1 + self._problem.replica_imbalance

    @functools.cached_property
    def _copies(self) -> IdArray:
        """int64 (K,): copies of each part."""
        copies = np.zeros(self._problem.num_parts, dtype=np.int64)
        count_copies_by_part(mark_copies(self._problem.source, self.edge_part, None, self._problem.num_parts), copies)
        return copies

    @property
    def _num_copies(self) -> float:
        return float(self._copies.sum())

    @property
    def _balance(self) -> float:
        """Copies of the fullest part relative to its share."""
        return float((self._copies / self._problem.capacities).max() / max(self._num_copies, 1))


class _Run:
    """Makes candidates; with edges by owner at hand, in memory."""

    def __init__(self, problem: PartitionProblem, owned: OwnedEdges | None = None) -> None:
        self._problem = problem
        self._owned = owned

    def best(self, prior: Prior | None) -> EdgePartArray:
        """Return the candidate that follows a prior where it may, else the best of those that do not."""
        told = None if prior is None else self._split(prior)
        if told is not None and self._problem.attr_weight is not None:
            return told.edge_part
        if told is None and self._owned is None:
            return self._split().edge_part
        best = min(self._candidates(), key=lambda candidate: candidate.score)
        if told is not None and told.score <= MAX_ATTRIBUTE_COST * best.score:
            return told.edge_part
        return best.edge_part

    def _candidates(self) -> Iterator[_VertexCut]:
        problem = self._problem
        if self._owned is not None and np.isinf(problem.replica_imbalance):
            yield self._refined(expand_parts(problem))
        yield self._split()
        if self._owned is None or streamed_home(problem).lift < MIN_STREAMED_LIFT:
            return
        structure = structural_home(problem)
        if structure.lift >= MIN_HOME_LIFT:
            yield self._split(Prior(home=structure.home, weight=HOME_WEIGHT))
            yield self._refined(cover_cut_edges(problem, structure.home))

    def _split(self, prior: Prior | None = None) -> _VertexCut:
        """Return the owner split, refined; in memory with as large a dense core as leaves copies within their bound."""
        problem = self._problem
        if self._owned is None:
            return _VertexCut(problem, split_owners(problem, prior, refines=True))
        start = split_owners(problem, prior, core_slack=REFINED_CORE_SLACK, owned=self._owned)
        refined = self._refined(start)
        if refined.is_within_bound:
            return refined
        other_start = split_owners(problem, prior, owned=self._owned)
        # Without a dense core the slack changes nothing, and the first answer stands.
        return refined if np.array_equal(start, other_start) else self._refined(other_start)

    def _refined(self, edge_part: EdgePartArray) -> _VertexCut:
        refined = remove_replicas(self._problem, edge_part, 1 + self._problem.replica_imbalance, self._owned)
        return _VertexCut(self._problem, refined)
