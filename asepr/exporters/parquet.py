"""Parquet files a part: nodes and edges by type, as Spark, cuGraph-PyG, WholeGraph and GraphStorm's gconstruct read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from asepr.exporters.export_graph import ExportGraph, ExportPart
from asepr.formats.arrow_io import Columns

NEEDS_IN_EDGES = False


def write(graph: ExportGraph, folder: Path) -> dict[str, Any]:
    """Write `part-<p>/nodes/<type>.parquet`, `part-<p>/edges/<src>__<relation>__<dst>.parquet` and `owner.parquet`.

    Node files: `nid`, features as `feat` (a list a row), `label`, `split`. Edge files: `eid`, `src`,
    `dst` (nids), `weight`, `feat`. `owner.parquet` has a row a node: `id`, `part`.

    Parameters
    ----------
    graph : ExportGraph
        An edge stays in the part whose shard holds it.
    folder : Path

    Returns
    -------
    dict
        Nothing more than every export has.
    """
    for part in graph.parts():
        for name, columns in _files(graph, part):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({key: _column(values) for key, values in columns.items()}), path)
    owner = {"id": np.arange(graph.manifest.num_nodes), "part": graph.owner}
    pq.write_table(pa.table(owner), folder / "owner.parquet")
    return {}


def find_faults(graph: ExportGraph, folder: Path) -> Iterator[str]:
    """Compare every column of every file with the shards."""
    for part in graph.parts():
        for name, columns in _files(graph, part):
            yield from _file_faults(folder / name, columns)
    yield from _file_faults(folder / "owner.parquet", {"id": np.arange(graph.manifest.num_nodes), "part": graph.owner})


def _files(graph: ExportGraph, part: ExportPart) -> Iterator[tuple[str, Columns]]:
    folder = f"part-{part.rank:05d}"
    for code, name in enumerate(graph.types.nodes):
        nodes: Columns = {"nid": part.nid[part.nodes_of(code)]}
        yield f"{folder}/nodes/{name}.parquet", nodes | graph.node_data(part, code)
    for code, edge_type in enumerate(graph.types.edges):
        rows = part.edges[part.edges_of(code)]
        edges: Columns = {"eid": rows["eid"], "src": rows["src"], "dst": rows["dst"]}
        yield f"{folder}/edges/{'__'.join(edge_type)}.parquet", edges | graph.edge_data(part, code)


def _column(values: npt.NDArray[Any]) -> pa.Array:
    values = np.ascontiguousarray(values)
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


def _file_faults(path: Path, expected: Columns) -> Iterator[str]:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        yield f"{path}: must be a whole Parquet file, got: {' '.join(str(error).split())[:200]}"
        return
    if table.column_names != list(expected):
        yield f"{path}: columns must be {', '.join(expected)}, got {', '.join(table.column_names)}"
        return
    for name, values in expected.items():
        found = table.column(name).combine_chunks()
        if not found.equals(_column(values).cast(found.type)):
            yield f"{path}: {name} must equal the shard's"
