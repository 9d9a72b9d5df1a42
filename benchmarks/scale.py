"""Does the time an edge stay the same from 16 million edges to a billion, in the streaming form?

    python -m benchmarks.scale [--quick] [--json FILE] [--scales 20,23] [--parts 32] [--memory 6GB] [--work DIR]

An R-MAT of 2^scale ids and 16 edges an id (20: 17 M edges, 23: 134 M, 26: 1,074 M), written as Parquet, partitioned
by `asepr` in a process of its own, and deleted again. `--memory` is the most the run may hold; it gets less where
that much would let it leave the streaming form. Scales already in FILE are kept and not run again, so that one
invocation may run one scale; ratios are to the smallest scale in FILE.

`ns_per_edge` is processor time of the whole process; `assign_ns_per_edge` of placing edges alone. Temporary
disk, in DIR: about 70 bytes an edge.
"""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ByteSize, TypeAdapter

from asepr.partition.plan import Form
from benchmarks.common import least_budget, options, partition_apart, show, write_rmat

EDGE_FACTOR = 16


def run(scale: int, num_parts: int, memory: int, work: Path | None) -> dict[str, Any]:
    """Make a graph, partition it, and return a row."""
    num_nodes, num_edges = 1 << scale, EDGE_FACTOR << scale
    memory = min(memory, least_budget(Form.STREAMING, num_nodes, num_edges, num_parts))
    with tempfile.TemporaryDirectory(dir=work) as name:
        edges = Path(name) / "edges.parquet"
        since = time.perf_counter()
        write_rmat(edges, scale, EDGE_FACTOR)
        made_in = time.perf_counter() - since
        print(f"2^{scale} ids: {edges.stat().st_size / 1e9:.2f} GB in {made_in:.0f} s", file=sys.stderr, flush=True)
        values = partition_apart(
            edges, "-k", num_parts, "--memory", memory, "--num-nodes", num_nodes, "-o", Path(name) / "out"
        )
    phases, phases_cpu = values["phase_seconds"], values["phase_cpu_seconds"]
    return {
        "scale": scale,
        "num_edges": num_edges,
        "k": num_parts,
        "memory_mb": memory / 1e6,
        "peak_mb": values["peak_rss_bytes"] / 1e6,
        "rf": values["replication_factor"],
        "rf_x_balance": values["peak_replication"],
        "edge_balance": values["edge_balance"],
        "ns_per_edge": 1e9 * values["cpu_seconds"] / num_edges,
        "assign_ns_per_edge": 1e9 * phases_cpu["assign"] / num_edges,
        "seconds": values["seconds"],
        **{f"{phase} s": seconds for phase, seconds in phases.items()},
    }


def with_ratios(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows by size, each with its time an edge against that of the smallest."""
    ordered = sorted(rows, key=lambda row: row["scale"])
    names = ("ns_per_edge", "assign_ns_per_edge")
    return [row | {f"{name} ratio": row[name] / ordered[0][name] for name in names} for row in ordered]


def main() -> None:
    """Run the scales that are not in the file yet; write it after each."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that temporary files go
    parser = options(__doc__)
    parser.add_argument("--scales", default="20", help="logarithms of the number of ids, as 20,23,26")
    parser.add_argument("--parts", type=int, default=32, help="number of parts")
    parser.add_argument("--memory", default="6GB", help="most memory of a run, as 6GB")
    parser.add_argument("--work", type=Path, help="folder for temporary files")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.scales, chosen.parts = "10,12", 4
    rows = json.loads(chosen.json.read_text()) if chosen.json is not None and chosen.json.exists() else []
    memory = int(TypeAdapter(ByteSize).validate_python(chosen.memory))
    for scale in map(int, chosen.scales.split(",")):
        if scale not in [row["scale"] for row in rows]:
            rows = with_ratios([*rows, run(scale, chosen.parts, memory, chosen.work)])
            if chosen.json is not None:
                _write(chosen.json, rows)
    show(with_ratios(rows), chosen.json)


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(list(rows), indent=1) + "\n")
    os.replace(unfinished, path)


if __name__ == "__main__":
    main()
