"""How good a partition is, counted from the shards themselves."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import SPLIT_CODES
from asepr.formats.shard import Shard

BLOCK_EDGES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class QualityReport:
    """The figures of `asepr inspect`; lists have one entry a part.

    Attributes
    ----------
    replication_factor : float
        Copies of nodes over nodes, among nodes with an edge; 1 where there is no edge.
    edge_cut : float
        Fraction of edges whose ends have different owners; 0 where there is no edge.
    edge_balance, replica_balance, node_balance, train_balance : float
        Largest over mean of: edges, local nodes (copies included), inner nodes, inner training nodes
        (None without a split).
    edges, inner_nodes, halo_nodes : list of int
    train_nodes : list of int or None
        Inner training nodes.
    feature_bytes : dict of list of int
        Bytes of features of `inner` and `halo` rows.
    comm_matrix : list of list of int
        Entry [p][q]: rows that p sends to q in one exchange.
    """

    replication_factor: float
    edge_cut: float
    edge_balance: float
    replica_balance: float
    node_balance: float
    train_balance: float | None
    edges: list[int]
    inner_nodes: list[int]
    halo_nodes: list[int]
    train_nodes: list[int] | None
    feature_bytes: dict[str, list[int]]
    comm_matrix: list[list[int]]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain numbers, lists and dicts."""
        return asdict(self)


def measure_quality(shards: Iterable[Shard]) -> QualityReport:
    """Count everything from the files of all shards.

    Parameters
    ----------
    shards : iterable of Shard, all parts in rank order
        Each is looked at once; where they are made one by one, only one is mapped at a time.

    Returns
    -------
    QualityReport
    """
    counts = [_count(shard) for shard in shards]
    edges = [count.edges for count in counts]
    inner = [count.inner for count in counts]
    halo = [count.halo for count in counts]
    train = [count.train for count in counts if count.train is not None] or None
    originals = sum(count.originals for count in counts)
    return QualityReport(
        replication_factor=sum(count.copies for count in counts) / originals if originals else 1.0,
        edge_cut=sum(count.cut_edges for count in counts) / max(sum(edges), 1),
        edge_balance=_balance(edges),
        replica_balance=_balance([a + b for a, b in zip(inner, halo, strict=True)]),
        node_balance=_balance(inner),
        train_balance=None if train is None else _balance(train),
        edges=edges,
        inner_nodes=inner,
        halo_nodes=halo,
        train_nodes=train,
        feature_bytes={
            "inner": [count.row_bytes * count.inner for count in counts],
            "halo": [count.row_bytes * count.halo for count in counts],
        },
        comm_matrix=[count.rows_sent for count in counts],
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Counts:
    """What one shard adds to the report; `copies` and `originals` are nodes with an edge."""

    edges: int
    cut_edges: int
    inner: int
    halo: int
    copies: int
    originals: int
    train: int | None
    row_bytes: int
    rows_sent: list[int]


def _count(shard: Shard) -> _Counts:
    has_edge = (shard.in_degree + shard.out_degree) > 0
    train = None if shard.split is None else shard.split[: shard.num_inner] == SPLIT_CODES["train"]
    return _Counts(
        edges=shard.num_edges,
        cut_edges=_count_cut_edges(shard),
        inner=shard.num_inner,
        halo=shard.num_halo,
        copies=int(np.count_nonzero(has_edge)),
        originals=int(np.count_nonzero(has_edge[: shard.num_inner])),
        train=None if train is None else int(np.count_nonzero(train)),
        row_bytes=4 * shard.manifest.feature_width,
        rows_sent=np.diff(shard.plan.send_offsets).tolist(),
    )


def _count_cut_edges(shard: Shard) -> int:
    cut = 0
    for start in range(0, shard.num_edges, BLOCK_EDGES):
        block = slice(start, start + BLOCK_EDGES)
        cut += int(np.count_nonzero(shard.owner[shard.src[block]] != shard.owner[shard.dst[block]]))
    return cut


def _balance(load: Sequence[int]) -> float:
    array: npt.NDArray[np.int64] = np.asarray(load)
    return float(array.max() / array.mean()) if array.sum() else 1.0
