"""Start DistDGL on this machine: a server for its part, and trainers that run your script.

    asepr export OUT DEST --to distdgl
    python examples/distdgl_launch.py DEST/graph.json IP_CONFIG [--trainers N] SCRIPT [ARGUMENTS...]

IP_CONFIG has a line `address port` for each machine, as many as there are parts. Run the same command on each
machine, part p on the p-th. Servers and trainers run the same script, told apart by the environment as with
DGL's own launcher, but without ssh. A server keeps its part in /dev/shm under names that do not say which part: never
start two parts where they would share it.
"""

import argparse
import ctypes
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Start everything that this machine has to run; return 0 if all trainers ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="graph.json of the export")
    parser.add_argument("ip_config", type=Path, help="a line `address port` for each machine")
    parser.add_argument("--trainers", type=int, default=1, help="trainers a machine")
    parser.add_argument("--master-port", type=int, default=29400, help="where trainers meet, on the first machine")
    parser.add_argument("script", type=Path, help="what servers and trainers run: it calls dgl.distributed.initialize")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    addresses = [line.split()[0] for line in chosen.ip_config.read_text().splitlines() if line.strip()]
    machine = next((number for number, address in enumerate(addresses) if is_here(address)), None)
    if machine is None:
        parser.error(f"{chosen.ip_config}: a line must have an address of this machine, got {', '.join(addresses)}")
    num_trainers = len(addresses) * chosen.trainers
    common = {
        **os.environ,
        "DGLBACKEND": "pytorch",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "DGL_DIST_MODE": "distributed",
        "DGL_CONF_PATH": str(chosen.config),
        "DGL_IP_CONFIG": str(chosen.ip_config),
        "DGL_NUM_SERVER": "1",
        "DGL_NUM_SAMPLER": "0",
        "DGL_NUM_CLIENT": str(num_trainers),
        "DGL_GRAPH_FORMAT": "csc",
        "DGL_KEEP_ALIVE": "0",
        "DGL_GROUP_ID": "0",
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(chosen.master_port),
        "WORLD_SIZE": str(num_trainers),
    }
    roles = [{"DGL_ROLE": "server", "DGL_SERVER_ID": str(machine)}]
    for local in range(chosen.trainers):
        rank = machine * chosen.trainers + local
        roles.append({"DGL_ROLE": "client", "RANK": str(rank), "LOCAL_RANK": str(local)})
    return run([sys.executable, str(chosen.script), *chosen.arguments], [common | role for role in roles])


def is_here(address: str) -> bool:
    """Tell whether an address is one of this machine's: only then can a socket be bound to it."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def run(command: list[str], environments: list[dict[str, str]]) -> int:
    """Run a server (the first) and trainers until the trainers have ended, or one process has failed."""
    processes = [subprocess.Popen(command, env=each, preexec_fn=die_with_parent) for each in environments]
    trainers = {process.pid for process in processes[1:]}
    try:
        while trainers:
            pid, status = os.wait()
            # The others would wait for one that failed for ever.
            if status:
                return 1
            trainers.discard(pid)
        return 0
    finally:
        for process in processes:
            process.kill()
            process.wait()


def die_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
