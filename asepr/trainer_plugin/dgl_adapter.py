"""A shard as a DGLGraph: the one file that knows DGL's names."""

import os

os.environ.setdefault("DGLBACKEND", "pytorch")

from typing import TYPE_CHECKING, Any

import dgl
import numpy as np
import numpy.typing as npt
import torch

from asepr.contracts import NO_LABEL, SPLIT_CODES

if TYPE_CHECKING:
    from asepr.trainer_plugin.shard_graph import ShardGraph


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
        them `etype`, `weight`, `feat`.

    Notes
    -----
    On an edge-cut shard all in-edges of an inner node are here, so a stock layer is exact on inner
    rows once halo rows are filled. On a vertex-cut shard a node's edges may lie in several parts:
    sum locally, then `Exchange.gather`.
    """
    graph = dgl.graph((_tensor(shard.src), _tensor(shard.dst)), num_nodes=shard.num_local)
    nodes: dict[str, npt.NDArray[Any] | None] = {
        dgl.NID: shard.nid,
        "inner_node": np.arange(shard.num_local) < shard.num_inner,
        "part_id": shard.owner,
        "in_degree": shard.in_degree,
        "out_degree": shard.out_degree,
        "feat": shard.features,
        "label": shard.label,
        "ntype": shard.ntype,
    }
    if shard.split is not None:
        # As in the manifest's split sizes and the trainer: a node without a label is in no split.
        usable = np.True_ if shard.label is None else shard.label != NO_LABEL
        nodes |= {f"{name}_mask": (shard.split == code) & usable for name, code in SPLIT_CODES.items() if name}
    edges = {dgl.EID: shard.eid, "etype": shard.etype, "weight": shard.weight, "feat": shard.edge_features}
    for frame, columns in ((graph.ndata, nodes), (graph.edata, edges)):
        for name, values in columns.items():
            if values is not None:
                frame[name] = _tensor(values)
    return graph


def _tensor(values: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values)
