import errno
import fcntl
import os
from pathlib import Path

import pytest

from asepr.errors import OutputError
from asepr.formats.output import output_folder


def write(target: Path, error: BaseException | None = None) -> None:
    with output_folder(target) as folder:
        (folder / "file").write_text("content")
        assert not (target / "file").exists()
        if error is not None:
            raise error


@pytest.mark.parametrize("make", [False, True])
def test_appears_whole(make: bool, tmp_path: Path):
    target = tmp_path / "deep" / "out"
    if make:
        target.mkdir(parents=True)
    write(target)
    assert [path.name for path in target.iterdir()] == ["file"]
    assert [path.name for path in target.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("error", [KeyError(), KeyboardInterrupt(), SystemExit(143)])
def test_nothing_is_left_when_the_block_fails(error: BaseException, tmp_path: Path):
    with pytest.raises(type(error)):
        write(tmp_path / "out", error)
    assert not list(tmp_path.iterdir())


def test_full_disk(tmp_path: Path):
    with pytest.raises(OutputError, match="the disk is full; free space or choose another --out"):
        write(tmp_path / "out", OSError(errno.ENOSPC, "No space left on device"))
    assert not list(tmp_path.iterdir())


def test_existing_content_is_kept(tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("keep")
    with pytest.raises(OutputError, match="must not exist or be an empty folder, got one with content"):
        write(tmp_path / "out")
    assert (tmp_path / "out" / "mine").read_text() == "keep"


def test_what_a_killed_run_left_is_removed(tmp_path: Path):
    left = tmp_path / ".out.partial"
    (left / "part-00000").mkdir(parents=True)
    (left / "part-00000" / "old").write_text("old")
    write(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]


def test_two_runs_for_one_target(tmp_path: Path):
    busy = tmp_path / ".out.partial"
    busy.mkdir()
    lock = os.open(busy / ".lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with pytest.raises(OutputError, match="must be written by one run at a time, got another at work"):
            write(tmp_path / "out")
        assert busy.exists()
    finally:
        os.close(lock)
