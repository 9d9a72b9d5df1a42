"""One worker a host: on hosts that a script makes on one machine, or in processes of this machine."""

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FIRST_HOST = "10.78.0.1"
"""Address of host 0, as the script gives it."""


def run_on_hosts(
    module: str, arguments: list[object], hosts: int, mbit: int, script: Path | None, timeout_s: float = 900
) -> Any:
    """Run `python -m MODULE --worker ARGUMENTS... OUT` on each host, on one core each.

    Parameters
    ----------
    module : str
    arguments : list
    hosts, mbit : int
        The bandwidth of each host and direction; 0: no limit.
    script : path, optional
        Has the commands `up N MBIT`, `run I CMD ...` and `down`; None: workers are processes here.
    timeout_s : float
        A worker that takes longer is killed.

    Returns
    -------
    what rank 0 wrote to OUT as JSON
    """
    is_apart = script is not None and hosts > 1
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, "-m", module, "--worker", *map(str, arguments), str(out)]
        common = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(hosts), "MASTER_PORT": str(_free_port())}
        common["MASTER_ADDR"] = FIRST_HOST if is_apart else "127.0.0.1"
        workers = []
        if is_apart:
            # Before the block below: hosts that were there already are somebody else's, and stay.
            _hosts(script, "up", hosts, mbit)
        try:
            for rank in range(hosts):
                prefix = ["bash", str(script), "run", str(rank)] if is_apart else []
                pin = functools.partial(os.sched_setaffinity, 0, {cores[rank % len(cores)]})
                workers.append(subprocess.Popen([*prefix, *command], env=common | {"RANK": str(rank)}, preexec_fn=pin))
            failed = [worker.wait(timeout=timeout_s) for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
            if is_apart:
                _hosts(script, "down")
        if any(failed):
            raise SystemExit(f"{module}: every worker must end well, got exit codes {failed}; see their messages")
        return json.loads(out.read_text())


def interface_bytes() -> int | None:
    """Return what this host's interface, named in HOST_IF, sent; None where none is named."""
    interface = os.environ.get("HOST_IF")
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text()) if interface else None


def meet(size: int) -> None:
    """Wait for all ranks."""
    import torch.distributed as dist

    if size > 1:
        dist.barrier()


def over_ranks(size: int, values: list[float], operation: str) -> list[float]:
    """Return the SUM or MAX of each value over all ranks."""
    import torch
    import torch.distributed as dist

    total = torch.tensor(values, dtype=torch.float64)
    if size > 1:
        dist.all_reduce(total, getattr(dist.ReduceOp, operation))
    return total.tolist()


def _hosts(script: Path | None, *arguments: object) -> None:
    subprocess.run(["bash", str(script), *map(str, arguments)], check=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
