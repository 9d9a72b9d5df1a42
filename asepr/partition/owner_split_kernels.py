"""Placing the edges of one owner after the other."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import helper, kernel

EDGE_SLOPE = 0.2
EDGE_WALL = 20.0
EDGE_WALL_AT = 1.03
COPY_SLOPE = 0.2
COPY_WALL = 20.0
COPY_WALL_AT = 1.02
HEAD_START = 0.02
"""Part of the final load that every part is taken to have at the start, so that the first edges are not dear."""

OPENING_THRESHOLD = 0.3
DENSE_SHARE = 12
"""Nodes that more than one in so many parts hold are added to all parts at once, others to one part after the other."""

REFRESH_EDGES = 64


@kernel
def place_owners(owner, other, home, weight, capacities, cap, totals, unplaced, bits, num_copies, load, copies, part):
    """Place a bucket's edges, sorted by owner and other end; ranks are node ids here.

    Parameters
    ----------
    owner, other : int32 or int64 (E_bucket,), ranks; other <= owner
    home : int16 (N,), in [0, K) or -1
    weight : float
    capacities : float64 (K,), shares
    cap : int64 (K,)
    totals : int64 (2,), edges and nodes with an edge of the whole graph
    unplaced : int32 or int64 (N,), state: edge ends not yet placed
    bits : uint64 (N, W), state: parts that hold each node
    num_copies : int16 (N,), state: set bits of each row
    load, copies : int64 (K,), state: edges and nodes of each part
    part : int16 (E_bucket,), out
    """
    num_parts = cap.shape[0]
    edge_price = np.zeros(num_parts)
    copy_price = np.zeros(num_parts)
    gain = np.zeros(num_parts)
    num_covered = np.zeros(num_parts, dtype=np.int64)
    worth = np.zeros(num_parts)
    opened = np.empty(num_parts, dtype=np.int64)
    is_open = np.zeros(bits.shape[1], dtype=np.uint64)
    largest = largest_group(owner)
    discount = np.empty(largest)
    waiting = np.empty(largest, dtype=np.int64)
    stop = 0
    while stop < owner.shape[0]:
        start = stop
        while stop < owner.shape[0] and owner[stop] == owner[start]:
            stop += 1
        set_prices(load, copies, capacities, totals, edge_price, copy_price)
        num_others, num_full, num_waiting = weigh_neighbours(
            owner, other, start, stop, home, weight, unplaced, bits, num_copies, discount, waiting, gain, num_covered
        )
        opening_cost = 1.0 / (1.0 + unplaced[owner[start]] / num_parts)
        num_opened = open_parts(
            stop - start, num_others - num_full, waiting, num_waiting, opening_cost, bits, num_copies, discount,
            gain, num_covered, load, cap, edge_price, copy_price, opened, worth,
        )  # fmt: skip
        place_group(
            owner, other, start, stop, home, weight, bits, num_copies, load, copies, cap, capacities, totals,
            edge_price, copy_price, opened, num_opened, is_open, worth, part,
        )  # fmt: skip
        gain[:] = 0.0
        num_covered[:] = 0


@helper
def largest_group(owner):
    """Return the most edges that one owner has."""
    largest, start = 0, 0
    for i in range(owner.shape[0]):
        if owner[i] != owner[start]:
            start = i
        largest = max(largest, i + 1 - start)
    return largest


@kernel
def place_in_turn(owner, other, cap, unplaced, bits, num_copies, load, copies, part):
    """Place a bucket's edges into the first part until it is full, then into the next; as `place_owners`."""
    p = 0
    for i in range(owner.shape[0]):
        while load[p] >= cap[p]:
            p += 1
        unplaced[owner[i]] -= 1
        unplaced[other[i]] -= 1
        part[i] = p
        load[p] += 1
        enter(bits, owner[i], p, num_copies, copies)
        enter(bits, other[i], p, num_copies, copies)


@helper
def set_prices(load, copies, capacities, totals, edge_price, copy_price):
    """Price one more edge and one more copy in each part by its load relative to its share so far."""
    all_edges = 0.0
    all_copies = 0.0
    for p in range(load.shape[0]):
        all_edges += load[p]
        all_copies += copies[p]
    all_edges += HEAD_START * totals[0]
    all_copies += HEAD_START * totals[1]
    for p in range(load.shape[0]):
        x = load[p] / (capacities[p] * all_edges)
        y = copies[p] / (capacities[p] * all_copies)
        edge_price[p] = EDGE_SLOPE * x + EDGE_WALL * max(0.0, x - EDGE_WALL_AT)
        copy_price[p] = COPY_SLOPE * y + COPY_WALL * max(0.0, y - COPY_WALL_AT)


@helper
def weigh_neighbours(
    owner, other, start, stop, home, weight, unplaced, bits, num_copies, discount, waiting, gain, num_covered
):
    """Sum, for each part, what it would save to put the owner's edges there; take them off `unplaced`.

    Returns the number of neighbours, of those that every part holds, and of those that some do and some do not:
    `waiting` lists these, `discount` what a copy of each is worth. Parallel edges count once.
    """
    num_parts = gain.shape[0]
    r = owner[start]
    unplaced[r] -= stop - start
    if home[r] >= 0:
        gain[home[r]] += weight
    num_others, num_full, num_waiting = 0, 0, 0
    for i in range(start, stop):
        u = other[i]
        if u == r:
            unplaced[r] -= 1
            continue
        if i > start and other[i - 1] == u:
            unplaced[u] -= 1
            continue
        worth = 1.0 / (1.0 + unplaced[u] / num_parts)
        unplaced[u] -= 1
        num_others += 1
        if num_copies[u] == 0:
            if home[u] >= 0:
                gain[home[u]] += weight
        elif num_copies[u] == num_parts:
            num_full += 1
        else:
            add_parts(bits, u, num_copies[u], worth, 1, gain, num_covered)
            waiting[num_waiting], discount[num_waiting] = u, worth
            num_waiting += 1
    return num_others, num_full, num_waiting


@helper
def add_parts(bits, u, num_held, amount, count, gain, num_covered):
    """Add to `gain` and `num_covered` of every part that holds node u; `num_held` parts do."""
    num_parts = gain.shape[0]
    if num_held * DENSE_SHARE > num_parts:
        for w in range(bits.shape[1]):
            add_word(bits[u, w], amount, count, gain[w << 6 :], num_covered[w << 6 :])
        return
    for w in range(bits.shape[1]):
        word = bits[u, w]
        while word:
            p = (w << 6) + lowest_bit(word)
            word &= word - np.uint64(1)
            gain[p] += amount
            num_covered[p] += count


@helper
def add_word(word, amount, count, gain, num_covered):
    """Add to each of up to 64 parts, those without a bit in the word too: nothing. Several fit into one instruction."""
    for p in range(min(64, gain.shape[0])):
        bit = np.int64((word >> np.uint64(p)) & np.uint64(1))
        gain[p] += amount * bit
        num_covered[p] += count * bit


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
def open_parts(
    num_edges, num_apart, waiting, num_waiting, opening_cost, bits, num_copies, discount, gain, num_covered,
    load, cap, edge_price, copy_price, opened, worth,
):  # fmt: skip
    """Open parts for the owner's edges as long as that saves copies; return how many.

    `num_apart` is the number of neighbours that some part lacks, `opening_cost` the price of one more copy of
    the owner. `opened` lists the parts, `worth` holds what each saved when it was opened. At least one is opened;
    one with room.
    """
    num_parts = cap.shape[0]
    first, best = -1, 0.0
    for p in range(num_parts):
        if load[p] >= cap[p]:
            continue
        score = gain[p] - num_edges * edge_price[p] - (num_apart - num_covered[p] + 1) * copy_price[p]
        if first < 0 or score > best:
            first, best = p, score
    opened[0] = first
    worth[first] = gain[first]
    num_opened = 1
    newest = first
    while True:
        num_waiting = take_covered_out(waiting, num_waiting, newest, bits, num_copies, discount, gain, num_covered)
        newest, best = -1, OPENING_THRESHOLD
        moved_price = edge_price[first] + copy_price[first]
        for p in range(num_parts):
            if num_covered[p] <= 0 or load[p] >= cap[p]:
                continue
            score = gain[p] - opening_cost - num_covered[p] * (edge_price[p] - moved_price) - copy_price[p]
            if score > best:
                newest, best = p, score
        if newest < 0:
            return num_opened
        opened[num_opened] = newest
        worth[newest] = gain[newest]
        num_opened += 1


@helper
def take_covered_out(waiting, num_waiting, newest, bits, num_copies, discount, gain, num_covered):
    """Take the neighbours that the newest part covers out of the sums and off `waiting`; return how many still wait."""
    num_left = 0
    for j in range(num_waiting):
        u, worth = waiting[j], discount[j]
        if holds(bits, u, newest):
            add_parts(bits, u, num_copies[u], -worth, -1, gain, num_covered)
        else:
            waiting[num_left], discount[num_left] = u, worth
            num_left += 1
    return num_left


@helper
def holds(bits, u, p):
    """Return whether part p holds node u."""
    return (bits[u, p >> 6] >> np.uint64(p & 63)) & np.uint64(1) != 0


@helper
def place_group(
    owner, other, start, stop, home, weight, bits, num_copies, load, copies, cap, capacities, totals,
    edge_price, copy_price, opened, num_opened, is_open, worth, part,
):  # fmt: skip
    """Place the owner's edges among the parts it opened, and enter the new copies."""
    r = owner[start]
    num_edges = stop - start
    for j in range(num_opened):
        is_open[opened[j] >> 6] |= np.uint64(1) << np.uint64(opened[j] & 63)
    for i in range(start, stop):
        u = other[i]
        if (i - start) % REFRESH_EDGES == REFRESH_EDGES - 1:
            set_prices(load, copies, capacities, totals, edge_price, copy_price)
        best = cheapest_covering(bits, r, u, is_open, load, cap, edge_price)
        if best < 0:
            best = cheapest_opened(
                home[u], weight, num_edges, load, cap, edge_price, copy_price, opened, num_opened, worth
            )
        if best < 0:
            best = cheapest_with_room(r, u, bits, load, cap, edge_price, copy_price)
        part[i] = best
        load[best] += 1
        enter(bits, r, best, num_copies, copies)
        enter(bits, u, best, num_copies, copies)
    is_open[:] = 0


@helper
def cheapest_covering(bits, r, u, is_open, load, cap, edge_price):
    """Return the opened part with room, among those that hold neighbour u, where an edge costs least; or -1."""
    best, best_cost = -1, 0.0
    for w in range(is_open.shape[0]):
        word = is_open[w] if u == r else is_open[w] & bits[u, w]
        while word:
            p = (w << 6) + lowest_bit(word)
            word &= word - np.uint64(1)
            if load[p] < cap[p] and (best < 0 or edge_price[p] < best_cost):
                best, best_cost = p, edge_price[p]
    return best


@helper
def cheapest_opened(home, weight, num_edges, load, cap, edge_price, copy_price, opened, num_opened, worth):
    """Return the opened part with room where an edge to a neighbour that none of them holds costs least; or -1."""
    best, best_cost = -1, 0.0
    for j in range(num_opened):
        p = opened[j]
        if load[p] >= cap[p]:
            continue
        cost = edge_price[p] + copy_price[p] - worth[p] / num_edges
        if home == p:
            cost -= weight
        if best < 0 or cost < best_cost:
            best, best_cost = p, cost
    return best


@helper
def cheapest_with_room(r, u, bits, load, cap, edge_price, copy_price):
    """Return the part, among those with room, where an edge costs least: new copies and prices."""
    best, best_cost = -1, 0.0
    for p in range(cap.shape[0]):
        if load[p] >= cap[p]:
            continue
        cost = edge_price[p]
        if not holds(bits, r, p):
            cost += 1.0 + copy_price[p]
        if u != r and not holds(bits, u, p):
            cost += 1.0 + copy_price[p]
        if best < 0 or cost < best_cost:
            best, best_cost = p, cost
    return best


@helper
def enter(bits, u, p, num_copies, copies):
    """Note that part p holds node u."""
    if not holds(bits, u, p):
        bits[u, p >> 6] |= np.uint64(1) << np.uint64(p & 63)
        num_copies[u] += 1
        copies[p] += 1
