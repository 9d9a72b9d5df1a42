"""Partition WordNet into 4 shards, check them, train on them in 4 processes, and compare with one.

python examples/demo.py [OUTPUT]        # default: demo-output, made anew each time
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).parent / "data" / "wordnet"
GRAPH = [DATA / "edges.parquet", "--nodes", DATA / "nodes.parquet", "--features", DATA / "features.npz"]
GRAPH += ["--reduce-features", 128]


def asepr(*arguments: object) -> str:
    """Run one command as a user would; return what it printed."""
    words = ["asepr", *map(str, arguments)]
    print(f"\n$ {' '.join(words)}", flush=True)
    ended = subprocess.run(
        [sys.executable, "-m", "asepr.cli", *words[1:]], stdout=subprocess.PIPE, text=True, check=True
    )
    print(ended.stdout, end="", flush=True)
    return ended.stdout


def main(output: Path) -> None:
    """Run the whole road, and print both accuracies side by side."""
    shutil.rmtree(output, ignore_errors=True)
    four, whole = output / "four-shards", output / "one-shard"
    asepr("partition", *GRAPH, "-k", 4, "-o", four)
    asepr("verify", four)
    asepr("inspect", four)
    asepr("partition", *GRAPH, "-k", 1, "-o", whole)
    options = ["--model", "sage", "--epochs", 30, "--eval-every", 5, "--json"]
    in_four = json.loads(asepr("train", four, *options))
    in_one = json.loads(asepr("train", whole, *options))
    print(f"\ntest accuracy after {in_four['epoch'] + 1} epochs of a 2-layer GraphSAGE")
    print(f"  4 processes, one shard each:     {in_four['test_acc']:.4f}")
    print(f"  1 process on the whole graph:    {in_one['test_acc']:.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
