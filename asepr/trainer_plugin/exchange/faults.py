"""What to say when a peer dies or stalls: who it was, on every rank, in bounded time."""

import contextlib
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from asepr.errors import TrainingError

ROLL_CALL_SECONDS = 4.0
"""How long the ranks that noticed wait for the others to say that they are there."""
_POLL_SECONDS = 0.05
_NO_TAG = 987_654_321
"""Of a message that nobody sends."""


def peer_error(rank: int, error: RuntimeError, suspect: int | None = None) -> TrainingError:
    """Return what to say when torch.distributed gives up on a peer.

    Parameters
    ----------
    rank : int
    error : RuntimeError
        Of torch.distributed.
    suspect : int, optional
        The rank at the other end, where it is known; it may itself have given up on another.

    Notes
    -----
    Each rank that notices closes its connections, so that every other notices too, and answers a roll call
    in the store that the ranks met at. Who does not answer is to blame. Where the store is gone with its
    host, the suspect is named. The group cannot be used any more.
    """
    reason = " ".join(str(error).split())[:200]
    missing = _missing_ranks(rank)
    if not missing and suspect is not None:
        missing = [suspect]
    names = f"none from rank {', '.join(map(str, missing))}: " if missing else ""
    return TrainingError(
        f"rank {rank}: every peer must answer within the timeout, got {names}{reason}; "
        "look at the other ranks' messages, and resume from the last checkpoint"
    )


def _missing_ranks(rank: int) -> list[int]:
    """Return who does not answer the roll call; none where there can be none, or all answer."""
    if not dist.is_initialized():
        return []
    size = dist.get_world_size()
    # Its calls wait for the store's host without limit, and that may be who stalled: hence a thread.
    store: Any = dist.distributed_c10d._get_default_store()
    _close_connections()
    with contextlib.suppress(RuntimeError, AttributeError):
        dist.distributed_c10d._abort_process_group()
    found: list[list[int]] = []
    caller = threading.Thread(target=_call_roll, args=(store, rank, size, found), daemon=True)
    caller.start()
    caller.join(ROLL_CALL_SECONDS + 1)
    return found[0] if found else []


def _close_connections() -> None:
    """Make every rank that waits for this one notice, in every group.

    Gloo cannot be told to close a group, and keeps its connections for as long as any message of it is
    referred to; but it closes all of a group's once it gives up waiting for one message.
    """
    for group in list(dist.distributed_c10d._world.pg_names):
        for peer in range(group.size()):
            if peer != group.rank():
                with contextlib.suppress(RuntimeError):
                    group.recv([torch.empty(1)], peer, _NO_TAG).wait(timedelta(milliseconds=1))


def _call_roll(store: Any, rank: int, size: int, found: list[list[int]]) -> None:
    deadline = time.monotonic() + ROLL_CALL_SECONDS
    missing = [other for other in range(size) if other != rank]
    with contextlib.suppress(RuntimeError):
        store.set_timeout(timedelta(seconds=ROLL_CALL_SECONDS))
        store.set(f"asepr/here/{rank}", "1")
        while missing and time.monotonic() < deadline:
            missing = [other for other in missing if not store.check([f"asepr/here/{other}"])]
            time.sleep(_POLL_SECONDS)
        found.append(missing)
