"""Graphs that other libraries hold in memory: PyG, DGL, networkx, scipy. None of them is imported here but scipy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from asepr.contracts import NO_LABEL, SPLIT_CODES, ByteArray, FeatureSource, IdArray
from asepr.errors import EdgeSourceError, NodeSourceError
from asepr.formats.array_tables import ArrayTable
from asepr.formats.edge_readers import EdgeColumns
from asepr.formats.graph_files import EdgeFiles, GraphFiles, NodeFiles
from asepr.formats.node_sources import DenseFeatures, NodeColumns, SparseFeatures
from asepr.formats.numbered_graphs import Column, NumberedEdges, NumberedGraph, NumberedNodes

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Keys:
    """Under which keys a graph keeps what belongs to its nodes and edges; read where they are there.

    Attributes
    ----------
    label : str
    features, edge_features : tuple of str
        Side by side, in this order.
    weight : str
    time : str or None
    """

    label: str = "label"
    features: tuple[str, ...] = ("feat",)
    edge_features: tuple[str, ...] = ("feat",)
    weight: str = "weight"
    time: str | None = None


DGL_KEYS = Keys()
PYG_KEYS = Keys(label="y", features=("x",), edge_features=("edge_attr",), weight="edge_weight")


def from_pyg(data: Any, keys: Keys = PYG_KEYS) -> NumberedGraph:
    """Take a PyG `Data` or `HeteroData`, its arrays unchanged.

    Parameters
    ----------
    data : torch_geometric.data.Data or HeteroData
        Edges as `edge_index`; splits as `train_mask`, `val_mask`, `test_mask`.
    keys : Keys

    Returns
    -------
    NumberedGraph
        What `asepr.partition` takes.

    Raises
    ------
    TableError
        A tensor is not what it must be.
    """
    where = type(data).__name__
    if not hasattr(data, "node_types"):
        return NumberedGraph(
            where=where,
            nodes=(number_nodes(where, _pyg_count(where, data), _arrays(data.to_dict()), keys),),
            edges=(_pyg_edges(where, data, keys, 0, 0),),
        )
    types = list(data.node_types)
    return NumberedGraph(
        where=where,
        nodes=tuple(
            number_nodes(f"{where}: {t}", _pyg_count(t, data[t]), _arrays(data[t].to_dict()), keys) for t in types
        ),
        edges=tuple(
            _pyg_edges(f"{where}: {':'.join(t)}", data[t], keys, types.index(t[0]), types.index(t[2]))
            for t in data.edge_types
        ),
        node_types=tuple(types),
        edge_types=tuple(data.edge_types),
    )


def from_dgl(graph: Any, keys: Keys = DGL_KEYS, where: str = "DGLGraph") -> NumberedGraph:
    """Take a `DGLGraph` of one type or many, its tensors unchanged.

    Parameters
    ----------
    graph : dgl.DGLGraph
        Splits as `train_mask`, `val_mask`, `test_mask`.
    keys : Keys
    where : str
        How messages call it.

    Raises
    ------
    TableError
        A tensor is not what it must be.
    """
    types = list(graph.ntypes)
    nodes = [number_nodes(where, graph.num_nodes(t), _arrays(graph.nodes[t].data), keys) for t in types]
    edges = []
    for edge_type in graph.canonical_etypes:
        src, dst = (_array(end) for end in graph.edges(etype=edge_type, order="eid"))
        ends = types.index(edge_type[0]), types.index(edge_type[2])
        edges.append(number_edges(where, src, dst, _arrays(graph.edges[edge_type].data), keys, *ends))
    is_typed = len(types) > 1 or len(edges) > 1
    return NumberedGraph(
        where=where,
        nodes=tuple(nodes),
        edges=tuple(edges),
        node_types=tuple(types) if is_typed else (),
        edge_types=tuple(graph.canonical_etypes) if is_typed else (),
    )


def from_scipy(
    matrix: Any, *, features: Any = None, label: npt.ArrayLike | None = None, split: npt.ArrayLike | None = None
) -> NumberedGraph:
    """Take an adjacency matrix: an edge a stored entry, from row to column, in the order in which it is stored.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array (N, N)
        Values are weights.
    features : array or scipy.sparse matrix (N, F), optional
    label : integer (N,), optional
    split : (N,) of "train", "val", "test" or "", optional

    Raises
    ------
    TableError
        The matrix is not square, or an array has another number of rows.
    """
    where = "sparse matrix"
    shape = getattr(matrix, "shape", type(matrix).__name__)
    if not _is_sparse(matrix) or len(shape) != 2 or shape[0] != shape[1]:
        raise EdgeSourceError(f"{where}: must be a square scipy.sparse matrix, got {shape}; give one range of ids")
    entries, num_nodes = matrix.tocoo(), int(shape[0])
    data = {} if label is None else {"label": np.asarray(label)}
    if split is not None:
        names = np.asarray(split)
        data |= {f"{name}_mask": names == name for name in SPLIT_CODES if name}
    if features is not None and not _is_sparse(features):
        data["feat"] = np.asarray(features)
    sparse = SparseFeatures(scipy.sparse.csr_matrix(features), where) if _is_sparse(features) else None
    return NumberedGraph(
        where=where,
        nodes=(number_nodes(where, num_nodes, data, DGL_KEYS, sparse),),
        edges=(number_edges(where, entries.row, entries.col, {"weight": entries.data}, DGL_KEYS),),
    )


def from_networkx(graph: Any, columns: NodeColumns | None = None, *, weight: str = "weight") -> GraphFiles:
    """Take a networkx graph; its nodes keep their names as ids.

    Parameters
    ----------
    graph : networkx graph
        Nodes are all integers or all strings. An undirected edge gives both directions, a self-loop one edge.
    columns : NodeColumns, optional
        Node attributes: `label`, `split` and feature attributes (numbers or lists), read where nodes have them.
    weight : str
        Edge attribute; edges without it weigh 1 where others have it.

    Raises
    ------
    TableError
        Nodes are of several kinds, or only some have an attribute.
    """
    columns, where = columns or NodeColumns(), "networkx graph"
    names = list(graph.nodes)
    if not names or not (all(isinstance(n, str) for n in names) or all(type(n) is int for n in names)):
        kinds = ", ".join(sorted({type(n).__name__ for n in names})) or "none"
        raise NodeSourceError(f"{where}: nodes must be all integers or all strings, got {kinds}; relabel them")
    found: dict[str, list[Any]] = {columns.id: names}
    attributes = list(dict.fromkeys(key for _, data in graph.nodes(data=True) for key in data))
    for key in (columns.label, columns.split, *columns.feature_names(attributes)):
        if key in attributes:
            found[key] = [data.get(key) for _, data in graph.nodes(data=True)]
    rows = list(_nx_edges(graph))
    edges: dict[str, list[Any]] = {"src": [u for u, _, _ in rows], "dst": [v for _, v, _ in rows]}
    if any(weight in data for _, _, data in rows):
        edges["weight"] = [float(data.get(weight, 1)) for _, _, data in rows]
    return GraphFiles(
        where=where,
        nodes=(NodeFiles(tables=(ArrayTable(f"{where}: nodes", found),), columns=columns),),
        edges=(EdgeFiles(table=ArrayTable(f"{where}: edges", edges), columns=EdgeColumns()),),
        why_mapped="nodes have names",
    )


def number_nodes(
    where: str, num_nodes: int, data: Arrays, keys: Keys, features: FeatureSource | None = None
) -> NumberedNodes:
    """Return the nodes of a type from arrays of one row a node.

    Raises
    ------
    NodeSourceError
        An array is not what it must be.
    """
    for key in (keys.label, *keys.features, *_MASKS):
        if key in data and (not data[key].ndim or len(data[key]) != num_nodes):
            raise NodeSourceError(f"{where}: {key} must have {num_nodes} rows, got {data[key].shape}; mend it")
    return NumberedNodes(
        num_nodes=num_nodes,
        label=_label(where, keys.label, data[keys.label]) if keys.label in data else None,
        split=split_of_masks(where, {_MASKS[key]: data[key] for key in _MASKS if key in data}),
        features=features or _features(where, data, keys.features),
    )


def number_edges(
    where: str,
    src: npt.NDArray[Any],
    dst: npt.NDArray[Any],
    data: Arrays,
    keys: Keys,
    src_type: int = 0,
    dst_type: int = 0,
) -> NumberedEdges:
    """Return the edges of a type from arrays of one row an edge.

    Raises
    ------
    TableError
        An array is not what it must be.
    """
    found = {key: data[key].reshape(-1) for key in (keys.weight, keys.time) if key is not None and key in data}
    table = ArrayTable(f"{where}: edges", {"src": src, "dst": dst} | found)
    weight, time = (
        Column(tables=(table,), names=(key,)) if key is not None and key in found else None
        for key in (keys.weight, keys.time)
    )
    return NumberedEdges(
        tables=(table,),
        num_edges=len(src),
        src_type=src_type,
        dst_type=dst_type,
        weight=weight,
        time=time,
        features=_features(where, data, keys.edge_features),
    )


def split_of_masks(where: str, masks: Mapping[str, npt.NDArray[Any]]) -> ByteArray | None:
    """Return codes of splits from one mask a split, None where there is no mask.

    Raises
    ------
    NodeSourceError
        A mask is of several columns, or a node is in two.
    """
    if not masks:
        return None
    split = np.zeros(len(next(iter(masks.values()))), dtype=np.uint8)
    for name, mask in masks.items():
        chosen = mask.astype(np.bool_)
        if chosen.ndim != 1:
            raise NodeSourceError(f"{where}: {name}_mask must have one column, got {mask.shape}; choose one split")
        twice = chosen & (split != 0)
        if twice.any():
            raise NodeSourceError(
                f"{where}: a node must be in one split, got node {int(np.argmax(twice))} in several; mend {name}_mask"
            )
        split[chosen] = SPLIT_CODES[name]
    return split


_MASKS = {f"{name}_mask": name for name in SPLIT_CODES if name}


def _is_sparse(value: Any) -> bool:
    return scipy.sparse.issparse(value)


def _pyg_count(where: str, store: Any) -> int:
    if store.num_nodes is None:
        raise NodeSourceError(f"{where}: must say how many nodes there are, got none; set num_nodes")
    return int(store.num_nodes)


def _pyg_edges(where: str, store: Any, keys: Keys, src_type: int, dst_type: int) -> NumberedEdges:
    ends = _array(store["edge_index"]) if "edge_index" in store and store["edge_index"] is not None else None
    if ends is None or ends.ndim != 2 or ends.shape[0] != 2:
        got = "none" if ends is None else f"shape {ends.shape}"
        raise EdgeSourceError(f"{where}: edge_index must be of shape (2, E), got {got}; convert adj_t with ToEdgeIndex")
    return number_edges(where, ends[0], ends[1], _arrays(store.to_dict()), keys, src_type, dst_type)


def _nx_edges(graph: Any) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    for u, v, data in graph.edges(data=True):
        yield u, v, data
        if not graph.is_directed() and u != v:
            yield v, u, data


def _arrays(data: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors and arrays among values."""
    return {key: _array(value) for key, value in data.items() if hasattr(value, "detach") or hasattr(value, "dtype")}


def _array(value: Any) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
    return array


def _label(where: str, key: str, values: npt.NDArray[Any]) -> IdArray:
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "iub":
        raise NodeSourceError(
            f"{where}: {key} must be one integer a node, got {values.dtype} of shape {values.shape}; "
            "give labels another key"
        )
    if len(values) and values.min() < NO_LABEL:
        row = int(np.argmin(values))
        raise NodeSourceError(f"{where}: row {row}: {key} must be at least -1, got {values[row]}; -1 means no label")
    return values.astype(np.int64)


def _features(where: str, data: Arrays, keys: Sequence[str]) -> FeatureSource | None:
    found = [data[key] for key in keys if key in data]
    if not found:
        return None
    if any(array.dtype.kind not in "fiub" for array in found):
        raise NodeSourceError(f"{where}: {', '.join(keys)} must be real numbers, got {found[0].dtype}; convert them")
    blocks = [array.reshape(len(array), -1) for array in found]
    return DenseFeatures(blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1), where)
