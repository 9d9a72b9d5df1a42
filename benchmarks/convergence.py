"""How soon, and for how many bytes, do two hosts reach 98 % of one machine's full-graph validation accuracy?

    python -m benchmarks.convergence [--quick] [--json FILE] [--data DIR]
        [--hosts-script hosts.sh] [--distdgl DIR] [--only SYSTEM[/MODE] ...] [--mbit 1000 100] [--seeds N]

GraphSAGE with the same widths, features and split for all: one process on one core (full graph, and
mini-batches with and without stored aggregates), two hosts of one core each that train on local
mini-batches and average, and DistDGL. Time and bytes are those of training alone, without start and
evaluation, which is exact, on the whole graph, from what was learned until the end of each epoch.

Hosts are made by a script with the commands `up N MBIT`, `run I CMD ...`, `bytes` and `down`; without
it ranks are processes of this machine, and bytes are those of the payload. DIR holds `prepare.py` and
`run.py` of a DistDGL run; its graph, both directions of each edge, is then what all train on.

A graph whose edges are split is trained to predict links: accuracy is then the mean reciprocal rank among
1000 nodes, and DistDGL, whose script knows no links, is left out.

Rows in FILE are kept and not measured again, so a run that was stopped goes on. FILE is a JSON list of
`graph, system, partition, mode, hosts, mbit, seed, target_accuracy, seconds_to_target, bytes_to_target,
final_accuracy, peak_rss_bytes` and more; what was not reached is null.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import asepr
from benchmarks.common import GraphFiles, find_graphs, options, show
from benchmarks.hosts import interface_bytes, meet, over_ranks, run_on_hosts

REACH = 0.98
WIDTH, QUICK_WIDTH = 256, 16
KEYS = ("graph", "system", "partition", "mode", "hosts", "mbit", "seed")
REFERENCE = {"mode": "exact", "epochs": 100, "weight_decay": 0.0}
LOCAL = {
    "mode": "local",
    "epochs": 9,
    "weight_decay": 0.0,
    "lr": 0.015,
    "lr_schedule": "linear",
    "batch": 256,
    "fanout": 10,
    "sync_every": 12,
    "bits": 16,
}
LINKS = {"task": "link", "eval_negatives": 1000}
SETTINGS: dict[str, dict[str, Any]] = {
    "wordnet": {"epochs": 12, "batch": 128},
    "amazon-computers": {"epochs": 25, "batch": 32, "sync_every": 8, "lr": 0.01, "lr_schedule": "constant"},
    "wn18rr": {"epochs": 12, "batch": 512},
    "coauthor-physics": {"epochs": 20, "batch": 16, "sync_every": 4, "lr": 0.01, "lr_schedule": "constant"},
}
"""What each graph trains with beside `LOCAL`."""


def main() -> None:
    """Measure every graph at hand."""
    if sys.argv[1:2] == ["--worker"]:
        train_here(Path(sys.argv[2]), json.loads(sys.argv[3]), Path(sys.argv[4]))
        return
    parser = options(__doc__)
    parser.add_argument("--hosts-script", type=Path, help="makes hosts with networks of their own; needs root")
    parser.add_argument("--distdgl", type=Path, help="folder of DistDGL's prepare.py and run.py")
    parser.add_argument("--only", nargs="*", default=[], help="one-machine, asepr, distdgl, or one of these /MODE")
    parser.add_argument("--graphs", nargs="*", default=["wordnet", "amazon-computers", "debian-deps"])
    parser.add_argument("--partitions", nargs="*", default=["metis", "asepr"])
    parser.add_argument("--mbit", nargs="*", type=int, default=[1000, 100])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", default="{}", help="options of our local training in place of the script's, as JSON")
    parser.add_argument("--work", type=Path, help="keep prepared graphs and partitions there")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.graphs, chosen.partitions, chosen.mbit = ["wordnet"], ["metis"], [0]
    if chosen.hosts_script is None:
        chosen.mbit = [0]
    rows: list[dict[str, Any]] = []
    if chosen.json is not None and chosen.json.exists():
        rows = json.loads(chosen.json.read_text())
    with tempfile.TemporaryDirectory() as temporary:
        work = (chosen.work or Path(temporary)).resolve()
        for graph in find_graphs(chosen.graphs, chosen.data):
            measure(graph, chosen, work / graph.name, rows)
    show(rows, chosen.json)


def measure(graph: GraphFiles, chosen: argparse.Namespace, work: Path, rows: list[dict[str, Any]]) -> None:
    """Add the rows of one graph that are not there yet, and keep the file of rows after each."""
    work.mkdir(parents=True, exist_ok=True)
    files = prepare(graph, chosen.distdgl, work)
    for case in cases(graph, chosen):
        is_reference = case["mode"] == "full-graph"
        wanted = not chosen.only or case["system"] in chosen.only or f"{case['system']}/{case['mode']}" in chosen.only
        if find_row(rows, case) is not None or not (wanted or is_reference):
            continue
        reference = find_row(rows, {"graph": graph.name, "mode": "full-graph"})
        target = None if reference is None else reference["target_accuracy"]
        if case["system"] == "distdgl":
            row = run_distdgl(case, chosen, work, target)
        else:
            row = run_ours(case, chosen, files, work, target)
        rows.append({**case, **row})
        print(rows[-1], flush=True)
        if chosen.json is not None:
            chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


def cases(graph: GraphFiles, chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield what tells each row from the others, the reference first."""
    meets_distdgl = chosen.distdgl is not None and chosen.hosts_script is not None and graph.edge_split is None
    alone = {"graph": graph.name, "system": "one-machine", "partition": "none", "hosts": 1, "mbit": 0}
    yield {**alone, "mode": "full-graph", "seed": 0}
    modes = ["mini-batch"] if graph.edge_split else ["mini-batch", "mini-batch, stored aggregates"]
    for seed in range(chosen.seeds):
        for mode in modes:
            yield {**alone, "mode": mode, "seed": seed}
        for mbit in chosen.mbit:
            several = {"graph": graph.name, "hosts": 2, "mbit": mbit, "seed": seed}
            for name in chosen.partitions:
                yield {**several, "system": "asepr", "partition": name, "mode": "local"}
            if meets_distdgl:
                yield {**several, "system": "distdgl", "partition": "dgl-metis", "mode": "mini-batch"}


def find_row(rows: list[dict[str, Any]], case: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first row that agrees with a case in all that the case says."""
    keys = [key for key in KEYS if key in case]
    return next((row for row in rows if all(row[key] == case[key] for key in keys)), None)


def prepare(graph: GraphFiles, distdgl: Path | None, work: Path) -> GraphFiles:
    """Return the graph that all train on: as DistDGL's own script prepares it, where that is at hand."""
    if distdgl is None or graph.edge_split is not None:
        return graph
    data = work / "data.npz"
    if not data.exists():
        raw = widened(graph, work).edges.parent.resolve()
        command = [sys.executable, str(distdgl / "prepare.py"), str(raw), str(work)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found = GraphFiles(
        name=graph.name, edges=work / "edges.parquet", nodes=work / "nodes.parquet", features=work / "features.npy"
    )
    if not found.edges.exists():
        with np.load(data) as arrays:
            split = np.full(len(arrays["label"]), "", dtype=object)
            for name in ("train", "val", "test"):
                split[arrays[name].astype(bool)] = name
            nodes = {"id": np.arange(len(split)), "label": arrays["label"], "split": split}
            pq.write_table(pa.table(nodes), work / "nodes.parquet")
            np.save(work / "features.npy", arrays["feat"])
            edges = {name: arrays[name].astype(np.int64) for name in ("src", "dst")}
            pq.write_table(pa.table(edges), found.edges)
    return found


def widened(graph: GraphFiles, work: Path) -> GraphFiles:
    """Copy a graph with ids of 64 bits: `prepare.py` multiplies them, and 32 would run over."""
    raw = work / "raw"
    raw.mkdir(exist_ok=True)
    pd.read_parquet(graph.edges, columns=["src", "dst"]).astype(np.int64).to_parquet(raw / "edges.parquet")
    for path in (graph.nodes, graph.features):
        shutil.copy(path, raw)
    return replace(graph, edges=raw / "edges.parquet")


def dataset(files: GraphFiles, case: dict[str, Any], work: Path, width: int) -> Path:
    """Partition a graph for a case, unless that was done."""
    method = "random" if case["hosts"] == 1 else case["partition"]
    out = work / f"{method}-{case['hosts']}"
    if not out.exists():
        asepr.partition(
            files.edges,
            out,
            nodes=files.nodes,
            num_parts=case["hosts"],
            method=method,
            layout="edge-cut",
            **_inputs(files, width),
        )
    return out


def _inputs(files: GraphFiles, width: int) -> dict[str, Any]:
    """Return the options of a partition that say what nodes learn from, and what is held out."""
    if files.edge_split is not None:
        return {"edge_split": str(files.edge_split)}
    return {"features": files.features, "aggregate": "mean", "reduce_features": width}


def run_ours(
    case: dict[str, Any], chosen: argparse.Namespace, files: GraphFiles, work: Path, target: float | None
) -> dict[str, Any]:
    """Train on one host or several; return what the row says of it."""
    path = dataset(files, case, work, QUICK_WIDTH if chosen.quick else WIDTH)
    score = "acc" if files.edge_split is None else "mrr"
    values = {**REFERENCE} if case["mode"] == "full-graph" else LOCAL | SETTINGS.get(case["graph"], {})
    if case["mode"] != "full-graph":
        values |= json.loads(chosen.set)
    values |= {"seed": case["seed"]} | ({} if files.edge_split is None else LINKS)
    if case["mode"] == "mini-batch":
        values |= {"use_aggregates": False}
    if case["hosts"] == 1 and case["mode"] != "full-graph":
        # Alone there is nobody to take the other half of the rows.
        values |= {"batch": 2 * values["batch"]}
    if chosen.quick:
        values |= {"epochs": 2}
    arguments = [path, json.dumps(values)]
    epochs = run_on_hosts("benchmarks.convergence", arguments, case["hosts"], case["mbit"], chosen.hosts_script)
    best = max(epochs, key=lambda epoch: epoch[f"val_{score}"])
    target = REACH * best[f"val_{score}"] if target is None else target
    reached = next((epoch for epoch in epochs if epoch[f"val_{score}"] >= target), None)
    return {
        "target_accuracy": target,
        "seconds_to_target": None if reached is None else reached["seconds"],
        "bytes_to_target": None if reached is None else reached["bytes"],
        "epochs_to_target": None if reached is None else reached["epoch"] + 1,
        "final_accuracy": best[f"test_{score}"],
        "best_val_accuracy": best[f"val_{score}"],
        "cpu_seconds_to_target": None if reached is None else reached["cpu_seconds"],
        "peak_rss_bytes": epochs[-1]["peak_rss_bytes"],
        "options": json.dumps(values, sort_keys=True),
    }


def train_here(path: Path, values: dict[str, Any], out: Path) -> None:
    """Be one host: train on its one core, then evaluate the weights of each epoch off the clock."""
    import torch
    import torch.distributed as dist

    from asepr.trainer_plugin.local_train import LocalTrainer
    from asepr.trainer_plugin.options import make_config
    from asepr.trainer_plugin.shard_graph import open_shard
    from asepr.trainer_plugin.train import TrainConfig, Trainer

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo", rank=rank, world_size=size)
    config = make_config(values)
    shard = open_shard(path, rank)
    trainer = Trainer(shard, config) if isinstance(config, TrainConfig) else LocalTrainer(shard, config)
    if isinstance(trainer, LocalTrainer):
        trainer.reconciler.__enter__()
    meet(size)
    epochs, weights, sent, cpu, total = [], [], 0, 0.0, 0.0
    for epoch in range(trainer.config.epochs):
        sent_before, cpu_before, started = _bytes_sent(trainer), time.process_time(), time.perf_counter()
        trainer._step(epoch)
        meet(size)
        total += time.perf_counter() - started
        cpu += time.process_time() - cpu_before
        sent += _bytes_sent(trainer) - sent_before
        all_sent = int(over_ranks(size, [sent], "SUM")[0])
        epochs.append({"epoch": epoch, "seconds": total, "cpu_seconds": cpu, "bytes": all_sent})
        weights.append({name: value.clone() for name, value in trainer.model.state_dict().items()})
        if trainer._input.is_learned:
            # The weights alone do not say what was learned.
            epochs[-1] |= trainer._evaluate()
    peak = int(over_ranks(size, [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024], "MAX")[0])
    for entry, state in zip(epochs, weights, strict=True):
        entry["peak_rss_bytes"] = peak
        if not trainer._input.is_learned:
            trainer.model.load_state_dict(state)
            entry |= trainer._evaluate()
    if rank == 0:
        out.write_text(json.dumps(epochs))
    if size > 1:
        dist.destroy_process_group()


def run_distdgl(case: dict[str, Any], chosen: argparse.Namespace, work: Path, target: float | None) -> dict[str, Any]:
    """Run DistDGL as its folder holds it; return what the row says of it."""
    settings = ["--epochs", "60" if case["graph"] == "amazon-computers" else "20", "--weight-decay", "5e-4"]
    settings += ["--target", str(target), "--mbit", str(case["mbit"]), "--seed", str(case["seed"])]
    command = [sys.executable, str(chosen.distdgl / "run.py"), str(work), str(work / "distdgl"), *settings]
    subprocess.run([*command, "--hosts-sh", str(chosen.hosts_script)], check=True, stdout=subprocess.DEVNULL)
    result = json.loads((work / "distdgl" / "run.json").read_text())
    reached = result.get("reached")
    return {
        "target_accuracy": target,
        "seconds_to_target": reached and reached["train_s"],
        "bytes_to_target": reached and int(reached["wire_mb"] * 1e6),
        "epochs_to_target": reached and reached["epoch"],
        "final_accuracy": result["best"]["test_acc"],
        "best_val_accuracy": result["best"]["val_acc"],
        "cpu_seconds_to_target": None,
        "peak_rss_bytes": max(host["peak"]["rss_mb"] for host in result["hosts"]) << 20,
        "options": " ".join(settings),
    }


def _bytes_sent(trainer: Any) -> int:
    """Return what this host's interface sent, or the payload where it has none of its own."""
    on_wire = interface_bytes()
    return int(trainer.bytes_sent) if on_wire is None else on_wire


if __name__ == "__main__":
    main()
