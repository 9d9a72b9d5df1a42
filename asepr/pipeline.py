"""The whole road, from edges on disk to verified shards, as one short story."""

import math
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from asepr.census import Census, TypeTally, take_census
from asepr.contracts import (
    AGGREGATES,
    BALANCES,
    DEFAULT_MEMORY_BYTES,
    LAYOUTS,
    MAX_PARTS,
    SPLIT_CODES,
    USUAL_BALANCE,
    Aggregate,
    Assignment,
    BalanceName,
    ByteArray,
    Degrees,
    Duplicates,
    EdgeChunk,
    EdgeSource,
    EdgeTable,
    FeatureSource,
    Layout,
    NodeTable,
    Partitioner,
    PartitionProblem,
    SelfLoops,
)
from asepr.errors import CapacityError, ConfigError, EdgeSourceError, NodeSourceError, OutputError
from asepr.formats.edge_readers import EdgeColumns, find_ends
from asepr.formats.edge_sources import CHUNK_EDGES, open_edge_source
from asepr.formats.edge_splits import SUFFIX as EDGE_SPLIT_SUFFIX
from asepr.formats.edge_splits import read_edge_split
from asepr.formats.graph_files import EdgeFiles, GraphFiles, NodeFiles, StoredGraph, map_graph, read_splits
from asepr.formats.graph_sources import WholeGraph, open_graph
from asepr.formats.id_maps import find_node, write_part_ids
from asepr.formats.ids import ID_MODES, IdDecision, IdMap, IdMode, decide_ids
from asepr.formats.leaks import count_leaking
from asepr.formats.locations import is_remote
from asepr.formats.manifest import MAP_FOLDER, Manifest, PartEntry, id_map_entry, read_manifest, write_manifest
from asepr.formats.node_sources import NodeColumns, open_features, open_node_table
from asepr.formats.numbered_graphs import NumberedGraph, store_graph
from asepr.formats.output import check_output, output_folder
from asepr.formats.report import RunReport, write_run_report
from asepr.formats.shard import Shard
from asepr.formats.shard_writer import ShardWriter
from asepr.formats.tables import open_table
from asepr.formats.verify import find_faults
from asepr.partition.edge_buckets import bucket_edges, bucket_held_out
from asepr.partition.given import GivenParts
from asepr.partition.halo import HaloIndex
from asepr.partition.hops import bucket_outer_edges, widen_halos
from asepr.partition.methods import get_method
from asepr.partition.metrics import QualityReport, measure_quality
from asepr.partition.plan import Plan, make_plan
from asepr.rules import FollowedFeatures, apply_rules, choose_rules
from asepr.stream.aggregates import NeighbourAggregates
from asepr.stream.attributes import ReducedFeatures, cluster_attributes
from asepr.stream.degrees import count_degrees
from asepr.stream.edge_rules import EdgeCounts, EdgeRules, check_fractions, disk_bytes
from asepr.stream.node_split import draw_split
from asepr.stream.scratch import ScratchDir

CLUSTERS_PER_PART = 4
MOST_CLASSES = 1 << 20
WEIGHING_METHODS = ("asepr", "metis")
"""Methods that look at what edges weigh, where asked to."""
GIVEN = "given"
"""What the manifest says of a partition made elsewhere."""

QUALITY_ON_TOP = (
    "weight_cut",
    "peak_replication",
    "label_divergence",
    "attribute_coherence",
    "attribute_coherence_whole",
)
"""Figures that a run states beside those of the manifest, which holds only what is the same on every machine."""
ALREADY_NIDS = IdDecision(mode="dense", reason="edges in memory have nids")
UNTOUCHED = EdgeCounts(edges_in=0)
"""Stands in until rules for edges were applied."""
NO_DEGREES = Degrees(in_degree=np.empty(0, np.int64), out_degree=np.empty(0, np.int64))
"""Stands in until edges are counted."""

QUALITY_IN_MANIFEST = (
    "replication_factor",
    "edge_cut",
    "edge_balance",
    "replica_balance",
    "node_balance",
    "train_balance",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineConfig:
    """What to partition, into what, and how.

    Attributes
    ----------
    num_parts : int, in [1, MAX_PARTS]
    method : str
        A name in `asepr.partition.methods.METHODS`.
    layout : "vertex-cut" or "edge-cut"
    halo_hops : int, at least 1
        How many hops deep the halos of an edge-cut are: each part holds what its inner nodes need for as many layers.
    imbalance : float, at least 0
        How far above its share of edges (vertex-cut) or nodes (edge-cut) a part may be.
    replica_imbalance : float, at least 0
        How far above its share of all copies a part of a vertex-cut by `asepr` should be.
    balance : tuple of "nodes", "edges", "train", "types"
        What `asepr` balances the parts of an edge-cut in: always nodes; in-edges, training nodes and the nodes of each
        type if named.
    weigh_edges : bool
        Edge-cut by `asepr` or `metis`: cut little weight of edges instead of few edges.
    memory_bytes : int
        Most bytes to hold beside interpreter and libraries; decides the form of the method.
    attr_weight : float or None, at least 0
        What it is worth, in copies, to keep to attribute clusters; 0: leave them out, None: by the lift.
    seed : int, at least 0
    capacities : tuple of float
        Relative sizes of the parts; empty: all equal.
    num_nodes : int or None
        Number of nodes where neither a node nor a feature file says so and the largest id does not.
    reduce_features : int or None
        Keep this many singular directions of the node features instead of all columns.
    aggregate : "mean", "sum", "gcn" or None
        What shards carry of each row's in-neighbours, so that a first layer needs none of them at hand.
    ids : "auto", "dense" or "map"
        Whether ids are nids, or are mapped to nids; "auto" looks.
    undirected : bool or None
        An input edge stands for both directions. This and the next four: None, as the graph description says, else as
        `EdgeRules` does without.
    add_reverse : bool or None
        Each edge gets a reverse, with a mark, and of a type of its own where edges have types.
    self_loops : "keep", "drop", "add" or None
    duplicates : "keep", "merge" or None
    edge_split : tuple of three fractions, str, or None
        Training, validation and test edges; the latter two are held out. A name: the column of edge files that says so,
        or an npz file of arrays `train`, `val` and `test` of input rows.
    split : tuple of three fractions, or None
        Draw training, validation and test nodes, the same shares of each label. None: as the graph description says,
        else as nodes have it.
    replace_split : bool
        Draw a split though nodes, or edges, have one.
    edge_columns, node_columns : EdgeColumns, NodeColumns
    chunk_edges : int
        Edges read at a time; no result depends on it.
    """

    num_parts: int
    method: str = "asepr"
    layout: Layout = "vertex-cut"
    halo_hops: int = 1
    imbalance: float = 0.05
    replica_imbalance: float = 0.10
    balance: tuple[BalanceName, ...] = USUAL_BALANCE
    weigh_edges: bool = False
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    attr_weight: float | None = None
    seed: int = 0
    capacities: tuple[float, ...] = ()
    num_nodes: int | None = None
    reduce_features: int | None = None
    aggregate: Aggregate | None = None
    ids: IdMode = "auto"
    undirected: bool | None = None
    add_reverse: bool | None = None
    self_loops: SelfLoops | None = None
    duplicates: Duplicates | None = None
    edge_split: tuple[float, ...] | str | None = None
    split: tuple[float, ...] | None = None
    replace_split: bool = False
    edge_columns: EdgeColumns = field(default_factory=EdgeColumns)
    node_columns: NodeColumns = field(default_factory=NodeColumns)
    chunk_edges: int = CHUNK_EDGES

    def __post_init__(self) -> None:
        """Check every range.

        Raises
        ------
        ConfigError
            A value is out of its range.
        """
        get_method(self.method)
        if self.layout not in LAYOUTS:
            raise ConfigError(f"layout must be one of {', '.join(LAYOUTS)}, got '{self.layout}'; choose one of these")
        if self.ids not in ID_MODES:
            raise ConfigError(f"ids must be one of {', '.join(ID_MODES)}, got '{self.ids}'; choose one of these")
        if not 1 <= self.num_parts <= MAX_PARTS:
            raise ConfigError(f"num_parts must be in [1, {MAX_PARTS}], got {self.num_parts}; ask for fewer or more")
        if self.halo_hops < 1 or (self.halo_hops > 1 and self.layout != "edge-cut"):
            raise ConfigError(
                f"halo_hops must be at least 1, and 1 unless the layout is edge-cut, got {self.halo_hops} and "
                f"{self.layout}; ask for --layout edge-cut"
            )
        if not 0 <= self.imbalance < 100:
            raise ConfigError(f"imbalance must be in [0, 100), got {self.imbalance}; 0.05 allows 5 % above the share")
        if not self.replica_imbalance >= 0:
            raise ConfigError(f"replica_imbalance must be at least 0, got {self.replica_imbalance}; 0.1 is usual")
        if self.attr_weight is not None and not 0 <= self.attr_weight < math.inf:
            raise ConfigError(f"attr_weight must be at least 0 and finite, got {self.attr_weight}; 0.25 is strong")
        if "nodes" not in self.balance or not set(self.balance) <= set(BALANCES):
            raise ConfigError(
                f"balance must name nodes and may name edges, train, types, got '{','.join(self.balance)}'; "
                "mend the list"
            )
        if self.weigh_edges and (self.layout != "edge-cut" or self.method not in WEIGHING_METHODS):
            raise ConfigError(
                f"weigh_edges must come with layout edge-cut and method {' or '.join(WEIGHING_METHODS)}, got "
                f"{self.layout} and {self.method}; copies of nodes weigh the same whatever their edges do"
            )
        if self.memory_bytes < 1:
            raise ConfigError(f"memory_bytes must be positive, got {self.memory_bytes}; give a size such as 4GB")
        if not 0 <= self.seed < 2**31:
            raise ConfigError(f"seed must be in [0, 2**31), got {self.seed}; choose a small whole number")
        if self.num_nodes is not None and self.num_nodes < 1:
            raise ConfigError(f"num_nodes must be at least 1, got {self.num_nodes}; leave it out to count")
        if self.reduce_features is not None and self.reduce_features < 1:
            raise ConfigError(f"reduce_features must be at least 1, got {self.reduce_features}; 128 is usual")
        if self.aggregate is not None and self.aggregate not in AGGREGATES:
            raise ConfigError(
                f"aggregate must be one of {', '.join(AGGREGATES)}, got '{self.aggregate}'; choose one of these"
            )
        choose_rules(self.edge_options(), {})
        if self.split is not None:
            check_fractions("split", self.split)
        if self.chunk_edges < 1:
            raise ConfigError(f"chunk_edges must be at least 1, got {self.chunk_edges}; leave it out")
        if self.capacities and (len(self.capacities) != self.num_parts or not min(self.capacities) > 0):
            raise ConfigError(
                f"capacities must be {self.num_parts} positive numbers, got {self.capacities}; give one a part"
            )

    def edge_options(self) -> dict[str, Any]:
        """Return what is asked of edges, None where nothing is said."""
        names = ("undirected", "add_reverse", "self_loops", "duplicates", "edge_split")
        asked = {name: getattr(self, name) for name in names}
        # What data say of the split leaves nothing to draw.
        return asked | ({"edge_split": ()} if isinstance(self.edge_split, str) else {})

    def shares(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return float64 (K,): the share of the graph each part is meant to hold."""
        sizes = np.array(self.capacities or [1.0] * self.num_parts, dtype=np.float64)
        shares: np.ndarray[tuple[int], np.dtype[np.float64]] = sizes / sizes.sum()
        return shares


class Progress(Protocol):
    """Whom a run tells how far it is."""

    def phase(self, name: str) -> None:
        """Say that a phase begins."""

    def advance(self, num_edges: int) -> None:
        """Say that some edges went through the phase."""


class _Silence:
    def phase(self, name: str) -> None:
        del name

    def advance(self, num_edges: int) -> None:
        del num_edges


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionResult:
    """What a run made, and what it took.

    Attributes
    ----------
    path : Path
        The dataset folder.
    manifest : Manifest
    quality : QualityReport
    seconds : float
    phase_seconds, phase_cpu_seconds : dict of str to float
        Time, and processor time of all threads, of each phase.
    ids : IdDecision
        Whether ids were mapped, and why.
    peak_rss_bytes : int
        Peak resident memory of the whole process so far, interpreter and libraries included.
    counts : Census
        Nodes, edges, types and feature columns, as read and as in shards.
    node_types, edge_types : dict of str to list of int, or None
        Inner nodes, and edges, of each type in each part.
    """

    path: Path
    manifest: Manifest
    quality: QualityReport
    seconds: float
    phase_seconds: dict[str, float]
    phase_cpu_seconds: dict[str, float]
    peak_rss_bytes: int
    counts: Census
    node_types: dict[str, list[int]] | None
    edge_types: dict[str, list[int]] | None
    ids: IdDecision = ALREADY_NIDS

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `asepr partition --json` prints."""
        manifest = self.manifest
        return {
            "path": str(self.path),
            "num_nodes": manifest.num_nodes,
            "num_edges": manifest.num_edges,
            "num_parts": manifest.num_parts,
            "leaking_edges": manifest.leaking_edges,
            "method": manifest.method,
            "layout": manifest.layout,
            "ids": self.ids.mode,
            "ids_reason": self.ids.reason,
            **manifest.quality,
            **{name: getattr(self.quality, name) for name in QUALITY_ON_TOP},
            "seconds": self.seconds,
            "phase_seconds": self.phase_seconds,
            "phase_cpu_seconds": self.phase_cpu_seconds,
            "peak_rss_bytes": self.peak_rss_bytes,
            "counts": self.counts,
            "node_types": self.node_types,
            "edge_types": self.edge_types,
        }


def partition(
    edges: Path | str | EdgeSource | WholeGraph,
    output: Path | str,
    config: PipelineConfig | None = None,
    *,
    nodes: Path | str | None = None,
    features: Path | str | None = None,
    edge_features: Path | str | None = None,
    given: GivenParts | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> PartitionResult:
    """Partition a graph and write one shard a part.

    Parameters
    ----------
    edges : path, EdgeSource or whole graph
        What `asepr.formats.tables.open_table` reads: a file, folder or glob of Parquet, Arrow IPC, text, numpy,
        Matrix Market or METIS, here or behind `s3://` or `gs://`; or a whole graph, as
        `asepr.formats.graph_sources.open_graph` reads it or `asepr.from_pyg` and its like give it; or edges in
        memory (`asepr.formats.edge_sources.ArrayEdgeSource`).
    output : path
        Folder to make; it must not exist or be empty. It appears whole or not at all.
    config : PipelineConfig, optional
        Or give its fields as keywords: `partition(edges, out, num_parts=4)`.
    nodes : path, optional
        A table with `id` and any of label, split, ntype and feature columns.
    features, edge_features : path, optional
        npy (rows, F) or scipy CSR npz; rows in nid order, and in input order of the edges.
    given : GivenParts, optional
        Take this partition, made elsewhere, in place of a method.
    progress : Progress, optional

    Returns
    -------
    PartitionResult

    Raises
    ------
    AseprError
        Something about the input, the options or the output; nothing is left behind.
    """
    if config is None:
        config = PipelineConfig(**options)
    elif options:
        config = replace(config, **options)
    target = Path(output)
    check_output(target)
    clock = _Clock(progress or _Silence())
    with output_folder(target) as folder, ScratchDir(folder / "scratch") as scratch:
        graph = _read(config, edges, _place(nodes), _path(features), _path(edge_features), scratch, clock)
        assignment = _assign(config, graph, given or get_method(config.method), scratch, clock)
        aggregates = _aggregate(config, graph, scratch, clock)
        entries = _write(folder, graph, assignment, aggregates, scratch, clock)
        clock.phase("measure")
        manifest = _manifest(config, graph, entries, assignment, config.method if given is None else GIVEN)
        quality = measure_quality(Shard(folder, rank, manifest) for rank in range(config.num_parts))
        counts = take_census(
            graph.counts,
            graph.table,
            graph.feature_columns,
            graph.num_edge_types,
            graph.edge_table.features,
            quality,
            Shard(folder, 0, manifest),
        )
        kept = {name: value for name, value in quality.to_dict().items() if name in QUALITY_IN_MANIFEST}
        leaking = 0
        if _has_given_split(graph):
            leaking = count_leaking([Shard(folder, r, manifest) for r in range(config.num_parts)], manifest.num_nodes)
        manifest = manifest.model_copy(update={"quality": kept, "leaking_edges": leaking})
        scratch.close()
        clock.stop()
        report = RunReport(
            seconds=clock.total(),
            phase_seconds=clock.seconds,
            phase_cpu_seconds=clock.cpu_seconds,
            peak_rss_bytes=peak_rss_bytes(),
            counts=counts,
            node_types=quality.node_types,
            edge_types=quality.edge_types,
        )
        write_run_report(folder, report)
        write_manifest(folder, manifest)
    return PartitionResult(path=target, manifest=manifest, quality=quality, ids=graph.ids, **report.model_dump())


def plan(
    edges: Path | str | EdgeSource | WholeGraph,
    config: PipelineConfig,
    *,
    nodes: Path | str | None = None,
    features: Path | str | None = None,
) -> Plan:
    """Say what `partition` would hold in memory and on disk, and which form it would take.

    Raises
    ------
    AseprError
        As `partition`; CapacityError where the budget cannot work.
    """
    with tempfile.TemporaryDirectory() as folder, ScratchDir(Path(folder) / "scratch") as scratch:
        return _make_plan(config, _open(config, edges, nodes, _path(features), scratch))


def inspect(path: Path | str) -> QualityReport:
    """Measure a dataset from its shards, all of which must be at hand.

    Raises
    ------
    ShardError
        The manifest or a shard is missing or damaged.
    """
    manifest = read_manifest(Path(path))
    return measure_quality(Shard(path, rank, manifest) for rank in range(manifest.num_parts))


def verify(path: Path | str) -> list[str]:
    """Return a line for each checksum or invariant that fails; an empty list means all hold.

    Raises
    ------
    ShardError
        There is no manifest, or it cannot be read.
    """
    faults = find_faults(Path(path))
    if faults:
        return faults
    measured, stated = inspect(path).to_dict(), read_manifest(Path(path)).quality
    return [
        f"{path}: manifest: {name} must be {measured[name]}, as counted from the shards, got {stated.get(name)}"
        for name in QUALITY_IN_MANIFEST
        if stated.get(name) != measured[name]
    ]


def lookup(path: Path | str, original: str, node_type: str | None = None) -> list[dict[str, Any]]:
    """Return where the nodes with an id of the input are: `id`, `type`, `nid`, `owner`, `parts`.

    Raises
    ------
    AseprError
        No node has the id; there is no such type; a file is missing or damaged.
    """
    found = find_node(Path(path), original, node_type)
    if not found:
        where = f" of type '{node_type}'" if node_type else ""
        raise ConfigError(f"{path}: --id must be the id of a node{where}, got '{original}'; check the id")
    return found


def peak_rss_bytes() -> int:
    """Return the peak resident memory of this process in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # `ru_maxrss` of a program begins at what the process that started it held.
        peak = next((line for line in status.read_text().splitlines() if line.startswith("VmHWM:")), None)
        if peak is not None:
            return int(peak.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@dataclass(frozen=True, kw_only=True, slots=True)
class _Graph:
    """The input, opened and looked at once."""

    source: EdgeSource
    degrees: Degrees
    table: NodeTable
    features: FeatureSource | None
    edge_table: EdgeTable
    ids: IdDecision = ALREADY_NIDS
    maps: tuple[IdMap, ...] = ()
    type_offsets: tuple[int, ...] = ()
    node_types: tuple[str, ...] = ()
    edge_types: tuple[tuple[str, str, str], ...] = ()
    rules: EdgeRules = field(default_factory=EdgeRules)
    counts: EdgeCounts = UNTOUCHED
    node_split: tuple[float, ...] | None = None
    num_edge_types: int = 0
    feature_columns: int = 0


class _Clock:
    """Times phases and passes them on to the progress display."""

    def __init__(self, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self.progress = progress
        self._name: str | None = None
        self._since = self._cpu_since = 0.0

    def phase(self, name: str) -> None:
        self.stop()
        self._name = name
        self.progress.phase(name)

    def stop(self) -> None:
        now, cpu_now = time.perf_counter(), time.process_time()
        if self._name is not None:
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._since
            self.cpu_seconds[self._name] = self.cpu_seconds.get(self._name, 0.0) + cpu_now - self._cpu_since
        self._name, self._since, self._cpu_since = None, now, cpu_now

    def total(self) -> float:
        return sum(self.seconds.values())


class _Observed:
    """An edge source that reports each chunk it hands out."""

    def __init__(self, source: EdgeSource, progress: Progress) -> None:
        self._source = source
        self._progress = progress
        self.num_nodes, self.num_edges = source.num_nodes, source.num_edges
        self.has_etype, self.has_weight = source.has_etype, source.has_weight

    def __iter__(self) -> Iterator[EdgeChunk]:
        for chunk in self._source:
            yield chunk
            self._progress.advance(len(chunk))


def _path(path: Path | str | None) -> Path | None:
    return None if path is None else Path(path)


def _place(location: Path | str | None) -> Path | str | None:
    """Return a path, or a URI as it is: `Path` would join the two slashes behind its scheme."""
    return location if location is None or is_remote(location) else Path(location)


def _read(
    config: PipelineConfig,
    edges: Path | str | EdgeSource | WholeGraph,
    nodes: Path | str | None,
    features: Path | None,
    edge_features: Path | None,
    scratch: ScratchDir,
    clock: _Clock,
) -> _Graph:
    clock.phase("read")
    graph = _open(config, edges, nodes, features, scratch)
    edge_table = graph.edge_table
    if edge_features is not None:
        own = _open_edge_features(edge_features, graph.counts.edges_in)
        rows = edge_table.input_row
        edge_table = replace(edge_table, features=own if rows is None else FollowedFeatures(own, rows))
    if config.aggregate is not None and graph.table.features is None:
        raise ConfigError(f"aggregate must come with node features, got '{config.aggregate}' and none; give --features")
    if config.weigh_edges and not graph.source.has_weight:
        raise ConfigError("weigh_edges must come with weights of edges, got none; name their column with --weight")
    if config.num_parts > graph.table.num_nodes:
        raise CapacityError(
            f"num_parts must be at most {graph.table.num_nodes}, the nodes, got {config.num_parts}; ask for fewer parts"
        )
    _check_disk(_make_plan(config, graph), scratch.path)
    source = _Observed(graph.source, clock.progress)
    tally = TypeTally(source)
    return replace(
        graph,
        source=source,
        degrees=count_degrees(tally),
        feature_columns=sum(f.width for f in (graph.table.features, *graph.table.features_by_type) if f is not None),
        num_edge_types=len(tally.types) or min(len(graph.edge_types), source.num_edges),
        features=_reduced(config, graph.table.features, scratch),
        table=replace(
            graph.table,
            features_by_type=tuple(_reduced(config, own, scratch) for own in graph.table.features_by_type),
        ),
        edge_table=edge_table,
    )


def _open(
    config: PipelineConfig,
    edges: Path | str | EdgeSource | WholeGraph,
    nodes: Path | str | None,
    features: Path | None,
    scratch: ScratchDir,
) -> _Graph:
    graph = _open_input(config, edges, nodes, features, scratch)
    table, edge_table = graph.table, graph.edge_table
    _check_labels(table)
    if isinstance(config.edge_split, str) and config.edge_split.endswith(EDGE_SPLIT_SUFFIX):
        split = read_edge_split(Path(config.edge_split), graph.source.num_edges)
        edge_table = replace(edge_table, split=split)
    if edge_table.split is not None and graph.rules.edge_split:
        if not config.replace_split:
            raise ConfigError(
                "edge_split: edges must have no split where one is drawn, got a column; leave the fractions out to "
                "keep it, or say --replace-split"
            )
        edge_table = replace(edge_table, split=None)
    if graph.node_split:
        table = replace(table, split=_drawn_split(config, table, graph.node_split))
    ruled = apply_rules(
        graph.source,
        edge_table,
        graph.rules,
        scratch,
        node_types=graph.node_types,
        type_offsets=graph.type_offsets,
        edge_types=graph.edge_types,
        seed=config.seed,
        memory_bytes=config.memory_bytes,
        chunk_edges=config.chunk_edges,
    )
    return replace(
        graph,
        source=ruled.source,
        table=table,
        edge_table=ruled.edge_table,
        edge_types=ruled.edge_types,
        counts=ruled.counts,
    )


def _check_labels(table: NodeTable) -> None:
    """Check that there are not more classes than nodes or `MOST_CLASSES`: counts are kept for each."""
    limit = max(table.num_nodes, MOST_CLASSES)
    if table.label is not None and table.label.max(initial=-1) >= limit:
        nid = int(np.argmax(table.label))
        raise NodeSourceError(
            f"nodes: label of node {nid} must be below {limit}, got {table.label[nid]}; number the classes from 0"
        )


def _drawn_split(config: PipelineConfig, table: NodeTable, fractions: tuple[float, ...]) -> ByteArray:
    check_fractions("split", fractions)
    if table.split is not None and table.split.any() and not config.replace_split:
        raise ConfigError(
            f"split: nodes must have none where one is drawn, got one of {np.count_nonzero(table.split)} nodes; "
            "leave the fractions out to keep it, or say --replace-split"
        )
    return draw_split(table.num_nodes, table.label, fractions, config.seed)


def _open_input(
    config: PipelineConfig,
    edges: Path | str | EdgeSource | WholeGraph,
    nodes: Path | str | None,
    features: Path | None,
    scratch: ScratchDir,
) -> _Graph:
    rules = choose_rules(config.edge_options(), {})
    ids, files, edge_table = ALREADY_NIDS, None, EdgeTable()
    whole, column = edges, _split_column(config)
    if isinstance(edges, Path | str):
        whole = open_graph(edges, config.node_columns, config.edge_columns.weight) or edges
    if column is not None and not isinstance(edges if whole is edges else whole, Path | str | GraphFiles):
        raise ConfigError(
            f"edge_split must be shares or an npz file where edges have no named columns, got '{column}'; give either"
        )
    if isinstance(whole, GraphFiles) and column is not None:
        whole = replace(whole, edges=tuple(replace(table, split=column) for table in whole.edges))
    if isinstance(whole, GraphFiles | NumberedGraph):
        return _whole(config, whole, nodes, features, scratch)
    if isinstance(edges, Path | str):
        files = _files(config, edges, nodes, features)
        ids = _decide(config, files)
        if ids.mode == "map":
            return _map(config, files, ids, scratch)
    table = open_node_table(nodes, features, config.node_columns, config.num_nodes, scratch)
    source = _open_edges(config, whole, table)
    table = table or NodeTable(num_nodes=source.num_nodes)
    if files is not None:
        edge_table = EdgeTable(split=read_splits(files, [0, source.num_edges], scratch))
    if source.num_nodes != table.num_nodes:
        raise EdgeSourceError(f"edges: num_nodes must be {table.num_nodes} as in the node file, got {source.num_nodes}")
    return _Graph(
        source=source,
        degrees=NO_DEGREES,
        table=table,
        features=None,
        edge_table=edge_table,
        ids=ids,
        rules=rules,
        node_split=config.split,
    )


def _split_column(config: PipelineConfig) -> str | None:
    """Return the column of edge tables that says which edges are held out, where one is asked for."""
    named = config.edge_split
    return named if isinstance(named, str) and not named.endswith(EDGE_SPLIT_SUFFIX) else None


def _whole(
    config: PipelineConfig, graph: WholeGraph, nodes: Path | str | None, features: Path | None, scratch: ScratchDir
) -> _Graph:
    """Open a graph that needs no other files."""
    unwanted = ("dense", "--ids dense") if isinstance(graph, GraphFiles) else ("map", "--ids map")
    if nodes is not None or features is not None or config.num_nodes is not None or config.ids == unwanted[0]:
        raise ConfigError(
            f"{graph.where}: a whole graph must stand alone, got --nodes, --features, --num-nodes or {unwanted[1]} "
            "beside it; leave these out"
        )
    if isinstance(graph, GraphFiles):
        return _map(config, graph, IdDecision(mode="map", reason=graph.why_mapped), scratch)
    ids = IdDecision(mode="dense", reason="the graph numbers its nodes")
    return _from_stored(config, graph, ids, store_graph(graph, scratch, config.chunk_edges))


def _from_stored(config: PipelineConfig, graph: WholeGraph, ids: IdDecision, stored: StoredGraph) -> _Graph:
    own_rules = graph.rules if isinstance(graph, GraphFiles) else {}
    return _Graph(
        source=stored.source,
        degrees=NO_DEGREES,
        table=stored.table,
        features=None,
        edge_table=stored.edge_table,
        ids=ids,
        maps=stored.maps,
        type_offsets=stored.offsets,
        node_types=graph.node_types,
        edge_types=graph.edge_types,
        rules=choose_rules(config.edge_options(), own_rules),
        node_split=config.split or own_rules.get("split"),
    )


def _files(config: PipelineConfig, edges: Path | str, nodes: Path | str | None, features: Path | None) -> GraphFiles:
    """Return the one-typed graph that the options describe."""
    table = open_table(edges)
    src, dst = find_ends(table, config.edge_columns)
    tables = () if nodes is None else (open_table(nodes),)
    if tables and config.node_columns.id not in tables[0].names:
        raise NodeSourceError(
            f"{nodes}: must have a column '{config.node_columns.id}', got {', '.join(tables[0].names)}; "
            "name it with --id"
        )
    return GraphFiles(
        nodes=(NodeFiles(tables=tables, columns=config.node_columns, features=features),),
        edges=(
            EdgeFiles(table=table, columns=replace(config.edge_columns, src=src, dst=dst), split=_split_column(config)),
        ),
    )


def _decide(config: PipelineConfig, files: GraphFiles) -> IdDecision:
    stated = None
    if config.num_nodes is not None:
        stated = "--num-nodes"
    elif files.nodes[0].features is not None:
        stated = "the feature file"
    elif files.edges[0].table.num_nodes is not None:
        stated = "the edge file"
    return decide_ids(config.ids, files.node_keys(), [e.keys() for e in files.edges], rows_are_nids=stated)


def _map(config: PipelineConfig, files: GraphFiles, ids: IdDecision, scratch: ScratchDir) -> _Graph:
    if config.num_nodes is not None:
        raise ConfigError(
            f"--num-nodes must not come with ids that are mapped ({ids.reason}), got {config.num_nodes}; leave it out, "
            "or give --ids dense"
        )
    if not files.node_types and files.nodes[0].features is not None and not files.nodes[0].tables:
        raise ConfigError(
            f"--features: rows must belong to rows of a node file where ids are mapped ({ids.reason}), got no node "
            "file; give --nodes, or --ids dense"
        )
    folder = scratch.path / "ids"
    mapped = map_graph(
        files,
        scratch,
        folder,
        scratch.path.parent / MAP_FOLDER,
        memory_bytes=config.memory_bytes,
        chunk_edges=config.chunk_edges,
        allow_negative=config.ids == "map",
    )
    shutil.rmtree(folder)
    return _from_stored(config, files, ids, mapped)


def _open_edges(config: PipelineConfig, edges: Path | str | EdgeSource, table: NodeTable | None) -> EdgeSource:
    if not isinstance(edges, Path | str):
        return edges
    num_nodes = None if table is None else table.num_nodes
    return open_edge_source(edges, config.edge_columns, num_nodes, config.chunk_edges)


def _make_plan(config: PipelineConfig, graph: _Graph) -> Plan:
    source, features = graph.source, graph.table.features
    rewritten = disk_bytes(
        source.num_nodes,
        graph.counts.edges_in,
        graph.rules,
        has_etype=source.has_etype,
        has_weight=source.has_weight,
        is_split=graph.edge_table.held_out is not None,
    )
    width = 0 if config.aggregate is None or features is None else config.reduce_features or features.width
    return make_plan(
        source.num_nodes,
        source.num_edges,
        config.num_parts,
        config.method,
        config.layout,
        config.memory_bytes,
        halo_hops=config.halo_hops,
        more_disk={"edges that rules made": rewritten, "aggregates of neighbours": 8 * width * source.num_nodes},
    )


def _check_disk(planned: Plan, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if planned.disk_bytes > free:
        raise OutputError(
            f"{folder.parent.parent}: must have {planned.disk_bytes / 1e6:.0f} MB free for temporary files, got "
            f"{free / 1e6:.0f} MB; free space or choose another --out"
        )


def _reduced(config: PipelineConfig, features: FeatureSource | None, scratch: ScratchDir) -> FeatureSource | None:
    width = config.reduce_features
    if features is None or width is None or width >= features.width:
        return features
    return ReducedFeatures(features, width, config.seed, scratch)


def _open_edge_features(path: Path, num_edges: int) -> FeatureSource:
    features = open_features(path)
    if features.num_rows != num_edges:
        raise NodeSourceError(f"{path}: rows must be one an edge, {num_edges}, got {features.num_rows}; write it again")
    return features


def _assign(
    config: PipelineConfig, graph: _Graph, partitioner: Partitioner, scratch: ScratchDir, clock: _Clock
) -> Assignment:
    cluster = None
    if config.method == "asepr" and graph.features is not None and config.num_parts > 1:
        clock.phase("cluster attributes")
        cluster = cluster_attributes(graph.features, CLUSTERS_PER_PART * config.num_parts, config.seed, scratch)
    clock.phase("assign")
    split = graph.table.split
    problem = PartitionProblem(
        source=graph.source,
        degrees=graph.degrees,
        num_parts=config.num_parts,
        layout=config.layout,
        capacities=config.shares(),
        imbalance=config.imbalance,
        replica_imbalance=config.replica_imbalance,
        balance=config.balance,
        memory_bytes=config.memory_bytes,
        seed=config.seed,
        scratch=scratch,
        attribute_cluster=cluster,
        attr_weight=config.attr_weight,
        train=None if split is None else split == SPLIT_CODES["train"],
        ntype=graph.table.ntype,
        weigh_edges=config.weigh_edges,
    )
    return widen_halos(partitioner.assign(problem), graph.source, config.halo_hops)


def _aggregate(config: PipelineConfig, graph: _Graph, scratch: ScratchDir, clock: _Clock) -> FeatureSource | None:
    if config.aggregate is None or graph.features is None:
        return None
    clock.phase("aggregate neighbours")
    return NeighbourAggregates(config.aggregate, graph.features, graph.source, graph.degrees, scratch)


def _write(
    folder: Path,
    graph: _Graph,
    assignment: Assignment,
    aggregates: FeatureSource | None,
    scratch: ScratchDir,
    clock: _Clock,
) -> Sequence[PartEntry]:
    clock.phase("write shards")
    edges = bucket_edges(graph.source, assignment, scratch)
    halo = HaloIndex(assignment, scratch)
    held_out = bucket_held_out(graph.edge_table.held_out, assignment, scratch)
    outer = bucket_outer_edges(graph.source, assignment, scratch)
    writer = ShardWriter(
        folder,
        graph.degrees,
        graph.table,
        graph.features,
        graph.edge_table,
        graph.type_offsets,
        aggregates,
        graph.source.num_edges,
    )
    entries = []
    for rank in range(assignment.num_parts):
        nodes = halo.nodes(rank)
        held, beyond = (None if rows is None else rows.read(rank) for rows in (held_out, outer))
        entries.append(writer.write_part(nodes, halo.plan(rank, nodes), edges.read(rank), held, beyond))
    return write_part_ids(folder, entries, graph.maps, assignment.owner)


def _manifest(
    config: PipelineConfig, graph: _Graph, entries: Sequence[PartEntry], assignment: Assignment, method: str
) -> Manifest:
    return Manifest(
        num_nodes=graph.source.num_nodes,
        num_edges=graph.source.num_edges,
        num_parts=config.num_parts,
        layout=assignment.layout,
        halo_hops=config.halo_hops,
        method=method,
        num_classes=graph.table.num_classes,
        feature_width=0 if graph.features is None else graph.features.width,
        edge_feature_width=0 if graph.edge_table.features is None else graph.edge_table.features.width,
        aggregate=config.aggregate,
        split_sizes=_split_sizes(graph.table),
        config={
            "imbalance": config.imbalance,
            # JSON has no infinity; null says that copies were not balanced.
            "replica_imbalance": config.replica_imbalance if math.isfinite(config.replica_imbalance) else None,
            "balance": list(config.balance),
            "memory_bytes": config.memory_bytes,
            "attr_weight": config.attr_weight,
            "seed": config.seed,
            "capacities": list(config.capacities),
            "reduce_features": config.reduce_features,
            "ids": graph.ids.mode,
            "ids_reason": graph.ids.reason,
            **({"weigh_edges": True} if config.weigh_edges else {}),
            **_rules_of(graph.rules),
            **({"split": graph.node_split} if graph.node_split else {}),
            **({"edge_split": "of the data"} if _has_given_split(graph) else {}),
        },
        quality={},
        parts=list(entries),
        node_types=list(graph.node_types),
        edge_types=list(graph.edge_types),
        node_type_offsets=list(graph.type_offsets),
        node_feature_widths=[0 if f is None else f.width for f in graph.table.features_by_type],
        id_maps=[id_map_entry(kept.path) for kept in graph.maps],
        held_out_sizes={}
        if not graph.rules.edge_split and graph.edge_table.held_out is None
        else {"valid": graph.counts.held_out_valid, "test": graph.counts.held_out_test},
    )


def _has_given_split(graph: _Graph) -> bool:
    return graph.edge_table.held_out is not None and not graph.rules.edge_split


def _rules_of(rules: EdgeRules) -> dict[str, Any]:
    """Return the rules that ask for something."""
    return {name: value for name, value in asdict(rules).items() if value != getattr(EdgeRules(), name)}


def _split_sizes(table: NodeTable) -> dict[Literal["train", "val", "test"], int]:
    """Count the nodes of each split that can be trained or tested on: those with a label, if there are labels."""
    if table.split is None:
        return {"train": 0, "val": 0, "test": 0}
    labelled = table.is_labelled
    usable = table.split if labelled is None else table.split[labelled]
    sizes = np.bincount(usable, minlength=len(SPLIT_CODES))
    return {"train": int(sizes[1]), "val": int(sizes[2]), "test": int(sizes[3])}
