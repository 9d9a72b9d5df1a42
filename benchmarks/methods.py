"""How do the methods compare in replication, cut and balance?

    python -m benchmarks.methods [--quick] [--json FILE] [--data DIR]

Every method in both layouts at k = 4 and 32 on real graphs. Kernels are compiled before the clock
starts; seconds are of the whole run, reading and writing shards included.
"""

import tempfile
from pathlib import Path
from typing import Any

import asepr
from asepr.partition.methods import METHODS
from benchmarks.common import GraphFiles, find_graphs, options, show

LAYOUTS = ("vertex-cut", "edge-cut")


def run(graph: GraphFiles, method: str, layout: str, num_parts: int) -> dict[str, Any]:
    """Partition once, and return a row."""
    with tempfile.TemporaryDirectory() as folder:
        made = asepr.partition(
            graph.edges,
            Path(folder) / "out",
            nodes=graph.nodes,
            features=graph.features,
            num_parts=num_parts,
            method=method,
            layout=layout,
            reduce_features=32,
        )
    quality = made.quality
    return {
        "graph": graph.name,
        "k": num_parts,
        "layout": layout,
        "method": method,
        "replication_factor": quality.replication_factor,
        "edge_cut": quality.edge_cut,
        "edge_balance": quality.edge_balance,
        "replica_balance": quality.replica_balance,
        "node_balance": quality.node_balance,
        "assign_seconds": made.phase_seconds["assign"],
        "seconds": made.seconds,
    }


def main() -> None:
    """Run every combination on every graph at hand."""
    chosen = options(__doc__).parse_args()
    names, parts = ["wordnet", "debian-deps"], [4, 32]
    if chosen.quick:
        names, parts = names[:1], parts[:1]
    rows = []
    for graph in find_graphs(names, chosen.data):
        for layout in LAYOUTS:
            for method in METHODS:
                run(graph, method, layout, 2)
                rows += [run(graph, method, layout, num_parts) for num_parts in parts]
    show(sorted(rows, key=lambda row: (row["graph"], row["k"], row["layout"])), chosen.json)


if __name__ == "__main__":
    main()
