"""A dataset as exporters read it: part by part, nodes and edges grouped by type."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import NO_LABEL, SPLIT_CODES, FloatArray, IdArray, PartArray
from asepr.errors import ShardError
from asepr.exporters.graph_types import GraphTypes, find_types
from asepr.formats.arrow_io import Columns
from asepr.formats.manifest import Manifest
from asepr.formats.shard import Shard, open_all
from asepr.stream.scratch import BucketFiles, ScratchDir

BATCH_EDGES = 1 << 20
EDGE_DTYPE = np.dtype(
    [("eid", "<i8"), ("src", "<i8"), ("dst", "<i8"), ("etype", "<i4"), ("shard", "<i4"), ("row", "<i8")]
)
"""An edge by global ids, and where its weight and features lie."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportPart:
    """The nodes a part owns and the edges it holds, each grouped by type.

    Attributes
    ----------
    rank : int
    nid : int64 (n_i,)
        Inner nodes by type, each type in ascending nid.
    node_offsets : int64 (T + 1,)
        Nodes of type t are `node_offsets[t]:node_offsets[t + 1]`.
    edges : structured (m,) of `EDGE_DTYPE`
        By type, each type in ascending eid.
    edge_offsets : int64 (R + 1,)
    halo : int64 (h,), ascending
        Nodes at an end of an edge here and owned elsewhere.
    """

    rank: int
    nid: IdArray
    node_offsets: IdArray
    edges: npt.NDArray[Any]
    edge_offsets: IdArray
    halo: IdArray

    def nodes_of(self, code: int) -> slice:
        """Return where nodes of a type are in `nid`."""
        return slice(int(self.node_offsets[code]), int(self.node_offsets[code + 1]))

    def edges_of(self, code: int) -> slice:
        """Return where edges of a type are in `edges`."""
        return slice(int(self.edge_offsets[code]), int(self.edge_offsets[code + 1]))


class ExportGraph:
    """All shards of a dataset, read one part at a time.

    Parameters
    ----------
    folder : Path
        The dataset.
    scratch : ScratchDir
        Where edges wait for their part where they must change it.
    in_edges : bool
        Give every edge to the part that owns its destination, as the edge-cut layout has it anyway;
        else each edge stays in the part whose shard holds it.
    ignore_types : bool
        See one type of nodes and one of edges.

    Attributes
    ----------
    owner : int32 (N,)
    position : int64 (N,)
        Where a node comes among the nodes of its type that its owner has, from 0.
    num_nodes_of, num_edges_of : int64 (K, T) and (K, R)
        Nodes owned and edges held, by part and type.

    Notes
    -----
    Memory: 12 bytes a node of the whole graph, and one part.
    """

    def __init__(self, folder: Path, scratch: ScratchDir, *, in_edges: bool, ignore_types: bool = False) -> None:
        self.path = folder
        self.scratch = scratch
        self.shards = open_all(folder, Shard)
        self.manifest: Manifest = self.shards[0].manifest
        self.types: GraphTypes = find_types(self.shards, ignore_types)
        self.owner: PartArray = np.full(self.manifest.num_nodes, -1, dtype=np.int32)
        self.position: IdArray = np.zeros(self.manifest.num_nodes, dtype=np.int64)
        self.num_nodes_of = np.zeros((self.num_parts, len(self.types.nodes)), dtype=np.int64)
        self.num_edges_of = np.zeros((self.num_parts, len(self.types.edges)), dtype=np.int64)
        self._has_label = np.zeros(len(self.types.nodes), dtype=bool)
        for shard in self.shards:
            self._place_nodes(shard)
        if (self.owner < 0).any():
            raise ShardError(
                f"{folder}: every node must be inner in one part, got none for node {int(np.argmin(self.owner))}; "
                "run asepr verify"
            )
        self._moved: BucketFiles | None = None
        if in_edges and self.manifest.layout != "edge-cut":
            self._moved = scratch.buckets("edges", self.num_parts, EDGE_DTYPE)
            self._move_edges(self._moved)
        else:
            for shard in self.shards:
                self._count_edges(self.types.edge_codes(shard), np.full(shard.num_edges, shard.rank))

    @property
    def num_parts(self) -> int:
        """Number of parts K."""
        return self.manifest.num_parts

    def part(self, rank: int) -> ExportPart:
        """Read one part."""
        shard = self.shards[rank]
        nid = shard.nid[: shard.num_inner][self._inner_order(shard)]
        edges = self._edges_here(shard) if self._moved is None else self._moved.read(rank)
        edges = edges[np.lexsort((edges["eid"], edges["etype"]))]
        ends = np.concatenate([edges["src"], edges["dst"]])
        return ExportPart(
            rank=rank,
            nid=nid,
            node_offsets=_offsets(self.num_nodes_of[rank]),
            edges=edges,
            edge_offsets=_offsets(self.num_edges_of[rank]),
            halo=np.unique(ends[self.owner[ends] != rank]),
        )

    def parts(self) -> Iterator[ExportPart]:
        """Read the parts one after the other."""
        return map(self.part, range(self.num_parts))

    def type_offsets(self, counts: IdArray) -> IdArray:
        """Return int64 (K + 1, types): the first number each part gives in a numbering of its own for each type."""
        return np.concatenate([np.zeros((1, counts.shape[1]), dtype=np.int64), np.cumsum(counts, axis=0)])

    def node_data(self, part: ExportPart, code: int) -> Columns:
        """Return what nodes of a type carry, rows as `part.nid[part.nodes_of(code)]`.

        Returns
        -------
        Columns
            Of `feat` (float32), `label` (int64), `train_mask`, `val_mask`, `test_mask` (bool) those
            that the type has anywhere.
        """
        shard = self.shards[part.rank]
        rows = np.flatnonzero(self.types.node_codes(shard)[: shard.num_inner] == code)
        columns: Columns = {}
        features = self.types.features_of(shard, code)
        if features is not None:
            columns["feat"] = np.ascontiguousarray(features[: len(rows)])
        if shard.label is not None and self._has_label[code]:
            columns["label"] = shard.label[rows]
        if shard.split is not None and (shard.label is None or self._has_label[code]):
            usable = np.True_ if shard.label is None else shard.label[rows] != NO_LABEL
            split = shard.split[rows]
            columns |= {f"{name}_mask": (split == value) & usable for name, value in SPLIT_CODES.items() if name}
        return columns

    def edge_data(self, part: ExportPart, code: int) -> Columns:
        """Return what edges of a type carry, rows as `part.edges[part.edges_of(code)]`: `weight`, `feat`."""
        edges = part.edges[part.edges_of(code)]
        found = {
            "weight": [shard.weight for shard in self.shards],
            "feat": [shard.edge_features for shard in self.shards],
        }
        return {
            name: _gather([source for source in sources if source is not None], edges)
            for name, sources in found.items()
            if sources[0] is not None
        }

    @cached_property
    def moving(self) -> dict[str, Any]:
        """What it cost to bring every edge to its destination's owner; nothing moves from the edge-cut layout."""
        if self._moved is None:
            return {"moved_edges": 0}
        before = np.array([shard.num_edges for shard in self.shards])
        after = self.num_edges_of.sum(axis=1)
        stayed = moved = halo = 0
        for part in self.parts():
            stayed += int((part.edges["shard"] == part.rank).sum())
            moved += int((part.edges["shard"] != part.rank).sum())
            halo += len(part.halo)
        return {
            "moved_edges": moved,
            "moved_share": moved / max(moved + stayed, 1),
            "halo_nodes": {"before": sum(shard.num_halo for shard in self.shards), "after": halo},
            "edge_balance": {"before": _balance(before), "after": _balance(after)},
        }

    def _place_nodes(self, shard: Shard) -> None:
        inner = shard.nid[: shard.num_inner]
        codes = self.types.node_codes(shard)[: shard.num_inner]
        counts = np.bincount(codes, minlength=len(self.types.nodes))
        self.owner[inner] = shard.rank
        self.num_nodes_of[shard.rank] = counts
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        self.position[inner[self._inner_order(shard)]] = np.arange(len(inner)) - starts
        if shard.label is not None:
            self._has_label[np.unique(codes[shard.label[: shard.num_inner] != NO_LABEL])] = True

    def _inner_order(self, shard: Shard) -> IdArray:
        return np.argsort(self.types.node_codes(shard)[: shard.num_inner], kind="stable")

    def _edges_here(self, shard: Shard) -> npt.NDArray[Any]:
        edges = np.empty(shard.num_edges, dtype=EDGE_DTYPE)
        edges["eid"], edges["src"], edges["dst"] = shard.eid, shard.nid[shard.src], shard.nid[shard.dst]
        edges["etype"], edges["shard"], edges["row"] = (
            self.types.edge_codes(shard),
            shard.rank,
            np.arange(shard.num_edges),
        )
        return edges

    def _move_edges(self, buckets: BucketFiles) -> None:
        for shard in self.shards:
            edges = self._edges_here(shard)
            for start in range(0, len(edges), BATCH_EDGES):
                batch = edges[start : start + BATCH_EDGES]
                target = self.owner[batch["dst"]]
                buckets.append(target, batch)
                self._count_edges(batch["etype"], target)

    def _count_edges(self, codes: npt.NDArray[Any], parts: npt.NDArray[Any]) -> None:
        counts = np.bincount(parts * len(self.types.edges) + codes, minlength=self.num_edges_of.size)
        self.num_edges_of += counts.reshape(self.num_edges_of.shape)


def _gather(sources: list[FloatArray], edges: npt.NDArray[Any]) -> FloatArray:
    values = np.empty((len(edges), *sources[0].shape[1:]), dtype=sources[0].dtype)
    for rank, source in enumerate(sources):
        here = edges["shard"] == rank
        values[here] = source[edges["row"][here]]
    return values


def _offsets(counts: IdArray) -> IdArray:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def _balance(counts: npt.NDArray[Any]) -> float:
    return float(counts.max() / max(counts.mean(), 1e-300))
