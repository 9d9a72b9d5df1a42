"""Does DistDGL train as fast on our partition as on that of DGL's own METIS, and does an export hold every edge?

    python -m benchmarks.distdgl [--quick] [--json FILE] [--data DIR] [--graphs NAME ...] [--seeds N]
        [--hosts 2] [--mbit 1000] [--hosts-script hosts.sh] [--distdgl DIR] [--work DIR]
    python -m benchmarks.distdgl --verify --hosts-script hosts.sh [--hosts 4] [--json FILE] [--data DIR]

The first partitions a graph with both, once a seed, each as a process of its own from files to DistDGL's
folder, and shows time, peak memory, cut and halo beside each other. Then the run of DistDGL in DIR (`prepare.py`,
`run.py` as they are) trains GraphSAGE on each, in turns: seconds and bytes on the wire an epoch and to 98 % of
the best validation accuracy on METIS' partition, accuracy on the whole graph. Without --distdgl and
--hosts-script nothing is trained, and METIS is given both directions of each edge as DIR would.

The second exports graphs to as many parts as hosts, with their types and without, samples every in-edge of every
node from real servers, compares edges, degrees and features with the source, and trains one epoch
(`benchmarks/distdgl_check.py`).

Rows in FILE are kept and not measured again, so a run that was stopped goes on. Hosts are made by a script with
the commands `up N MBIT`, `run I CMD ...`, `bytes` and `down`.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

import asepr
from asepr.exporters.targets import export
from benchmarks.common import GraphFiles, find_graphs, options, show
from benchmarks.convergence import prepare

ROOT = Path(__file__).parent.parent
LAUNCHER, CHECK = ROOT / "examples" / "distdgl_launch.py", Path(__file__).with_name("distdgl_check.py")
REACH = 0.98
QUIET, TRIES = 0.03, 3
"""How much of the machine others may take in a run, and how often it is run to find it so quiet."""
VERIFY_COLUMNS = 64
PARTITIONS = ("dgl-metis", "asepr")
KEYS = ("graph", "partition", "hosts", "mbit", "seed")


def main() -> None:
    """Measure, or verify, every graph at hand."""
    if sys.argv[1:2] == ["--metis"]:
        partition_with_dgl(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
        return
    parser = options(__doc__)
    parser.add_argument("--hosts-script", type=Path, help="makes hosts with networks of their own; needs root")
    parser.add_argument("--distdgl", type=Path, help="folder of DistDGL's prepare.py and run.py")
    parser.add_argument("--graphs", nargs="*", help="default: wordnet, debian-deps; to verify: wordnet, debian-hetero")
    parser.add_argument("--hosts", type=int, default=2, help="as many parts")
    parser.add_argument("--mbit", type=int, default=1000, help="of each host, each way")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--verify", action="store_true", help="compare what servers hand out with the source")
    parser.add_argument("--work", type=Path, help="keep prepared graphs there")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.graphs, chosen.seeds, chosen.epochs = ["wordnet"], 1, 2
    if chosen.verify and chosen.hosts_script is None:
        parser.error("--verify needs hosts: give --hosts-script")
    names = chosen.graphs or ["wordnet", "debian-hetero" if chosen.verify else "debian-deps"]
    rows: list[dict[str, Any]] = []
    if chosen.json is not None and chosen.json.exists():
        rows = json.loads(chosen.json.read_text())
    with tempfile.TemporaryDirectory() as temporary:
        for graph in find_graphs(names, chosen.data):
            work = (chosen.work or Path(temporary)).resolve() / graph.name
            work.mkdir(parents=True, exist_ok=True)
            if chosen.verify:
                rows += verify(graph, chosen, work)
            else:
                measure(graph, chosen, work, rows)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")
    show([{key: value for key, value in row.items() if key != "epochs"} for row in rows], None)
    if not chosen.verify:
        show(summaries(rows), None)


def measure(graph: GraphFiles, chosen: argparse.Namespace, work: Path, rows: list[dict[str, Any]]) -> None:
    """Add the rows of one graph that are not there yet, and keep the file of rows after each."""
    is_trained = chosen.distdgl is not None and chosen.hosts_script is not None
    files = both_directions(graph, work) if chosen.distdgl is None else prepare(graph, chosen.distdgl, work)
    for seed in range(chosen.seeds):
        # In turns, and the other one first each time: what else the machine does falls on both alike.
        for name in PARTITIONS if seed % 2 == 0 else reversed(PARTITIONS):
            case = {"graph": graph.name, "partition": name, "hosts": chosen.hosts, "mbit": chosen.mbit, "seed": seed}
            if any(all(row[key] == case[key] for key in KEYS) for row in rows):
                continue
            place = work / f"{name}-{chosen.hosts}"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            make = make_with_dgl if name == "dgl-metis" else make_with_asepr
            row = case | make(files, work, place, chosen.hosts, seed) | shape(place, chosen.hosts)
            if is_trained:
                row |= train(case, chosen, work, place)
            rows.append(row)
            print(row, flush=True)
            if chosen.json is not None:
                chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


def both_directions(graph: GraphFiles, work: Path) -> GraphFiles:
    """Write the graph without self-loops and duplicates, each edge both ways, as DistDGL's trainers want it."""
    edges = pd.read_parquet(graph.edges, columns=["src", "dst"])
    nodes = pd.read_parquet(graph.nodes).sort_values("id")
    num_nodes, src, dst = len(nodes), *(edges[name].to_numpy().astype(np.int64) for name in ("src", "dst"))
    key = np.unique(np.concatenate([src * num_nodes + dst, dst * num_nodes + src]))
    src, dst = (ends[key // num_nodes != key % num_nodes] for ends in (key // num_nodes, key % num_nodes))
    features = np.eye(8, dtype=np.float32)[np.arange(num_nodes) % 8]
    label = nodes["label"].to_numpy().astype(np.int64)
    masks = {name: (nodes["split"] == name).to_numpy() & (label >= 0) for name in ("train", "val", "test")}
    np.savez(work / "data.npz", src=src, dst=dst, feat=features, label=label, **masks)
    np.save(work / "features.npy", features)
    pd.DataFrame({"src": src, "dst": dst}).to_parquet(work / "edges.parquet")
    nodes[["id", "label", "split"]].to_parquet(work / "nodes.parquet", index=False)
    return GraphFiles(
        name=graph.name, edges=work / "edges.parquet", nodes=work / "nodes.parquet", features=work / "features.npy"
    )


def make_with_dgl(files: GraphFiles, work: Path, place: Path, num_parts: int, seed: int) -> dict[str, Any]:
    """Partition with DGL's METIS; it takes no seed, and may give another partition in each run."""
    del files, seed
    return measured([["-m", "benchmarks.distdgl", "--metis", work / "data.npz", place, num_parts]])


def partition_with_dgl(data: Path, place: Path, num_parts: int) -> None:
    """Be the process that partitions as DistDGL's `prepare.py` does: train nodes and edges balanced."""
    os.environ["DGLBACKEND"] = "pytorch"
    import dgl
    import torch

    with np.load(data) as arrays:
        found = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    graph = dgl.graph((found["src"], found["dst"]), num_nodes=len(found["label"]))
    for name in ("feat", "label", "train"):
        graph.ndata[name] = found[name]
    graph.ndata["orig"] = torch.arange(graph.num_nodes())
    dgl.distributed.partition_graph(
        graph,
        "graph",
        num_parts,
        str(place / f"parts-{num_parts}"),
        num_hops=1,
        part_method="metis",
        balance_ntypes=found["train"].long(),
        balance_edges=True,
    )


def make_with_asepr(files: GraphFiles, work: Path, place: Path, num_parts: int, seed: int) -> dict[str, Any]:
    """Partition and export, then name the masks as DistDGL's `train.py` has them."""
    del work
    shards, exported = place / "shards", place / f"parts-{num_parts}"
    arguments = [files.edges, "--nodes", files.nodes, "--features", files.features, "-k", num_parts, "--seed", seed]
    values = measured(
        [
            ["-m", "asepr.cli", "partition", *arguments, "--layout", "edge-cut", "-o", shards],
            ["-m", "asepr.cli", "export", shards, exported, "--to", "distdgl", "--ignore-types"],
        ]
    )
    os.environ["DGLBACKEND"] = "pytorch"
    from dgl.data.utils import load_tensors, save_tensors

    for path in exported.glob("part*/node_feat.dgl"):
        tensors = load_tensors(str(path))
        save_tensors(
            str(path), tensors | {"_N/train": tensors["_N/train_mask"].bool(), "_N/orig": tensors["_N/orig_id"]}
        )
    return values


def measured(commands: Sequence[Sequence[object]]) -> dict[str, Any]:
    """Run Python commands one after the other; return their time together, and the most memory of one."""
    seconds = cpu_seconds = 0.0
    peak = 0
    for command in commands:
        since = time.perf_counter()
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen([sys.executable, *map(str, command)], cwd=ROOT, stdout=said, stderr=said)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                said.seek(0)
                raise SystemExit(f"{' '.join(map(str, command))}: must end well, got: {said.read()[-1000:]}")
        seconds += time.perf_counter() - since
        cpu_seconds += usage.ru_utime + usage.ru_stime
        peak = max(peak, usage.ru_maxrss * 1024)
    return {"partition_seconds": seconds, "partition_cpu_seconds": cpu_seconds, "partition_peak_rss_bytes": peak}


def shape(place: Path, num_parts: int) -> dict[str, Any]:
    """Return how the folder that DistDGL will load divides the graph, counted from its own graphs."""
    os.environ["DGLBACKEND"] = "pytorch"
    import dgl

    cut = halo = 0
    inner, edges = [], []
    for rank in range(num_parts):
        graph = dgl.load_graphs(str(place / f"parts-{num_parts}" / f"part{rank}" / "graph.dgl"))[0][0]
        is_inner = graph.ndata["inner_node"].bool()
        src, dst = graph.edges()
        own = is_inner[dst]
        cut += int((own & ~is_inner[src]).sum())
        halo += int((~is_inner).sum())
        inner.append(int(is_inner.sum()))
        edges.append(int(own.sum()))
    return {
        "edge_cut": cut / sum(edges),
        "halo_nodes": halo,
        "node_balance": max(inner) * num_parts / sum(inner),
        "edge_balance": max(edges) * num_parts / sum(edges),
    }


def train(case: dict[str, Any], chosen: argparse.Namespace, work: Path, place: Path) -> dict[str, Any]:
    """Run DistDGL as its folder holds it; again where others kept the machine busy, and keep the quietest run."""
    if not (place / "data.npz").exists():
        (place / "data.npz").symlink_to(work / "data.npz")
    with np.load(work / "data.npz") as arrays:
        info = {"classes": int(arrays["label"].max()) + 1}
    (place / f"info-{case['hosts']}.json").write_text(json.dumps(info))
    settings = ["--hosts", case["hosts"], "--mbit", case["mbit"], "--epochs", chosen.epochs, "--seed", case["seed"]]
    settings += ["--weight-decay", "5e-4", "--hosts-sh", chosen.hosts_script]
    command = [sys.executable, chosen.distdgl / "run.py", place, place / "run", *settings]
    best: dict[str, Any] = {"others_share": np.inf}
    for _ in range(TRIES):
        busy, own, since = busy_seconds(), children_seconds(), time.perf_counter()
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        own, took = children_seconds() - own, time.perf_counter() - since
        share = max(busy_seconds() - busy - own, 0.0) / (took * (os.cpu_count() or 1))
        if share < best["others_share"]:
            best = read_run(place / "run") | {"run_cpu_seconds": own, "others_share": share}
        if share <= QUIET:
            break
    return best


def busy_seconds() -> float:
    """Return the processor seconds that this machine has spent on anything since it started."""
    user, nice, system, _, _, irq, softirq, steal, *_ = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / os.sysconf("SC_CLK_TCK")


def children_seconds() -> float:
    """Return the processor seconds of all processes below this one that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def read_run(folder: Path) -> dict[str, Any]:
    """Return what a row says of a run of DistDGL, and every epoch's line."""
    result = json.loads((folder / "run.json").read_text())
    lines = (folder / "epochs.jsonl").read_text().splitlines()
    epochs = [
        {key: json.loads(line)[key] for key in ("train_s", "wire_bytes", "val_acc", "test_acc")} for line in lines
    ]
    return {
        "epoch_seconds": result["epoch_s"],
        "bytes_per_epoch": int(result["wire_mb_per_epoch"] * 1e6),
        "val_accuracy": result["best"]["val_acc"],
        "test_accuracy": result["best"]["test_acc"],
        "peak_host_pss_bytes": max(host["peak"]["pss_mb"] for host in result["hosts"]) << 20,
        "epochs": epochs,
    }


def summaries(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return medians over seeds with their range, a row a graph and partition, and ours over METIS'."""
    result = []
    groups = pd.DataFrame(rows).groupby(["graph", "hosts", "mbit"], sort=False)
    for (graph, hosts, mbit), group in groups:
        reach = REACH * group[group["partition"] == "dgl-metis"].get("val_accuracy", pd.Series(dtype=float)).median()
        of = {}
        for name, own in group.groupby("partition", sort=False):
            values = own.select_dtypes("number").drop(columns=["hosts", "mbit", "seed"])
            if "epochs" in own:
                reached = [next((e for e in epochs if e["val_acc"] >= reach), {}) for epochs in own["epochs"]]
                values = values.assign(
                    seconds_to_target=[epoch.get("train_s", np.nan) for epoch in reached],
                    bytes_to_target=[epoch.get("wire_bytes", np.nan) for epoch in reached],
                )
            of[name] = values
        head = {"graph": graph, "hosts": hosts, "mbit": mbit}
        for name, values in of.items():
            spread = {key: f"{v.median():.4g} ({v.min():.4g} to {v.max():.4g})" for key, v in values.items()}
            result.append(head | {"partition": name} | spread)
        if len(of) == len(PARTITIONS):
            ratio = of["asepr"].median() / of["dgl-metis"].median()
            result.append(head | {"partition": "asepr / dgl-metis"} | {key: f"{v:.3f}" for key, v in ratio.items()})
    return result


def verify(graph: GraphFiles, chosen: argparse.Namespace, work: Path) -> Iterator[dict[str, Any]]:
    """Export a graph with its types and without, and let servers and trainers on hosts compare it with the source."""
    nodes, edges = pd.read_parquet(graph.nodes).sort_values("id"), pd.read_parquet(graph.edges)
    feat = sp.load_npz(graph.features)[:, :VERIFY_COLUMNS].toarray().astype(np.float32)
    np.save(work / "feat.npy", feat)
    label = nodes["label"].to_numpy()
    masks = {f"node_{n}_mask": (nodes["split"] == n).to_numpy() & (label >= 0) for n in ("train", "val", "test")}
    ends = {name: edges[name].to_numpy() for name in ("src", "dst")}
    degree = np.bincount(ends["dst"], minlength=len(nodes))
    np.savez(work / "truth.npz", **ends, in_degree=degree, node_feat=feat, node_label=label, **masks)
    place = work / f"verify-{chosen.hosts}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    files = {"nodes": graph.nodes, "features": work / "feat.npy"}
    asepr.partition(graph.edges, place / "shards", **files, num_parts=chosen.hosts, layout="edge-cut")
    for ignore_types in (False, True):
        exported = place / f"export-{'plain' if ignore_types else 'typed'}"
        figures = export(place / "shards", exported, "distdgl", ignore_types=ignore_types)
        config = exported / figures["config"]
        run_on_hosts(chosen.hosts_script, place, config, chosen.hosts, CHECK, work / "truth.npz", place)
        answers = [json.loads((place / f"rank-{rank}.json").read_text()) for rank in range(chosen.hosts)]
        yield {
            "graph": graph.name,
            "hosts": chosen.hosts,
            "node_types": len(figures["node_types"]),
            "edge_types": len(figures["edge_types"]),
            "without_features": len(figures["without_features"]),
            "edges": len(edges),
            "edges_sampled_by_each": min(answer["sampled"] for answer in answers),
            "steps": answers[0]["steps"],
            "first_loss": answers[0]["first_loss"],
            "last_loss": answers[0]["last_loss"],
        }


def run_on_hosts(
    script: Path, folder: Path, config: Path, num_hosts: int, program: Path, *arguments: object, timeout_s: int = 300
) -> None:
    """Run a DistDGL program on hosts of its own, by the example's launcher; what host i says is in `log-i.txt`.

    Raises
    ------
    RuntimeError
        Hosts cannot be made, a host fails, or time runs out; with the ends of the logs.
    """
    up = subprocess.run(["bash", script, "up", str(num_hosts)], check=False, capture_output=True, text=True)
    if up.returncode:
        raise RuntimeError(f"{script}: hosts must be makable, got: {up.stderr.strip()[-200:]}")
    ip_config = folder / "ip_config.txt"
    ip_config.write_text("".join(f"10.78.0.{host + 1} 30050\n" for host in range(num_hosts)))
    command = [sys.executable, LAUNCHER, config, ip_config, program, *arguments]
    hosts = []
    try:
        for host in range(num_hosts):
            with (folder / f"log-{host}.txt").open("w") as log:
                started = ["bash", script, "run", host, *command]
                hosts.append(subprocess.Popen(list(map(str, started)), stdout=log, stderr=log))
        end = time.monotonic() + timeout_s
        # One that fails leaves the others waiting for it.
        while any(host.poll() is None for host in hosts) and not any(host.poll() for host in hosts):
            if time.monotonic() > end:
                break
            time.sleep(0.05)
    finally:
        codes = [host.poll() for host in hosts]
        for host in hosts:
            host.kill()
            host.wait()
        subprocess.run(["bash", script, "down"], check=True, capture_output=True)
    if any(code != 0 for code in codes):
        logs = "\n".join((folder / f"log-{host}.txt").read_text()[-1500:] for host in range(num_hosts))
        raise RuntimeError(f"hosts must end well within {timeout_s} s, got exit codes {codes}:\n{logs}")


if __name__ == "__main__":
    main()
