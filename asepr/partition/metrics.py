"""How good a partition is, counted from the shards themselves."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import NO_LABEL, SPLIT_CODES, PartArray
from asepr.formats.shard import Shard

BLOCK_EDGES = 1 << 20
BLOCK_VALUES = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class QualityReport:
    """The figures of `asepr inspect`; lists have one entry a part.

    Attributes
    ----------
    replication_factor : float
        Copies of nodes over nodes, among nodes with an edge; 1 where there is no edge.
    edge_cut : float
        Fraction of edges whose ends have different owners; 0 where there is no edge.
    weight_cut : float or None
        The same of the weights of edges, which must not be negative; None where edges have none.
    edge_balance, replica_balance, node_balance, train_balance : float
        Largest over mean of: edges, local nodes (copies included), inner nodes, inner training nodes
        (None without a split).
    edges, inner_nodes, halo_nodes : list of int
    peak_replication : float
        `replication_factor * replica_balance`: the replication factor if every part were as full as the fullest,
        whose machine decides how much memory is needed.
    label_divergence : float or None
        Mean of `label_divergence_by_part`, weighted by labelled inner nodes; None without a label.
    label_divergence_by_part : list of float or None
        Total variation distance, in [0, 1], between the labels of a part's inner nodes and those of the whole
        graph: the least share of the part's labelled nodes whose labels would have to change for it to mirror the
        whole. 0 where a part has no labelled node.
    attribute_coherence, attribute_coherence_whole : float or None
        How alike the features of the inner nodes of a part are: the mean over all nodes of the cosine between a
        node's features and the mean direction (of features scaled to length 1) of the part that owns it. In
        [0, 1]; nodes without a feature other than 0 are left out. `whole` is the same with the graph as one
        part, which is the least that a partition can have. None without features.
    train_nodes : list of int or None
        Inner training nodes.
    feature_bytes : dict of list of int
        Bytes of features of `inner` and `halo` rows.
    comm_matrix : list of list of int
        Entry [p][q]: rows that p sends to q in one exchange.
    node_types, edge_types : dict of str to list of int, or None
        Inner nodes, and edges, of each type in each part; None without types.
    """

    replication_factor: float
    edge_cut: float
    weight_cut: float | None
    edge_balance: float
    replica_balance: float
    peak_replication: float
    node_balance: float
    train_balance: float | None
    label_divergence: float | None
    label_divergence_by_part: list[float] | None
    attribute_coherence: float | None
    attribute_coherence_whole: float | None
    edges: list[int]
    inner_nodes: list[int]
    halo_nodes: list[int]
    train_nodes: list[int] | None
    feature_bytes: dict[str, list[int]]
    comm_matrix: list[list[int]]
    node_types: dict[str, list[int]] | None = None
    edge_types: dict[str, list[int]] | None = None

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
    replication = sum(count.copies for count in counts) / originals if originals else 1.0
    replica_balance = _balance([a + b for a, b in zip(inner, halo, strict=True)])
    divergence, divergence_by_part = _label_divergence([count.labels for count in counts])
    coherence, coherence_whole = _attribute_coherence([count.directions for count in counts])
    return QualityReport(
        replication_factor=replication,
        edge_cut=sum(count.cut_edges for count in counts) / max(sum(edges), 1),
        weight_cut=_weight_cut([count.cut_weight for count in counts]),
        edge_balance=_balance(edges),
        replica_balance=replica_balance,
        peak_replication=replication * replica_balance,
        node_balance=_balance(inner),
        train_balance=None if train is None else _balance(train),
        label_divergence=divergence,
        label_divergence_by_part=divergence_by_part,
        attribute_coherence=coherence,
        attribute_coherence_whole=coherence_whole,
        edges=edges,
        inner_nodes=inner,
        halo_nodes=halo,
        train_nodes=train,
        feature_bytes={
            "inner": [count.row_bytes * count.inner for count in counts],
            "halo": [count.row_bytes * count.halo for count in counts],
        },
        comm_matrix=[count.rows_sent for count in counts],
        node_types=_by_type([count.node_types for count in counts]),
        edge_types=_by_type([count.edge_types for count in counts]),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Directions:
    """Features of inner nodes, scaled to length 1: their sum, float64 (F,), and how many are not 0."""

    total: npt.NDArray[np.float64]
    num_nodes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Counts:
    """What one shard adds to the report; `copies` and `originals` are nodes with an edge."""

    edges: int
    cut_edges: int
    cut_weight: npt.NDArray[np.float64] | None
    inner: int
    halo: int
    copies: int
    originals: int
    train: int | None
    row_bytes: int
    rows_sent: list[int]
    labels: npt.NDArray[np.int64] | None
    directions: _Directions | None
    node_types: dict[str, int] | None
    edge_types: dict[str, int] | None


def _count(shard: Shard) -> _Counts:
    has_edge = (shard.in_degree + shard.out_degree) > 0
    train = None if shard.split is None else shard.split[: shard.num_inner] == SPLIT_CODES["train"]
    return _Counts(
        edges=shard.num_edges,
        cut_edges=_count_cut_edges(shard),
        cut_weight=_add_cut_weights(shard),
        inner=shard.num_inner,
        halo=shard.num_halo,
        copies=int(np.count_nonzero(has_edge)),
        originals=int(np.count_nonzero(has_edge[: shard.num_inner])),
        train=None if train is None else int(np.count_nonzero(train)),
        row_bytes=4 * shard.manifest.feature_width,
        rows_sent=np.diff(shard.plan.send_offsets).tolist(),
        labels=_count_labels(shard),
        directions=_sum_directions(shard),
        node_types=_count_types(shard.manifest.node_types, shard.ntype, shard.num_inner),
        edge_types=_count_types([":".join(name) for name in shard.manifest.edge_types], shard.etype, shard.num_edges),
    )


def _count_types(names: Sequence[str], codes: PartArray | None, num_rows: int) -> dict[str, int] | None:
    """Count the first rows of each type, by name, or by code where types have no names; None without types."""
    if codes is None:
        return {names[0]: num_rows} if names else None
    counted: dict[int, int] = {}
    for start in range(0, num_rows, BLOCK_EDGES):
        found, times = np.unique(codes[start : min(start + BLOCK_EDGES, num_rows)], return_counts=True)
        for code, count in zip(found.tolist(), times.tolist(), strict=True):
            counted[code] = counted.get(code, 0) + count
    if names:
        return {name: counted.get(code, 0) for code, name in enumerate(names)}
    return {str(code): counted[code] for code in sorted(counted)}


def _by_type(counts: Sequence[dict[str, int] | None]) -> dict[str, list[int]] | None:
    """Turn counts by type of each part into counts by part of each type."""
    known = [count for count in counts if count is not None]
    if not known:
        return None
    names = list(dict.fromkeys(name for count in known for name in count))
    if all(name.lstrip("-").isdigit() for name in names):
        names.sort(key=int)
    return {name: [count.get(name, 0) for count in known] for name in names}


def _count_cut_edges(shard: Shard) -> int:
    cut = 0
    for start in range(0, shard.num_edges, BLOCK_EDGES):
        block = slice(start, start + BLOCK_EDGES)
        cut += int(np.count_nonzero(shard.owner[shard.src[block]] != shard.owner[shard.dst[block]]))
    return cut


def _add_cut_weights(shard: Shard) -> npt.NDArray[np.float64] | None:
    """Return float64 (2,): what the edges between owners weigh, and all edges; None without weights."""
    if shard.weight is None:
        return None
    totals = np.zeros(2)
    for start in range(0, shard.num_edges, BLOCK_EDGES):
        block = slice(start, start + BLOCK_EDGES)
        is_cut = shard.owner[shard.src[block]] != shard.owner[shard.dst[block]]
        weight = shard.weight[block]
        totals += weight[is_cut].sum(dtype=np.float64), weight.sum(dtype=np.float64)
    return totals


def _weight_cut(weights: Sequence[npt.NDArray[np.float64] | None]) -> float | None:
    known = [weight for weight in weights if weight is not None]
    if not known:
        return None
    cut, total = np.sum(known, axis=0)
    return float(cut / total) if total > 0 else 0.0


def _count_labels(shard: Shard) -> npt.NDArray[np.int64] | None:
    """Return int64 (num_classes,): inner nodes of each label."""
    if shard.label is None:
        return None
    label = shard.label[: shard.num_inner]
    return np.bincount(label[label != NO_LABEL], minlength=shard.manifest.num_classes)


def _sum_directions(shard: Shard) -> _Directions | None:
    if shard.features is None:
        return None
    total = np.zeros(shard.manifest.feature_width)
    num_nodes = 0
    block_rows = max(1, BLOCK_VALUES // max(shard.manifest.feature_width, 1))
    for start in range(0, shard.num_inner, block_rows):
        rows = shard.features[start : min(start + block_rows, shard.num_inner)].astype(np.float64)
        length = np.linalg.norm(rows, axis=1)
        has_direction = length > 0
        total += (rows[has_direction] / length[has_direction, None]).sum(axis=0)
        num_nodes += int(np.count_nonzero(has_direction))
    return _Directions(total=total, num_nodes=num_nodes)


def _label_divergence(
    labels: Sequence[npt.NDArray[np.int64] | None],
) -> tuple[float | None, list[float] | None]:
    counted = [count for count in labels if count is not None]
    total = sum(int(count.sum()) for count in counted)
    if not total:
        return None, None
    whole = np.sum(counted, axis=0) / total
    by_part = [
        0.5 * float(np.abs(count / max(count.sum(), 1) - whole).sum()) if count.any() else 0.0 for count in counted
    ]
    return sum(d * int(count.sum()) for d, count in zip(by_part, counted, strict=True)) / total, by_part


def _attribute_coherence(directions: Sequence[_Directions | None]) -> tuple[float | None, float | None]:
    """Use that the mean cosine of unit vectors with their mean's direction is the length of that mean."""
    found = [direction for direction in directions if direction is not None]
    num_nodes = sum(direction.num_nodes for direction in found)
    if not num_nodes:
        return None, None
    apart = sum(float(np.linalg.norm(direction.total)) for direction in found)
    together = np.sum([direction.total for direction in found], axis=0)
    return apart / num_nodes, float(np.linalg.norm(together)) / num_nodes


def _balance(load: Sequence[int]) -> float:
    array: npt.NDArray[np.int64] = np.asarray(load)
    return float(array.max() / array.mean()) if array.sum() else 1.0
