"""One shard as tensors, and the exact sum over neighbours in either layout."""

import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch

from asepr.errors import TrainingError
from asepr.trainer_plugin.exchange import Exchange

if TYPE_CHECKING:
    from asepr.trainer_plugin.shard_graph import ShardGraph


class LocalGraph:
    """What a model needs of a shard.

    Parameters
    ----------
    shard : ShardGraph
    dtype : torch.dtype
        Of sums and degrees.
    device : torch.device, optional

    Attributes
    ----------
    nid : int64 (num_inner,)
        Global ids of the inner nodes.
    in_degree : dtype (num_inner, 1), global
    out_degree : dtype (num_local, 1), global
    exchange : Exchange
    """

    def __init__(
        self, shard: "ShardGraph", dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> None:
        self.num_inner = shard.num_inner
        self.layout = shard.manifest.layout
        self.exchange = Exchange(shard.plan, device)
        self.nid = torch.from_numpy(shard.nid[: shard.num_inner]).to(device)
        self.in_degree = torch.from_numpy(shard.in_degree[: shard.num_inner]).to(device, dtype)[:, None]
        self.out_degree = torch.from_numpy(shard.out_degree).to(device, dtype)[:, None]
        # In an edge-cut every edge ends at an inner node, so halo rows need no sums.
        num_rows = shard.num_inner if self.layout == "edge-cut" else shard.num_local
        self._sum = _NeighbourSum(shard, num_rows, dtype, device)

    def sum_neighbours(self, inner: torch.Tensor, local: torch.Tensor | None = None) -> torch.Tensor:
        """Sum, for each inner node, the rows of all sources of its in-edges, wherever they lie.

        Parameters
        ----------
        inner : (num_inner, F)
        local : (num_local, F), optional
            The same with halo rows, where they are at hand; else they are fetched.

        Returns
        -------
        (num_inner, F)
        """
        if local is None:
            local = self.exchange.scatter(inner)
        partial = self._sum(local)
        return partial if self.layout == "edge-cut" else self.exchange.gather(partial)


class _NeighbourSum:
    """The local adjacency as a sparse matrix, and its transpose for the way back."""

    def __init__(self, shard: "ShardGraph", num_rows: int, dtype: torch.dtype, device: torch.device | None) -> None:
        indices = torch.from_numpy(np.stack([shard.dst, shard.src]).astype(np.int64))
        values = torch.ones(indices.shape[1], dtype=dtype)
        with warnings.catch_warnings(), torch.sparse.check_sparse_tensor_invariants(True):  # type: ignore[no-untyped-call]
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            matrix = torch.sparse_coo_tensor(indices, values, (num_rows, shard.num_local)).coalesce()
            self.forward = matrix.to_sparse_csr().to(device)
            self.backward = matrix.t().coalesce().to_sparse_csr().to(device)

    def __call__(self, local: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _SparseProduct.apply(local, self)  # type: ignore[no-untyped-call]
        return result


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local, matrix):  # type: ignore[no-untyped-def]
        ctx.matrix = matrix
        return matrix.forward @ local

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return ctx.matrix.backward @ gradient, None


def features_of(shard: "ShardGraph") -> torch.Tensor:
    """Return the features of all local rows, float32 (num_local, F), without a copy.

    Raises
    ------
    TrainingError
        The dataset has none.
    """
    features = shard.features
    if features is None:
        raise TrainingError(f"{shard.path}: must hold node features, got none; partition again with --features")
    return torch.from_numpy(features)
