"""Does training on shards reach the accuracy of one process on the whole graph?

    python -m benchmarks.exactness [--quick] [--json FILE] [--data DIR]

Full-graph GraphSAGE in 4 processes on each layout, and in one process, the same seed for all: test
accuracy after the last epoch, and the difference in points.
"""

import tempfile
from pathlib import Path
from typing import Any

import asepr
from asepr.trainer_plugin.launch import launch
from asepr.trainer_plugin.train import TrainConfig
from benchmarks.common import GraphFiles, find_graphs, options, show


def compare(graph: GraphFiles, seeds: range, epochs: int, folder: Path) -> list[dict[str, Any]]:
    """Return a row a layout and seed."""
    datasets = {"whole": (1, "edge-cut"), "vertex-cut": (4, "vertex-cut"), "edge-cut": (4, "edge-cut")}
    for name, (num_parts, layout) in datasets.items():
        asepr.partition(
            graph.edges,
            folder / name,
            nodes=graph.nodes,
            features=graph.features,
            num_parts=num_parts,
            layout=layout,
            reduce_features=128,
        )
    rows = []
    for seed in seeds:
        config = TrainConfig(epochs=epochs, seed=seed, eval_every=epochs)
        whole = launch(folder / "whole", config)
        for layout in ("vertex-cut", "edge-cut"):
            parted = launch(folder / layout, config)
            rows.append(
                {
                    "graph": graph.name,
                    "layout": layout,
                    "seed": seed,
                    "test_acc_4_processes": parted["test_acc"],
                    "test_acc_1_process": whole["test_acc"],
                    "difference_points": 100 * (parted["test_acc"] - whole["test_acc"]),
                    "loss_difference": parted["loss"] - whole["loss"],
                }
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Compare on every graph at hand."""
    chosen = options(__doc__).parse_args()
    names, seeds, epochs = ["wordnet", "debian-deps"], range(3), 50
    if chosen.quick:
        names, seeds, epochs = names[:1], range(1), 5
    rows = []
    for graph in find_graphs(names, chosen.data):
        with tempfile.TemporaryDirectory() as folder:
            rows += compare(graph, seeds, epochs, Path(folder))
    show(rows, chosen.json)


if __name__ == "__main__":
    main()
