"""A shard as a DGLGraph: the one file that knows DGL's names."""

import os

os.environ.setdefault("DGLBACKEND", "pytorch")

from typing import TYPE_CHECKING, Any, TypeAlias

import dgl
import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from asepr.trainer_plugin.shard_graph import ShardGraph

_Columns: TypeAlias = dict[str, npt.NDArray[Any] | None]


def to_dgl(shard: "ShardGraph") -> dgl.DGLGraph:
    """Return the local nodes and edges of a shard, in local order: inner nodes first.

    Parameters
    ----------
    shard : ShardGraph

    Returns
    -------
    dgl.DGLGraph
        `ndata`: `_ID` (global id), `inner_node` (bool), `part_id` (owner), `in_degree` and
        `out_degree` (global), and where the dataset has them `feat`, `label`, `train_mask`,
        `val_mask`, `test_mask` (bool), `ntype`. `edata`: `_ID` (input row), and where the dataset has
        them `etype`, `weight`, `time`, `feat`. Where the dataset names its types: a heterograph of all of
        them, local rows of each type in local order, the same columns by type, `_ID` global for nodes too.

    Notes
    -----
    On an edge-cut shard all in-edges of an inner node are here, so a stock layer is exact on inner
    rows once halo rows are filled. On a vertex-cut shard a node's edges may lie in several parts:
    sum locally, then `Exchange.gather`.
    """
    if shard.manifest.node_types:
        return _typed(shard)
    graph = dgl.graph((_tensor(shard.src), _tensor(shard.dst)), num_nodes=shard.num_local)
    nodes = _node_columns(shard) | {"feat": shard.features, "ntype": shard.ntype}
    edges: _Columns = {
        dgl.EID: shard.eid,
        "time": shard.time,
        "etype": shard.etype,
        "weight": shard.weight,
        "feat": shard.edge_features,
    }
    _fill(graph.ndata, nodes)
    _fill(graph.edata, edges)
    return graph


def _typed(shard: "ShardGraph") -> dgl.DGLGraph:
    """Return the shard as a heterograph; rows of a type keep their order, so its inner rows come first."""
    assert shard.ntype is not None
    names = shard.manifest.node_types
    rows_of = [np.flatnonzero(shard.ntype == code) for code in range(len(names))]
    place = np.empty(shard.num_local, dtype=np.int64)
    for rows in rows_of:
        place[rows] = np.arange(len(rows))
    src, dst = place[shard.src], place[shard.dst]
    etype = np.zeros(shard.num_edges, dtype=np.int32) if shard.etype is None else shard.etype
    edges_of = [np.flatnonzero(etype == code) for code in range(len(shard.manifest.edge_types))]
    graph = dgl.heterograph(
        {
            name: (_tensor(src[edges]), _tensor(dst[edges]))
            for name, edges in zip(shard.manifest.edge_types, edges_of, strict=True)
        },
        num_nodes_dict={name: len(rows) for name, rows in zip(names, rows_of, strict=True)},
    )
    columns = _node_columns(shard)
    for name, rows in zip(names, rows_of, strict=True):
        _fill(graph.nodes[name].data, _chosen(columns, rows) | {"feat": shard.features_of(name)})
    columns = {dgl.EID: shard.eid, "weight": shard.weight, "time": shard.time, "feat": shard.edge_features}
    for edge_type, edges in zip(shard.manifest.edge_types, edges_of, strict=True):
        _fill(graph.edges[edge_type].data, _chosen(columns, edges))
    return graph


def _node_columns(shard: "ShardGraph") -> _Columns:
    """Return what every kind of graph has of its nodes, in local order."""
    columns: _Columns = {
        dgl.NID: shard.nid,
        "inner_node": np.arange(shard.num_local) < shard.num_inner,
        "part_id": shard.owner,
        "in_degree": shard.in_degree,
        "out_degree": shard.out_degree,
        "label": shard.label,
    }
    return columns | shard.split_masks()


def _chosen(columns: _Columns, rows: npt.NDArray[np.int64]) -> _Columns:
    return {name: values[rows] for name, values in columns.items() if values is not None}


def _fill(frame: Any, columns: _Columns) -> None:
    for name, values in columns.items():
        if values is not None:
            frame[name] = _tensor(values)


def _tensor(values: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values)
