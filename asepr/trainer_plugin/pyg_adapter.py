"""A shard as PyG's `Data`: the one file of the trainer that knows PyG's names."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch_geometric.data import Data

if TYPE_CHECKING:
    from asepr.trainer_plugin.shard_graph import ShardGraph


def to_pyg(shard: "ShardGraph") -> Data:
    """Return the local nodes and edges of a shard, in local order: inner nodes first.

    Parameters
    ----------
    shard : ShardGraph

    Returns
    -------
    torch_geometric.data.Data
        `edge_index` (2, num_edges), `num_nodes`, `n_id` and `e_id` (global ids), `inner_mask`, and where the
        dataset has them `x`, `y`, `train_mask`, `val_mask`, `test_mask`, `node_type`, `edge_type`, `edge_weight`,
        `edge_attr`.

    Notes
    -----
    On an edge-cut shard all in-edges of an inner node are here, so a stock layer is exact on inner rows
    once halo rows are filled by `Exchange.scatter`.
    """
    columns = {
        "edge_index": np.stack([shard.src, shard.dst]).astype(np.int64),
        "n_id": shard.nid,
        "e_id": shard.eid,
        "inner_mask": np.arange(shard.num_local) < shard.num_inner,
        "x": shard.features,
        "y": shard.label,
        "node_type": shard.ntype,
        "edge_type": shard.etype,
        "edge_weight": shard.weight,
        "edge_attr": shard.edge_features,
    } | shard.split_masks()
    tensors = {name: torch.from_numpy(values) for name, values in columns.items() if values is not None}
    return Data(num_nodes=shard.num_local, **tensors)
