"""Helpers of kernels cost nothing to call."""

import numba
import numpy as np
import pytest

from asepr.jit import helper, kernel
from asepr.partition.replica_removal_kernels import CopyCounts, remove_end


def _llvm(decorate) -> str:
    flags = {**decorate(remove_end.py_func).targetoptions, "cache": False}
    compiled = numba.jit(**flags)(remove_end.py_func)
    counts = CopyCounts(
        first_slot=np.array([0, 2]),
        slot_part=np.zeros(2, dtype=np.int16),
        slot_count=np.ones(2, dtype=np.int32),
        num_copies=np.ones(1, dtype=np.int32),
        value=np.ones(1, dtype=np.float32),
        load=np.ones(2, dtype=np.int64),
        copies=np.ones(2, dtype=np.int64),
    )
    assert compiled(counts, 0, 0)
    return str(compiled.inspect_llvm(compiled.signatures[0]))


def test_a_helper_counts_no_references():
    assert "NRT_incref" not in _llvm(helper)
    assert "NRT_incref" in _llvm(kernel), "numba no longer counts references to arguments: helpers can be kernels"


@helper
def _make_array(n):
    return np.zeros(n).sum()


def test_a_helper_cannot_make_an_array():
    with pytest.raises(numba.core.errors.NumbaError):
        _make_array(3)
