"""Partitioning reads edges as a stream: 16 million of them fit in well under 1.5 GB of memory."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.common import write_rmat


def test_sixteen_million_edges_under_one_and_a_half_gigabytes(tmp_path: Path):
    write_rmat(tmp_path / "edges.parquet", 20, 16)
    command = [sys.executable, "-m", "asepr.cli", "partition", str(tmp_path / "edges.parquet"), "-k", "8"]
    command += ["-o", str(tmp_path / "out"), "--json"]
    values = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=280).stdout)
    assert values["num_edges"] == 16 << 20
    assert values["peak_rss_bytes"] < 1.5e9
    assert values["edge_balance"] <= 1.05
