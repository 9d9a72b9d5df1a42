"""An output folder that appears whole or not at all."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from asepr.errors import OutputError

_LOCK_NAME = ".lock"


def check_output(target: Path) -> None:
    """Check that a dataset may be written to `target`.

    Raises
    ------
    OutputError
        It exists and is not an empty folder, or nothing can be written beside it.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OutputError(f"{target}: must not exist or be an empty folder, got one with content; choose another --out")
    parent = _existing_parent(target)
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise OutputError(f"{parent}: must be a folder that can be written to; choose another --out")


@contextmanager
def output_folder(target: Path) -> Iterator[Path]:
    """Yield a folder beside `target` that takes its place when the block ends well.

    When the block fails, the folder is removed. What a killed run left behind is removed by the next
    run for the same target; a lock tells it from one that is still at work.

    Raises
    ------
    OutputError
        As `check_output`; another run is writing the same target; the disk is full.
    """
    check_output(target)
    work = target.parent / f".{target.name}.partial"
    work.mkdir(parents=True, exist_ok=True)
    with _lock(work / _LOCK_NAME, target):
        try:
            _empty(work)
            yield work
            (work / _LOCK_NAME).unlink()
            work.rename(target)
        except BaseException as error:
            shutil.rmtree(work, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OutputError(f"{target.parent}: the disk is full; free space or choose another --out") from error
            raise


@contextmanager
def _lock(path: Path, target: Path) -> Iterator[None]:
    """Hold a lock that ends with the process, however that ends."""
    lock = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                f"{target}: must be written by one run at a time, got another at work; wait for it"
            ) from error
        yield
    finally:
        os.close(lock)


def _empty(work: Path) -> None:
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK_NAME:
            path.unlink()


def _existing_parent(path: Path) -> Path:
    parent = path.absolute().parent
    while not parent.exists():
        parent = parent.parent
    return parent
