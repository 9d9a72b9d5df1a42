"""Moves of nodes between parts under several caps: greedy passes, hill climbing, and unloading."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import helper, kernel


@helper
def fits(load, cap, weight, q, v):
    """Return whether part q has room for node v under every cap."""
    room = True
    for w in range(cap.shape[1]):
        room = room and (weight[v, w] == 0 or load[q, w] + weight[v, w] <= cap[q, w])
    return room


@helper
def fullness(load, cap, p):
    """Return the largest load of part p relative to its caps."""
    fullest = 0.0
    for w in range(cap.shape[1]):
        fullest = max(fullest, load[p, w] / cap[p, w])
    return fullest


@helper
def excess(load, cap, weight, p, v, sign):
    """Return by how much part p would exceed its caps, relative to them, with `sign` times node v added."""
    total = 0.0
    for w in range(cap.shape[1]):
        total += max(0, load[p, w] + sign * weight[v, w] - cap[p, w]) / cap[p, w]
    return total


@helper
def shift(load, weight, v, p, q):
    """Take node v's weights from part p's load to part q's."""
    for w in range(load.shape[1]):
        load[p, w] -= weight[v, w]
        load[q, w] += weight[v, w]


@kernel
def move_greedily(offsets, neighbour, edge_weight, weight, cap, load, part):
    """Move, in one pass, each node to the part with most of its edges, if that gains and fits.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    edge_weight : int32 (2M,)
    weight : int64 (N, W)
    cap : int64 (K, W)
    load : int64 (K, W), state
    part : int32 (N,), state

    Returns
    -------
    int: the edge weight that is cut no longer

    Notes
    -----
    O(M) time. A move that gains nothing is made where it leaves a fuller part for an emptier one.
    """
    edges_to = np.zeros(cap.shape[0], dtype=np.int64)
    total = 0
    for v in range(part.shape[0]):
        p = part[v]
        outside = 0
        for i in range(offsets[v], offsets[v + 1]):
            q = part[neighbour[i]]
            edges_to[q] += edge_weight[i]
            outside += q != p
        best = -1
        if outside > 0:
            for i in range(offsets[v], offsets[v + 1]):
                q = part[neighbour[i]]
                wanted = q != p and edges_to[q] >= edges_to[p] and (best < 0 or edges_to[q] > edges_to[best])
                if wanted and fits(load, cap, weight, q, v):
                    best = q
        if best >= 0:
            gain = edges_to[best] - edges_to[p]
            if gain > 0 or fullness(load, cap, best) + 0.005 < fullness(load, cap, p):
                part[v] = best
                shift(load, weight, v, p, best)
                total += gain
        edges_to[p] = 0
        for i in range(offsets[v], offsets[v + 1]):
            edges_to[part[neighbour[i]]] = 0
    return total


@kernel
def unload_parts(offsets, neighbour, edge_weight, weight, cap, load, part):
    """Move nodes out of parts above a cap, cheapest cut for the excess they take along first.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    edge_weight : int32 (2M,)
    weight : int64 (N, W)
    cap : int64 (K, W)
    load : int64 (K, W), state
    part : int32 (N,), state

    Returns
    -------
    int: number of moves

    Notes
    -----
    A node moves only where the excess over all caps falls, so excess never rises; what single
    moves cannot mend stays.
    """
    num_parts = cap.shape[0]
    edges_to = np.zeros(num_parts, dtype=np.int64)
    price = np.full(part.shape[0], np.inf)
    num_moves = 0
    for deciding in range(2):
        order = np.argsort(price, kind="mergesort") if deciding else np.arange(part.shape[0])
        for v in order:
            if deciding and price[v] == np.inf:
                break
            p = part[v]
            before = excess(load, cap, weight, p, v, 0)
            relief = before - excess(load, cap, weight, p, v, -1)
            if relief <= 0:
                continue
            for i in range(offsets[v], offsets[v + 1]):
                edges_to[part[neighbour[i]]] += edge_weight[i]
            best = -1
            best_price = np.inf
            for q in range(num_parts):
                net = relief - (excess(load, cap, weight, q, v, 1) - excess(load, cap, weight, q, v, 0))
                if q == p or net <= 1e-12:
                    continue
                # Half an edge more, so that a free move of much weight goes before one of little.
                loss = edges_to[p] - edges_to[q] + 0.5 + 0.1 * fullness(load, cap, q)
                asked = loss / net if loss > 0 else loss
                if asked < best_price:
                    best = q
                    best_price = asked
            for i in range(offsets[v], offsets[v + 1]):
                edges_to[part[neighbour[i]]] = 0
            if deciding and best >= 0:
                part[v] = best
                shift(load, weight, v, p, best)
                num_moves += 1
            elif best >= 0:
                price[v] = best_price
    return num_moves


@kernel
def fill_gains(offsets, neighbour, edge_weight, part, edges_to):
    """Add up each node's edge weight towards each part.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    edge_weight : int32 (2M,)
    part : int32 (N,)
    edges_to : int32 (N, K), zeros on entry, out
    """
    for v in range(part.shape[0]):
        for i in range(offsets[v], offsets[v + 1]):
            edges_to[v, part[neighbour[i]]] += edge_weight[i]


@helper
def sift_up(heap, place, key, at):
    """Move the heap's entry at `at` towards the root until its parent's key is no smaller."""
    v = heap[at]
    while at > 0:
        above = (at - 1) // 2
        if key[heap[above]] >= key[v]:
            break
        heap[at] = heap[above]
        place[heap[at]] = at
        at = above
    heap[at] = v
    place[v] = at


@helper
def sift_down(heap, size, place, key, at):
    """Move the heap's entry at `at` away from the root until no child's key is larger."""
    v = heap[at]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and key[heap[below + 1]] > key[heap[below]]:
            below += 1
        if key[heap[below]] <= key[v]:
            break
        heap[at] = heap[below]
        place[heap[at]] = at
        at = below
    heap[at] = v
    place[v] = at


@helper
def best_target(edges_to, weight, cap, load, part, v):
    """Return the part with room that most of v's edge weight goes to (ties: the emptiest), or -1."""
    best = -1
    for q in range(cap.shape[0]):
        if q == part[v] or edges_to[v, q] == 0:
            continue
        if best >= 0 and edges_to[v, q] < edges_to[v, best]:
            continue
        if not fits(load, cap, weight, q, v):
            continue
        if best < 0 or edges_to[v, q] > edges_to[v, best] or fullness(load, cap, q) < fullness(load, cap, best):
            best = q
    return best


@kernel
def climb(offsets, neighbour, edge_weight, weight, cap, patience, edges_to, load, part):
    """Move boundary nodes, best gain first, each at most once, and keep the best state on the way.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    edge_weight : int32 (2M,)
    weight : int64 (N, W)
    cap : int64 (K, W)
    patience : int
        Moves without a new best after which the pass ends.
    edges_to : int32 (N, K), state: edge weight of each node towards each part
    load : int64 (K, W), state
    part : int32 (N,), state

    Returns
    -------
    int: the edge weight that is cut no longer

    Notes
    -----
    Source: Fiduccia, Mattheyses, A linear-time heuristic for improving network partitions, 1982, for
    K parts. Gains in the heap may be out of date when a part filled up: they are renewed when popped.
    """
    num_nodes = part.shape[0]
    key = np.zeros(num_nodes, dtype=np.int64)
    target = np.full(num_nodes, -1, dtype=np.int32)
    place = np.full(num_nodes, -1, dtype=np.int64)
    locked = np.zeros(num_nodes, dtype=np.bool_)
    heap = np.empty(num_nodes, dtype=np.int64)
    size = 0
    for v in range(num_nodes):
        best = best_target(edges_to, weight, cap, load, part, v)
        if best >= 0:
            target[v] = best
            key[v] = edges_to[v, best] - edges_to[v, part[v]]
            heap[size] = v
            sift_up(heap, place, key, size)
            size += 1
    moved = np.empty(num_nodes, dtype=np.int64)
    origin = np.empty(num_nodes, dtype=np.int32)
    num_moves, num_kept = 0, 0
    total, most = 0, 0
    while size > 0 and num_moves - num_kept < patience:
        v = heap[0]
        best = best_target(edges_to, weight, cap, load, part, v)
        gain = edges_to[v, best] - edges_to[v, part[v]] if best >= 0 else 0
        if best >= 0 and gain < key[v]:
            target[v] = best
            key[v] = gain
            sift_down(heap, size, place, key, 0)
            continue
        size -= 1
        place[v] = -1
        if size > 0:
            heap[0] = heap[size]
            sift_down(heap, size, place, key, 0)
        if best < 0:
            continue
        p = part[v]
        locked[v] = True
        moved[num_moves] = v
        origin[num_moves] = p
        num_moves += 1
        part[v] = best
        shift(load, weight, v, p, best)
        total += gain
        if total > most:
            most = total
            num_kept = num_moves
        for i in range(offsets[v], offsets[v + 1]):
            u = neighbour[i]
            edges_to[u, p] -= edge_weight[i]
            edges_to[u, best] += edge_weight[i]
            if locked[u]:
                continue
            if target[u] == p or target[u] < 0 or part[u] == best:
                target[u] = best_target(edges_to, weight, cap, load, part, u)
            elif part[u] != best and edges_to[u, best] > edges_to[u, target[u]] and fits(load, cap, weight, best, u):
                target[u] = best
            if target[u] < 0:
                continue
            key[u] = edges_to[u, target[u]] - edges_to[u, part[u]]
            if place[u] < 0:
                heap[size] = u
                place[u] = size
                size += 1
            sift_up(heap, place, key, place[u])
            sift_down(heap, size, place, key, place[u])
    for j in range(num_moves - 1, num_kept - 1, -1):
        v = moved[j]
        p, q = part[v], origin[j]
        part[v] = q
        shift(load, weight, v, p, q)
        for i in range(offsets[v], offsets[v + 1]):
            edges_to[neighbour[i], p] -= edge_weight[i]
            edges_to[neighbour[i], q] += edge_weight[i]
    return most


@kernel
def anneal(offsets, neighbour, edge_weight, weight, cap, penalty, temperatures, proposals, rng, edges_to, load, part):
    """Move random nodes to parts of random neighbours, ever less often where that costs.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    edge_weight : int32 (2M,)
    weight : int64 (N, W)
    cap : int64 (K, W)
    penalty : float
        Cut edges that exceeding one cap by its own size is worth.
    temperatures : float64 (steps,), cut edges, falling
    proposals : int
        Moves proposed a step.
    rng : np.random.Generator
    edges_to : int32 (N, K), state: edge weight of each node towards each part
    load : int64 (K, W), state
    part : int32 (N,), state

    Notes
    -----
    Caps are prices here, so states that single moves under hard caps never reach are passed through.
    Source: Kirkpatrick, Gelatt, Vecchi, Optimization by simulated annealing, 1983.
    """
    num_parts = cap.shape[0]
    for temperature in temperatures:
        for _ in range(proposals):
            v = int(rng.random() * part.shape[0])
            p = part[v]
            degree = offsets[v + 1] - offsets[v]
            draw = rng.random()
            if degree > 0 and draw < 0.9:
                q = part[neighbour[offsets[v] + int(draw / 0.9 * degree)]]
            else:
                q = int(rng.random() * num_parts)
            if q == p:
                continue
            more = excess(load, cap, weight, q, v, 1) - excess(load, cap, weight, q, v, 0)
            less = excess(load, cap, weight, p, v, 0) - excess(load, cap, weight, p, v, -1)
            cost = edges_to[v, p] - edges_to[v, q] + penalty * (more - less)
            if cost > 0 and rng.random() >= np.exp(-cost / temperature):
                continue
            part[v] = q
            shift(load, weight, v, p, q)
            for i in range(offsets[v], offsets[v + 1]):
                edges_to[neighbour[i], p] -= edge_weight[i]
                edges_to[neighbour[i], q] += edge_weight[i]
