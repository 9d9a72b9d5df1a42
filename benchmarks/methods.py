"""How do the methods compare in replication, cut, balance, time and memory?

    python -m benchmarks.methods [--quick] [--json FILE] [--data DIR] [--graphs a,b] [--parts 4,32] [--methods a,b]

Every method in both layouts on real graphs, each run in a process of its own. Processor seconds and
peak memory are of the whole process: interpreter, reading and writing shards included.
"""

import tempfile
from pathlib import Path
from typing import Any

from asepr.partition.methods import METHODS
from benchmarks.common import GraphFiles, find_graphs, options, partition_apart, show

LAYOUTS = ("vertex-cut", "edge-cut")


def run(graph: GraphFiles, method: str, layout: str, num_parts: int) -> dict[str, Any]:
    """Partition once, and return a row."""
    files: list[object] = [graph.edges]
    if graph.nodes is not None:
        files += ["--nodes", graph.nodes]
    if graph.features is not None:
        files += ["--features", graph.features, "--reduce-features", 32]
    with tempfile.TemporaryDirectory() as folder:
        values = partition_apart(
            *files, "-k", num_parts, "--method", method, "--layout", layout, "-o", Path(folder) / "out"
        )
    kept = ("replication_factor", "edge_cut", "edge_balance", "replica_balance", "node_balance", "cpu_seconds")
    row = {"graph": graph.name, "k": num_parts, "layout": layout, "method": method}
    row |= {name: values[name] for name in kept}
    return row | {"assign_seconds": values["phase_seconds"]["assign"], "peak_rss_mb": values["peak_rss_bytes"] / 1e6}


def main() -> None:
    """Run every combination on every graph at hand."""
    parser = options(__doc__)
    parser.add_argument("--graphs", default="wordnet,debian-deps", help="names, as a,b")
    parser.add_argument("--parts", default="4,32", help="numbers of parts, as 4,32")
    parser.add_argument("--methods", default=",".join(METHODS), help="names, as a,b")
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help="names, as a,b")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.graphs, chosen.parts = "wordnet", "4"
    rows = []
    for graph in find_graphs(chosen.graphs.split(","), chosen.data):
        for num_parts in map(int, chosen.parts.split(",")):
            for layout in chosen.layouts.split(","):
                for method in chosen.methods.split(","):
                    rows.append(run(graph, method, layout, num_parts))
                    print(rows[-1], flush=True)
    show(rows, chosen.json)


if __name__ == "__main__":
    main()
