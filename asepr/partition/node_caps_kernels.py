"""Moving nodes until caps hold."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from asepr.jit import kernel


@kernel
def count_inside(offsets, neighbour, part, inside):
    """Count, for each node, its neighbours in its own part.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    part : int32 (N,)
    inside : int64 (N,), zeros on entry, out
    """
    for v in range(part.shape[0]):
        for i in range(offsets[v], offsets[v + 1]):
            inside[v] += part[neighbour[i]] == part[v]


@kernel
def move_out_of_overfull(offsets, neighbour, order, cap, nodes, part):
    """Move nodes, in the given order, out of parts above their cap.

    Parameters
    ----------
    offsets : int64 (N + 1,)
    neighbour : int32 or int64 (2M,)
    order : int64 (N,), a permutation
    cap : int64 (K,), their sum is at least N
    nodes : int64 (K,), state: nodes of each part
    part : int32 (N,), state
    """
    near = np.zeros(cap.shape[0], dtype=np.int64)
    for v in order:
        p = part[v]
        if nodes[p] <= cap[p]:
            continue
        for i in range(offsets[v], offsets[v + 1]):
            near[part[neighbour[i]]] += 1
        best = -1
        for q in range(cap.shape[0]):
            if nodes[q] >= cap[q]:
                continue
            if (
                best < 0
                or near[q] > near[best]
                or (near[q] == near[best] and nodes[q] * cap[best] < nodes[best] * cap[q])
            ):
                best = q
        for i in range(offsets[v], offsets[v + 1]):
            near[part[neighbour[i]]] = 0
        part[v] = best
        nodes[p] -= 1
        nodes[best] += 1
