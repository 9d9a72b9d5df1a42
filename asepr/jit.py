"""`@kernel`: the one place that sets numba's flags."""

from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a serial array kernel: lazily by argument types, cached on disk, without the GIL.

    Signatures stay lazy because eager ones reject read-only buffers (mapped Arrow files). The cache
    is keyed by the file of the kernel alone, so a kernel calls only helpers of its own file.
    """
    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled
