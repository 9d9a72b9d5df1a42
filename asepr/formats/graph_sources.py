"""Inputs that are a whole graph and not a table of edges: which reader a location needs."""

from pathlib import Path

from asepr.formats.dgl_chunks import find_metadata, read_chunks
from asepr.formats.dgl_files import is_dgl_file, read_dgl
from asepr.formats.graph_description import is_description, read_description
from asepr.formats.graph_files import GraphFiles
from asepr.formats.locations import is_remote
from asepr.formats.node_sources import NodeColumns
from asepr.formats.numbered_graphs import NumberedGraph
from asepr.formats.ogb_folders import find_raw, read_ogb

WholeGraph = GraphFiles | NumberedGraph


def open_graph(location: Path | str, columns: NodeColumns, weight: str = "weight") -> WholeGraph | None:
    """Open a graph description, an OGB folder, or a chunked graph or graph file of DGL; None where there is none.

    Parameters
    ----------
    location : path or str
    columns : NodeColumns
        How labels, splits and features are called, where the format leaves that open.
    weight : str
        How edge weights are called there.

    Raises
    ------
    AseprError
        The graph cannot be read.
    """
    if is_description(location):
        return read_description(Path(location))
    if is_remote(location):
        return None
    raw = find_raw(location)
    if raw is not None:
        return read_ogb(raw, columns)
    metadata = find_metadata(Path(location))
    if metadata is not None:
        return read_chunks(metadata, columns, weight)
    return read_dgl(Path(location), columns, weight) if is_dgl_file(Path(location)) else None
