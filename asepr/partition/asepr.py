"""The method `asepr` for vertex-cuts: which form a run takes, and the best of a few candidates."""

from collections.abc import Iterator

import numpy as np

from asepr.contracts import EdgePartArray, PartitionProblem
from asepr.partition.attribute_prior import attribute_prior
from asepr.partition.copies import mark_copies
from asepr.partition.copies_kernels import count_copies_by_part
from asepr.partition.expansion import expand_parts
from asepr.partition.owner_split import Prior, split_owners
from asepr.partition.plan import Form, choose_form
from asepr.partition.replica_removal import remove_replicas
from asepr.partition.structural_prior import streamed_home, structural_home
from asepr.partition.vertex_cover import cover_cut_edges

MIN_STREAMED_LIFT = 0.1
"""Homes from streamed clusters must hold this much more of the edges than chance for structure to be worth a look."""

MIN_HOME_LIFT = 0.15
HOME_WEIGHT = 0.5


def place_edges(problem: PartitionProblem) -> EdgePartArray:
    """Place every edge by the owner split, and refine in memory where the budget allows.

    In the streaming form that is all. In the in-memory form, where streamed clusters show that the
    graph has communities or geometry, two more candidates are made from a partition of the nodes: the
    owner split with that as its prior, and a vertex cover of the edges between its parts. Where copies
    need no balance, parts grown by expansion are one more. Each is refined by `remove_replicas`, and the
    one with the fewest copies within the bound on replica balance is kept.

    Parameters
    ----------
    problem : PartitionProblem

    Returns
    -------
    int16 (E,), in [0, K); `problem.caps(E)` holds
    """
    if choose_form(problem) is Form.STREAMING or problem.num_parts == 1:
        return split_owners(problem, attribute_prior(problem))
    best = None
    best_score = np.inf
    for candidate in _candidates(problem):
        refined = remove_replicas(problem, candidate, 1 + problem.replica_imbalance)
        score = _score(problem, refined)
        if score < best_score:
            best, best_score = refined, score
    assert best is not None
    return best


def _candidates(problem: PartitionProblem) -> Iterator[EdgePartArray]:
    if np.isinf(problem.replica_imbalance):
        yield expand_parts(problem)
    yield split_owners(problem, attribute_prior(problem))
    if streamed_home(problem).lift < MIN_STREAMED_LIFT:
        return
    structure = structural_home(problem)
    if structure.lift >= MIN_HOME_LIFT:
        yield split_owners(problem, Prior(home=structure.home, weight=HOME_WEIGHT))
        yield cover_cut_edges(problem, structure.home)


def _score(problem: PartitionProblem, edge_part: EdgePartArray) -> float:
    """Return the number of copies, raised by as much as the fullest part is above the bound."""
    bits = mark_copies(problem.source, edge_part, None, problem.num_parts)
    copies = np.zeros(problem.num_parts, dtype=np.int64)
    count_copies_by_part(bits, copies)
    balance = float((copies / problem.capacities).max() / max(copies.sum(), 1))
    return float(copies.sum()) * max(1.0, balance / (1 + problem.replica_imbalance))
