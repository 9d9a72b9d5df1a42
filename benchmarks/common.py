"""What the scripts share: graphs to run on, options, and how results are printed."""

import argparse
import json
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BUNDLED = Path(__file__).parent.parent / "examples" / "data"
RMAT_CHUNK = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphFiles:
    """A graph on disk; `nodes` and `features` are None where it has none."""

    name: str
    edges: Path
    nodes: Path | None
    features: Path | None


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
        )


def partition_apart(*arguments: object) -> dict[str, Any]:
    """Run `asepr partition` in a process of its own; return what it prints and its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "asepr.cli", "partition", *map(str, arguments), "--json"]
    values: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return values | {"cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def write_rmat(path: Path, scale: int, edge_factor: int, seed: int = 42) -> None:
    """Write an R-MAT with the Graph500 parameters, duplicates, self-loops and isolated ids kept.

    Source: Chakrabarti, Zhan, Faloutsos, R-MAT: a recursive model for graph mining, 2004.
    """
    rng = np.random.default_rng(seed)
    schema = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        left = edge_factor << scale
        while left:
            size = min(left, RMAT_CHUNK)
            src, dst = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
            for _ in range(scale):
                draw = rng.random(size)
                src = 2 * src + (draw >= 0.76)
                dst = 2 * dst + (((draw >= 0.57) & (draw < 0.76)) | (draw >= 0.95))
            writer.write_table(pa.table({"src": src, "dst": dst}))
            left -= size


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
