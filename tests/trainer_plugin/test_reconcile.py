"""Rounds against plain loops over copies of the model, the losses against numpy."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from asepr.errors import TrainingError  # noqa: E402
from asepr.trainer_plugin.reconcile import Reconciler  # noqa: E402
from asepr.trainer_plugin.reconcile_average import AverageConfig, round_shares  # noqa: E402
from asepr.trainer_plugin.reconcile_losses import (  # noqa: E402
    ContrastConfig,
    DistillConfig,
    Outputs,
    batch_contrast,
    distillation,
    model_contrast,
)
from tests.trainer_plugin.processes import run_ranks  # noqa: E402

WEIGHTS = [3.0, 1.0]
STEPS = [7, 5]
EVERY = 3
KINDS = ("weighted", "uniform", "normalised", "elastic")


def make_model(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)).double()


def loss_of(model: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    """Differ between ranks and steps, and depend on nothing else."""
    data = torch.from_numpy(np.random.default_rng((rank, step)).standard_normal((6, 4)))
    return (model(data) - rank).square().mean()


def train_on_rank(rank: int, options: dict, kind: str = "sgd") -> tuple[list[float], int]:
    model = make_model(rank)
    optimizer = (torch.optim.SGD if kind == "sgd" else torch.optim.Adam)(model.parameters(), lr=0.1)
    reconciler = Reconciler(model, optimizer, sync_every=EVERY, weight=WEIGHTS[rank], **options)
    with reconciler:
        for step in range(STEPS[rank]):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
    return flat(model).tolist(), reconciler.bytes_sent


def flat(model: torch.nn.Module) -> np.ndarray:
    return np.concatenate([p.detach().numpy().reshape(-1) for p in model.parameters()])


def fill(model: torch.nn.Module, values: np.ndarray) -> None:
    torch.nn.utils.vector_to_parameters(torch.from_numpy(values.copy()), model.parameters())


def by_plain_loop(kind: str) -> np.ndarray:
    """Train both ranks one after the other, each round, with SGD written out."""
    common = flat(make_model(0))
    own = [common.copy(), common.copy()]
    done = [0, 0]
    while done != STEPS:
        taken = [min(EVERY, STEPS[r] - done[r]) for r in range(2)]
        for rank in range(2):
            model = make_model(0)
            fill(model, own[rank])
            for step in range(done[rank], done[rank] + taken[rank]):
                gradients = torch.autograd.grad(loss_of(model, rank, step), list(model.parameters()))
                fill(model, flat(model) - 0.1 * np.concatenate([g.numpy().reshape(-1) for g in gradients]))
            own[rank] = flat(model)
            done[rank] += taken[rank]
        active = [r for r in range(2) if taken[r]]
        total = sum(WEIGHTS[r] for r in active)
        if kind == "elastic":
            mean = sum(own[r] - common for r in active) / len(active)
            moved = common + 0.5 * mean
            own = [x - 0.5 / 2 * (x - common) for x in own]
            common = moved
            continue
        if kind == "weighted":
            common = common + sum(WEIGHTS[r] / total * (own[r] - common) for r in active)
        if kind == "uniform":
            common = common + sum((own[r] - common) / len(active) for r in active)
        if kind == "normalised":
            mean_steps = sum(WEIGHTS[r] / total * taken[r] for r in active)
            common = common + mean_steps * sum(WEIGHTS[r] / total * (own[r] - common) / taken[r] for r in active)
        own = [common.copy(), common.copy()]
    return common


def train_all(rank: int) -> dict:
    found = {kind: train_on_rank(rank, {"average": AverageConfig(kind=kind)}) for kind in KINDS}
    found["rounded"] = train_on_rank(rank, {"average": AverageConfig(bits=16)})
    for moments in ("persist", "reset", "average"):
        found[moments] = train_on_rank(rank, {"average": AverageConfig(moments=moments)}, "adam")
    return found


def test_rounds_equal_a_plain_loop_with_uneven_steps():
    answers = run_ranks(2, train_all)
    for kind in KINDS:
        for found in answers:
            np.testing.assert_allclose(found[kind][0], by_plain_loop(kind), rtol=1e-10, err_msg=kind)
    for name in ("rounded", "persist", "reset", "average"):
        assert answers[0][name][0] == answers[1][name][0], name
    # Seven and five steps in threes: rounds of 3 and 3, of 3 and 2, of 1 and none.
    size, rounds = 4 * 3 + 3 + 3 * 2 + 2, 3
    piece = math.ceil(size / 2)
    for rank in range(2):
        assert answers[rank]["weighted"][1] == rounds * 2 * piece * 8
        assert answers[rank]["rounded"][1] == rounds * 2 * piece * 2
        assert answers[rank]["average"][1] == rounds * 2 * (piece + size) * 8
    exact, rounded = (np.array(answers[0][name][0]) for name in ("weighted", "rounded"))
    first = flat(make_model(0))
    # bfloat16 has 8 bits: each round errs by less than 1/128 of the largest change.
    assert 0 < np.abs(exact - rounded).max() < rounds / 128 * np.abs(exact - first).max() + 1e-3
    assert len({tuple(answers[0][name][0]) for name in ("persist", "reset", "average")}) == 3


def test_shares_leave_out_who_took_no_step():
    weights, steps = torch.tensor([2.0, 1.0, 5.0]).double(), torch.tensor([4.0, 2.0, 0.0]).double()
    assert round_shares("weighted", weights, steps).tolist() == pytest.approx([2 / 3, 1 / 3, 0])
    assert round_shares("uniform", weights, steps).tolist() == pytest.approx([1 / 2, 1 / 2, 0])
    mean_steps = (2 * 4 + 1 * 2) / 3
    expected = [2 / 3 / 4 * mean_steps, 1 / 3 / 2 * mean_steps, 0]
    assert round_shares("normalised", weights, steps).tolist() == pytest.approx(expected)
    for kind in KINDS:
        assert round_shares(kind, weights, torch.zeros(3).double()).tolist() == [0, 0, 0]


def test_one_process_is_plain_training_and_teachers_come_after_the_first_round():
    model, plain = make_model(0), make_model(0)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, plain)]
    penalties = []
    frozen = []

    def run(some: torch.nn.Module) -> Outputs:
        frozen.append(all(not p.requires_grad for p in some.parameters()))
        return Outputs(logits=some(torch.ones(5, 4).double()), hidden=[some[0](torch.ones(5, 4).double())])

    distill, contrast = DistillConfig(layers=1.0), ContrastConfig(batch=1.0)
    with Reconciler(model, optimizers[0], sync_every=2, distill=distill, contrast=contrast) as reconciler:
        for step in range(5):
            penalties.append(reconciler.penalty(run(model), run).item())
            for some, optimizer in zip((model, plain), optimizers, strict=True):
                optimizer.zero_grad()
                loss_of(some, 0, step).backward()
                optimizer.step()
        assert reconciler.round == 2
    np.testing.assert_allclose(flat(model), flat(plain), rtol=1e-12)
    assert penalties[:2] == [0, 0]
    assert min(penalties[2:]) > 0
    assert frozen.count(True) == 6


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_losses_equal_their_formulas():
    rng = np.random.default_rng(0)
    z, t, h, g, p = (rng.standard_normal((7, 5)) for _ in range(5))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (h, g, p)]
    tensors = [torch.from_numpy(x) for x in (z, t, h, g, p)]
    a, b = softmax(t / 3), softmax(z / 3)
    expected = 0.7 * 9 * (a * np.log(a / b)).sum(1).mean() + 0.2 * ((unit[0] - unit[1]) ** 2).sum(1).mean()
    own, teacher = Outputs(logits=tensors[0], hidden=[tensors[2]]), Outputs(logits=tensors[1], hidden=[tensors[3]])
    found = distillation(own, teacher, DistillConfig(logits=0.7, layers=0.2, temperature=3.0))
    assert float(found) == pytest.approx(expected)
    cosine = unit[0] @ unit[1].T
    towards, away = np.exp(np.diag(cosine) / 0.5), np.exp((unit[0] * unit[2]).sum(1) / 0.5)
    expected = -np.log(towards / (towards + away)).mean()
    assert float(model_contrast(*tensors[2:], 0.5)) == pytest.approx(expected)
    expected = -np.log(np.diag(softmax(cosine / 0.5))).mean()
    assert float(batch_contrast(tensors[2], tensors[3], 0.5)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AverageConfig(kind="median"), "average must be one of weighted, .*, got 'median'"),
        (lambda: AverageConfig(bits=8), "bits must be one of 32, 16, got '8'"),
        (lambda: AverageConfig(moments="keep"), "moments must be one of persist, reset, average, got 'keep'"),
        (lambda: AverageConfig(elasticity=0.0), r"elasticity must be in \(0, 1\], got 0.0"),
        (lambda: DistillConfig(temperature=0.0), "a positive temperature, got 0.5, 0.0 and 0.0"),
        (lambda: ContrastConfig(negatives=0), "at least 1 negative, got 1.0, 0.0, 0.5 and 0"),
        (lambda: Reconciler(make_model(0), None, sync_every=0), "sync_every must be at least 1, got 0"),
        (
            lambda: Reconciler(make_model(0), None, weight=float("nan")),
            "weight must be a number of at least 0, got nan",
        ),
    ],
)
def test_options_out_of_range(make, message: str):
    with pytest.raises(TrainingError, match=message):
        make()


def test_an_error_in_the_loop_is_not_hidden_by_a_round():
    model = make_model(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ZeroDivisionError), Reconciler(model, optimizer):
        raise ZeroDivisionError
    before = copy.deepcopy(model.state_dict())
    optimizer.step()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
