"""The command line: arguments to configs, results to text or JSON, errors to exit codes."""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from asepr.errors import AseprError

if TYPE_CHECKING:
    from asepr.pipeline import PipelineConfig, Progress

EXIT_BAD_INPUT = 2
EXIT_FAULTS = 1
EXIT_TERMINATED = 143

app = typer.Typer(
    help="Partition huge attributed graphs into self-contained shards, check them, and train on them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
DatasetPath = Annotated[Path, typer.Argument(metavar="OUT", help="The dataset folder, that of manifest.json.")]


@app.command("partition")
def partition_command(
    context: typer.Context,
    edges: Annotated[str, typer.Argument(help="File, folder, glob, s3:// or gs://; docs/inputs.md lists the formats.")],
    output: Annotated[Path, typer.Option("--out", "-o", help="Folder to make; it must not exist or be empty.")],
    num_parts: Annotated[int, typer.Option("--parts", "-k", help="Number of parts.")],
    nodes: Annotated[str | None, typer.Option(help="Table with id, and label, split, ntype, feature columns.")] = None,
    features: Annotated[Path | None, typer.Option(help="Node features: npy (N, F) or scipy CSR npz.")] = None,
    edge_features: Annotated[Path | None, typer.Option(help="Edge features: npy (E, F) or scipy CSR npz.")] = None,
    method: Annotated[str, typer.Option(help="asepr, random, dbh, hdrf or metis.")] = "asepr",
    layout: Annotated[str, typer.Option(help="vertex-cut or edge-cut.")] = "vertex-cut",
    halo_hops: Annotated[
        int, typer.Option(help="Depth of halos (edge-cut): that many layers need no exchange of rows.")
    ] = 1,
    imbalance: Annotated[float, typer.Option(help="How far a part may exceed its share: 0.05 is 5 %.")] = 0.05,
    replica_imbalance: Annotated[
        float, typer.Option(help="How far a part of a vertex-cut should exceed its share of copies (asepr).")
    ] = 0.10,
    attr_weight: Annotated[
        float | None, typer.Option(help="Worth of keeping to attribute clusters, in copies (asepr); 0: none.")
    ] = None,
    balance: Annotated[
        str,
        typer.Option(
            help="What parts of an edge-cut are balanced in (asepr): nodes, and edges, train, types if named."
        ),
    ] = "nodes,edges,train",
    weigh_edges: Annotated[
        bool, typer.Option("--weigh-edges", help="Cut little weight instead of few edges (edge-cut; asepr, metis).")
    ] = False,
    memory: Annotated[str, typer.Option(help="Most memory beside interpreter and libraries, as 500MB or 2GB.")] = "4GB",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what the run would hold, and stop.")] = False,
    seed: Annotated[int, typer.Option(help="Same input, options and seed: the same bytes.")] = 0,
    capacities: Annotated[str, typer.Option(help="Relative sizes of the parts, as 1,1,2; empty: equal.")] = "",
    num_nodes: Annotated[int | None, typer.Option(help="Number of nodes, where no file says.")] = None,
    reduce_features: Annotated[
        int | None, typer.Option(help="Keep this many singular directions of the node features.")
    ] = None,
    aggregate: Annotated[
        str, typer.Option(help="Store mean, sum or gcn of each row's in-neighbours; empty: nothing.")
    ] = "",
    ids: Annotated[str, typer.Option(help="auto, dense (0 .. N-1) or map (any integers or strings).")] = "auto",
    undirected: Annotated[
        bool | None,
        typer.Option("--undirected/--directed", help="An input edge stands for both directions. [default: directed]"),
    ] = None,
    add_reverse: Annotated[
        bool | None,
        typer.Option("--add-reverse/--no-add-reverse", help="Add each edge's reverse, marked. [default: no]"),
    ] = None,
    self_loops: Annotated[
        str | None, typer.Option(help="keep, drop, or add one at each node that has none. [default: keep]")
    ] = None,
    duplicates: Annotated[
        str | None, typer.Option(help="keep, or merge edges of the same ends and type. [default: keep]")
    ] = None,
    edge_split: Annotated[
        str | None,
        typer.Option(
            help="Hold out edges to be predicted: shares of train, val, test as 0.8,0.1,0.1; or the column that says "
            "which; or an npz file of their rows."
        ),
    ] = None,
    src: Annotated[str, typer.Option(help="Column of source ids.")] = "src",
    dst: Annotated[str, typer.Option(help="Column of destination ids.")] = "dst",
    etype: Annotated[str, typer.Option(help="Column of edge types, read if there.")] = "etype",
    weight: Annotated[str, typer.Option(help="Column of edge weights, read if there.")] = "weight",
    node_id: Annotated[str, typer.Option("--id", help="Column of node ids.")] = "id",
    label: Annotated[str, typer.Option(help="Column of labels, read if there.")] = "label",
    split: Annotated[
        str,
        typer.Option(
            help="Column of train, val, test, read if there; or shares to draw, the same of each label: 0.8,0.1,0.1."
        ),
    ] = "split",
    replace_split: Annotated[
        bool, typer.Option("--replace-split", help="Draw the shares of --split though nodes have a split.")
    ] = False,
    ntype: Annotated[str, typer.Option(help="Column of node types, read if there.")] = "ntype",
    feature_columns: Annotated[
        str, typer.Option(help="Feature columns of the node file, as a,b,c; empty: feat, features, feat_*.")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Partition a graph and write one self-contained shard a part."""
    with _errors_to_exit_codes():
        from asepr.pipeline import partition, plan

        config = _partition_config(context.params)
        if dry_run:
            from asepr.estimate import estimate_time

            planned = plan(edges, config, nodes=nodes, features=features)
            values = planned.to_dict() | estimate_time(edges, config, planned).to_dict()
            _print_json(values) if as_json else _print_plan(values)
            return
        with _progress() as progress:
            result = partition(
                edges,
                output,
                config,
                nodes=nodes,
                features=features,
                edge_features=edge_features,
                progress=progress,
            )
        values = result.to_dict()
        _print_json(values) if as_json else _print_partition(values)


def _partition_config(given: dict[str, Any]) -> "PipelineConfig":
    """Return what the options of `asepr partition`, by the names of its parameters, ask for."""
    from asepr.formats.edge_readers import EdgeColumns
    from asepr.formats.node_sources import NodeColumns
    from asepr.pipeline import PipelineConfig

    shares = _numbers(given["split"], "--split") if "," in given["split"] else None
    same = (
        "num_parts",
        "method",
        "layout",
        "halo_hops",
        "imbalance",
        "replica_imbalance",
        "attr_weight",
        "seed",
        "num_nodes",
    )
    return PipelineConfig(
        **{name: given[name] for name in (*same, "reduce_features", "ids")},
        **{name: given[name] for name in ("undirected", "add_reverse", "self_loops", "duplicates")},
        edge_split=_edge_split(given["edge_split"]),
        split=shares,
        replace_split=given["replace_split"],
        balance=tuple(filter(None, given["balance"].split(","))),
        weigh_edges=given["weigh_edges"],
        memory_bytes=_size(given["memory"]),
        capacities=_numbers(given["capacities"]),
        aggregate=given["aggregate"] or None,
        edge_columns=EdgeColumns(**{name: given[name] for name in ("src", "dst", "etype", "weight")}),
        node_columns=NodeColumns(
            id=given["node_id"],
            features=tuple(filter(None, given["feature_columns"].split(","))),
            split="split" if shares else given["split"],
            **{name: given[name] for name in ("label", "ntype")},
        ),
    )


def _edge_split(given: str | None) -> "tuple[float, ...] | str | None":
    return _numbers(given, "--edge-split") if given is not None and "," in given else given


@app.command("inspect")
def inspect_command(
    path: DatasetPath,
    html: Annotated[Path | None, typer.Option(help="Write a report with charts there, one file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show how good a partition is: replication, cut, balances, halos, and who sends how much to whom."""
    with _errors_to_exit_codes():
        from asepr.formats.manifest import read_manifest
        from asepr.formats.report import read_run_report, write_html
        from asepr.pipeline import inspect

        quality, run = inspect(path).to_dict(), read_run_report(path)
        if html is not None:
            write_html(html, path.resolve().name, read_manifest(path), quality, run)
        values = quality | {"run": None if run is None else run.model_dump()}
        _print_json(values) if as_json else _print_quality(path, values)


@app.command("verify")
def verify_command(path: DatasetPath, as_json: JsonFlag = False) -> None:
    """Check every checksum and every invariant of a dataset; exit 1 and list what is wrong otherwise."""
    with _errors_to_exit_codes():
        from asepr.pipeline import verify

        faults = verify(path)
        if as_json:
            _print_json({"ok": not faults, "faults": faults})
        else:
            for fault in faults:
                print(fault)
            print(f"{path}: {len(faults)} faults" if faults else f"{path}: ok, every checksum and invariant holds")
        if faults:
            raise typer.Exit(EXIT_FAULTS)


@app.command("import-assignment")
def import_command(
    edges: Annotated[str, typer.Argument(help="As for partition; ids must be 0 .. N-1.")],
    assignment: Annotated[
        Path, typer.Argument(help="METIS .part.K, npy, a table with id and part, or a DistDGL folder.")
    ],
    output: Annotated[Path, typer.Option("--out", "-o", help="Folder to make; it must not exist or be empty.")],
    num_parts: Annotated[int, typer.Option("--parts", "-k", help="Number of parts.")],
    of: Annotated[str, typer.Option(help="nodes or edges: what has a part.")] = "nodes",
    layout: Annotated[str, typer.Option(help="vertex-cut or edge-cut; empty: edge-cut for nodes.")] = "",
    nodes: Annotated[str | None, typer.Option(help="As for partition.")] = None,
    features: Annotated[Path | None, typer.Option(help="As for partition.")] = None,
    edge_features: Annotated[Path | None, typer.Option(help="As for partition.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make shards of a partition that another tool made, to inspect it and to train on it."""
    with _errors_to_exit_codes():
        from asepr.formats.assignments import read_parts
        from asepr.partition.given import GivenParts
        from asepr.pipeline import PipelineConfig, partition

        if of not in ("nodes", "edges"):
            raise AseprError(f"--of must be nodes or edges, got '{of}'; choose one of these")
        config = PipelineConfig(
            num_parts=num_parts,
            method="random",  # holds nothing in memory, and is not asked
            layout=layout or ("edge-cut" if of == "nodes" else "vertex-cut"),  # type: ignore[arg-type]  # checked there
            ids="dense",
        )
        part = _distdgl_owners(assignment) if assignment.is_dir() else read_parts(assignment)
        given = GivenParts(of=of, part=part, where=str(assignment))  # type: ignore[arg-type]  # checked above
        with _progress() as progress:
            result = partition(
                edges,
                output,
                config,
                nodes=nodes,
                features=features,
                edge_features=edge_features,
                given=given,
                progress=progress,
            )
        values = result.to_dict()
        _print_json(values) if as_json else _print_partition(values)


def _distdgl_owners(folder: Path) -> Any:
    try:
        from asepr.exporters.distdgl_owners import read_owners
    except ImportError as error:
        raise AseprError(f"{folder}: dgl must be importable, got: {error}; pip install 'asepr[train]'") from error
    return read_owners(folder)


@app.command("export")
def export_command(
    path: DatasetPath,
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="Folder to make; it must not exist or be empty.")],
    target: Annotated[str, typer.Option("--to", help="distdgl, dgl-chunked, pyg, parquet or metis.")],
    ignore_types: Annotated[
        bool, typer.Option("--ignore-types", help="Export one type of nodes and one of edges.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only compare DEST with OUT; exit 1 if they differ.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a dataset in the format of another tool, checked by reading it back."""
    with _errors_to_exit_codes():
        from asepr.exporters.targets import export, find_export_faults

        with _progress() as progress:
            if not check:
                values = export(
                    path, dest, target, ignore_types=ignore_types, on_phase=progress.phase if progress else _no_phase
                )
                faults: list[str] = []
            else:
                faults = find_export_faults(path, dest, target, ignore_types=ignore_types)
                values = {"ok": not faults, "faults": faults}
        _print_json(values) if as_json else _print_export(path, dest, values)
        if faults:
            raise typer.Exit(EXIT_FAULTS)


@app.command("describe")
def describe_command(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, or folders of them.")],
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write, as graph.yaml; none: print.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Look at files, and write a first draft of a graph description."""
    with _errors_to_exit_codes():
        from asepr.formats.describe import describe

        draft = describe(paths, output)
        if as_json:
            _print_json(draft.to_dict())
        else:
            print(f"wrote {output}" if output is not None else draft.to_yaml())


@app.command("lookup")
def lookup_command(
    path: DatasetPath,
    original: Annotated[str, typer.Option("--id", help="Id of a node, as the input had it.")],
    node_type: Annotated[str | None, typer.Option("--type", help="Node type, where types share ids.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Find a node by the id that it had in the input: its nid, its owner, and the parts that hold it."""
    with _errors_to_exit_codes():
        from asepr.pipeline import lookup

        found = lookup(path, original, node_type)
        if as_json:
            _print_json({"nodes": found})
            return
        for row in found:
            kind = "" if row["type"] is None else f" ({row['type']})"
            parts = ", ".join(map(str, row["parts"]))
            print(f"{row['id']}{kind}: nid {row['nid']}, owner {row['owner']}, in parts {parts}")


@app.command("train")
def train_command(
    context: typer.Context,
    path: DatasetPath,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of options, named as here; those given here go before.")
    ] = None,
    mode: Annotated[str, typer.Option(help="exact: full-graph steps, halos exchanged; local: mini-batches.")] = "exact",
    task: Annotated[
        str, typer.Option(help="node (one class each), multilabel, or link (edges held out by --edge-split).")
    ] = "node",
    model: Annotated[str, typer.Option(help="sage, sage-sum, gcn, gin, gat, or rgcn for edge types.")] = "sage",
    bases: Annotated[int, typer.Option(help="rgcn: matrices that those of edge types are sums of; 0: own ones.")] = 8,
    decoder: Annotated[str, typer.Option(help="link: dot or distmult; empty: distmult for edge types.")] = "",
    negatives: Annotated[int, typer.Option(help="link: nodes that take the place of an end of each edge.")] = 64,
    negatives_from: Annotated[str, typer.Option(help="exact, link: these from the local part, or global.")] = "local",
    eval_negatives: Annotated[int, typer.Option(help="link: nodes that held-out edges are ranked among; 0: all.")] = 0,
    epochs: Annotated[int, typer.Option(help="Full-graph steps, or passes over the training rows of a part.")] = 30,
    layers: Annotated[int, typer.Option(help="Number of convolutions.")] = 2,
    hidden: Annotated[int, typer.Option(help="Width of the hidden layers.")] = 128,
    lr: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 0.01,
    weight_decay: Annotated[float, typer.Option(help="Weight decay of Adam.")] = 5e-4,
    dropout: Annotated[float, typer.Option(help="Chance that a hidden entry is zeroed.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Of the first weights, of dropout and of sampling.")] = 0,
    clip: Annotated[float, typer.Option(help="Greatest norm of the gradient; 0: any.")] = 0.0,
    lr_schedule: Annotated[
        str, typer.Option(help="Learning rate: constant, linear, cosine, step or plateau.")
    ] = "constant",
    warmup: Annotated[int, typer.Option(help="Epochs in which the learning rate rises.")] = 0,
    lr_step: Annotated[int, typer.Option(help="step: epochs between falls of the rate.")] = 10,
    lr_decay: Annotated[float, typer.Option(help="step, plateau: what the rate is multiplied by.")] = 0.1,
    lr_patience: Annotated[int, typer.Option(help="plateau: evaluations without gain before the rate falls.")] = 5,
    patience: Annotated[int, typer.Option(help="Evaluations without gain before training stops; 0: never.")] = 0,
    min_delta: Annotated[float, typer.Option(help="By how much validation must be better to be a gain.")] = 0.0,
    restore: Annotated[str, typer.Option(help="Weights to end with: last or best, by validation.")] = "last",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    precision: Annotated[str, typer.Option(help="Of matrix products: float32 or bf16.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    eval_every: Annotated[int, typer.Option(help="Epochs between evaluations.")] = 1,
    checkpoint: Annotated[str, typer.Option(help="Folder for checkpoints; empty: none.")] = "",
    checkpoint_every: Annotated[int, typer.Option(help="Epochs between checkpoints.")] = 10,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    metrics: Annotated[str, typer.Option(help="File to append each epoch's metrics to, as JSON lines.")] = "",
    tensorboard: Annotated[str, typer.Option(help="Folder for TensorBoard's events; empty: none.")] = "",
    predictions: Annotated[
        str, typer.Option(help="Folder for each node's class and logits, as Parquet; empty: none.")
    ] = "",
    embeddings: Annotated[
        str, typer.Option(help="Folder for the rows that the last layer reads, as Parquet; empty: none.")
    ] = "",
    quiet: Annotated[bool, typer.Option("--quiet", help="No line an epoch on a terminal.")] = False,
    timeout_s: Annotated[float, typer.Option(help="How long a process waits for another, in seconds.")] = 300.0,
    exchange: Annotated[
        str, typer.Option(help="Of halo rows: exact, pipelined, delayed:STEPS, sampled:SHARE, none or auto.")
    ] = "exact",
    codec: Annotated[
        str, typer.Option(help="none, bf16, fp16, int8, int4, int2, int1, topk:SHARE or threshold:SHARE.")
    ] = "none",
    exact_every: Annotated[int, typer.Option(help="Every n-th exchange is exact; 0: the first where it must be.")] = 0,
    smoothing: Annotated[float, typer.Option(help="Share of the rows before that late rows keep, below 1.")] = 0.0,
    gradients: Annotated[str, typer.Option(help="Sums of gradients: none, fp16, powersgd:RANK, threshold:SHARE.")] = (
        "none"
    ),
    batch: Annotated[int, typer.Option(help="local: training rows of a step.")] = 512,
    fanout: Annotated[int, typer.Option(help="local: most neighbours sampled of a row in a layer; 0: all.")] = 10,
    sync_every: Annotated[int, typer.Option(help="local: steps between rounds that make models one.")] = 16,
    replica_weight: Annotated[
        str, typer.Option(help="local: what a copy of a training node counts: degree, master or uniform.")
    ] = "degree",
    use_aggregates: Annotated[
        bool, typer.Option(help="local: take stored aggregates for the first layer where they are there.")
    ] = True,
    correction_steps: Annotated[int, typer.Option(help="local: exact steps after each round.")] = 0,
    unlabelled: Annotated[
        int, typer.Option(help="local: rows without training label that a step distils on; 0: its own rows.")
    ] = 0,
    staleness: Annotated[
        int, typer.Option(help="local: rounds that a rank may be ahead of the slowest; 0: rounds wait for all.")
    ] = 0,
    average: Annotated[str, typer.Option(help="local: weighted, uniform, normalised or elastic.")] = "weighted",
    bits: Annotated[int, typer.Option(help="local: bits of a weight sent, 32 or 16.")] = 32,
    elasticity: Annotated[float, typer.Option(help="local: elastic: how far models are drawn together.")] = 0.5,
    moments: Annotated[str, typer.Option(help="local: Adam's moments persist, reset or average.")] = "persist",
    distill: Annotated[float, typer.Option(help="local: factor of distillation on answers.")] = 0.0,
    distill_layers: Annotated[float, typer.Option(help="local: factor of distillation on hidden layers.")] = 0.0,
    distill_teacher: Annotated[
        str, typer.Option(help="local: common model of the last round, or ensemble of all ranks' models.")
    ] = "common",
    contrast: Annotated[float, typer.Option(help="local: factor of contrast with the model before.")] = 0.0,
    contrast_batch: Annotated[float, typer.Option(help="local: factor of contrast within a batch.")] = 0.0,
    halo: Annotated[
        str, typer.Option(help="local: hidden rows of halo nodes: none, or historical:STEPS between refreshes.")
    ] = "none",
    halo_codec: Annotated[str, typer.Option(help="local: how these travel: none, bf16, fp16, int8 to int1.")] = "int8",
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print every option as YAML that --config takes, and do no more.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Train on all shards of a dataset, one process a shard: exactly, or on local mini-batches."""
    given = dict(context.params)
    with _errors_to_exit_codes():
        try:
            from asepr.trainer_plugin.launch import launch
            from asepr.trainer_plugin.options import DEFAULTS, flat_options, make_config, read_options, write_options
        except ImportError as error:
            raise AseprError(f"train: torch must be importable, got: {error}; pip install 'asepr[train]'") from error

        options = {name: value for name, value in given.items() if name in DEFAULTS}
        if config is not None:
            here = {name for name in options if _is_given(context, name)}
            options |= {name: value for name, value in read_options(config).items() if name not in here}
        made = make_config(options)
        if print_config:
            _print_json(flat_options(made)) if as_json else print(write_options(made), end="")
            return
        values = launch(path, made)
        _print_json(values) if as_json else _print_training(path, values)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@contextlib.contextmanager
def _errors_to_exit_codes() -> Iterator[None]:
    """Turn our own errors into one line on stderr and exit code 2, and SIGTERM into a clean end."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except AseprError as error:
        print(f"asepr: error: {error}", file=sys.stderr)
        raise typer.Exit(EXIT_BAD_INPUT) from error
    except MemoryError as error:
        print("asepr: error: memory: must hold the run, got none left; use a machine with more", file=sys.stderr)
        raise typer.Exit(EXIT_BAD_INPUT) from error


def _terminate(number: int, frame: object) -> NoReturn:
    del number, frame
    raise SystemExit(EXIT_TERMINATED)


@contextlib.contextmanager
def _progress() -> Iterator["Progress | None"]:
    """Show phases and edges on stderr where that is a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    with Bar(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=Console(stderr=True)
    ) as bar:
        yield _BarProgress(bar)


def _no_phase(name: str) -> None:
    del name


class _BarProgress:
    """A line a phase: its name, and how many edges went through it."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task: Any = None
        self._name = ""
        self._edges = 0

    def phase(self, name: str) -> None:
        if self._task is not None:
            self._bar.stop_task(self._task)
        self._name, self._edges = name, 0
        self._task = self._bar.add_task(name, total=None)

    def advance(self, num_edges: int) -> None:
        self._edges += num_edges
        self._bar.update(self._task, description=f"{self._name}: {self._edges:,} edges")


def _numbers(text: str, option: str = "--capacities") -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in text.split(",") if item)
    except ValueError as error:
        raise AseprError(f"{option} must be numbers as 1,1,2, got '{text}'; mend the list") from error


def _size(text: str) -> int:
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError as error:
        raise AseprError(f"--memory must be a size as 500MB or 2GB, got '{text}'; mend it") from error


def _print_json(values: dict[str, Any]) -> None:
    print(json.dumps(values))


def _print_plan(values: dict[str, Any]) -> None:
    print(f"{values['num_nodes']:,} nodes and {values['num_edges']:,} edges: the {values['form']} form")
    for title in ("memory", "disk"):
        print(f"{title}: {values[title + '_bytes'] / 1e6:,.0f} MB")
        for name, num_bytes in values[title].items():
            print(f"  {num_bytes / 1e6:10,.0f} MB  {name}")
    print(f"interpreter and libraries, besides: about {values['library_bytes'] / 1e6:.0f} MB")
    print(
        f"time: very roughly {values['estimated_seconds']:,.0f} s, without features; scaled from a run on "
        f"{values['estimated_from_edges']:,} of these edges, here and now"
    )


def _print_partition(values: dict[str, Any]) -> None:
    from asepr.census import census_lines

    print(
        f"{values['path']}: {values['num_nodes']:,} nodes and {values['num_edges']:,} edges in {values['num_parts']} "
        f"parts by {values['method']} ({values['layout']})\n"
        f"ids: {'mapped' if values['ids'] == 'map' else 'dense'}, {values['ids_reason']}\n"
        f"replication factor {values['replication_factor']:.3f}, edge cut {values['edge_cut']:.3f}, "
        f"edge balance {values['edge_balance']:.3f}, replica balance {values['replica_balance']:.3f}"
    )
    for line in census_lines(values["counts"]):
        print(line)
    if values["leaking_edges"]:
        print(f"{values['leaking_edges']:,} edges join the ends of edges that the data hold out; they are kept")
    print(f"{values['seconds']:.1f} s, peak {values['peak_rss_bytes'] / 1e6:.0f} MB; {_phases(values)}")


def _print_export(path: Path, dest: Path, values: dict[str, Any]) -> None:
    if "faults" in values:
        for fault in values["faults"]:
            print(fault)
        print(f"{dest}: {len(values['faults'])} faults" if values["faults"] else f"{dest}: ok, equals {path}")
        return
    print(
        f"{dest}: {values['num_parts']} parts for {values['target']}, read back and equal to {path}\n"
        f"{len(values['node_types'])} node types, {len(values['edge_types'])} edge types"
    )
    if values.get("without_features"):
        print(
            "without features, since a part has none of them and DistDGL cannot serve that: "
            f"{', '.join(values['without_features'])}"
        )
    if values["moved_edges"]:
        halo, balance = values["halo_nodes"], values["edge_balance"]
        print(
            f"{values['moved_edges']:,} edges ({values['moved_share']:.1%}) moved to the owner of their destination: "
            f"halo nodes {halo['before']:,} -> {halo['after']:,}, "
            f"edge balance {balance['before']:.3f} -> {balance['after']:.3f}; --layout edge-cut moves none"
        )


def _phases(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in values["phase_seconds"].items())


SCORES = {"acc": "accuracy", "f1": "micro-F1", "mrr": "mean reciprocal rank"}


def _print_training(path: Path, values: dict[str, Any]) -> None:
    best = next(name for name in values if name.startswith("best_test_"))
    score = best.removeprefix("best_test_")
    print(
        f"{path}: {values['num_parts']} processes, {values['epoch'] + 1} epochs"
        f"{' (stopped early)' if values['stopped_early'] else ''}, loss {values['loss']:.4f}\n"
        f"test {SCORES[score]} {values[f'test_{score}']:.4f}, validation {values[f'val_{score}']:.4f}; "
        f"at the best validation (epoch {values['best_epoch']}) test {values[best]:.4f}\n"
        f"last epoch {values['seconds']:.2f} s, rank 0 sent {values['bytes_sent'] / 1e6:.2f} MB"
    )
    moved = values["exchange"]
    print(
        f"exchange {moved['schedule']}, codec {moved['codec']}: rank 0 computed {moved['compute_s']:.2f} s, waited "
        f"{moved['wait_s']:.2f} s for rows and {moved['gradient_s']:.2f} s for gradients; "
        f"{moved['bytes_predicted'] / 1e6:.2f} MB were predicted"
    )
    if "reason" in moved:
        print(moved["reason"])


def _print_quality(path: Path, values: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    summary = Table(title=f"Quality of {path}", title_justify="left", show_header=False)
    for name in (
        "replication_factor",
        "edge_cut",
        "weight_cut",
        "edge_balance",
        "replica_balance",
        "peak_replication",
        "node_balance",
        "train_balance",
        "label_divergence",
        "attribute_coherence",
        "attribute_coherence_whole",
    ):
        value = values[name]
        summary.add_row(name.replace("_", " "), "-" if value is None else f"{value:.4f}")
    console.print(summary)
    parts = Table(title="Parts (MB: of features)", title_justify="left")
    sent = [sum(row) for row in values["comm_matrix"]]
    columns = {
        "edges": values["edges"],
        "inner": values["inner_nodes"],
        "halo": values["halo_nodes"],
        "train": values["train_nodes"] or ["-"] * len(sent),
        "label div.": [f"{d:.3f}" for d in values["label_divergence_by_part"] or []] or ["-"] * len(sent),
        "inner MB": [f"{b / 1e6:.1f}" for b in values["feature_bytes"]["inner"]],
        "halo MB": [f"{b / 1e6:.1f}" for b in values["feature_bytes"]["halo"]],
        "rows sent": sent,
    }
    parts.add_column("part", justify="right")
    for name in columns:
        parts.add_column(name, justify="right")
    for rank in range(len(sent)):
        parts.add_row(str(rank), *(_cell(column[rank]) for column in columns.values()))
    console.print(parts)
    for title, by_type in (("Inner nodes by type", values["node_types"]), ("Edges by type", values["edge_types"])):
        if by_type:
            console.print(_type_table(title, by_type))
    if values["run"] is not None:
        run = values["run"]
        print(f"made in {run['seconds']:.1f} s, peak {run['peak_rss_bytes'] / 1e6:.0f} MB; {_phases(run)}")


def _type_table(title: str, by_type: dict[str, list[int]]) -> Any:
    """Return a table: a row a type, how many in all and in each part."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("type")
    for name in ("all", *map(str, range(len(next(iter(by_type.values())))))):
        table.add_column(name, justify="right")
    for name, by_part in by_type.items():
        table.add_row(name, *map(_cell, (sum(by_part), *by_part)))
    return table


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
