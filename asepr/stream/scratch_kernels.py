"""Counting sort of a chunk by bucket."""
# mypy: disable-error-code="no-untyped-def"

from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import IdArray
from asepr.jit import kernel


@kernel
def order_by_bucket(bucket_of, num_buckets, order, starts):
    """Stable counting sort: fill `order` with row numbers grouped by bucket, `starts` with offsets.

    Parameters
    ----------
    bucket_of : int (n,), in [0, num_buckets)
    num_buckets : int
    order : int32 or int64 (n,), out
        Rows of bucket b are `order[starts[b]:starts[b + 1]]`, in their input order.
    starts : int64 (num_buckets + 1,), zeros on entry, out
    """
    for i in range(bucket_of.shape[0]):
        starts[bucket_of[i] + 1] += 1
    for b in range(num_buckets):
        starts[b + 1] += starts[b]
    cursor = starts[:-1].copy()
    for i in range(bucket_of.shape[0]):
        b = bucket_of[i]
        order[cursor[b]] = i
        cursor[b] += 1


def bucket_order(
    bucket_of: npt.NDArray[Any], num_buckets: int, dtype: npt.DTypeLike = np.int64
) -> tuple[npt.NDArray[Any], IdArray]:
    """Return `order` (n,) of `dtype` and `starts` int64 (num_buckets + 1,) as in `order_by_bucket`."""
    order = np.empty(bucket_of.shape[0], dtype=dtype)
    starts = np.zeros(num_buckets + 1, dtype=np.int64)
    order_by_bucket(bucket_of, num_buckets, order, starts)
    return order, starts
