"""One owner for each node of a vertex-cut."""

from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import CopyBits, PartArray, PartitionProblem
from asepr.errors import CapacityError
from asepr.partition.copies_kernels import count_copies, mark_owners
from asepr.partition.owners_kernels import choose_owners_in_order, fill_empty_parts
from asepr.partition.ranking import id_dtype
from asepr.stream.scratch_kernels import bucket_order


def choose_owners(problem: PartitionProblem, copies: CopyBits) -> PartArray:
    """Choose each node's owner among the parts that hold it, and mark owners in `copies`.

    Objective: the largest, over parts, of inner nodes, of training nodes and of rows sent to other
    parts (a node with c copies sends c - 1), each relative to the part's share of their total. Nodes
    are taken from the fewest copies to the most, so that those with a choice even out those without;
    each goes to the part of its copies where the sum of the three relative loads is least. A node
    without edges goes to the least loaded part of all, last. The number of rows that travel in all
    does not depend on the choice of owners, only how evenly parts share the work.

    Parameters
    ----------
    problem : PartitionProblem
        In the edge-cut layout its cap on nodes is hard: a node whose parts are all full goes to the
        least loaded part that has room.
    copies : uint64 (N, W), changed in place
        The owner's bit is set for every node.

    Returns
    -------
    int32 (N,), in [0, K); every part owns a node

    Raises
    ------
    CapacityError
        More parts than nodes.
    """
    num_nodes = problem.source.num_nodes
    if problem.num_parts > num_nodes:
        raise CapacityError(f"num_parts must be at most {num_nodes}, the nodes, got {problem.num_parts}; ask for fewer")
    num_copies = np.empty(num_nodes, dtype=np.int16)
    count_copies(copies, num_copies)
    train = np.zeros(num_nodes, dtype=np.bool_) if problem.train is None else problem.train
    node_cap = problem.caps(num_nodes)
    if problem.layout == "vertex-cut":
        node_cap = np.full(problem.num_parts, num_nodes, dtype=np.int64)
    owner = np.empty(num_nodes, dtype=np.int32)
    choose_owners_in_order(
        _fewest_copies_first(num_copies, problem.num_parts),
        copies,
        num_copies,
        train,
        problem.capacities,
        node_cap,
        owner,
    )
    fill_empty_parts(owner, num_copies, problem.num_parts)
    mark_owners(owner, copies)
    return owner


def _fewest_copies_first(num_copies: npt.NDArray[np.int16], num_parts: int) -> npt.NDArray[Any]:
    """Return the nodes in the order of their choice; those without edges last.

    These can go anywhere, so they mend what the others left uneven.
    """
    turn = np.where(num_copies == 0, np.int16(num_parts + 1), num_copies)
    return bucket_order(turn, num_parts + 2, id_dtype(len(num_copies)))[0]
