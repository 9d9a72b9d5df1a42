"""Edges that follow the owners of their ends."""
# mypy: disable-error-code="no-untyped-def"

from asepr.jit import kernel


@kernel
def follow_lower_degree(src, dst, degree, owner, load, cap, part):
    """Place each edge with the owner of its end of lower degree (ties: the source), if it has room.

    Parameters
    ----------
    src, dst : int64 (E_chunk,)
    degree : int64 (N,)
    owner : int32 (N,)
    load, cap : int64 (K,), load is state, changed in place
    part : int16 (E_chunk,), out
    """
    for i in range(src.shape[0]):
        near, far = src[i], dst[i]
        if degree[far] < degree[near]:
            near, far = far, near
        p = owner[near]
        if load[p] >= cap[p]:
            p = owner[far]
        if load[p] >= cap[p]:
            p = 0
            for q in range(1, load.shape[0]):
                # load / cap compared crosswise, so that equal ratios are equal
                if load[q] * cap[p] < load[p] * cap[q]:
                    p = q
        load[p] += 1
        part[i] = p
