"""The targets by name, and one function that exports to any of them."""

import importlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, cast

from asepr.errors import ConfigError, ShardError
from asepr.exporters.export_graph import ExportGraph
from asepr.formats.output import check_output, output_folder
from asepr.stream.scratch import ScratchDir

TARGETS: dict[str, str] = {
    "dgl-chunked": "asepr.exporters.dgl_chunked",
    "distdgl": "asepr.exporters.distdgl",
    "metis": "asepr.exporters.metis",
    "parquet": "asepr.exporters.parquet",
    "pyg": "asepr.exporters.pyg",
}
"""Where each target's exporter is; imported when asked for, since some need torch or DGL."""

NOT_TARGETS: dict[str, str] = {
    "graphar": "the Python reader of graphar 0.13.0.dev1 returns neither features nor weights, "
    "so no export to it can be checked, and parquet holds the same columns",
}
"""Formats that people may look for, and why there is no exporter to them."""


class Exporter(Protocol):
    """What the module of a target has."""

    NEEDS_IN_EDGES: bool
    """Whether each part must hold all in-edges of its nodes."""

    def write(self, graph: ExportGraph, folder: Path) -> dict[str, Any]:
        """Write the export into an empty folder, and return figures about it."""

    def find_faults(self, graph: ExportGraph, folder: Path) -> Iterator[str]:
        """Read an export as its users would, and yield a line for each difference from the shards."""


def get_exporter(target: str) -> Exporter:
    """Return the exporter of a target.

    Raises
    ------
    ConfigError
        There is no such target, or a library that it needs is missing.
    """
    if target in NOT_TARGETS:
        raise ConfigError(f"target {target} is left out: {NOT_TARGETS[target]}; choose one of {', '.join(TARGETS)}")
    if target not in TARGETS:
        raise ConfigError(f"target must be one of {', '.join(TARGETS)}, got '{target}'; choose one of these")
    try:
        return cast(Exporter, importlib.import_module(TARGETS[target]))
    except ImportError as error:
        raise ConfigError(
            f"target {target}: its library must be importable, got: {error}; pip install 'asepr[train]'"
        ) from error


def _say_nothing(phase: str) -> None:
    del phase


def export(
    dataset: Path | str,
    dest: Path | str,
    target: str,
    *,
    ignore_types: bool = False,
    on_phase: Callable[[str], None] = _say_nothing,
) -> dict[str, Any]:
    """Write a dataset in the format of another tool, and check what was written by reading it.

    Parameters
    ----------
    dataset : path
        A dataset folder with all its shards.
    dest : path
        Folder to make; it appears whole and checked, or not at all.
    target : str
        A name in `TARGETS`.
    ignore_types : bool
        Export one type of nodes and one of edges, whatever the shards hold.
    on_phase : function of a name
        Told when a phase begins.

    Returns
    -------
    dict
        What was written, and what it cost to move edges to the owners of their destinations.

    Raises
    ------
    AseprError
        Something about dataset, target or output; or the export read back differs from the shards.
    """
    exporter, dataset, dest = get_exporter(target), Path(dataset), Path(dest)
    check_output(dest)
    with output_folder(dest) as folder, ScratchDir(folder / "scratch") as scratch:
        on_phase("open")
        graph = ExportGraph(dataset, scratch, in_edges=exporter.NEEDS_IN_EDGES, ignore_types=ignore_types)
        on_phase("write")
        figures = exporter.write(graph, folder)
        on_phase("check")
        faults = list(exporter.find_faults(graph, folder))
        if faults:
            raise ShardError(f"{faults[0]}; {len(faults)} faults in all: run asepr verify on {dataset}")
        moving = graph.moving
    return {
        "path": str(dest),
        "target": target,
        "num_parts": graph.num_parts,
        "node_types": list(graph.types.nodes),
        "edge_types": [list(edge) for edge in graph.types.edges],
        **figures,
        **moving,
    }


def find_export_faults(dataset: Path | str, dest: Path | str, target: str, *, ignore_types: bool = False) -> list[str]:
    """Compare an export with the dataset it was made of; return a line for each difference.

    Parameters
    ----------
    dataset, dest : path
    target : str
    ignore_types : bool

    Raises
    ------
    AseprError
        The dataset cannot be read, or the target is unknown.
    """
    exporter = get_exporter(target)
    with tempfile.TemporaryDirectory() as folder, ScratchDir(Path(folder) / "scratch") as scratch:
        graph = ExportGraph(Path(dataset), scratch, in_edges=exporter.NEEDS_IN_EDGES, ignore_types=ignore_types)
        return list(exporter.find_faults(graph, Path(dest)))
