"""What the scripts share: graphs to run on, options, and how results are printed."""

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from asepr.partition.plan import Form, make_plan

BUNDLED = Path(__file__).parent.parent / "examples" / "data"
RMAT_CHUNK = 1 << 22
ALL_MEMORY = 1 << 60


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphFiles:
    """A graph on disk; what it has no file of is None."""

    name: str
    edges: Path
    nodes: Path | None
    features: Path | None
    edge_split: Path | None = None


def options(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every script takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small run that shows the script works")
    parser.add_argument("--json", type=Path, help="write the rows there as a JSON list")
    parser.add_argument(
        "--data", type=Path, help="folder of further graphs: NAME/edges.parquet, nodes.parquet, features.npz or .npy"
    )
    return parser


def find_graphs(names: Sequence[str], data: Path | None) -> Iterator[GraphFiles]:
    """Yield the graphs of these names that are bundled or lie in `data`; say which are nowhere."""
    for name in names:
        folders = [folder / name for folder in (BUNDLED, data) if folder is not None]
        folder = next((f for f in folders if (f / "edges.parquet").exists()), None)
        if folder is None:
            print(f"{name}: left out, there is no {name}/edges.parquet in --data")
            continue
        features = [folder / "features.npz", folder / "features.npy"]
        yield GraphFiles(
            name=name,
            edges=folder / "edges.parquet",
            nodes=folder / "nodes.parquet" if (folder / "nodes.parquet").exists() else None,
            features=next((path for path in features if path.exists()), None),
            edge_split=folder / "edge_split.npz" if (folder / "edge_split.npz").exists() else None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a process ended; `fault` says why it failed, and is empty where it did not."""

    stdout: str
    fault: str
    seconds: float
    cpu_seconds: float


def run_apart(module_and_arguments: Sequence[object], cpu_limit: int | None = None) -> Ended:
    """Run `python -m MODULE ARGUMENTS...` in a process of its own, with at most so many processor seconds."""
    before, since = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", *map(str, module_and_arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        if cpu_limit is not None:
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu_limit, cpu_limit))
        stdout, stderr = process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    fault = ""
    if process.returncode and cpu_limit is not None and cpu_seconds > 0.8 * cpu_limit:
        fault = f"stopped after {cpu_limit} processor seconds"
    elif process.returncode:
        fault = stderr.strip().splitlines()[-1] if stderr.strip() else f"exit code {process.returncode}"
    return Ended(stdout=stdout, fault=fault, seconds=time.perf_counter() - since, cpu_seconds=cpu_seconds)


def partition_apart(*arguments: object) -> dict[str, Any]:
    """Run `asepr partition` in a process of its own; return what it prints and its processor time."""
    ended = run_apart(["asepr.cli", "partition", *arguments, "--json"])
    if ended.fault:
        raise RuntimeError(ended.fault)
    values: dict[str, Any] = json.loads(ended.stdout)
    return values | {"cpu_seconds": ended.cpu_seconds}


def least_budget(form: Form, num_nodes: int, num_edges: int, num_parts: int) -> int:
    """Return the least `--memory` with which `asepr` takes this form for a vertex-cut."""
    plan = make_plan(num_nodes, num_edges, num_parts, "asepr", "vertex-cut", ALL_MEMORY)
    while plan.form is not form:
        plan = make_plan(num_nodes, num_edges, num_parts, "asepr", "vertex-cut", plan.memory_bytes - 1)
    return plan.memory_bytes


def write_rmat(path: Path, scale: int, edge_factor: int, seed: int = 42) -> None:
    """Write an R-MAT with the Graph500 parameters as a stream; duplicates, self-loops and isolated ids kept.

    Source: Chakrabarti, Zhan, Faloutsos, R-MAT: a recursive model for graph mining, 2004.
    """
    schema = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    num_edges = edge_factor << scale
    src, dst = np.empty((2, min(num_edges, RMAT_CHUNK)), dtype=np.int64)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for first in range(0, num_edges, RMAT_CHUNK):
            size = min(RMAT_CHUNK, num_edges - first)
            draw_rmat(scale, seed + first // RMAT_CHUNK, src[:size], dst[:size])
            writer.write_table(pa.table({"src": src[:size], "dst": dst[:size]}))


@numba.njit(cache=True)
def draw_rmat(scale, seed, src, dst):
    """Fill `src` and `dst` with edges: a quadrant a level, at .57, .19, .19 and .05."""
    np.random.seed(seed)  # that of compiled code; nothing outside sees it
    for i in range(src.shape[0]):
        u = v = 0
        for _ in range(scale):
            draw = np.random.random()
            u, v = u << 1, v << 1
            if draw >= 0.95:
                u, v = u | 1, v | 1
            elif draw >= 0.76:
                u |= 1
            elif draw >= 0.57:
                v |= 1
        src[i], dst[i] = u, v


def show(rows: Sequence[dict[str, Any]], target: Path | None) -> None:
    """Print rows as a Markdown table, and write them as JSON where asked."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(_cell(row.get(name, '')) for name in columns)} |")
    print(f"\n{platform.machine()}, {platform.system()} {platform.release()}, Python {platform.python_version()}")
    if target is not None:
        target.write_text(json.dumps(list(rows), indent=1) + "\n")


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
