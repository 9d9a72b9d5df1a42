"""One part of a dataset, opened by mapping its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from asepr.contracts import SPLIT_CODES, ByteArray, FloatArray, HaloPlan, IdArray, PartArray
from asepr.errors import ShardError
from asepr.formats.arrow_io import Columns, map_columns
from asepr.formats.manifest import Manifest, feature_file, id_file, read_manifest

LocalIds = npt.NDArray[np.int32] | npt.NDArray[np.int64]
HELD_OUT_SPLITS = {"valid": SPLIT_CODES["val"], "test": SPLIT_CODES["test"]}
_S = TypeVar("_S", bound="Shard")


class Shard:
    """One part: its inner nodes, its halo nodes, its edges, and whom it exchanges rows with.

    A machine needs the manifest and this part's folder, nothing else. Files are mapped when first
    asked for. Local order of nodes: inner nodes in ascending nid, then halo nodes grouped by owner,
    each group in ascending nid.

    Parameters
    ----------
    folder : Path
        The dataset folder, that of `manifest.json`.
    rank : int
        Number of the part.

    Raises
    ------
    ShardError
        The manifest or the part's folder is missing or damaged.
    """

    def __init__(self, folder: Path | str, rank: int, manifest: Manifest | None = None) -> None:
        self.manifest = read_manifest(Path(folder)) if manifest is None else manifest
        if not 0 <= rank < self.manifest.num_parts:
            raise ShardError(f"{folder}: rank must be in [0, {self.manifest.num_parts}), got {rank}; one rank a shard")
        self.rank = rank
        self.entry = self.manifest.parts[rank]
        self.path = Path(folder) / self.entry.folder

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(rank={self.rank} of {self.num_parts}, {self.manifest.layout}, "
            f"inner={self.num_inner}, halo={self.num_halo}, edges={self.num_edges})"
        )

    @property
    def num_parts(self) -> int:
        """Number of parts of the dataset."""
        return self.manifest.num_parts

    @property
    def num_inner(self) -> int:
        """Number of nodes owned here."""
        return self.entry.num_inner

    @property
    def num_halo(self) -> int:
        """Number of nodes present here and owned elsewhere."""
        return self.entry.num_halo

    @property
    def num_local(self) -> int:
        """Number of local rows: inner and halo."""
        return self.num_inner + self.num_halo

    @property
    def num_edges(self) -> int:
        """Number of edges that lie here."""
        return self.entry.num_edges

    @property
    def nid(self) -> IdArray:
        """Global id of each local row, int64 (num_local,)."""
        return self._nodes["nid"]

    @property
    def owner(self) -> PartArray:
        """Owner of each local row, int32 (num_local,)."""
        return self._nodes["owner"]

    @property
    def in_degree(self) -> IdArray:
        """Global in-degree of each local row, int64 (num_local,)."""
        return self._nodes["in_degree"]

    @property
    def out_degree(self) -> IdArray:
        """Global out-degree of each local row, int64 (num_local,)."""
        return self._nodes["out_degree"]

    @property
    def label(self) -> IdArray | None:
        """Label of each local row, int64 (num_local,), -1 where it has none; None without labels."""
        return self._nodes.get("label")

    @property
    def labels(self) -> ByteArray | None:
        """Labels of each local row, uint8 (num_local, C): 1 where it has a label, 0 where not, 255 where not known.

        None where nodes have one label at most.
        """
        return self._nodes.get("labels")

    @property
    def split(self) -> ByteArray | None:
        """Split of each local row, uint8 (num_local,): 1 train, 2 val, 3 test, 0 none of them."""
        return self._nodes.get("split")

    @property
    def ntype(self) -> PartArray | None:
        """Type of each local row, int32 (num_local,); None where there is one type."""
        return self._nodes.get("ntype")

    @property
    def features(self) -> FloatArray | None:
        """Features of each local row, float32 (num_local, F); None without features."""
        if "features.arrow" not in self.entry.files:
            return None
        return self._map("features.arrow", self.num_local)["feat"]

    def features_of(self, node_type: str | int) -> FloatArray | None:
        """Return the features of the local rows of one type, in local order.

        Parameters
        ----------
        node_type : str or int
            Name, or code as in `ntype`.

        Returns
        -------
        float32 (local rows of the type, F of the type), or None where the type has no features

        Raises
        ------
        ShardError
            The dataset has no such type.
        """
        code = self._type_code(node_type)
        if feature_file(code) in self.entry.files:
            return self._map(feature_file(code))["feat"]
        features = self.features
        if features is None or self.ntype is None:
            return features
        rows: FloatArray = features[self.ntype == code]
        return rows

    def original_ids(self, node_type: str | int = 0) -> pa.ChunkedArray:
        """Return the ids in the input of the inner nodes of one type, in local order.

        Raises
        ------
        ShardError
            The dataset has no such type, or the part's file of ids is missing or damaged.
        """
        code = self._type_code(node_type)
        if id_file(code) in self.entry.files:
            return read_ids(self.path / id_file(code))
        offsets = self.manifest.node_type_offsets or [0, self.manifest.num_nodes]
        inner = self.nid[: self.num_inner]
        low, high = offsets[code : code + 2]
        return pa.chunked_array([inner[(inner >= low) & (inner < high)] - low])

    @property
    def aggregates(self) -> FloatArray | None:
        """Aggregate of the features of each local row's global in-neighbours, float32 (num_local, F), or None.

        `manifest.aggregate` says which: see `asepr.stream.aggregates`.
        """
        if "aggregates.arrow" not in self.entry.files:
            return None
        return self._map("aggregates.arrow", self.num_local)["feat"]

    @property
    def src(self) -> LocalIds:
        """Local row of each edge's source, int32 (int64 from 2**31 local rows on), (num_edges,)."""
        return self._edges["src"]

    @property
    def dst(self) -> LocalIds:
        """Local row of each edge's destination, dtype and shape as `src`."""
        return self._edges["dst"]

    @property
    def eid(self) -> IdArray:
        """Input row of each edge, ascending, int64 (num_edges,)."""
        return self._edges["eid"]

    @property
    def etype(self) -> PartArray | None:
        """Type of each edge, int32 (num_edges,); None where there is one type."""
        return self._edges.get("etype")

    @property
    def weight(self) -> FloatArray | None:
        """Weight of each edge, float32 (num_edges,); None where edges are unweighted."""
        return self._edges.get("weight")

    @property
    def edge_features(self) -> FloatArray | None:
        """Features of each edge, float32 (num_edges, F); None without edge features."""
        if "edge_features.arrow" not in self.entry.files:
            return None
        return self._map("edge_features.arrow", self.num_edges)["feat"]

    @property
    def time(self) -> npt.NDArray[Any] | None:
        """Time of each edge, int64 or float64 (num_edges,); None where edges have none."""
        return self._edges.get("time")

    @property
    def input_row(self) -> IdArray:
        """Input row of each edge, or of the edge that it reverses, int64 (num_edges,); -1: an added self-loop."""
        return self._edges.get("input_row", self.eid)

    @property
    def is_reverse(self) -> ByteArray | None:
        """1 where an edge is the other direction of its input row, uint8 (num_edges,); None where none was added."""
        return self._edges.get("is_reverse")

    @cached_property
    def outer_edges(self) -> Columns:
        """In-edges of halo nodes, where halos are several hops deep; else no columns.

        `src`, `dst` rows, `eid`, and `etype`, `weight` and what else edges have. They are edges of other parts,
        repeated so that halo nodes fewer hops away than halos are deep have all their in-edges.
        """
        if "outer_edges.arrow" not in self.entry.files:
            return {}
        return self._map("outer_edges.arrow", self.entry.num_outer_edges)

    @cached_property
    def hop(self) -> npt.NDArray[np.uint8]:
        """How many edges lead from each local node to the nearest inner node of an edge-cut, uint8 (num_local,).

        0 for inner nodes; 255 where the edges at hand lead to none.
        """
        hop = np.full(self.num_local, 255, dtype=np.uint8)
        hop[: self.num_inner] = 0
        ends = [(self.src, self.dst)]
        if self.outer_edges:
            ends.append((self.outer_edges["src"], self.outer_edges["dst"]))
        for step in range(self.manifest.halo_hops):
            for src, dst in ends:
                reached = src[hop[dst] == step]
                hop[reached] = np.minimum(hop[reached], step + 1)
        return hop

    def held_out_edges(self, split: str) -> pa.Table:
        """Return the edges kept for validation or test whose destination is owned here.

        They are in no shard's edges; degrees and partition know nothing of them. Nor is any other edge between the same
        two nodes, but where the split came with the data: the manifest's `leaking_edges` counts these.

        Parameters
        ----------
        split : "valid" or "test"

        Returns
        -------
        pyarrow.Table, ascending in `eid`
            `src`, `dst` int64, nids; `eid` int64, from the dataset's `num_edges` on; `etype` int32 where edges have
            types; `src_row`, `dst_row` int64, local rows, -1 where the source is not here; `input_row` int64; `weight`
            and `time` where edges have them.

        Raises
        ------
        ShardError
            There is no such split, the dataset holds out no edges, or the part's file of them is damaged.
        """
        if split not in HELD_OUT_SPLITS:
            raise ShardError(f"{self.path}: split must be valid or test, got '{split}'; choose one of these")
        if "held_out.arrow" not in self.entry.files:
            raise ShardError(
                f"{self.path}: must hold out edges, got none; partition with --edge-split 0.8,0.1,0.1 to hold some out"
            )
        columns = self._map("held_out.arrow")
        chosen = columns.pop("split") == HELD_OUT_SPLITS[split]
        return pa.table({name: values[chosen] for name, values in columns.items()})

    @cached_property
    def plan(self) -> HaloPlan:
        """Which rows go to, and come from, each peer."""
        peers = self._map("peers.arrow", self.num_parts + 1)
        return HaloPlan(
            rank=self.rank,
            num_inner=self.num_inner,
            num_halo=self.num_halo,
            send_rows=self._map("send.arrow")["row"],
            send_offsets=peers["send_offset"],
            recv_offsets=peers["recv_offset"],
        )

    def _type_code(self, node_type: str | int) -> int:
        names = self.manifest.node_types
        code = names.index(node_type) if node_type in names else node_type
        if not isinstance(code, int) or not 0 <= code < max(len(names), 1):
            raise ShardError(f"{self.path}: node type must be among {', '.join(names) or '0'}, got '{node_type}'")
        return code

    @cached_property
    def _nodes(self) -> Columns:
        return self._map("nodes.arrow", self.num_local)

    @cached_property
    def _edges(self) -> Columns:
        return self._map("edges.arrow", self.num_edges)

    def _map(self, name: str, num_rows: int | None = None) -> Columns:
        columns = map_columns(self.path / name)
        for column, array in columns.items():
            if num_rows is not None and array.shape[0] != num_rows:
                raise ShardError(
                    f"{self.path / name}: column '{column}' must have {num_rows} rows, got {array.shape[0]}; "
                    "the file belongs to another dataset: copy it again"
                )
        return columns


def open_all(folder: Path | str, kind: type[_S]) -> list[_S]:
    """Open every part of a dataset as `kind`, in rank order.

    Raises
    ------
    ShardError
        The manifest or a part is missing or damaged.
    """
    manifest = read_manifest(Path(folder))
    return [kind(folder, rank, manifest) for rank in range(manifest.num_parts)]


def read_ids(path: Path) -> pa.ChunkedArray:
    """Return the ids of a map, or of a part's file of ids.

    Raises
    ------
    ShardError
        It is missing or damaged.
    """
    with _must_be_whole(path):
        return pq.read_table(path, columns=["id"]).column("id")


def id_batches(path: Path) -> Iterator[pa.Array]:
    """Yield the same ids some rows at a time.

    Raises
    ------
    ShardError
        The file is missing or damaged.
    """
    with _must_be_whole(path), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["id"]):
            yield batch.column(0)


@contextmanager
def _must_be_whole(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise ShardError(f"{path}: must be a whole Parquet file, got: {reason}; copy it again") from error
