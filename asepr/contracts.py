"""The records and protocols that cross rooms. Numpy only; nothing here reads or writes a byte.

Axes: N nodes, E edges, K parts, C clusters, H halo rows, F features.
Ids: `nid` / `eid` are global, `lid` is local to a shard (inner rows first, then halo rows).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from asepr.mapped import release

IdArray: TypeAlias = npt.NDArray[np.int64]
DegreeArray: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]
PartArray: TypeAlias = npt.NDArray[np.int32]
EdgePartArray: TypeAlias = npt.NDArray[np.int16]
FloatArray: TypeAlias = npt.NDArray[np.float32]
ByteArray: TypeAlias = npt.NDArray[np.uint8]

CopyBits: TypeAlias = npt.NDArray[np.uint64]

Layout: TypeAlias = Literal["vertex-cut", "edge-cut"]
LAYOUTS: tuple[Layout, ...] = ("vertex-cut", "edge-cut")

Aggregate: TypeAlias = Literal["mean", "sum", "gcn"]
AGGREGATES: tuple[Aggregate, ...] = ("mean", "sum", "gcn")
"""What a shard may carry of each row's in-neighbours: see `asepr.stream.aggregates`."""

BalanceName: TypeAlias = Literal["nodes", "edges", "train", "types"]
BALANCES: tuple[BalanceName, ...] = ("nodes", "edges", "train", "types")
USUAL_BALANCE: tuple[BalanceName, ...] = ("nodes", "edges", "train")
"""What the parts of an edge-cut may be balanced in; `edges` are in-edges, which live with their destination;
`types` are the nodes of each type."""

SelfLoops: TypeAlias = Literal["keep", "drop", "add"]
SELF_LOOPS: tuple[SelfLoops, ...] = ("keep", "drop", "add")
Duplicates: TypeAlias = Literal["keep", "merge"]
DUPLICATES: tuple[Duplicates, ...] = ("keep", "merge")

MAX_PARTS = 4096
"""The most parts a run may have; `edge_part` is int16 and replica sets are bitsets of K bits."""

DEFAULT_MEMORY_BYTES = 4_000_000_000
"""Fixed, and not a share of the machine's, so that a run gives the same shards everywhere."""

NO_LABEL = -1
NO_LABELS = 255
"""In all columns of `NodeTable.labels` where it is not known which of many labels a node has."""
SPLIT_CODES: dict[str, int] = {"": 0, "train": 1, "val": 2, "test": 3}
"""Code of each split name in `NodeTable.split`; 0 is a node in none of the three."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeChunk:
    """A run of consecutive input edges.

    Attributes
    ----------
    src, dst : int64 (E_chunk,), ids in [0, N)
    first_eid : int
        The input row of the chunk's first edge; edge i of the chunk is `first_eid + i`.
    etype : int32 (E_chunk,), or None where the graph has one edge type
    weight : float32 (E_chunk,), or None where edges are unweighted
    """

    src: IdArray
    dst: IdArray
    first_eid: int
    etype: PartArray | None = None
    weight: FloatArray | None = None

    def __len__(self) -> int:
        """Return the number of edges in the chunk."""
        return int(self.src.shape[0])


class EdgeSource(Protocol):
    """Edges that can be read again and again, in a fixed order, with ids already checked."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes N; every id is below it."""

    @property
    def num_edges(self) -> int:
        """Number of edges E, duplicates and self-loops included."""

    @property
    def has_etype(self) -> bool:
        """Whether every chunk carries `etype`."""

    @property
    def has_weight(self) -> bool:
        """Whether every chunk carries `weight`."""

    def __iter__(self) -> Iterator[EdgeChunk]:
        """Yield the chunks from the first edge to the last."""


class FeatureSource(Protocol):
    """Features of nodes or edges that are read some rows at a time; dense, or sparse and maybe wide."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def width(self) -> int:
        """Number of columns F."""

    def read(self, rows: IdArray) -> FloatArray:
        """Return float32 (len(rows), F): the rows asked for, in the order asked for."""

    def read_as_stored(self, rows: IdArray) -> Any:
        """Return the same rows as an array, or as a scipy CSR matrix where they are stored sparse."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeTable:
    """What is known of each node, in nid order.

    Attributes
    ----------
    num_nodes : int
    label : int64 (N,), `NO_LABEL` where a node has none; None where the graph has no labels
    labels : uint8 (N, C), 1 where a node has label c and 0 where not, `NO_LABELS` throughout where that is not known;
        None where a node has one label at most
    split : uint8 (N,), a value of `SPLIT_CODES`; None where the graph has no split
    ntype : int32 (N,), or None where the graph has one node type
    features : FeatureSource of N rows, or None
    features_by_type : tuple, one entry a node type, or empty
        Features where types have their own: a FeatureSource of one row a node of the type, or None.
    """

    num_nodes: int
    label: IdArray | None = None
    labels: ByteArray | None = None
    split: ByteArray | None = None
    ntype: PartArray | None = None
    features: FeatureSource | None = None
    features_by_type: tuple[FeatureSource | None, ...] = ()

    @property
    def is_labelled(self) -> npt.NDArray[np.bool_] | None:
        """Whether the label of each node, or which of many it has, is known, bool (N,); None without labels."""
        if self.labels is not None:
            known: npt.NDArray[np.bool_] = self.labels[:, 0] != NO_LABELS
            return known
        return None if self.label is None else self.label != NO_LABEL

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels."""
        if self.labels is not None:
            return int(self.labels.shape[1])
        return 0 if self.label is None else int(self.label.max()) + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutEdges:
    """Input edges that are kept for validation and test, H of them, in input order.

    No other edge joins their ends where they were drawn; a split that came with the data may leave such edges.

    Attributes
    ----------
    split : uint8 (H,), code of `val` or `test` in `SPLIT_CODES`
    src, dst : int32 or int64 (H,), nids
    input_row : int64 (H,)
    etype : int32 (H,), or None where the graph has one edge type
    weight : float32 (H,), or None where edges are unweighted
    time : int64 or float64 (H,), or None where edges have no time
    """

    split: ByteArray
    src: npt.NDArray[Any]
    dst: npt.NDArray[Any]
    input_row: IdArray
    etype: PartArray | None = None
    weight: FloatArray | None = None
    time: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        """Return the number of edges held out."""
        return len(self.split)


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeTable:
    """What is known of each edge beside its ends, type and weight, in the order of the edge source.

    Attributes
    ----------
    time : int64 or float64 (E,), or None where edges have no time
    features : FeatureSource of one row an edge, or None
    input_row : int64 (E,), or None where edge i is row i of the input
        Row of the edge, or of the one that it reverses; -1: a self-loop that was added.
    is_reverse : uint8 (E,), or None where no edge was reversed
        1 where the edge is the other direction of its input row.
    held_out : HeldOutEdges, or None
    split : uint8 (rows of the input,), code in `SPLIT_CODES`, or None where the input does not say
        What the input says of its own edges, before rules were applied; None afterwards.
    """

    time: npt.NDArray[Any] | None = None
    features: FeatureSource | None = None
    input_row: IdArray | None = None
    is_reverse: ByteArray | None = None
    held_out: HeldOutEdges | None = None
    split: ByteArray | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Degrees:
    """Global degrees, duplicates counted each time; a self-loop counts once in and once out.

    Attributes
    ----------
    in_degree, out_degree : int32 (N,), int64 from 2**31 edges on
        They are held through the whole run, so they take no more room than they need.
    """

    in_degree: DegreeArray
    out_degree: DegreeArray

    @property
    def total(self) -> DegreeArray:
        """In-degree plus out-degree, (N,): int32 where every sum fits, else int64."""
        total = np.add(self.in_degree, self.out_degree)
        if total.min(initial=0) < 0:
            return np.add(self.in_degree, self.out_degree, dtype=np.int64)
        return total


class Buckets(Protocol):
    """Rows appended in any order and read back one bucket at a time; within a bucket in their order."""

    @property
    def num_buckets(self) -> int:
        """Number of buckets."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a row."""

    def append(self, bucket_of: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
        """Add `rows[i]` to bucket `bucket_of[i]`."""

    def num_rows(self, bucket: int) -> int:
        """Return the number of rows in a bucket."""

    def read(self, bucket: int) -> npt.NDArray[Any]:
        """Return all rows of a bucket."""

    def close(self) -> None:
        """Give the space back."""


class Scattered(Protocol):
    """An array that is filled in any order, and then read."""

    def put(self, rows: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
        """Set `array[rows]` to `values`."""

    def finish(self) -> npt.NDArray[Any]:
        """Return the array, backed by a file; `put` is over."""


class Scratch(Protocol):
    """Temporary arrays and buckets that may live on disk; all gone when the run ends."""

    def buckets(self, name: str, num_buckets: int, dtype: npt.DTypeLike) -> Buckets:
        """Return empty buckets of rows of the given (usually structured) dtype."""

    def array(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a zero-filled array of the given shape, backed by a file that no one else sees."""

    def scattered(self, name: str, num_rows: int, dtype: npt.DTypeLike) -> Scattered:
        """Return an array to be filled in any order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionProblem:
    """Everything a partitioner may look at.

    Attributes
    ----------
    source : EdgeSource
    degrees : Degrees
    num_parts : int, in [1, min(N, MAX_PARTS)]
    layout : Layout
        What the assignment must be good at; decides which caps are hard.
    capacities : float64 (K,), shares that sum to 1
        The share of the graph each part is meant to hold.
    imbalance : float
        Part p holds at most `max(ceil(x), floor((1 + imbalance) * x))` with x its share of edges
        (vertex-cut) or of nodes (edge-cut).
    seed : int
    scratch : Scratch
    balance : tuple of BalanceName
        What `asepr` balances the parts of an edge-cut in; always nodes.
    replica_imbalance : float
        How far above its share of all copies a part of a vertex-cut should be; infinite: as it comes.
    memory_bytes : int
        Most bytes to hold beside interpreter and libraries.
    attribute_cluster : int32 (N,), or None where nodes have no attributes
        Cluster of each node by its attributes alone.
    attr_weight : float or None
        What it is worth, in copies, to keep to attribute clusters; None: by the measured lift.
    train : bool (N,), or None where nodes have no split
        Training nodes, to be spread evenly.
    ntype : int32 (N,), or None where there is one node type
    weigh_edges : bool
        What is cut counts by the weights of edges, which the source then has.
    """

    source: EdgeSource
    degrees: Degrees
    num_parts: int
    layout: Layout
    capacities: npt.NDArray[np.float64]
    imbalance: float
    seed: int
    scratch: Scratch
    balance: tuple[BalanceName, ...] = USUAL_BALANCE
    replica_imbalance: float = 0.10
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    attribute_cluster: PartArray | None = None
    attr_weight: float | None = None
    train: npt.NDArray[np.bool_] | None = None
    ntype: PartArray | None = None
    weigh_edges: bool = False

    def caps(self, total: int) -> IdArray:
        """Return int64 (K,): the most of `total` indivisible items that each part may hold."""
        share = self.capacities * total
        most = np.maximum(np.ceil(share - 1e-9), np.floor((1 + self.imbalance) * share + 1e-9))
        return np.maximum(most, 1).astype(np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """Where every edge and every node goes.

    Attributes
    ----------
    layout : Layout
    num_parts : int
    owner : int32 (N,), in [0, K)
        The one part that is authoritative for each node.
    copies : uint64 (N, ceil(K / 64))
        Bit p of row v is set where part p holds an edge of node v, or owns v.
    edge_part : int16 (E,) in input order, or None
        None means `owner[dst]`, which is what the edge-cut layout always is.
    whole : uint64 (N, ceil(K / 64)), or None where halos are one hop deep
        Bit p of row v is set where part p holds all in-edges of node v: its owner, and the parts that hold v fewer hops
        away than halos are deep.
    """

    layout: Layout
    num_parts: int
    owner: PartArray
    copies: CopyBits
    edge_part: EdgePartArray | None = None
    whole: CopyBits | None = None

    def part_of(self, chunk: EdgeChunk) -> EdgePartArray:
        """Return int16 (E_chunk,): the part of each edge of the chunk."""
        if self.edge_part is None:
            return self.owner[chunk.dst].astype(np.int16)
        stop = chunk.first_eid + len(chunk)
        part = np.array(self.edge_part[chunk.first_eid : stop])
        release(self.edge_part, chunk.first_eid, stop)
        return part


class Partitioner(Protocol):
    """A method: decides edge -> part and node -> owner."""

    def assign(self, problem: PartitionProblem) -> Assignment:
        """Return the assignment; every cap of the problem holds in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalNodes:
    """The nodes of one part in their local order: row i of the shard is node `nid[i]`.

    Attributes
    ----------
    nid : int64 (num_local,)
        Inner nodes in ascending nid, then halo nodes grouped by owner, each group in ascending nid.
    owner : int32 (num_local,)
    num_inner : int
    """

    nid: IdArray
    owner: PartArray
    num_inner: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HaloPlan:
    """Which rows one shard sends to and receives from each peer in one exchange.

    The halo rows of a shard are grouped by owner in ascending nid, so what arrives from peer q is
    the contiguous slice `recv_offsets[q]:recv_offsets[q + 1]` of local rows, and no scatter is
    needed. The send list towards q names, in the same order, the inner rows that q has as halo.

    Attributes
    ----------
    rank : int
    num_inner, num_halo : int
    send_rows : int64 (S,), inner lids, grouped by peer
    send_offsets : int64 (K + 1,), slice of `send_rows` for each peer
    recv_offsets : int64 (K + 1,), slice of local rows for each peer; starts at num_inner
    """

    rank: int
    num_inner: int
    num_halo: int
    send_rows: IdArray
    send_offsets: IdArray
    recv_offsets: IdArray

    @property
    def num_parts(self) -> int:
        """Number of parts K, this one included."""
        return int(self.send_offsets.shape[0]) - 1
