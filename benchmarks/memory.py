"""How much memory does partitioning take?

    python -m benchmarks.memory [--quick] [--json FILE]

An R-MAT of 2^20 ids and 16 M edges, read from Parquet, into 8 parts by every streaming method, each in
a process of its own; peak resident memory of the whole process, interpreter and libraries included.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import options, show, write_rmat

METHODS = ("asepr", "hdrf", "dbh", "random")


def run(edges: Path, method: str, folder: Path) -> dict[str, Any]:
    """Partition in a process of its own, and return a row."""
    command = [sys.executable, "-m", "asepr.cli", "partition", str(edges), "-k", "8", "--method", method]
    command += ["-o", str(folder / method), "--json"]
    values = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {
        "method": method,
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
        show([run(edges, method, Path(name)) for method in METHODS], chosen.json)


if __name__ == "__main__":
    main()
