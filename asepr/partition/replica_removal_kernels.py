"""Taking the edges of one owner after the other out of their parts, and placing them anew."""
# mypy: disable-error-code="no-untyped-def"

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asepr.contracts import EdgePartArray, IdArray
from asepr.jit import helper, kernel

EDGE_SLOPE = 0.2
EDGE_WALL = 20.0
COPY_SLOPE = 0.2
COPY_WALL = 20.0
FRAILTY = 0.8
"""How much less a copy is worth when it rests on no edge; one that rests on h edges, `FRAILTY / (1 + h)`."""


class Groups(NamedTuple):
    """The edges of every owner; ranks are node ids here, other <= owner.

    Attributes
    ----------
    start : int64 (N + 1,), edges of owner r are rows `start[r]:start[r + 1]`
    other : int32 or int64 (E,), ascending within a group
    part : int16 (E,), state
    """

    start: IdArray
    other: npt.NDArray[Any]
    part: EdgePartArray


class CopyCounts(NamedTuple):
    """How many edges of each node each part holds: a table row of K where a node may need it, else a list.

    Attributes
    ----------
    first_slot : int64 (N + 1,)
        A node has `min(degree, K)` slots. With K, slot p is about part p; with fewer, the first
        `num_copies` slots are about the parts that `slot_part` names, in any order.
    slot_part : int16 (S,)
    slot_count : int32 (S,)
    num_copies : int32 (N,)
    value : float32 (N,), what it is worth to save a copy of each node
    load, copies : int64 (K,), edges and nodes of each part
    """

    first_slot: IdArray
    slot_part: npt.NDArray[np.int16]
    slot_count: npt.NDArray[np.int32]
    num_copies: npt.NDArray[np.int32]
    value: npt.NDArray[np.float32]
    load: IdArray
    copies: IdArray


class Bounds(NamedTuple):
    """What parts may hold.

    Attributes
    ----------
    num_edges : int, those that loads are relative to
    cap : int64 (K,), most edges
    capacities : float64 (K,), shares
    walls : float64 (2,)
        Load and copies, relative to the share, above which prices rise steeply.
    """

    num_edges: float
    cap: IdArray
    capacities: npt.NDArray[np.float64]
    walls: npt.NDArray[np.float64]


class Work(NamedTuple):
    """What is known of the group at hand.

    Attributes
    ----------
    edge_price, copy_price, worth : float64 (K,)
    gain : float32 (K,)
    num_covered : int32 (K,)
    opened : int64 (K,)
    is_open : bool (K,)
    old_part : int16 (G,), the part that each edge of the group came from
    waiting : int64 (G,), the neighbours of which a part may still save a copy
    """

    edge_price: npt.NDArray[np.float64]
    copy_price: npt.NDArray[np.float64]
    worth: npt.NDArray[np.float64]
    gain: npt.NDArray[np.float32]
    num_covered: npt.NDArray[np.int32]
    opened: IdArray
    is_open: npt.NDArray[np.bool_]
    old_part: EdgePartArray
    waiting: IdArray


@kernel
def count_copies_of_edges(groups, counts):
    """Enter every edge, in the part where it is, into counts that are all zero."""
    for r in range(groups.start.shape[0] - 1):
        for i in range(groups.start[r], groups.start[r + 1]):
            p = groups.part[i]
            counts.load[p] += 1
            add_end(counts, r, p)
            add_end(counts, groups.other[i], p)


@kernel
def replace_groups(groups, counts, bounds, work):
    """Place the edges of every owner anew, last rank first, where that makes no more copies.

    Parameters
    ----------
    groups : Groups, `part` is changed in place
    counts : CopyCounts, state
    bounds : Bounds
    work : Work, `gain`, `num_covered` and `is_open` zero on entry and on return
    """
    for back in range(groups.start.shape[0] - 1):
        r = groups.start.shape[0] - 2 - back
        if groups.start[r] == groups.start[r + 1]:
            continue
        set_prices(counts, bounds, work)
        saved = take_group(groups, counts, work, r)
        num_waiting = weigh_parts(groups, counts, work, r)
        num_opened = open_parts(groups, counts, bounds, work, r, num_waiting)
        spent = put_group(groups, counts, bounds, work, r, num_opened)
        if spent > saved:
            restore_group(groups, counts, work, r)
        for j in range(num_opened):
            work.is_open[work.opened[j]] = False
        work.gain[:] = 0.0
        work.num_covered[:] = 0


@helper
def set_prices(counts, bounds, work):
    """Price one more edge and one more copy in each part by its load relative to its share."""
    num_copies = counts.copies.sum()
    for p in range(counts.load.shape[0]):
        x = counts.load[p] / (bounds.capacities[p] * bounds.num_edges)
        y = counts.copies[p] / (bounds.capacities[p] * num_copies)
        work.edge_price[p] = EDGE_SLOPE * x + EDGE_WALL * max(0.0, x - bounds.walls[0])
        work.copy_price[p] = COPY_SLOPE * y + COPY_WALL * max(0.0, y - bounds.walls[1])


@helper
def find_slot(counts, v, p):
    """Return the slot of node v for part p, or -1 where there is none yet."""
    first = counts.first_slot[v]
    num_parts = counts.load.shape[0]
    if counts.first_slot[v + 1] - first == num_parts:
        return first + p
    for slot in range(first, first + counts.num_copies[v]):
        if counts.slot_part[slot] == p:
            return slot
    return -1


@helper
def edges_in(counts, v, p):
    """Return how many edges of node v part p holds."""
    slot = find_slot(counts, v, p)
    return 0 if slot < 0 else counts.slot_count[slot]


@helper
def add_end(counts, v, p):
    """Enter one more edge of node v in part p; return whether that made a copy."""
    slot = find_slot(counts, v, p)
    if slot < 0:
        slot = counts.first_slot[v] + counts.num_copies[v]
        counts.slot_part[slot] = p
        counts.slot_count[slot] = 0
    counts.slot_count[slot] += 1
    if counts.slot_count[slot] > 1:
        return False
    counts.num_copies[v] += 1
    counts.copies[p] += 1
    return True


@helper
def remove_end(counts, v, p):
    """Take one edge of node v out of part p; return whether a copy went with it."""
    slot = find_slot(counts, v, p)
    counts.slot_count[slot] -= 1
    if counts.slot_count[slot] > 0:
        return False
    counts.num_copies[v] -= 1
    counts.copies[p] -= 1
    first = counts.first_slot[v]
    if counts.first_slot[v + 1] - first < counts.load.shape[0]:
        last = first + counts.num_copies[v]
        counts.slot_part[slot] = counts.slot_part[last]
        counts.slot_count[slot] = counts.slot_count[last]
    return True


@helper
def take_group(groups, counts, work, r):
    """Take all edges of owner r out of their parts, noting these; return what the copies that go were worth."""
    saved = 0.0
    start = groups.start[r]
    for i in range(start, groups.start[r + 1]):
        u, p = groups.other[i], groups.part[i]
        work.old_part[i - start] = p
        counts.load[p] -= 1
        if remove_end(counts, u, p):
            saved += counts.value[u]
        if remove_end(counts, r, p):
            saved += counts.value[r]
    return saved


@helper
def counts_once(groups, r, i):
    """Return whether row i is the first of its parallel edges, and no self-loop."""
    u = groups.other[i]
    return u != r and (i == groups.start[r] or groups.other[i - 1] != u)


@helper
def weigh_parts(groups, counts, work, r):
    """Sum, for each part, what it saves to put the owner's edges there; return how many neighbours tell of that."""
    num_waiting = 0
    for i in range(groups.start[r], groups.start[r + 1]):
        u = groups.other[i]
        # Copies that are everywhere, or nowhere, are the same for all parts.
        if counts_once(groups, r, i) and 0 < counts.num_copies[u] < counts.load.shape[0]:
            work.waiting[num_waiting] = u
            num_waiting += 1
            add_to_parts(counts, u, 1, work)
    return num_waiting


@helper
def add_to_parts(counts, u, number, work):
    """Add one neighbour, or take it off, from `gain` and `num_covered` of every part that holds it."""
    first = counts.first_slot[u]
    num_parts = counts.load.shape[0]
    value = counts.value[u]
    if counts.first_slot[u + 1] - first == num_parts:
        # Without branches, and 32 bits wide, so that several parts fit into one instruction.
        row = counts.slot_count[first : first + num_parts]
        for p in range(num_parts):
            is_there = np.int32(number * (row[p] > 0))
            work.gain[p] += np.float32(is_there) * value * worth_of_copy(row[p])
            work.num_covered[p] += is_there
    else:
        for slot in range(first, first + counts.num_copies[u]):
            p = counts.slot_part[slot]
            work.gain[p] += np.float32(number) * value * worth_of_copy(counts.slot_count[slot])
            work.num_covered[p] += number


@helper
def worth_of_copy(num_edges):
    """Return what it is worth not to need another copy where one rests on so many edges."""
    return np.float32(1.0) - np.float32(FRAILTY) / (np.float32(1.0) + np.float32(num_edges))


@helper
def open_parts(groups, counts, bounds, work, r, num_waiting):
    """Open the parts that hold the owner anyway, then others as long as that saves; return how many.

    `opened` lists them, `worth` holds what each saved when it was opened. At least one is opened;
    all have room.
    """
    num_opened = 0
    for p in range(counts.load.shape[0]):
        if counts.load[p] < bounds.cap[p] and edges_in(counts, r, p) > 0:
            num_waiting = open_part(counts, work, p, num_opened, num_waiting)
            num_opened += 1
    if num_opened == 0:
        p = best_first(counts, bounds, work, groups.start[r + 1] - groups.start[r])
        num_waiting = open_part(counts, work, p, 0, num_waiting)
        num_opened = 1
    while num_waiting > 0:
        p = best_further(counts, bounds, work, r)
        if p < 0:
            break
        num_waiting = open_part(counts, work, p, num_opened, num_waiting)
        num_opened += 1
    return num_opened


@helper
def best_first(counts, bounds, work, num_edges):
    """Return the part with room where all edges of the group together cost least."""
    best, best_score = -1, 0.0
    for p in range(counts.load.shape[0]):
        if counts.load[p] >= bounds.cap[p]:
            continue
        num_new = num_edges - work.num_covered[p] + 1
        score = work.gain[p] - num_edges * work.edge_price[p] - num_new * work.copy_price[p]
        if best < 0 or score > best_score:
            best, best_score = p, score
    return best


@helper
def best_further(counts, bounds, work, r):
    """Return the part that saves most when opened too, or -1 where none saves anything."""
    best, best_score = -1, 0.0
    first = work.opened[0]
    moved_price = work.edge_price[first] + work.copy_price[first]
    for p in range(counts.load.shape[0]):
        if work.num_covered[p] <= 0 or work.is_open[p] or counts.load[p] >= bounds.cap[p]:
            continue
        moving = work.num_covered[p] * (work.edge_price[p] - moved_price)
        score = work.gain[p] - counts.value[r] - moving - work.copy_price[p]
        if score > best_score:
            best, best_score = p, score
    return best


@helper
def open_part(counts, work, newest, num_opened, num_waiting):
    """Open a part, and take the neighbours that it covers out of the sums; return how many still wait."""
    work.opened[num_opened] = newest
    work.is_open[newest] = True
    work.worth[newest] = work.gain[newest]
    if work.num_covered[newest] == 0:
        return num_waiting
    num_left = 0
    for j in range(num_waiting):
        u = work.waiting[j]
        if edges_in(counts, u, newest) > 0:
            add_to_parts(counts, u, -1, work)
        else:
            work.waiting[num_left] = u
            num_left += 1
    return num_left


@helper
def put_group(groups, counts, bounds, work, r, num_opened):
    """Place the edges of owner r among the opened parts; return what the copies that come are worth."""
    spent = 0.0
    num_edges = groups.start[r + 1] - groups.start[r]
    apart = cheapest_opened(counts, bounds, work, num_opened, num_edges)
    for i in range(groups.start[r], groups.start[r + 1]):
        u = groups.other[i]
        p = best_covering(counts, bounds, work, r, u, num_opened)
        if p < 0:
            if apart >= 0 and counts.load[apart] >= bounds.cap[apart]:
                apart = cheapest_opened(counts, bounds, work, num_opened, num_edges)
            p = apart
        if p < 0:
            p = cheapest_with_room(counts, bounds, work, r, u)
        groups.part[i] = p
        counts.load[p] += 1
        if add_end(counts, u, p):
            spent += counts.value[u]
        if add_end(counts, r, p):
            spent += counts.value[r]
    return spent


@helper
def best_covering(counts, bounds, work, r, u, num_opened):
    """Return the opened part with room, among those that hold u, where edge (r, u) costs least; or -1."""
    best, best_cost = -1, 0.0
    first = counts.first_slot[u]
    if u == r or counts.first_slot[u + 1] - first == counts.load.shape[0]:
        for j in range(num_opened):
            p = work.opened[j]
            held = counts.slot_count[first + p] if u != r else 0
            if counts.load[p] >= bounds.cap[p] or (u != r and held == 0):
                continue
            cost = work.edge_price[p] + (FRAILTY / (1 + held) if u != r else 0.0)
            if best < 0 or cost < best_cost:
                best, best_cost = p, cost
    else:
        for slot in range(first, first + counts.num_copies[u]):
            p = counts.slot_part[slot]
            if not work.is_open[p] or counts.load[p] >= bounds.cap[p]:
                continue
            cost = work.edge_price[p] + FRAILTY / (1 + counts.slot_count[slot])
            if best < 0 or cost < best_cost:
                best, best_cost = p, cost
    return best


@helper
def cheapest_opened(counts, bounds, work, num_opened, num_edges):
    """Return the opened part with room where an edge to a node that none of them holds costs least; or -1."""
    best, best_cost = -1, 0.0
    for j in range(num_opened):
        p = work.opened[j]
        if counts.load[p] >= bounds.cap[p]:
            continue
        cost = work.edge_price[p] + work.copy_price[p] - work.worth[p] / num_edges
        if best < 0 or cost < best_cost:
            best, best_cost = p, cost
    return best


@helper
def cheapest_with_room(counts, bounds, work, r, u):
    """Return the part, among all with room, where edge (r, u) costs least."""
    best, best_cost = -1, 0.0
    for p in range(counts.load.shape[0]):
        if counts.load[p] >= bounds.cap[p]:
            continue
        cost = work.edge_price[p]
        if edges_in(counts, r, p) == 0:
            cost += 1.0 + work.copy_price[p]
        if u != r and edges_in(counts, u, p) == 0:
            cost += 1.0 + work.copy_price[p]
        if best < 0 or cost < best_cost:
            best, best_cost = p, cost
    return best


@helper
def restore_group(groups, counts, work, r):
    """Put the edges of owner r back where `take_group` took them from."""
    start = groups.start[r]
    for i in range(start, groups.start[r + 1]):
        u, p = groups.other[i], groups.part[i]
        counts.load[p] -= 1
        remove_end(counts, u, p)
        remove_end(counts, r, p)
    for i in range(start, groups.start[r + 1]):
        u, p = groups.other[i], work.old_part[i - start]
        groups.part[i] = p
        counts.load[p] += 1
        add_end(counts, u, p)
        add_end(counts, r, p)
