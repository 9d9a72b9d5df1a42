"""What a run will hold in memory and on disk, and which form of a method that allows."""

import enum
from dataclasses import dataclass
from typing import Any

from asepr.contracts import Layout, PartitionProblem
from asepr.errors import CapacityError

CHUNK_BYTES = 128_000_000
"""Chunks being read, bucketed and written, one bucket of owners, and what the readers keep."""

LIBRARY_BYTES = 340_000_000
"""Interpreter, libraries and compiled kernels, as a run on three edges measures; not part of any budget."""

EDGE_BYTES = 64
"""In-memory form of `asepr`, an edge: adjacency and coarser levels at the peak; 44 and 59 were measured."""

METIS_EDGE_BYTES = 240
"""METIS on a whole graph, an edge: 3 to 4 GB were measured on 14 and 16 million."""


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


def make_plan(num_nodes: int, num_edges: int, num_parts: int, method: str, layout: Layout, memory_bytes: int) -> Plan:
    """Choose the form that the budget allows, and say what it holds.

    Parameters
    ----------
    num_nodes, num_edges, num_parts : int
    method : str
    layout : Layout
    memory_bytes : int
        Most bytes to hold beside interpreter and libraries.

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
            memory=_memory(num_nodes, num_edges, num_parts, method, form),
            disk=_disk(num_nodes, num_edges, method, form),
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


def _memory(num_nodes: int, num_edges: int, num_parts: int, method: str, form: Form) -> dict[str, int]:
    words = (num_parts + 63) // 64
    held = {
        "degrees, labels, owners": 32 * num_nodes,
        "copies of nodes": 8 * words * num_nodes,
        "part of each edge, a mapped file": 2 * num_edges,
        "chunks and buckets": CHUNK_BYTES,
    }
    if method in ("asepr", "hdrf"):
        held["state of placing"] = (26 if method == "asepr" else 8) * num_nodes + 8 * words * num_nodes
    if form is Form.IN_MEMORY:
        held["edges"] = (METIS_EDGE_BYTES if method == "metis" else EDGE_BYTES) * num_edges
    return held


def _disk(num_nodes: int, num_edges: int, method: str, form: Form) -> dict[str, int]:
    id_bytes = 4 if num_nodes < 2**31 else 8
    held = {"part of each edge": 2 * num_edges, "edges of each part": (8 + 2 * id_bytes) * num_edges}
    if method == "asepr":
        held["edges of each owner"] = (8 + 2 * id_bytes) * num_edges
    if form is Form.IN_MEMORY:
        held["candidates and their input rows"] = 36 * num_edges
    return held


def _megabytes(num_bytes: int) -> int:
    return -(-num_bytes // 1_000_000)
