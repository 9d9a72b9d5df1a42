"""`@kernel` and `@helper`: the one place that sets numba's flags."""

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


def helper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a piece of a kernel into every kernel that calls it; it must not make arrays.

    Numba has a function count a reference to each array it is given, by an atomic instruction each; in a
    helper that runs once an edge this takes ten times as long as the work. Without a runtime for references
    (`_nrt`, an option that numba does not document) there are none to count, and no way to make an array.
    """
    flags: dict[str, Any] = {"forceinline": True, "_nrt": False}
    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True, error_model="numpy", **flags)(function)
    return compiled
