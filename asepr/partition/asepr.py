"""The method `asepr` for vertex-cuts: which form a run takes, and the best of a few candidates."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from asepr.contracts import EdgePartArray, PartitionProblem
from asepr.partition.attribute_prior import attribute_prior
from asepr.partition.copies import mark_copies
from asepr.partition.copies_kernels import count_copies_by_part
from asepr.partition.expansion import expand_parts
from asepr.partition.owner_split import REFINED_CORE_SLACK, Prior, split_owners
from asepr.partition.plan import Form, choose_form
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
    form = Form.STREAMING if problem.num_parts == 1 else choose_form(problem)
    prior = attribute_prior(problem)
    told = None if prior is None else _split(problem, form, prior)
    if told is not None and problem.attr_weight is not None:
        return told
    if told is None and form is Form.STREAMING:
        return _split(problem, form)
    best = min(_candidates(problem, form), key=lambda candidate: candidate.score)
    if told is not None and _score(problem, told) <= MAX_ATTRIBUTE_COST * best.score:
        return told
    return best.edge_part


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
    edge_part: EdgePartArray
    score: float


def _candidates(problem: PartitionProblem, form: Form) -> Iterator[_Candidate]:
    for edge_part in _vertex_cuts(problem, form):
        yield _Candidate(edge_part=edge_part, score=_score(problem, edge_part))


def _vertex_cuts(problem: PartitionProblem, form: Form) -> Iterator[EdgePartArray]:
    if form is Form.IN_MEMORY and np.isinf(problem.replica_imbalance):
        yield _refined(problem, expand_parts(problem))
    yield _split(problem, form)
    if form is Form.STREAMING or streamed_home(problem).lift < MIN_STREAMED_LIFT:
        return
    structure = structural_home(problem)
    if structure.lift >= MIN_HOME_LIFT:
        yield _split(problem, form, Prior(home=structure.home, weight=HOME_WEIGHT))
        yield _refined(problem, cover_cut_edges(problem, structure.home))


def _split(problem: PartitionProblem, form: Form, prior: Prior | None = None) -> EdgePartArray:
    """Return the owner split, refined; in memory with as large a dense core as leaves copies within their bound."""
    if form is Form.STREAMING:
        return split_owners(problem, prior, refines=True)
    start = split_owners(problem, prior, core_slack=REFINED_CORE_SLACK)
    refined = _refined(problem, start)
    if _copy_balance(problem, refined)[1] <= 1 + problem.replica_imbalance:
        return refined
    other_start = split_owners(problem, prior)
    # Without a dense core the slack changes nothing, and the first answer stands.
    return refined if np.array_equal(start, other_start) else _refined(problem, other_start)


def _refined(problem: PartitionProblem, edge_part: EdgePartArray) -> EdgePartArray:
    return remove_replicas(problem, edge_part, 1 + problem.replica_imbalance)


def _score(problem: PartitionProblem, edge_part: EdgePartArray) -> float:
    """Return the number of copies, raised by as much as the fullest part is above the bound."""
    num_copies, balance = _copy_balance(problem, edge_part)
    return num_copies * max(1.0, balance / (1 + problem.replica_imbalance))


def _copy_balance(problem: PartitionProblem, edge_part: EdgePartArray) -> tuple[float, float]:
    """Return the number of copies, and those of the fullest part relative to its share."""
    bits = mark_copies(problem.source, edge_part, None, problem.num_parts)
    copies = np.zeros(problem.num_parts, dtype=np.int64)
    count_copies_by_part(bits, copies)
    total = float(copies.sum())
    return total, float((copies / problem.capacities).max() / max(total, 1))
