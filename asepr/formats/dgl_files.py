"""Files of `dgl.save_graphs`: DGL's own binary format, no pickle in it. The one reader that needs DGL."""

import subprocess
import sys
from pathlib import Path

from asepr.errors import TableError
from asepr.formats.graph_objects import Keys, from_dgl
from asepr.formats.node_sources import NodeColumns
from asepr.formats.numbered_graphs import NumberedGraph

SUFFIXES = (".bin", ".dgl")
MAGIC = (0xDD2E4FF046B4A13F).to_bytes(8, "little")
_PROBE = "import sys, dgl; print(len(dgl.load_graphs(sys.argv[1])[0]))"


def is_dgl_file(location: Path) -> bool:
    """Tell whether a file is named as one of `dgl.save_graphs` is."""
    return location.suffix.lower() in SUFFIXES and location.is_file()


def read_dgl(path: Path, columns: NodeColumns, weight: str) -> NumberedGraph:
    """Read the one graph of a file.

    Parameters
    ----------
    path : Path
    columns : NodeColumns
        Keys of labels and features; features of edges are `feat`.
    weight : str
        Key of edge weights.

    Raises
    ------
    TableError
        DGL is not installed; the file is damaged, or holds another number of graphs.

    Notes
    -----
    DGL's reader ends the process on some damaged files, so another process reads the file first.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise TableError(f"{path}: must be a file of dgl.save_graphs, got other bytes; write it again")
    try:
        import dgl
    except ImportError as error:
        raise TableError(f"{path}: dgl must be importable, got: {error}; pip install 'asepr[train]'") from error
    probe = subprocess.run([sys.executable, "-c", _PROBE, str(path)], capture_output=True, text=True, check=False)
    count = probe.stdout.strip().splitlines()[-1:] if probe.returncode == 0 else None
    if count is None:
        raise TableError(f"{path}: must be a whole file of dgl.save_graphs, got a damaged one; write it again")
    if count != ["1"]:
        raise TableError(f"{path}: must hold one graph, got {''.join(count) or 'none'}; save the graphs apart")
    (graph,), _ = dgl.load_graphs(str(path))
    names = {key for kind in graph.ntypes for key in graph.nodes[kind].data}
    keys = Keys(label=columns.label, features=tuple(columns.feature_names(sorted(names))), weight=weight)
    return from_dgl(graph, keys, str(path))
