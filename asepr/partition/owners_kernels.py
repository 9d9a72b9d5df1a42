"""Greedy choice of owners under three loads."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import kernel


@kernel
def choose_owners_in_order(order, bits, num_copies, train, capacities, node_cap, owner):
    """Give each node, in the given order, to the candidate part with the least relative load.

    Parameters
    ----------
    order : int64 (N,), a permutation
    bits : uint64 (N, W)
        Parts that hold each node: its candidates, where one of them has room.
    num_copies : int32 (N,), set bits of each row
    train : bool (N,)
    capacities : float64 (K,), shares
    node_cap : int64 (K,), most nodes of each part
    owner : int32 (N,), out

    Notes
    -----
    O(N K) time. Ties go to the lowest part.
    """
    num_parts = capacities.shape[0]
    nodes = np.zeros(num_parts, dtype=np.int64)
    load = np.zeros(num_parts, dtype=np.float64)
    num_train = 0
    num_rows = 0
    for v in range(train.shape[0]):
        num_train += train[v]
        num_rows += max(num_copies[v] - 1, 0)
    for i in range(order.shape[0]):
        v = order[i]
        best = -1
        best_held = False
        for p in range(num_parts):
            if nodes[p] >= node_cap[p]:
                continue
            held = num_copies[v] == 0 or ((bits[v, p >> 6] >> np.uint64(p & 63)) & np.uint64(1)) != 0
            if best >= 0 and best_held and not held:
                continue
            if best < 0 or (held and not best_held) or load[p] < load[best]:
                best = p
                best_held = held
        owner[v] = best
        nodes[best] += 1
        added = 1.0 / order.shape[0]
        if train[v]:
            added += 1.0 / num_train
        if num_copies[v] > 1:
            added += (num_copies[v] - 1) / num_rows
        load[best] += added / capacities[best]


@kernel
def fill_empty_parts(owner, num_copies, num_parts):
    """Give each part without a node the cheapest node of a part that has two or more.

    Parameters
    ----------
    owner : int32 (N,), state, changed in place; N >= K
    num_copies : int32 (N,)
        A node with fewer copies is cheaper to move: one without edges costs nothing.
    num_parts : int
    """
    nodes = np.zeros(num_parts, dtype=np.int64)
    for v in range(owner.shape[0]):
        nodes[owner[v]] += 1
    for p in range(num_parts):
        if nodes[p] > 0:
            continue
        best = -1
        for v in range(owner.shape[0]):
            if nodes[owner[v]] > 1 and (best < 0 or num_copies[v] < num_copies[best]):
                best = v
        nodes[owner[best]] -= 1
        owner[best] = p
        nodes[p] = 1
