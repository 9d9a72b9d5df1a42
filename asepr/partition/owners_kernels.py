"""Greedy choice of owners under three loads."""
# mypy: disable-error-code="no-untyped-def"

import heapq

import numpy as np

from asepr.jit import helper, kernel


@kernel
def choose_owners_in_order(order, bits, num_copies, train, capacities, node_cap, owner):
    """Give each node, in the given order, to the candidate part with the least relative load.

    Parameters
    ----------
    order : int32 or int64 (N,), a permutation; nodes without a candidate last
    bits : uint64 (N, W)
        Parts that hold each node: its candidates, where one of them has room.
    num_copies : int16 (N,), set bits of each row
    train : bool (N,)
    capacities : float64 (K,), shares
    node_cap : int64 (K,), most nodes of each part
    owner : int32 (N,), out

    Notes
    -----
    O(N RF + K log K) time where all have room. Ties go to the lowest part.
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
        if num_copies[v] == 0:
            choose_for_free_nodes(order[i:], train, num_train, capacities, node_cap, nodes, load, owner)
            return
        best = least_loaded_holder(bits, v, node_cap, nodes, load)
        if best < 0:
            best = least_loaded(node_cap, nodes, load)
        owner[v] = best
        nodes[best] += 1
        added = 1.0 / order.shape[0] + (num_copies[v] - 1) / max(num_rows, 1)
        if train[v]:
            added += 1.0 / num_train
        load[best] += added / capacities[best]


@helper
def least_loaded_holder(bits, v, node_cap, nodes, load):
    """Return the part with the least load among those with room that hold node v, or -1."""
    best = -1
    for w in range(bits.shape[1]):
        word = bits[v, w]
        while word:
            p = (w << 6) + lowest_bit(word)
            word &= word - np.uint64(1)
            if nodes[p] < node_cap[p] and (best < 0 or load[p] < load[best]):
                best = p
    return best


@helper
def lowest_bit(word):
    """Return the position of the lowest set bit: how many lie below it, which compiles to one instruction."""
    below = (word & (~word + np.uint64(1))) - np.uint64(1)
    p = 0
    while below:
        below &= below - np.uint64(1)
        p += 1
    return p


@helper
def least_loaded(node_cap, nodes, load):
    """Return the part with the least load among those with room."""
    best = -1
    for p in range(load.shape[0]):
        if nodes[p] < node_cap[p] and (best < 0 or load[p] < load[best]):
            best = p
    return best


@kernel
def choose_for_free_nodes(order, train, num_train, capacities, node_cap, nodes, load, owner):
    """Give each node of `order` to the part with the least load of all with room; in O(log K) each."""
    queue = [(load[p], p) for p in range(load.shape[0]) if nodes[p] < node_cap[p]]
    heapq.heapify(queue)
    for v in order:
        least, p = queue[0]
        owner[v] = p
        nodes[p] += 1
        added = 1.0 / owner.shape[0]
        if train[v]:
            added += 1.0 / num_train
        if nodes[p] < node_cap[p]:
            heapq.heapreplace(queue, (least + added / capacities[p], p))
        else:
            heapq.heappop(queue)


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
