"""Writing a part's folder: nodes, features, edges, and whom it exchanges rows with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import Degrees, EdgeTable, FeatureSource, HaloPlan, IdArray, LocalNodes, NodeTable
from asepr.formats.arrow_io import Columns, write_columns
from asepr.formats.manifest import FileEntry, PartEntry, feature_file, file_entry, part_folder


class ShardWriter:
    """Writes the parts of one dataset, one after the other.

    Parameters
    ----------
    folder : Path
        The dataset folder; it exists.
    degrees : Degrees
    table : NodeTable
    features : FeatureSource or None
        Of all nodes, in nid order.
    edge_table : EdgeTable or None
    type_offsets : sequence of int
        First nid of each node type, and N; needed where `table` has features by type.
    aggregates : FeatureSource, optional
        Of each node's in-neighbours' features; rows in nid order.
    num_edges : int
        Of the whole graph; edges that are held out are numbered from there on.

    Notes
    -----
    Memory: one part, and 4 bytes a node of the whole graph (8 from 2**31 nodes on).
    """

    def __init__(
        self,
        folder: Path,
        degrees: Degrees,
        table: NodeTable,
        features: FeatureSource | None,
        edge_table: EdgeTable | None = None,
        type_offsets: Sequence[int] = (),
        aggregates: FeatureSource | None = None,
        num_edges: int = 0,
    ) -> None:
        self._folder = folder
        self._degrees = degrees
        self._table = table
        self._features = features
        self._edge_table = edge_table or EdgeTable()
        self._type_offsets = list(type_offsets)
        self._aggregates = aggregates
        self._num_edges = num_edges
        self._row_of = np.zeros(table.num_nodes, dtype=_row_dtype(table.num_nodes))

    def write_part(
        self,
        nodes: LocalNodes,
        plan: HaloPlan,
        edges: npt.NDArray[Any],
        held_out: IdArray | None = None,
        outer_edges: npt.NDArray[Any] | None = None,
    ) -> PartEntry:
        """Write one part.

        Parameters
        ----------
        nodes : LocalNodes
        plan : HaloPlan
        edges : structured array, ascending in `eid`
            Fields `eid`, `src`, `dst` (global ids) and, where the graph has them, `etype`, `weight`.
        held_out : int (h,), optional
            Rows of the edges that are held out and end at inner nodes.
        outer_edges : structured array as `edges`, optional
            Edges of other parts, between halo nodes or from inner nodes to them.

        Returns
        -------
        PartEntry
        """
        folder = self._folder / part_folder(plan.rank)
        folder.mkdir()
        files = {
            "nodes.arrow": self._node_columns(nodes),
            "edges.arrow": self._edge_columns(nodes, edges),
            "send.arrow": {"row": plan.send_rows},
            "peers.arrow": {"send_offset": plan.send_offsets, "recv_offset": plan.recv_offsets},
        }
        if self._features is not None:
            files["features.arrow"] = {"feat": self._features.read(nodes.nid)}
        for ntype, features in enumerate(self._table.features_by_type):
            if features is not None:
                low, high = self._type_offsets[ntype : ntype + 2]
                rows = nodes.nid[(nodes.nid >= low) & (nodes.nid < high)] - low
                files[feature_file(ntype)] = {"feat": features.read(rows)}
        if self._aggregates is not None:
            files["aggregates.arrow"] = {"feat": self._aggregates.read(nodes.nid)}
        if self._edge_table.features is not None:
            files["edge_features.arrow"] = {"feat": self._edge_table.features.read(edges["eid"])}
        if outer_edges is not None:
            files["outer_edges.arrow"] = self._edge_columns(nodes, outer_edges)
        if held_out is not None:
            files["held_out.arrow"] = self._held_out_columns(nodes, held_out)
        return PartEntry(
            folder=folder.name,
            num_inner=plan.num_inner,
            num_halo=plan.num_halo,
            num_edges=len(edges),
            num_outer_edges=0 if outer_edges is None else len(outer_edges),
            files={name: _write(folder / name, columns) for name, columns in files.items()},
        )

    def _node_columns(self, nodes: LocalNodes) -> Columns:
        columns: Columns = {
            "nid": nodes.nid,
            "owner": nodes.owner,
            "in_degree": self._degrees.in_degree[nodes.nid].astype(np.int64),
            "out_degree": self._degrees.out_degree[nodes.nid].astype(np.int64),
        }
        known = {name: getattr(self._table, name) for name in ("label", "labels", "split", "ntype")}
        return columns | {name: values[nodes.nid] for name, values in known.items() if values is not None}

    def _edge_columns(self, nodes: LocalNodes, edges: npt.NDArray[Any]) -> Columns:
        self._row_of[nodes.nid] = np.arange(len(nodes.nid))
        dtype = _row_dtype(len(nodes.nid))
        columns: Columns = {
            "src": self._rows(edges["src"], dtype),
            "dst": self._rows(edges["dst"], dtype),
            "eid": np.ascontiguousarray(edges["eid"]),
        }
        more = [name for name in ("etype", "weight") if name in (edges.dtype.names or ())]
        columns |= {name: np.ascontiguousarray(edges[name]) for name in more}
        for name in ("time", "input_row", "is_reverse"):
            values = getattr(self._edge_table, name)
            if values is not None:
                columns[name] = np.array(values[columns["eid"]])
        return columns

    def _held_out_columns(self, nodes: LocalNodes, chosen: IdArray) -> Columns:
        held = self._edge_table.held_out
        assert held is not None
        columns: Columns = {
            "split": np.array(held.split[chosen]),
            "src": np.array(held.src[chosen], dtype=np.int64),
            "dst": np.array(held.dst[chosen], dtype=np.int64),
            "eid": self._num_edges + chosen,
        }
        for end in ("src", "dst"):
            row = self._rows(columns[end], np.int64)
            row[nodes.nid[np.minimum(row, len(nodes.nid) - 1)] != columns[end]] = -1
            columns[f"{end}_row"] = row
        known = {name: getattr(held, name) for name in ("input_row", "etype", "weight", "time")}
        return columns | {name: np.array(values[chosen]) for name, values in known.items() if values is not None}

    def _rows(self, nid: IdArray, dtype: type[np.integer[Any]]) -> npt.NDArray[Any]:
        return self._row_of[nid].astype(dtype)


def _row_dtype(num_rows: int) -> type[np.integer[Any]]:
    return np.int32 if num_rows < 2**31 else np.int64


def _write(path: Path, columns: Columns) -> FileEntry:
    write_columns(path, columns)
    return file_entry(path)
