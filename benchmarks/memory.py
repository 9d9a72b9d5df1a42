"""How much memory does partitioning take?

    python -m benchmarks.memory [--quick] [--json FILE]

An R-MAT of 2^20 ids and 16 M edges, read from Parquet, into 8 parts, each run in a process of its own,
`asepr` in both of its forms; peak resident memory of the whole process, interpreter and libraries
included.
"""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import options, partition_apart, show, write_rmat

RUNS = (("asepr", "4GB"), ("asepr", "300MB"), ("hdrf", "4GB"), ("dbh", "4GB"), ("random", "4GB"))


def run(edges: Path, method: str, memory: str, folder: Path) -> dict[str, Any]:
    """Partition in a process of its own, and return a row."""
    values = partition_apart(
        edges, "-k", 8, "--method", method, "--memory", memory, "-o", folder / f"{method}-{memory}"
    )
    return {
        "method": method,
        "budget": memory,
        "num_edges": values["num_edges"],
        "peak_rss_mb": values["peak_rss_bytes"] / 1e6,
        "seconds": values["seconds"],
        "assign_seconds": values["phase_seconds"]["assign"],
        "replication_factor": values["replication_factor"],
    }


def main() -> None:
    """Measure every method."""
    chosen = options(__doc__).parse_args()
    scale = 14 if chosen.quick else 20
    with tempfile.TemporaryDirectory() as name:
        edges = Path(name) / "edges.parquet"
        write_rmat(edges, scale, 16)
        show([run(edges, method, memory, Path(name)) for method, memory in RUNS], chosen.json)


if __name__ == "__main__":
    main()
