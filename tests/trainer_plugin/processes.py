"""Groups of processes over gloo: each case of a test runs on all ranks of one group."""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

JOIN_SECONDS = 200


def run_ranks(num_ranks: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run `work(rank, *arguments)` on every rank; return the results in rank order, or raise the first failure."""
    # Ranks are forked from one process without threads that has imported what is slow to import.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["asepr.trainer_plugin.train", "asepr.formats.shard_writer"])
    results: Any = context.Queue()
    port = free_port()
    processes = [
        context.Process(target=_enter, args=(rank, num_ranks, port, results, work, arguments), daemon=True)
        for rank in range(num_ranks)
    ]
    for process in processes:
        process.start()
    try:
        answers = [results.get(timeout=JOIN_SECONDS) for _ in processes]
    finally:
        for process in processes:
            process.join(timeout=10)
            process.kill()
    for rank, (_, failure) in sorted((rank, (value, failure)) for rank, value, failure in answers):
        assert failure is None, f"rank {rank}: {failure}"
    return [value for _, value, _ in sorted(answers, key=lambda answer: answer[0])]


def _enter(rank: int, num_ranks: int, port: int, results: Any, work: Callable[..., Any], arguments: tuple) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        dist.init_process_group("gloo", rank=rank, world_size=num_ranks, timeout=timedelta(seconds=60))
        results.put((rank, work(rank, *arguments), None))
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:
        results.put((rank, None, traceback.format_exc()))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
