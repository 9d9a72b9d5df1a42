"""What each copy of a training node counts in the loss of the rank that holds it."""

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from asepr.contracts import FloatArray, IdArray

if TYPE_CHECKING:
    from asepr.trainer_plugin.exchange import Exchange
    from asepr.trainer_plugin.shard_graph import ShardGraph

ReplicaWeights = Literal["degree", "master", "uniform"]
REPLICA_WEIGHTS = ("degree", "master", "uniform")


def weigh_replicas(
    shard: "ShardGraph", kind: ReplicaWeights, local_in_degree: IdArray, exchange: "Exchange"
) -> FloatArray:
    """Return float32 (num_local,): the weight of each local row; those of all copies of a node sum to 1.

    Parameters
    ----------
    shard : ShardGraph
    kind : str
        `degree`: the share of the node's in-edges that lie here; all at the owner where it has none.
        `master`: 1 at the owner, 0 elsewhere. `uniform`: 1 over the number of copies.
    local_in_degree : int64 (num_local,)
    exchange : Exchange
        Tells the copies how many they are; used by `uniform` alone, and then by all ranks.

    Notes
    -----
    Source of `degree`: Cao, Deng, Wu et al., Communication-free distributed GNN training with
    vertex cut, 2023; there by all edges, here by in-edges, since these are what a row is computed from.
    """
    is_inner = np.arange(shard.num_local) < shard.num_inner
    if kind == "master":
        return is_inner.astype(np.float32)
    if kind == "uniform":
        copies = 1.0 + np.bincount(shard.plan.send_rows, minlength=shard.num_inner)
        told = exchange.send_owned(torch.from_numpy(copies.astype(np.float32))[:, None])
        weight: FloatArray = (1 / told[:, 0]).numpy()
        return weight
    share = local_in_degree / np.maximum(shard.in_degree, 1)
    return np.where(shard.in_degree == 0, is_inner, share).astype(np.float32)
