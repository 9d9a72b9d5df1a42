"""Edges that go where they are wanted, under hard caps."""
# mypy: disable-error-code="no-untyped-def"

from asepr.jit import kernel


@kernel
def place_where_wanted(wanted, other, load, cap, part):
    """Place each edge where it is wanted, else with its other end, else in the emptiest part for its cap.

    Parameters
    ----------
    wanted, other : int32 (E_chunk,)
    load : int64 (K,), state
    cap : int64 (K,)
    part : int16 (E_chunk,), out
    """
    for i in range(wanted.shape[0]):
        p = wanted[i]
        if load[p] >= cap[p]:
            p = other[i]
        if load[p] >= cap[p]:
            p = 0
            for q in range(1, load.shape[0]):
                # load / cap compared crosswise, so that equal ratios are equal
                if load[q] * cap[p] < load[p] * cap[q]:
                    p = q
        load[p] += 1
        part[i] = p
