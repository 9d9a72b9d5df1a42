"""What do schedules and codecs save in bytes and time, and what do they cost in accuracy?

    python -m benchmarks.exchange [--quick] [--json FILE] [--data DIR] [--hosts-script hosts.sh]
        [--graphs NAME ...] [--layouts LAYOUT ...] [--mbit 100 25] [--seeds N] [--only time|accuracy]
        [--cases SCHEDULE/CODEC ...] [--train JSON] [--work DIR]

*Time and bytes*: GraphSAGE of 3 layers, 256 wide, on 2 hosts of one core, every case in one process a host,
turn by turn. *Accuracy*: the mean of the last 10 epochs' weights, evaluated exactly, the seeds of all cases
paired, in processes here.

A schedule may be followed by `+N`: every Nth step is exact, as in `pipelined+5/int2`.

Hosts are made by a script with the commands `up N MBIT`, `run I CMD ...` and `down`. On real machines
start, by torchrun on each,

    HOST_IF=eth0 torchrun ... -m benchmarks.exchange --shards DIR [--json FILE] [...]

with DIR a dataset of as many parts; HOST_IF names the interface whose bytes are counted.

A row's `epoch_s` is the median epoch, `compute_s` what of it was neither waiting for rows nor summing
gradients, both of the slowest rank. Bytes are those of an epoch over all ranks: `bytes_predicted` before rows
were encoded, `bytes_counted` as handed over, `bytes_gradients` those of a ring that sums gradients,
`bytes_wire` those of the interfaces (null without). `comm_s` is what the busiest host's share of them takes
at the rate at which the same links moved a large buffer just before. Rows in FILE are kept and not measured again.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asepr
from benchmarks.common import GraphFiles, find_graphs, options, show
from benchmarks.hosts import interface_bytes, meet, over_ranks, run_on_hosts

if TYPE_CHECKING:
    from asepr.trainer_plugin.shard_graph import ShardGraph

KEYS = ("graph", "layout", "schedule", "codec", "hosts", "mbit", "seed", "kind")
TIME_CASES = ["exact/none", "none/none", "pipelined/none", "exact/int8", "pipelined/int2", "pipelined/int1"]
ACCURACY_CASES = ["exact/none", "none/none", "exact/int8", "pipelined/none", "pipelined/int2"]
TIME = {"layers": 3, "hidden": 256, "epochs": 4, "warm": 2}
ACCURACY = {"layers": 3, "hidden": 64, "epochs": 60, "warm": 0}
PROBE_BYTES = 4 << 20
LAST = 10
"""Epochs at the end of a run over which its accuracy is averaged, as it wobbles from one to the next."""


def main() -> None:
    """Measure every graph at hand, or be one of the machines."""
    if sys.argv[1:2] == ["--worker"]:
        measured = measure_here(Path(sys.argv[2]), json.loads(sys.argv[3]))
        if os.environ["RANK"] == "0":
            Path(sys.argv[4]).write_text(json.dumps(measured))
        return
    chosen = _parse()
    rows: list[dict[str, Any]] = []
    if chosen.json is not None and chosen.json.exists():
        rows = json.loads(chosen.json.read_text())
    if chosen.shards is not None:
        hosts = int(os.environ.get("WORLD_SIZE", "1"))
        case = {"graph": chosen.shards.name, "layout": "as given", "hosts": hosts, "mbit": 0, "kind": "time"}
        for settings in _settings(case, chosen, rows):
            rows += [case | row for row in measure_here(chosen.shards, settings)]
        if os.environ.get("RANK", "0") != "0":
            return
    else:
        with tempfile.TemporaryDirectory() as temporary:
            for graph, layout in itertools.product(find_graphs(chosen.graphs, chosen.data), chosen.layouts):
                measure(graph, layout, chosen, (chosen.work or Path(temporary)).resolve(), rows)
    show(rows, chosen.json)
    show(list(compare(rows)), None)


def measure(graph: GraphFiles, layout: str, chosen: argparse.Namespace, work: Path, rows: list[dict[str, Any]]) -> None:
    """Add the rows of one graph that are not there yet, and keep the file of rows after each run."""
    path = work / f"{graph.name}-{layout}-{chosen.hosts}-{chosen.width}"
    if not path.exists():
        asepr.partition(
            graph.edges,
            path,
            nodes=graph.nodes,
            features=graph.features,
            num_parts=chosen.hosts,
            layout=layout,
            reduce_features=chosen.width,
        )
    for kind, mbit in [("accuracy", 0), *(("time", mbit) for mbit in chosen.mbit)]:
        case = {"graph": graph.name, "layout": layout, "hosts": chosen.hosts, "mbit": mbit, "kind": kind}
        script = chosen.hosts_script if kind == "time" else None
        for settings in _settings(case, chosen, rows):
            arguments = [path, json.dumps(settings)]
            rows += [
                case | row
                for row in run_on_hosts("benchmarks.exchange", arguments, chosen.hosts, mbit, script, timeout_s=3600)
            ]
            print(*rows[-len(settings["cases"]) :], sep="\n", flush=True)
            if chosen.json is not None:
                chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


def measure_here(path: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Be one host: measure one case after the other; all hosts return the same rows."""
    import torch
    import torch.distributed as dist

    from asepr.trainer_plugin.processes import own_shard

    with own_shard(path, timeout_s=300) as process:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        size = process.shard.num_parts
        rate = link_rate(process.shard.rank, size) if settings["kind"] == "time" and dist.is_initialized() else 0.0
        rows = []
        for schedule, codec in settings["cases"]:
            row = {"schedule": schedule, "codec": codec, "seed": settings["seed"], "kind": settings["kind"]}
            rows.append(row | train_here(process.shard, row, settings, rate))
        return rows


def train_here(shard: "ShardGraph", row: dict[str, Any], settings: dict[str, Any], rate: float) -> dict[str, Any]:
    """Train as one row says; return what is measured."""
    from asepr.trainer_plugin.train import TrainConfig, Trainer

    values = {name: value for name, value in settings["train"].items() if name != "warm"}
    schedule, _, every = row["schedule"].partition("+")
    config = TrainConfig(exchange=schedule, exact_every=int(every or 0), codec=row["codec"], seed=row["seed"], **values)
    trainer = Trainer(shard, config)
    exchange, size, warm = trainer.graph.exchange, shard.num_parts, settings["train"]["warm"]
    for epoch in range(warm):
        trainer._step(epoch)
    exchange.settle()
    meet(size)
    wire_before = interface_bytes()
    epochs, accuracy = [], []
    for epoch in range(warm, warm + config.epochs):
        trainer._meter.start()
        trainer._step(epoch)
        epochs.append(trainer._meter.stop())
        if row["kind"] == "accuracy" and epoch >= warm + config.epochs - LAST:
            accuracy.append(trainer._evaluate()["test_acc"])
    exchange.settle()
    meet(size)
    on_wire = 0 if wire_before is None else (interface_bytes() or 0) - wire_before
    count = len(epochs)
    gradients = 2 * (size - 1) / size * 4 * (1 + sum(p.numel() for p in trainer.model.parameters()))
    sums = over_ranks(
        size,
        [
            sum(epoch["exchange"]["bytes_predicted"] for epoch in epochs) / count,
            sum(epoch["bytes_sent"] for epoch in epochs) / count,
            gradients,
            on_wire / count,
        ],
        "SUM",
    )
    busiest = on_wire / count or sum(epoch["bytes_sent"] for epoch in epochs) / count + gradients
    slowest = over_ranks(
        size,
        [
            statistics.median(epoch["seconds"] for epoch in epochs),
            statistics.median(epoch["exchange"]["compute_s"] for epoch in epochs),
            busiest / rate if rate else 0.0,
            statistics.median(epoch["exchange"]["wait_s"] for epoch in epochs),
            statistics.median(epoch["exchange"]["gradient_s"] for epoch in epochs),
        ],
        "MAX",
    )
    return {
        **dict(zip(("epoch_s", "compute_s", "comm_s", "wait_s", "gradient_s"), slowest, strict=True)),
        **dict(zip(("bytes_predicted", "bytes_counted", "bytes_gradients"), map(int, sums), strict=False)),
        "bytes_wire": None if wire_before is None else int(sums[3]),
        "test_accuracy": statistics.mean(accuracy) if accuracy else None,
        "options": json.dumps(settings["train"], sort_keys=True),
    }


def link_rate(rank: int, size: int) -> float:
    """Return bytes a second that each rank sends to the next, all at once."""
    import torch
    import torch.distributed as dist

    out, into = torch.zeros(PROBE_BYTES, dtype=torch.uint8), torch.empty(PROBE_BYTES, dtype=torch.uint8)
    seconds = 0.0
    for _ in range(2):  # the first opens the connections
        meet(size)
        started = time.perf_counter()
        works = [dist.irecv(into, (rank - 1) % size), dist.isend(out, (rank + 1) % size)]
        for work in filter(None, works):
            work.wait()
        seconds = time.perf_counter() - started
    return PROBE_BYTES / over_ranks(size, [seconds], "MAX")[0]


def compare(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield, for each case, ratios to the exact exchange of the same seed: the median and (least to greatest)."""
    exact = {_key(row, seed=True): row for row in rows if (row["schedule"], row["codec"]) == ("exact", "none")}
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((*_key(row, seed=False), row["schedule"], row["codec"]), []).append(row)
    for (graph, layout, hosts, mbit, kind, schedule, codec), group in groups.items():
        pairs = [(exact[_key(row, seed=True)], row) for row in group if _key(row, seed=True) in exact]
        found = {"graph": graph, "layout": layout, "hosts": hosts, "mbit": mbit, "schedule": schedule, "codec": codec}
        if kind == "accuracy":
            points = [100 * (row["test_accuracy"] - base["test_accuracy"]) for base, row in pairs]
            accuracy = [100 * row["test_accuracy"] for row in group]
            yield found | {"seeds": len(group), "accuracy": _spread(accuracy), "points_against_exact": _mean(points)}
            continue
        counted = [row["bytes_counted"] + row["bytes_gradients"] for row in group]
        yield found | {
            "times_faster": _spread([base["epoch_s"] / row["epoch_s"] for base, row in pairs]),
            "epoch_s": _spread([row["epoch_s"] for row in group]),
            "to_max_of_compute_and_comm": _spread(
                [row["epoch_s"] / max(row["compute_s"], row["comm_s"]) for row in group if row["comm_s"]]
            ),
            "row_bytes_fewer": _spread(
                [b["bytes_counted"] / r["bytes_counted"] for b, r in pairs if r["bytes_counted"]]
            ),
            "predicted_to_counted": _spread(
                [row["bytes_predicted"] / row["bytes_counted"] for row in group if row["bytes_counted"]]
            ),
            "wire_to_counted": _spread(
                [row["bytes_wire"] / c for row, c in zip(group, counted, strict=True) if row["bytes_wire"]]
            ),
        }


def _settings(case: dict[str, Any], chosen: argparse.Namespace, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what one run of workers measures: all cases of a kind and seed that have no row yet."""
    kinds = {"time": (TIME, TIME_CASES), "accuracy": (ACCURACY, ACCURACY_CASES)}
    known = {tuple(row[key] for key in KEYS) for row in rows}
    train, names = kinds[case["kind"]]
    for seed in range(chosen.seeds if case["kind"] in chosen.only else 0):
        cases = [name.split("/") for name in chosen.cases or names]
        whole = [case | {"schedule": s, "codec": c, "seed": seed} for s, c in cases]
        missing = [[w["schedule"], w["codec"]] for w in whole if tuple(w[key] for key in KEYS) not in known]
        if missing:
            yield {"kind": case["kind"], "seed": seed, "cases": missing, "train": train | json.loads(chosen.train)}


def _parse() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--hosts-script", type=Path, help="makes hosts with networks of their own; needs root")
    parser.add_argument("--shards", type=Path, help="be one of the machines that torchrun starts, on this dataset")
    parser.add_argument("--graphs", nargs="*", default=["wordnet", "debian-deps", "amazon-computers"])
    parser.add_argument("--layouts", nargs="*", default=["edge-cut"])
    parser.add_argument("--cases", nargs="*", default=[], help="SCHEDULE/CODEC, SCHEDULE+N/CODEC")
    parser.add_argument("--only", nargs="*", default=["time", "accuracy"])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--mbit", nargs="*", type=int, default=[100, 25])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--width", type=int, default=256, help="of the features, reduced at random")
    parser.add_argument("--train", default="{}", help="options in place of the script's, as JSON")
    parser.add_argument("--work", type=Path, help="keep partitions there")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.graphs, chosen.seeds, chosen.width = ["wordnet"], 1, 16
        chosen.cases, chosen.train = ["exact/none", "pipelined/int1"], '{"hidden": 16, "epochs": 1, "layers": 2}'
    if chosen.hosts_script is None:
        chosen.mbit = [0]
    return chosen


def _key(row: dict[str, Any], *, seed: bool) -> tuple[Any, ...]:
    names = ("graph", "layout", "hosts", "mbit", "kind", *(("seed",) if seed else ()))
    return tuple(row[name] for name in names)


def _spread(values: list[float]) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def _mean(values: list[float]) -> str:
    if not values:
        return ""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):+.2f} (deviation of a seed {deviation:.2f})"


if __name__ == "__main__":
    main()
