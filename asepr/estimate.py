"""How long a run will take, from a run on a small sample of its own input."""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from asepr.contracts import EdgeSource, IdArray
from asepr.errors import CapacityError
from asepr.formats.edge_readers import find_ends
from asepr.formats.edge_sources import ArrayEdgeSource
from asepr.formats.graph_sources import open_graph
from asepr.formats.tables import Table, open_table
from asepr.partition.plan import Form, Plan, make_plan
from asepr.pipeline import PipelineConfig, partition

SAMPLE_EDGES = 1 << 18


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeEstimate:
    """A rough figure: tables that outgrow the caches, and structure that a sample lacks, are not in it.

    Attributes
    ----------
    seconds : float
        Of the whole run, features left out.
    sample_edges : int
        Edges of the run it was scaled from.
    """

    seconds: float
    sample_edges: int

    def to_dict(self) -> dict[str, Any]:
        """Return what `--dry-run --json` prints."""
        return {"estimated_seconds": self.seconds, "estimated_from_edges": self.sample_edges}


def estimate_time(edges: Path | str, config: PipelineConfig, planned: Plan) -> TimeEstimate:
    """Partition the first edges, and scale what that took to all of them.

    Ids of the sample are numbered, and folded into as many as keep the mean degree, and at least `num_parts`. The
    sample takes the form that the run will take. Reading is timed on the file itself, and counted as
    often as the run reads it.

    Parameters
    ----------
    edges : path
    config : PipelineConfig
    planned : Plan
        What `pipeline.plan` says of the whole run.

    Returns
    -------
    TimeEstimate
    """
    if not planned.num_edges:
        return TimeEstimate(seconds=0.0, sample_edges=0)
    read = _read_sample(edges, config)
    sample = _fold(read, planned, config.num_parts)
    # What rules make of edges is in the plan already, and a sample may be too small to split; it has no features.
    unruled: dict[str, Any] = dict.fromkeys((*config.edge_options(), "split", "aggregate", "reduce_features"))
    config = replace(config, num_nodes=None, memory_bytes=_memory_for(planned.form, sample, config), **unruled)
    reads = _Reads()
    with tempfile.TemporaryDirectory() as folder:
        # The first run loads kernels, or compiles them.
        partition(sample, Path(folder) / "warm", config)
        result = partition(sample, Path(folder) / "timed", config, progress=reads)
    passes = reads.num_edges / sample.num_edges
    seconds_per_edge = result.seconds / sample.num_edges + passes * read.seconds_per_edge
    return TimeEstimate(seconds=planned.num_edges * seconds_per_edge, sample_edges=sample.num_edges)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """The first edges of a file, and what reading takes."""

    src: IdArray
    dst: IdArray
    seconds_per_edge: float


class _Reads:
    """Counts the edges that a run reads."""

    def __init__(self) -> None:
        self.num_edges = 0

    def phase(self, name: str) -> None:
        del name

    def advance(self, num_edges: int) -> None:
        self.num_edges += num_edges


def _read_sample(edges: Path | str, config: PipelineConfig) -> _Read:
    since = time.perf_counter()
    table, ends = _edge_table(edges, config)
    batches: list[pa.RecordBatch] = []
    num_read = 0
    for batch in table.batches(ends, SAMPLE_EDGES):
        batches.append(batch)
        num_read += batch.num_rows
        if num_read >= SAMPLE_EDGES:
            break
    seconds = time.perf_counter() - since
    rows = pa.Table.from_batches(batches).slice(0, SAMPLE_EDGES)
    # Ids of any kind, numbered as they appear: what they are is of no matter to time.
    columns = [rows.column(name) for name in ends]
    if columns[0].type != columns[1].type:
        columns = [column.cast(pa.string()) for column in columns]
    both = pa.chunked_array([*columns[0].chunks, *columns[1].chunks])
    number: IdArray = both.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    src, dst = np.split(number, 2)
    return _Read(src=src, dst=dst, seconds_per_edge=seconds / num_read)


def _edge_table(edges: Path | str, config: PipelineConfig) -> tuple[Table, tuple[str, str]]:
    """Return the edges, or the first table of them, and the columns of both ends."""
    graph = open_graph(edges, config.node_columns, config.edge_columns.weight)
    if graph is not None:
        return graph.edges[0].tables[0], graph.edges[0].ends
    table = open_table(edges)
    return table, find_ends(table, config.edge_columns)


def _fold(read: _Read, planned: Plan, num_parts: int) -> ArrayEdgeSource:
    num_nodes = max(num_parts, planned.num_nodes * len(read.src) // planned.num_edges, 1)
    return ArrayEdgeSource(read.src % num_nodes, read.dst % num_nodes, num_nodes)


def _memory_for(form: Form, sample: EdgeSource, config: PipelineConfig) -> int:
    """Return a budget with which the sample takes the form, or one without limit."""
    budget = unlimited = 1 << 60
    while True:
        try:
            plan = make_plan(sample.num_nodes, sample.num_edges, config.num_parts, config.method, config.layout, budget)
        except CapacityError:
            return unlimited
        if plan.form is form:
            return budget
        budget = plan.memory_bytes - 1
