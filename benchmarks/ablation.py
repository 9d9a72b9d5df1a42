"""What is each part of reconciliation worth in accuracy, and each partition?

    python -m benchmarks.ablation [--quick] [--json FILE] [--data DIR] [--only METHOD ...] [--seeds N]

GraphSAGE on local mini-batches without stored aggregates, k ranks, the same seeds for all: test accuracy
at the best validation. Parts are added one after the other; `exact` is full-graph training, and the
`one machine` rows are the control: the same losses where there is nothing to reconcile, so that what
they gain there is regularisation. Rows in FILE are kept and not measured again.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import asepr
from benchmarks.common import GraphFiles, find_graphs, options, show
from benchmarks.hosts import run_on_hosts

PLAIN = {
    "mode": "local",
    "epochs": 20,
    "batch": 128,
    "sync_every": 8,
    "lr_schedule": "linear",
    "use_aggregates": False,
}
DISTILL = PLAIN | {"distill": 0.5}
LAYERS = DISTILL | {"distill_layers": 0.5}
METHODS: dict[str, dict[str, Any]] = {
    "plain average": PLAIN,
    "+ distillation": DISTILL,
    "+ cross-layer": LAYERS,
    "+ contrast": LAYERS | {"contrast": 1.0},
    "+ in-batch contrast": LAYERS | {"contrast": 1.0, "contrast_batch": 0.1},
    "+ historical halos": LAYERS | {"contrast": 1.0, "halo": "historical:4"},
    "plain, historical halos": PLAIN | {"halo": "historical:4"},
    "plain, corrected": PLAIN | {"correction_steps": 1},
    "plain, moments averaged": PLAIN | {"moments": "average"},
    "plain, moments reset": PLAIN | {"moments": "reset"},
    "exact": {"mode": "exact", "epochs": 60},
}
PARTITIONS: dict[str, dict[str, Any]] = {
    "random": {"method": "random", "layout": "edge-cut"},
    "hdrf": {"method": "hdrf", "layout": "vertex-cut"},
    "metis": {"method": "metis", "layout": "edge-cut"},
    "asepr": {"method": "asepr", "layout": "edge-cut"},
    "asepr, vertex-cut": {"method": "asepr", "layout": "vertex-cut"},
    "asepr, vertex-cut, no attributes": {"method": "asepr", "layout": "vertex-cut", "attr_weight": 0.0},
}
ON_EVERY_PARTITION = ("plain average", "exact")
ALONE = ("plain average", "+ distillation", "+ cross-layer", "+ contrast", "+ in-batch contrast")
"""What means something where there is one machine: no rounds, but the same losses."""
WIDTH, QUICK_WIDTH = 128, 16


def main() -> None:
    """Measure every graph at hand."""
    parser = options(__doc__)
    parser.add_argument("--only", nargs="*", default=list(METHODS), help="names of methods")
    parser.add_argument("--graphs", nargs="*", default=["wordnet", "debian-deps", "amazon-computers"])
    parser.add_argument("--partitions", nargs="*", default=list(PARTITIONS), help="the first has all methods")
    parser.add_argument("--parts", nargs="*", type=int, default=[4, 8])
    parser.add_argument("--seeds", type=int, default=5)
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.graphs, chosen.partitions, chosen.parts, chosen.seeds = ["wordnet"], ["random"], [2], 1
        chosen.only = ["+ in-batch contrast"]
    rows: list[dict[str, Any]] = []
    if chosen.json is not None and chosen.json.exists():
        rows = json.loads(chosen.json.read_text())
    for graph in find_graphs(chosen.graphs, chosen.data):
        with tempfile.TemporaryDirectory() as folder:
            measure(graph, chosen, Path(folder), rows)
    show(rows + summary(rows), None)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


def measure(graph: GraphFiles, chosen: argparse.Namespace, folder: Path, rows: list[dict[str, Any]]) -> None:
    """Add the rows of one graph that are not there yet, and keep the file of rows after each."""
    for case in cases(graph.name, chosen):
        if any(all(row[key] == value for key, value in case.items()) for row in rows):
            continue
        path = folder / f"{case['partition']}-{case['parts']}"
        if not path.exists():
            asepr.partition(
                graph.edges,
                path,
                nodes=graph.nodes,
                features=graph.features,
                num_parts=case["parts"],
                reduce_features=QUICK_WIDTH if chosen.quick else WIDTH,
                **PARTITIONS["random" if case["parts"] == 1 else case["partition"]],
            )
        values = METHODS[case["method"]] | {"seed": case["seed"]}
        # One machine takes the rows that all ranks took together in a step.
        if case["parts"] == 1 and values["mode"] == "local":
            values |= {"batch": values["batch"] * max(chosen.parts)}
        if chosen.quick:
            values |= {"epochs": 2}
        epochs = run_on_hosts("benchmarks.convergence", [path, json.dumps(values)], case["parts"], 0, None)
        best = max(epochs, key=lambda epoch: epoch["val_acc"])
        rows.append(
            {
                **case,
                **{name: best[name] for name in ("val_acc", "test_acc")},
                "bytes": epochs[-1]["bytes"],
                "seconds": epochs[-1]["seconds"],
            }
        )
        print(rows[-1], flush=True)
        if chosen.json is not None:
            chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


def cases(graph: str, chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield every method on the first partition, two of them on the others, and the control."""
    for seed in range(chosen.seeds):
        for method in chosen.only:
            if method in ALONE:
                yield {"graph": graph, "parts": 1, "partition": "one machine", "method": method, "seed": seed}
            for parts in chosen.parts:
                for number, partition in enumerate(chosen.partitions):
                    if number == 0 or method in ON_EVERY_PARTITION:
                        yield {
                            "graph": graph,
                            "parts": parts,
                            "partition": partition,
                            "method": method,
                            "seed": seed,
                        }


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row a method: mean over seeds, and mean and deviation of what it gains on plain with the same seed."""
    accuracy = {(row["graph"], row["parts"], row["partition"], row["method"], row["seed"]): row for row in rows}
    found = []
    for graph, parts, partition, method in dict.fromkeys(key[:4] for key in accuracy):
        own = {key[4]: row["test_acc"] for key, row in accuracy.items() if key[:4] == (graph, parts, partition, method)}
        plain = {seed: accuracy.get((graph, parts, partition, "plain average", seed)) for seed in own}
        gains = [100 * (own[seed] - row["test_acc"]) for seed, row in plain.items() if row is not None]
        spread = float(np.std(gains, ddof=1)) if len(gains) > 1 else None
        entry = {"graph": graph, "parts": parts, "partition": partition, "method": method}
        entry |= {"seed": f"{len(own)} seeds", "test_acc": float(np.mean(list(own.values())))}
        found.append(entry | ({"points_over_plain": float(np.mean(gains)), "deviation": spread} if gains else {}))
    return found


if __name__ == "__main__":
    main()
