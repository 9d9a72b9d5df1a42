"""Who is named when a peer is gone, and how soon, whatever each rank was waiting for."""

import time

import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

import torch.distributed as dist  # noqa: E402

from asepr.trainer_plugin.exchange.faults import ROLL_CALL_SECONDS, peer_error  # noqa: E402
from tests.trainer_plugin.processes import run_ranks  # noqa: E402


def wait_in_a_chain(rank: int) -> tuple[str, float] | None:
    """Rank 2 leaves, rank 1 waits for it while a message of rank 0 is due, and rank 0 waits for rank 1."""
    if rank == 2:
        return None
    due = dist.irecv(torch.empty(1), 1 - rank)
    start = time.monotonic()
    with pytest.raises(RuntimeError) as error:
        (dist.irecv(torch.empty(1), 2) if rank == 1 else due).wait()
    noticed = time.monotonic() - start
    return str(peer_error(rank, error.value)), noticed


def test_a_rank_that_waits_for_one_that_gave_up_names_who_left():
    *found, _ = run_ranks(3, wait_in_a_chain)
    for rank, (message, noticed) in enumerate(found):
        assert message.startswith(f"rank {rank}: every peer must answer within the timeout, got none from rank 2: ")
        assert noticed < ROLL_CALL_SECONDS
