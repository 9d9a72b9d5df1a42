"""Graph convolutions that are exact on a shard: they see every neighbour, wherever its edges lie.

So they are while the exchange is exact; under another schedule or codec they take what it brings.

Each takes the rows of inner nodes, and of all local nodes where these are at hand already (the
stored features), and returns the rows of inner nodes. Where a layer narrows rows, it does so before
they travel: a linear map of a sum is the sum of the mapped rows.
"""

import torch
import torch.nn.functional as F  # noqa: N812  # the name the field uses
from torch import nn

from asepr.trainer_plugin.local_graph import LocalGraph

MOST_DRIFT = 60.0
"""exp(60) and exp(-60), and sums of them, are well within float32."""


class SAGEConv(nn.Module):
    """GraphSAGE with mean or sum: `W_self h_v + W_neighbour agg_u h_u + b`.

    Parameters
    ----------
    in_width, out_width : int
    aggregate : "mean" or "sum"
        The mean divides by the global in-degree; a node without in-edges aggregates zeros.

    Notes
    -----
    Source: Hamilton, Ying, Leskovec, Inductive representation learning on large graphs, 2017.
    """

    def __init__(self, in_width: int, out_width: int, aggregate: str = "mean") -> None:
        super().__init__()
        self.own = nn.Linear(in_width, out_width)
        self.neighbour = nn.Linear(in_width, out_width, bias=False)
        self._mean = aggregate == "mean"

    def forward(self, graph: LocalGraph, inner: torch.Tensor, local: torch.Tensor | None = None) -> torch.Tensor:
        """Return (num_inner, out_width)."""
        if self.neighbour.out_features < self.neighbour.in_features:
            total = _sum_of_mapped(graph, inner, local, self.neighbour)
        else:
            total = self.neighbour(graph.sum_neighbours(inner, local))
        if self._mean:
            total = total / graph.in_degree.clamp(min=1)
        result: torch.Tensor = self.own(inner) + total
        return result


class GCNConv(nn.Module):
    """Graph convolution with a self-loop added to each node and symmetric normalisation.

    `(D_in + 1)^-1/2 (A + I) (D_out + 1)^-1/2 H W + b` with global degrees; a self-loop of the graph
    counts besides the one added.

    Parameters
    ----------
    in_width, out_width : int

    Notes
    -----
    Source: Kipf, Welling, Semi-supervised classification with graph convolutional networks, 2017.
    """

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_width, out_width, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_width))

    def forward(self, graph: LocalGraph, inner: torch.Tensor, local: torch.Tensor | None = None) -> torch.Tensor:
        """Return (num_inner, out_width)."""
        scale = (graph.out_degree + 1).rsqrt()
        inner = inner * scale[: graph.num_inner]
        local = None if local is None else local * scale
        if self.linear.out_features < self.linear.in_features:
            total = _sum_of_mapped(graph, inner, local, self.linear) + self.linear(inner)
        else:
            total = self.linear(graph.sum_neighbours(inner, local) + inner)
        result: torch.Tensor = total * (graph.in_degree + 1).rsqrt() + self.bias
        return result


class GINConv(nn.Module):
    """Graph isomorphism layer: `MLP((1 + eps) h_v + sum_u h_u)` with a learned eps.

    Parameters
    ----------
    in_width, out_width : int

    Notes
    -----
    Source: Xu, Hu, Leskovec, Jegelka, How powerful are graph neural networks?, 2019, equation 4.1.
    """

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(in_width, out_width), nn.ReLU(), nn.Linear(out_width, out_width))
        self.eps = nn.Parameter(torch.zeros(()))

    def forward(self, graph: LocalGraph, inner: torch.Tensor, local: torch.Tensor | None = None) -> torch.Tensor:
        """Return (num_inner, out_width)."""
        result: torch.Tensor = self.mlp((1 + self.eps) * inner + graph.sum_neighbours(inner, local))
        return result


class GATConv(nn.Module):
    """Graph attention, additive, with a self-loop added to each node; heads side by side.

    `sum_u softmax_u(leaky_relu(a_own z_v + a_neighbour z_u)) z_u + b` with `z = W h` and u over the sources
    of all in-edges of v and v itself.

    Parameters
    ----------
    in_width, out_width : int
    heads : int
        At most; the greatest number of those that divides `out_width`.

    Notes
    -----
    In a vertex-cut the in-edges of a node lie in several parts. Its owner learns the greatest score of all
    and tells the copies; each sums `exp(score - greatest)` and its products with z; and the owner adds up
    both and divides. The greatest scores only keep the exponentials in range: as the softmax does not change
    with them they need no gradient, and travel whole and at once. Where sums may be late, all parts keep the
    greatest scores of the last whole step, so that a node's sums share one; `MOST_DRIFT` then bounds how far
    scores may have moved since.
    Source: Velickovic et al., Graph attention networks, 2018, equations 1 to 5.
    """

    def __init__(self, in_width: int, out_width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = next(count for count in range(heads, 0, -1) if out_width % count == 0)
        self.linear = nn.Linear(in_width, out_width, bias=False)
        self.own = nn.Parameter(torch.empty(self.heads, out_width // self.heads))
        self.neighbour = nn.Parameter(torch.empty(self.heads, out_width // self.heads))
        self.bias = nn.Parameter(torch.zeros(out_width))
        nn.init.xavier_uniform_(self.own)
        nn.init.xavier_uniform_(self.neighbour)

    def forward(self, graph: LocalGraph, inner: torch.Tensor, local: torch.Tensor | None = None) -> torch.Tensor:
        """Return (num_inner, out_width)."""
        z = graph.exchange.scatter(self.linear(inner)) if local is None else self.linear(local)
        z = z.view(len(z), self.heads, -1)
        src, dst = graph.edges_and_loops
        own, neighbour = (z * self.own).sum(2), (z * self.neighbour).sum(2)
        score = F.leaky_relu(own[dst] + neighbour[src], 0.2)
        # Against the greatest of this step the upper bound does nothing, and the lower one less than rounding.
        above = (score - graph.greatest_of_neighbours(score.detach(), dst)[dst]).clamp(-MOST_DRIFT, MOST_DRIFT)
        weight = above.exp()
        sums = z.new_zeros(len(z), self.heads, z.shape[2] + 1)
        sums = sums.index_add(0, dst, torch.cat([weight[:, :, None] * z[src], weight[:, :, None]], dim=2))
        sums = graph.add_copies(sums.view(len(z), -1)).view(graph.num_inner, self.heads, -1)
        result: torch.Tensor = (sums[:, :, :-1] / sums[:, :, -1:]).reshape(graph.num_inner, -1) + self.bias
        return result


class RGCNConv(nn.Module):
    """Relational graph convolution: a matrix for each edge type, each a sum of the same few.

    `W_self h_v + sum_r 1 / |N_r(v)| sum_(u in N_r(v)) W_r h_u + b` with `W_r = sum_b a_rb V_b`; N_r(v) are the
    sources of all in-edges of v of type r, parallel edges counted each time.

    Parameters
    ----------
    in_width, out_width, num_types : int
    bases : int
        Number of matrices V; 0, or more than there are types: each type has a matrix of its own.

    Notes
    -----
    Source: Schlichtkrull et al., Modeling relational data with graph convolutional networks, 2018, equations 2 and 3.
    """

    def __init__(self, in_width: int, out_width: int, num_types: int, bases: int = 0) -> None:
        super().__init__()
        has_bases = 0 < bases < num_types
        self.own = nn.Linear(in_width, out_width)
        self.basis = nn.Parameter(torch.empty(bases if has_bases else num_types, in_width, out_width))
        for matrix in self.basis:
            nn.init.xavier_uniform_(matrix)
        self.share = nn.Parameter(torch.empty(num_types, bases)) if has_bases else None
        if self.share is not None:
            nn.init.xavier_uniform_(self.share)

    def forward(self, graph: LocalGraph, inner: torch.Tensor, local: torch.Tensor | None = None) -> torch.Tensor:
        """Return (num_inner, out_width)."""
        if local is None:
            local = graph.exchange.scatter(inner)
        rows = torch.einsum("nf,bfo->nbo", local, self.basis)
        if self.share is not None:
            rows = torch.einsum("nbo,rb->nro", rows, self.share)
        result: torch.Tensor = self.own(inner) + graph.sum_means_by_type(rows)
        return result


def _sum_of_mapped(
    graph: LocalGraph, inner: torch.Tensor, local: torch.Tensor | None, linear: nn.Linear
) -> torch.Tensor:
    if local is None:
        return graph.sum_neighbours(linear(inner))
    mapped = linear(local)
    return graph.sum_neighbours(mapped[: graph.num_inner], mapped)
