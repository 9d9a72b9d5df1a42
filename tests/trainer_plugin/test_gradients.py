"""Sums of gradients equal those of all ranks' gradients, however early they start."""

import numpy as np
import pytest
import torch

from asepr.trainer_plugin.gradients import GradientSum
from tests.trainer_plugin.processes import run_ranks

NUM_RANKS = 3


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    # Four buckets of sums, of which the third is of two layers.
    return torch.nn.Sequential(*(torch.nn.Linear(n, m) for n, m in ((200, 200), (200, 20), (20, 200), (200, 200))))


def find_gradients(model: torch.nn.Sequential, rank: int) -> torch.Tensor:
    """Go backward from the loss of a rank; of rank 1 the first layers have none, and rank 2 has no gradient at all."""
    rows = torch.randn(8, 200, generator=torch.Generator().manual_seed(rank))
    used = (model, model[3:], None)[rank]
    if used is None:
        return torch.tensor(2.5)
    loss = used(rows).square().sum()
    loss.backward()
    return loss.detach()


def sum_gradients(rank: int, spec: str) -> tuple[float, list[np.ndarray]]:
    model = make_model()
    gradient_sum = GradientSum(list(model.parameters()), spec, rank, NUM_RANKS)
    total = 0.0
    for _ in range(2):
        model.zero_grad()
        gradient_sum.start()
        loss = find_gradients(model, rank)
        total = gradient_sum(loss)
    found = [p.grad.numpy().copy() for p in model.parameters()]
    # Outside of a step gradients stay one's own.
    model.zero_grad()
    find_gradients(model, rank)
    alone = make_model()
    find_gradients(alone, rank)
    for ours, own in zip(model.parameters(), alone.parameters(), strict=True):
        assert (ours.grad is None) == (own.grad is None)
        assert ours.grad is None or torch.equal(ours.grad, own.grad)
    return total, found


@pytest.mark.parametrize(("spec", "tolerance"), [("none", 1e-5), ("fp16", 1e-2)])
def test_gradients_are_summed_over_ranks(spec: str, tolerance: float):
    expected, losses = None, 0.0
    for rank in range(NUM_RANKS):
        model = make_model()
        losses += float(find_gradients(model, rank))
        own = [np.zeros(p.shape) if p.grad is None else p.grad.double().numpy() for p in model.parameters()]
        expected = own if expected is None else [a + b for a, b in zip(expected, own, strict=True)]
    for total, found in run_ranks(NUM_RANKS, sum_gradients, spec):
        assert total == pytest.approx(losses, rel=1e-5)
        for ours, whole in zip(found, expected, strict=True):
            assert np.abs(ours - whole).max() <= tolerance * np.abs(whole).max()
