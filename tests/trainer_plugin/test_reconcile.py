"""Rounds against plain loops over copies of the model, the losses against numpy."""

import copy
import math
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from asepr.errors import TrainingError  # noqa: E402
from asepr.trainer_plugin.reconcile import Reconciler  # noqa: E402
from asepr.trainer_plugin.reconcile_average import AverageConfig, round_shares  # noqa: E402
from asepr.trainer_plugin.reconcile_bounded import BoundedAverage  # noqa: E402
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


def average_apart(rank: int) -> list[list[float]]:
    """Rank 0 posts three times before rank 1 posts once, then once after; return the means that each found."""
    board = BoundedAverage(3, 32)
    means = []
    for _ in range(3 if rank == 0 else 0):
        means.append(board.average(torch.full((2,), 1.0 + len(means)), 3.0).tolist())
    torch.distributed.barrier()
    if rank == 1:
        means.append(board.average(torch.full((2,), 10.0), 1.0).tolist())
    torch.distributed.barrier()
    if rank == 0:
        means.append(board.average(torch.full((2,), 4.0), 3.0).tolist())
    board.end()
    torch.distributed.barrier()
    board.begin()
    means.append(board.average(torch.full((2,), 5.0 + rank), 0.0 if rank else 1.0).tolist())
    torch.distributed.barrier()  # The board goes with rank 0.
    return means


def test_what_was_posted_last_counts_by_its_age():
    ahead, behind = run_ranks(2, average_apart)
    # Rank 1 has posted nothing at first; then what it posted is 3 rounds old, and counts a quarter.
    later = (3 * 4 + 1 / 4 * 10) / (3 + 1 / 4)
    assert ahead == [[1.0] * 2, [2.0] * 2, [3.0] * 2, [pytest.approx(later)] * 2, [5.0] * 2]
    # A model that is ahead counts in full. After all came together, nothing of before is read; no weight, no part.
    assert behind[0] == [pytest.approx((1 * 10 + 3 * 3) / 4)] * 2
    assert behind[1] in ([6.0] * 2, [5.0] * 2)


def train_beside_a_slow_rank(rank: int, staleness: int) -> tuple[list[float], float, list[int]]:
    model = make_model(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Reconciler(model, optimizer, sync_every=1, staleness=staleness) as reconciler:
        since = time.perf_counter()
        for step in range(12):
            if rank == 2 and step < 6:
                time.sleep(0.25)
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
        apart = time.perf_counter() - since
    return flat(model).tolist(), apart, reconciler.ages


def test_a_slow_rank_holds_others_up_only_past_the_bound():
    together, bounded = (run_ranks(3, train_beside_a_slow_rank, staleness) for staleness in (0, 4))
    for answers in (together, bounded):
        assert answers[0][0] == answers[1][0] == answers[2][0], "all end with one model"
    assert bounded[0][0] != together[0][0]
    assert min(seconds for _, seconds, _ in together) > 6 * 0.25
    # Rank 0 needs 12 rounds and may be 4 ahead: it waits until rank 2 has come to its 8th.
    assert bounded[0][1] > 6 * 0.25
    assert len(bounded[0][2]) == 5
    assert sum(bounded[0][2][1:]) > 0, "some models were old"
    early = run_ranks(3, train_beside_a_slow_rank, 12)
    assert early[0][1] < 5 * 0.25, "with a bound that is never reached nobody waits"


def distil_from_all(rank: int) -> tuple[float, float, int]:
    """Return the penalty after a round, the same from both models by hand, and bytes."""
    model = make_model(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.from_numpy(np.random.default_rng(8).standard_normal((5, 4)))
    config = DistillConfig(teacher="ensemble")
    apart = [copy.deepcopy(model) for _ in range(2)]
    with Reconciler(model, optimizer, sync_every=1, weight=WEIGHTS[rank], distill=config) as reconciler:
        for other, each in enumerate(apart):
            gradients = torch.autograd.grad(loss_of(each, other, 0), list(each.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(each.parameters(), gradients, strict=True):
                    parameter -= 0.1 * gradient
        loss_of(model, rank, 0).backward()
        optimizer.step()
        own = Outputs(logits=model(data))
        found = reconciler.penalty(own, lambda m: Outputs(logits=m(data)))
        mean = 0.75 * apart[0](data) + 0.25 * apart[1](data)
        expected = distillation(own, Outputs(logits=mean), config)
    return float(found), float(expected), reconciler.bytes_sent


def test_an_ensemble_is_the_mean_of_what_all_models_say():
    size = 4 * 3 + 3 + 3 * 2 + 2
    for found, expected, sent in run_ranks(2, distil_from_all):
        assert found == pytest.approx(expected, rel=1e-10)
        assert found > 0
        assert sent == 8 * size + 2 * 8 * math.ceil(size / 2)


def test_what_does_not_go_with_waiting_for_nobody():
    model = make_model(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for options in (
        {"average": AverageConfig(kind="elastic")},
        {"average": AverageConfig(moments="average")},
        {"distill": DistillConfig(teacher="ensemble")},
        {"correct": lambda: None},
    ):
        with pytest.raises(TrainingError, match="staleness must come with average weighted or uniform, and without"):
            Reconciler(model, optimizer, staleness=1, **options)
    with pytest.raises(TrainingError, match="distill_teacher must be one of common, ensemble, got 'all'"):
        DistillConfig(teacher="all")
