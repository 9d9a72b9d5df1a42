import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asepr.errors import OutputError
from asepr.mapped import release
from asepr.stream.scratch import ScratchDir
from asepr.stream.scratch_kernels import bucket_order

ROW = np.dtype([("key", np.int64), ("small", np.int32)])


@given(st.lists(st.lists(st.integers(0, 4), max_size=20), max_size=4))
def test_buckets_return_rows_in_order_of_appending(tmp_path_factory: pytest.TempPathFactory, chunks: list[list[int]]):
    expected: list[list[int]] = [[] for _ in range(5)]
    with ScratchDir(tmp_path_factory.mktemp("s") / "scratch") as scratch:
        buckets = scratch.buckets("b", 5, ROW)
        key = 0
        for chunk in chunks:
            rows = np.zeros(len(chunk), dtype=ROW)
            rows["key"] = np.arange(key, key + len(chunk))
            for bucket in chunk:
                expected[bucket].append(key)
                key += 1
            buckets.append(np.array(chunk, dtype=np.int64), rows)
        assert [buckets.read(b)["key"].tolist() for b in range(5)] == expected
        assert [buckets.num_rows(b) for b in range(5)] == [len(keys) for keys in expected]


@given(st.lists(st.integers(0, 6), max_size=50))
def test_bucket_order_equals_stable_argsort(bucket_of: list[int]):
    array = np.array(bucket_of, dtype=np.int64)
    order, starts = bucket_order(array, 7)
    assert order.tolist() == np.argsort(array, kind="stable").tolist()
    assert starts.tolist() == [int((array < b).sum()) for b in range(8)]


def test_scratch_is_gone_after_an_error(tmp_path: Path):
    def fail() -> None:
        with ScratchDir(tmp_path / "scratch") as scratch:
            scratch.array("a", (10,), np.int32)[:] = 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not list(tmp_path.iterdir())


def test_full_disk_is_an_error_before_the_first_write(scratch: ScratchDir, monkeypatch: pytest.MonkeyPatch):
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(OutputError, match="the disk is full; free space"):
        scratch.array("a", (1 << 20,), np.int64)


def test_full_disk_while_appending(scratch: ScratchDir, monkeypatch: pytest.MonkeyPatch):
    buckets = scratch.buckets("b", 2, np.int64)

    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", no_space)
    with pytest.raises(OutputError, match="the disk is full; free space"):
        buckets.append(np.array([0, 1]), np.array([5, 6]))


@pytest.mark.parametrize("block_rows", [1, 3, 1000])
def test_scattered_array_is_filled_in_any_order(
    scratch: ScratchDir, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, block_rows: int
):
    monkeypatch.setattr("asepr.stream.scratch.BLOCK_ROWS", block_rows)
    order = rng.permutation(40)
    scattered = scratch.scattered("part", 40, np.int16)
    for rows in np.array_split(order, 5):
        scattered.put(rows.astype(np.int32), (rows * 3).astype(np.int16))
    assert scattered.finish().tolist() == [3 * row for row in range(40)]


def test_released_rows_keep_their_values(scratch: ScratchDir, rng: np.random.Generator):
    array = scratch.array("values", (100_000,), np.int16)
    values = rng.integers(0, 1000, 100_000).astype(np.int16)
    array[:] = values
    for start, stop in ((0, 10), (0, 0), (50_000, 100_000), (0, 100_000)):
        release(array, start, stop)
        assert np.array_equal(array, values)
    release(values, 0, 10)
