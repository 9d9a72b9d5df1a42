"""The models once more, on one machine, as plain dense algebra written from their papers."""

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from tests.graphs import Graph


class DenseReference:
    """Computes on the whole graph with a dense adjacency: entry [v, u] counts the edges u -> v."""

    def __init__(self, graph: Graph, features: np.ndarray, label: np.ndarray, split: np.ndarray) -> None:
        adjacency = np.zeros((graph.num_nodes, graph.num_nodes))
        np.add.at(adjacency, (graph.dst, graph.src), 1.0)
        self.adjacency = torch.tensor(adjacency)
        self.features = torch.tensor(features, dtype=torch.float64)
        self.label = torch.tensor(label)
        self.train = torch.tensor((split == 1) & (label >= 0))

    def forward(self, model: str, weights: dict[str, torch.Tensor]) -> torch.Tensor:
        h = self.features
        for layer in range(2):
            w = {name.split(".", 2)[2]: value for name, value in weights.items() if name.startswith(f"layers.{layer}.")}
            h = getattr(self, f"_{model.replace('-', '_')}")(h, w)
            if layer == 0:
                h = torch.relu(h)
        return h

    def train_weights(self, model: str, weights: dict[str, torch.Tensor], epochs: int) -> dict[str, torch.Tensor]:
        weights = {name: value.clone().requires_grad_() for name, value in weights.items()}
        optimizer = torch.optim.Adam(weights.values(), lr=0.01, weight_decay=5e-4)
        for _ in range(epochs):
            optimizer.zero_grad()
            logits = self.forward(model, weights)
            cross_entropy(logits[self.train], self.label[self.train]).backward()
            optimizer.step()
        return {name: value.detach() for name, value in weights.items()}

    def _sage(self, h: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
        degree = self.adjacency.sum(1, keepdim=True).clamp(min=1)
        return h @ w["own.weight"].T + w["own.bias"] + (self.adjacency @ h / degree) @ w["neighbour.weight"].T

    def _sage_sum(self, h: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
        return h @ w["own.weight"].T + w["own.bias"] + (self.adjacency @ h) @ w["neighbour.weight"].T

    def _gcn(self, h: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
        looped = self.adjacency + torch.eye(len(self.adjacency), dtype=torch.float64)
        normal = torch.diag(looped.sum(1) ** -0.5) @ looped @ torch.diag(looped.sum(0) ** -0.5)
        return normal @ h @ w["linear.weight"].T + w["bias"]

    def _gin(self, h: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
        z = (1 + w["eps"]) * h + self.adjacency @ h
        z = torch.relu(z @ w["mlp.0.weight"].T + w["mlp.0.bias"])
        return z @ w["mlp.2.weight"].T + w["mlp.2.bias"]

    def _gat(self, h: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
        z = h @ w["linear.weight"].T
        looped = self.adjacency + torch.eye(len(self.adjacency), dtype=torch.float64)
        outputs = []
        for own, neighbour, part in zip(w["own"], w["neighbour"], z.chunk(len(w["own"]), dim=1), strict=True):
            score = torch.nn.functional.leaky_relu((part @ own)[:, None] + (part @ neighbour)[None, :], 0.2)
            # A parallel edge counts each time, so its logarithm adds to the score.
            attention = torch.softmax(score + looped.log(), dim=1)
            outputs.append(attention @ part)
        return torch.cat(outputs, dim=1) + w["bias"]
