"""What a run will hold in memory and on disk, and which form of a method that allows."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from asepr.contracts import Layout, PartitionProblem
from asepr.errors import CapacityError
from asepr.partition.owned_edges import BUCKET_DEGREE

CHUNK_BYTES = 128_000_000
"""Chunks being read, bucketed and written, one bucket of owners, and what the readers keep."""

LIBRARY_BYTES = 340_000_000
"""Interpreter, libraries and compiled kernels, as a run on three edges measures; not part of any budget."""

EDGE_BYTES = 64
"""In-memory form of `asepr`, an edge: adjacency and coarser levels at the peak; 44 and 59 were measured."""

METIS_EDGE_BYTES = 240
"""METIS on a whole graph, an edge: 3 to 4 GB were measured on 14 and 16 million."""

LABEL_BYTES = 9
LOCAL_NODE_BYTES = 64
PRIOR_BYTES = 8
"""Where attributes tell of edges, a cluster and a home of each node."""

REFINED_EDGE_BYTES = 80
"""An edge of the bucket at hand, in the streaming form: its nodes, and how many edges of them each part holds."""

CHUNK_EDGES = 1 << 18
PART_BLOCK_BYTES = 40_000_000
"""The part of each edge, as far as it is in memory: a block, and its entries not yet in order."""


class Form(enum.Enum):
    """How a method works: edges on disk and O(N) in memory, or edges in memory too."""

    STREAMING = "streaming"
    IN_MEMORY = "in-memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a run is going to hold.

    Attributes
    ----------
    num_nodes, num_edges : int
    form : Form
    memory : dict of str to int
        Bytes of what is held at the same time at the peak, by what it is; interpreter and libraries,
        about `LIBRARY_BYTES`, are not in it.
    disk : dict of str to int
        Bytes of temporary files.
    """

    num_nodes: int
    num_edges: int
    form: Form
    memory: dict[str, int]
    disk: dict[str, int]

    @property
    def memory_bytes(self) -> int:
        """Bytes held in all."""
        return sum(self.memory.values())

    @property
    def disk_bytes(self) -> int:
        """Bytes of temporary disk in all."""
        return sum(self.disk.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `asepr partition --dry-run --json` prints."""
        return {
            "num_nodes": self.num_nodes,
            "num_edges": self.num_edges,
            "form": self.form.value,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
            "library_bytes": LIBRARY_BYTES,
            "memory": self.memory,
            "disk": self.disk,
        }


def make_plan(
    num_nodes: int,
    num_edges: int,
    num_parts: int,
    method: str,
    layout: Layout,
    memory_bytes: int,
    halo_hops: int = 1,
    more_disk: Mapping[str, int] = MappingProxyType({}),
) -> Plan:
    """Choose the form that the budget allows, and say what it holds.

    Parameters
    ----------
    num_nodes, num_edges, num_parts : int
    method : str
    layout : Layout
    memory_bytes : int
        Most bytes to hold beside interpreter and libraries.
    halo_hops : int
        Of the halos of an edge-cut. How many edges deeper ones repeat is known only when they are found, so their
        temporary files and the part being written are not stated.
    more_disk : mapping of str to int
        Bytes of temporary files beside those of the method, by what they are; what takes none is left out.

    Returns
    -------
    Plan

    Raises
    ------
    CapacityError
        Not even the leanest form fits; the message says what would.
    """
    for form in _forms(method, layout):
        plan = Plan(
            num_nodes=num_nodes,
            num_edges=num_edges,
            form=form,
            memory=_memory(num_nodes, num_edges, num_parts, method, form, halo_hops),
            disk=_disk(num_nodes, num_edges, method, form) | {name: size for name, size in more_disk.items() if size},
        )
        if plan.memory_bytes <= memory_bytes:
            return plan
    raise CapacityError(
        f"memory must be at least {_megabytes(plan.memory_bytes)} MB for {num_nodes} nodes, {num_edges} edges and "
        f"{num_parts} parts by {method} ({layout}), got {_megabytes(memory_bytes)} MB; raise --memory or ask for "
        "fewer parts"
    )


def choose_form(problem: PartitionProblem) -> Form:
    """Return the form that the problem's budget allows the method `asepr` on a vertex-cut."""
    source = problem.source
    return make_plan(
        source.num_nodes, source.num_edges, problem.num_parts, "asepr", "vertex-cut", problem.memory_bytes
    ).form


def _forms(method: str, layout: Layout) -> tuple[Form, ...]:
    if method == "metis" or (method == "asepr" and layout == "edge-cut"):
        return (Form.IN_MEMORY,)
    if method == "asepr":
        return (Form.IN_MEMORY, Form.STREAMING)
    return (Form.STREAMING,)


def _memory(
    num_nodes: int, num_edges: int, num_parts: int, method: str, form: Form, halo_hops: int = 1
) -> dict[str, int]:
    """Return what is held in the phase that holds most."""
    copies = 8 * ((num_parts + 63) // 64) * num_nodes * (1 if halo_hops == 1 else 2)
    degrees = (8 if num_edges < 2**31 else 16) * num_nodes
    ranks, part = _id_bytes(num_nodes) * num_nodes, _part_bytes(num_nodes, num_edges, num_parts)
    held = {
        "degrees": degrees,
        "labels and splits, where there are any": LABEL_BYTES * num_nodes,
        "chunks and buckets": CHUNK_BYTES + _index_bytes(num_edges, num_parts, method),
    }
    if form is Form.IN_MEMORY:
        held["edges"] = (METIS_EDGE_BYTES if method == "metis" else EDGE_BYTES) * num_edges
        held["part of each edge, a mapped file"] = 2 * num_edges
    else:
        held["part of each edge, a block of a file"] = min(2 * num_edges, PART_BLOCK_BYTES)
    phases: list[dict[str, int]] = [
        {"copies of nodes": copies, "owners and their order": 8 * num_nodes + ranks},
        {"copies of nodes": copies, "owners and rows": 4 * num_nodes + ranks, "the part being written": part},
    ]
    if method == "asepr":
        phases.append({"ranks and bounds": 4 * num_nodes + 3 * ranks})
        placing = {"copies of nodes": copies, "state of placing": (8 + PRIOR_BYTES) * num_nodes}
        if form is Form.STREAMING:
            placing["state of placing"] += 4 * num_nodes
            # A graph of few edges, all in one bucket, fits into what its few chunks leave of their share.
            placing["a bucket being refined"] = REFINED_EDGE_BYTES * min(num_edges, BUCKET_DEGREE) // 2
        phases.append(placing)
    if method == "hdrf":
        phases.append({"copies of nodes": copies, "degrees so far": 8 * num_nodes})
    return held | max(phases, key=lambda phase: sum(phase.values()))


def _id_bytes(count: int) -> int:
    return 4 if count < 2**31 else 8


def _part_bytes(num_nodes: int, num_edges: int, num_parts: int) -> int:
    """Return what writing one part holds: its edges twice, and local nodes, taken to be few of all."""
    edges = 2 * (8 + 2 * _id_bytes(num_nodes)) * num_edges // num_parts
    return edges + LOCAL_NODE_BYTES * min(num_nodes, 4 * num_nodes // num_parts)


def _index_bytes(num_edges: int, num_parts: int, method: str) -> int:
    """Return the offsets of every bucket in every chunk."""
    buckets = num_parts + (2 * num_edges // BUCKET_DEGREE if method == "asepr" else 0)
    return 8 * buckets * (num_edges // CHUNK_EDGES + 1)


def _disk(num_nodes: int, num_edges: int, method: str, form: Form) -> dict[str, int]:
    id_bytes = _id_bytes(num_nodes)
    held = {"part of each edge": 2 * num_edges, "edges of each part": (8 + 2 * id_bytes) * num_edges}
    if method == "asepr":
        held["edges of each owner"] = (_id_bytes(num_edges) + 2 * id_bytes) * num_edges
        held["part of each edge, not yet in order"] = 6 * num_edges
    if form is Form.IN_MEMORY:
        held["candidates and their input rows"] = 36 * num_edges
    return held


def _megabytes(num_bytes: int) -> int:
    return -(-num_bytes // 1_000_000)
