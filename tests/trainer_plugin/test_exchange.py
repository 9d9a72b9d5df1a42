"""What every schedule, codec and layout keeps to; and training with them."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from asepr.contracts import HaloPlan  # noqa: E402
from asepr.errors import TrainingError  # noqa: E402
from asepr.trainer_plugin.exchange import Exchange, ExchangeConfig  # noqa: E402
from asepr.trainer_plugin.exchange.transport import Transport  # noqa: E402
from asepr.trainer_plugin.layers import GATConv  # noqa: E402
from asepr.trainer_plugin.local_graph import LocalGraph  # noqa: E402
from asepr.trainer_plugin.planner import choose, predict  # noqa: E402
from asepr.trainer_plugin.shard_graph import open_shard  # noqa: E402
from asepr.trainer_plugin.train import TrainConfig, Trainer  # noqa: E402
from tests.graphs import Graph  # noqa: E402
from tests.trainer_plugin.processes import run_ranks  # noqa: E402
from tests.trainer_plugin.shards import write_random_shards  # noqa: E402
from tests.trainer_plugin.test_exactness import CLASSES, LAYOUTS, WIDTH, make_graph  # noqa: E402

SCHEDULES = ("exact", "pipelined", "delayed:3", "sampled:0.4", "none")
CODECS = ("none", "bf16", "fp16", "int8", "int4", "int2", "int1", "topk:0.3", "threshold:0.3")
COMBINATIONS = [
    (schedule, codec)
    for schedule, codec in itertools.product(SCHEDULES, CODECS)
    if not (schedule.startswith(("delayed", "sampled")) and codec.startswith(("topk", "threshold")))
]
RESUMED = [
    ("sage", "pipelined", "int2", "powersgd:2"),
    ("sage", "exact", "topk:0.3", "none"),
    ("sage", "pipelined", "threshold:0.3", "threshold:0.5"),
    ("sage", "delayed:2", "none", "none"),
    ("gat", "pipelined", "none", "none"),
]
STEPS, SYNC, DRAWS = 6, 4, 300


def rows_of(exchange: Exchange, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(exchange.plan.num_inner, 5, generator=generator)


def play(exchange: Exchange, rank: int) -> dict[str, list[np.ndarray]]:
    """Return what each step scatters, and the gradient of a product with fixed rows; beside what is exact."""
    found: dict[str, list[np.ndarray]] = {"scatter": [], "gradient": [], "exact": [], "exact gradient": []}
    fixed = torch.randn(exchange.plan.num_inner + exchange.plan.num_halo, 5, generator=torch.Generator().manual_seed(9))
    for step in range(STEPS):
        exchange.start_step(step)
        x = rows_of(exchange, rank, step).requires_grad_()
        scattered = exchange.scatter(x)
        (scattered * fixed * (step + 1)).sum().backward()
        with exchange.exactly():
            found["exact"].append(exchange.scatter(x.detach()).numpy())
            found["exact gradient"].append(exchange.gather(fixed * (step + 1)).numpy())
        found["scatter"].append(scattered.detach().numpy())
        found["gradient"].append(x.grad.numpy())
    exchange.finish()
    return found


def conform(rank: int, folder: Path) -> None:
    group = torch.distributed.new_group()
    for layout in LAYOUTS:
        plan = open_shard(folder / layout, rank).plan
        for schedule, codec in COMBINATIONS:
            where = f"{layout} {schedule} {codec}"
            config = ExchangeConfig(schedule=schedule, codec=codec, exact_every=SYNC, seed=3, timeout_s=60)
            exchange = Exchange(plan, group=group, config=config)
            first = play(exchange, rank)
            for name, peer, traffic in exchange.traffic():
                if name != "exact":
                    assert traffic.bytes_predicted == traffic.bytes_sent, f"{where} {name} {peer}"
            again = play(exchange, rank)
            for name in first:
                np.testing.assert_array_equal(first[name], again[name], err_msg=f"{where}: same seed, same rows")
            check_steps(first, plan, schedule, codec, where)


def check_steps(found: dict[str, list[np.ndarray]], plan: HaloPlan, schedule: str, codec: str, where: str) -> None:
    """Compare with what each schedule promises, from exact exchanges alone."""
    tolerance = {"none": 0.0, "bf16": 0.02, "fp16": 0.003}.get(codec)
    halo = slice(plan.num_inner, None)
    for step in range(STEPS):
        whole = step % SYNC == 0
        np.testing.assert_array_equal(found["scatter"][step][: plan.num_inner], found["exact"][step][: plan.num_inner])
        if whole:
            np.testing.assert_array_equal(found["scatter"][step], found["exact"][step], err_msg=where)
            np.testing.assert_array_equal(found["gradient"][step], found["exact gradient"][step], err_msg=where)
        elif tolerance is not None and schedule in ("exact", "pipelined"):
            of = step - (schedule == "pipelined")
            np.testing.assert_allclose(
                found["scatter"][step][halo], found["exact"][of][halo], atol=4 * tolerance, err_msg=where
            )
        elif schedule == "none":
            assert not found["scatter"][step][halo].any(), where
        elif schedule == "delayed:3" and codec == "none":
            rows = delayed_rows(found["exact"], plan, step)
            np.testing.assert_array_equal(found["scatter"][step][halo], rows, err_msg=where)
        assert np.isfinite(found["scatter"][step]).all(), where
        assert np.isfinite(found["gradient"][step]).all(), where


def delayed_rows(exact: list[np.ndarray], plan: HaloPlan, step: int) -> np.ndarray:
    """Row i of a peer is of the last step before this one that was whole, or whose turn it was."""
    rows = np.empty((plan.num_halo, 5), dtype=np.float32)
    for begin, end in itertools.pairwise(plan.recv_offsets):
        for i in range(end - begin):
            came = max(s for s in range(step) if s % SYNC == 0 or i % 3 == s % 3)
            rows[begin - plan.num_inner + i] = exact[came][begin + i]
    return rows


def products_and_means(rank: int, folder: Path) -> dict[str, list[float]]:
    """Return <scatter x, y> and <x, scatter' y> of this rank, and how far means over draws are off, in deviations."""
    found: dict[str, list[float]] = {}
    group = torch.distributed.new_group()
    for layout in LAYOUTS:
        plan = open_shard(folder / layout, rank).plan
        for schedule in ("exact", "sampled:0.4", "none"):
            exchange = Exchange(plan, group=group, config=ExchangeConfig(schedule=schedule, timeout_s=60))
            generator = torch.Generator().manual_seed(rank)
            x = torch.randn(plan.num_inner, 3, dtype=torch.float64, generator=generator, requires_grad=True)
            y = torch.randn(plan.num_inner + plan.num_halo, 3, dtype=torch.float64, generator=generator)
            exchange.start_step(1)
            scattered = exchange.scatter(x)
            scattered.backward(y)
            found[f"{layout} scatter {schedule}"] = [float((scattered.detach() * y).sum()), float((x * x.grad).sum())]
            y.requires_grad_()
            gathered = exchange.gather(y)
            gathered.backward(x.detach())
            found[f"{layout} gather {schedule}"] = [float((gathered.detach() * x).sum()), float((y * y.grad).sum())]
        for schedule, codec in (("sampled:0.4", "none"), ("sampled:0.4", "int2"), ("exact", "int1")):
            exchange = Exchange(plan, group=group, config=ExchangeConfig(schedule=schedule, codec=codec, timeout_s=60))
            rows = rows_of(exchange, rank, 0)
            with exchange.exactly():
                expected = exchange.scatter(rows)[plan.num_inner :]
            draws = []
            for step in range(DRAWS):
                exchange.start_step(step)
                draws.append(exchange.scatter(rows)[plan.num_inner :])
            stacked = torch.stack(draws)
            # A level that is hardly ever drawn shows no spread of its own: the row's counts for a few draws.
            spread = (expected.amax(1) - expected.amin(1))[:, None]
            deviation = ((stacked.var(0) + 4 * spread**2 / DRAWS) / DRAWS).sqrt()
            found[f"{layout} mean {schedule} {codec}"] = [float(((stacked.mean(0) - expected).abs() / deviation).max())]
    return found


def test_every_schedule_codec_and_layout_conforms(tmp_path: Path):
    graph, features, label, split = make_graph()
    for layout in LAYOUTS:
        write_random_shards(tmp_path / layout, graph, 3, layout, features, label, split)
    ranks = run_ranks(3, conform_and_measure, tmp_path)
    for case in ranks[0]:
        if " mean " in case:
            assert max(rank[case][0] for rank in ranks) < 6, case
        else:
            forward, backward = (sum(rank[case][side] for rank in ranks) for side in (0, 1))
            assert forward == pytest.approx(backward, abs=1e-9), case


def conform_and_measure(rank: int, folder: Path) -> dict[str, list[float]]:
    conform(rank, folder)
    return products_and_means(rank, folder)


@pytest.mark.parametrize(("schedule", "codec"), COMBINATIONS)
def test_one_rank_exchanges_nothing(schedule: str, codec: str):
    none = np.zeros(2, dtype=np.int64)
    plan = HaloPlan(rank=0, num_inner=4, num_halo=0, send_rows=none[:0], send_offsets=none, recv_offsets=none + 4)
    exchange = Exchange(plan, config=ExchangeConfig(schedule=schedule, codec=codec))
    for found in play(exchange, 0).values():
        assert len(found) == STEPS
    assert exchange.bytes_sent == 0


def train_in_many_ways(rank: int, folder: Path, checkpoints: Path) -> dict[str, list[np.ndarray]]:
    """Return the weights after each way of training."""
    found = {}

    def weights(name: str, config: TrainConfig, dataset: str = "edge-cut") -> dict:
        trainer = Trainer(open_shard(folder / dataset, rank), config)
        metrics = trainer.run(lambda metrics: None)
        found[name] = [value.numpy().copy() for value in trainer.model.state_dict().values()]
        return metrics

    base = TrainConfig(epochs=6, hidden=8, layers=3, dropout=0.0, eval_every=6, timeout_s=60)
    weights("exact", base)
    for number, (model, schedule, codec, gradients) in enumerate(RESUMED):
        config = replace(base, model=model, exchange=schedule, codec=codec, gradients=gradients)
        for layout in LAYOUTS:
            name, where = f"{number} {layout}", str(checkpoints / f"{number}-{layout}")
            weights(f"whole {name}", config, layout)
            # Neither a multiple of the epochs between checkpoints nor of the bins of a schedule.
            weights(f"part {name}", replace(config, epochs=3, checkpoint=where, checkpoint_every=2), layout)
            weights(f"resumed {name}", replace(config, checkpoint=where, resume=True), layout)
    for gradients in ("fp16", "powersgd:2", "threshold:0.5", "threshold:1"):
        weights(f"gradients {gradients}", replace(base, gradients=gradients))
    metrics = weights("auto", replace(base, exchange="auto"))
    assert metrics["exchange"]["reason"].startswith("auto chose ")
    weights("gat", replace(base, model="gat", exchange="pipelined", codec="int8", smoothing=0.3), "vertex-cut")
    weights("empty", replace(base, exchange="pipelined", codec="int2"), "empty")
    weights("sync", replace(base, exchange="pipelined", codec="int1", exact_every=1))
    return found


def test_training_with_them_agrees_on_all_ranks_and_resumes(tmp_path: Path):
    graph, features, label, split = make_graph()
    for layout in LAYOUTS:
        write_random_shards(tmp_path / layout, graph, 2, layout, features, label, split)
    # Part 0 owns node 0 alone, which is isolated and not for training.
    small = Graph(num_nodes=6, src=np.array([2, 3, 4, 5]), dst=np.array([3, 4, 5, 2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np.random, "default_rng", lambda seed: type("Rng", (), {"integers": lambda *_: np.ones(6)})())
        labels, splits = np.arange(6) % CLASSES, np.array([2, 3, 1, 1, 1, 1])
        write_random_shards(tmp_path / "empty", small, 2, "edge-cut", features[:6, :WIDTH], labels, splits)
    ranks = run_ranks(2, train_in_many_ways, tmp_path, tmp_path / "checkpoints")
    for name, values in ranks[0].items():
        for ours, theirs in zip(values, ranks[1][name], strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
            assert np.isfinite(ours).all(), name
        if name.startswith("whole"):
            for whole, resumed in zip(values, ranks[0][f"resumed{name[5:]}"], strict=True):
                np.testing.assert_array_equal(whole, resumed, err_msg=name)
    for name in ("sync", "gradients threshold:1"):
        for ours, exact in zip(ranks[0][name], ranks[0]["exact"], strict=True):
            np.testing.assert_allclose(ours, exact, atol=1e-5, err_msg=name)


def late_attention(rank: int, folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return what attention with late rows gives in each step, and what follows from the sums of exponentials."""
    shard = open_shard(folder, rank)
    graph = LocalGraph(shard, torch.float64, exchange=ExchangeConfig(schedule="pipelined", timeout_s=60))
    torch.manual_seed(0)
    layer = GATConv(WIDTH, 4).double()
    x, n = torch.from_numpy(shard.features[: shard.num_inner]).double(), shard.num_inner
    src, dst = graph.edges_and_loops
    found = []
    late_rows = late_sums = None
    with torch.no_grad():
        for step in range(4):
            graph.exchange.start_step(step)
            output = layer(graph, x)
            with graph.exchange.exactly():
                rows = graph.exchange.scatter(layer.linear(x))
                z = torch.cat([rows[:n], (rows if late_rows is None else late_rows)[n:]]).view(
                    len(rows), layer.heads, -1
                )
                score = (z * layer.own).sum(2)[dst] + (z * layer.neighbour).sum(2)[src]
                weight = torch.nn.functional.leaky_relu(score, 0.2).exp()[:, :, None]
                terms = torch.cat([weight * z[src], weight], dim=2).flatten(1)
                sums = terms.new_zeros(len(z), terms.shape[1]).index_add(0, dst, terms)
                elsewhere = graph.exchange.gather(sums) - sums[:n]
            total = (sums[:n] + (elsewhere if late_sums is None else late_sums)).view(n, layer.heads, -1)
            found.append(
                (output.numpy(), (total[:, :, :-1] / total[:, :, -1:]).flatten(1).numpy() + layer.bias.numpy())
            )
            late_rows, late_sums = rows, elsewhere
            layer.own += 0.5 * torch.randn_like(layer.own)
    graph.exchange.settle()
    return found


def test_attention_of_late_sums_weighs_them_as_their_scores_say(tmp_path: Path):
    graph, features, label, split = make_graph()
    folder = write_random_shards(tmp_path / "d", graph, 2, "vertex-cut", features, label, split)
    for steps in run_ranks(2, late_attention, folder):
        for output, expected in steps:
            np.testing.assert_allclose(output, expected, atol=1e-9)


def exchange_in_batches(rank: int, folder: Path, limit: int) -> dict[str, Any]:
    """Return what batched messages in pieces bring, beside single ones, and where their bytes and waits are charged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asepr.trainer_plugin.exchange.transport.MAX_MESSAGE_BYTES", limit)
        plan = open_shard(folder, rank).plan
        rows = torch.arange(plan.num_inner * 6, dtype=torch.float32).view(-1, 6) + rank
        single, batched = Exchange(plan), Exchange(plan)
        expected = single.scatter(rows)
        patch.setattr(Transport, "_is_batched", lambda transport, piece: True)
        found = batched.scatter(rows)
        started = torch.distributed.batch_isend_irecv
        # As NCCL does: the messages of a batch end together, as one work.
        patch.setattr("torch.distributed.batch_isend_irecv", lambda batch: [_Together(started(batch))])
        together = batched.scatter(rows)
    sizes = {
        peer: int(plan.send_offsets[peer + 1] - plan.send_offsets[peer]) * 24
        for peer in range(plan.num_parts)
        if peer != rank
    }
    traffic = {peer: traffic for _, peer, traffic in batched.traffic() if traffic.messages}
    return {
        "difference": (found - expected).abs().max().item() + (together - expected).abs().max().item(),
        "bytes": {peer: moved.bytes_sent for peer, moved in traffic.items()} == {p: 2 * s for p, s in sizes.items()},
        "messages": {peer: moved.messages for peer, moved in traffic.items()}
        == {p: 2 * -(-s // limit) for p, s in sizes.items()},
        "waits": all(moved.wait_s > 0 for moved in traffic.values()),
    }


class _Together:
    def __init__(self, works: list) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


def test_batched_messages_in_pieces_are_the_same_and_charged_to_their_peers(tmp_path: Path):
    graph, features, label, split = make_graph()
    folder = write_random_shards(tmp_path / "d", graph, 3, "edge-cut", features, label, split)
    for found in run_ranks(3, exchange_in_batches, folder, 100):
        assert found == {"difference": 0.0, "bytes": True, "messages": True, "waits": True}


def test_planner_takes_the_least_loss_that_is_nearly_fastest():
    cases = {(10.0, 0.1): ("exact", "none"), (10.0, 2.0): ("exact", "int8"), (10.0, 10.0): ("pipelined", "none")}
    cases |= {
        (10.0, 40.0): ("pipelined", "int8"),
        (10.0, 70.0): ("pipelined", "int4"),
        (1.0, 100.0): ("pipelined", "int2"),
    }
    for (compute_s, wait_s), expected in cases.items():
        assert choose(predict(compute_s, wait_s, 256, 4)) == expected, (compute_s, wait_s)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"exchange": "fast"},
            "exchange must be one of exact, pipelined, none, delayed:STEPS, sampled:SHARE, got 'fast'",
        ),
        ({"exchange": "delayed:0"}, "exchange delayed: steps must be at least 1, got '0'"),
        ({"exchange": "sampled:1.5"}, r"exchange sampled: share must be in \(0, 1\], got '1.5'"),
        ({"codec": "int3"}, "codec must be one of none, bf16"),
        (
            {"exchange": "sampled:0.5", "codec": "topk:0.1"},
            "the same rows must travel in every step, got exchange sampled",
        ),
        ({"exact_every": -1}, "exact_every must not be negative, got -1"),
        ({"smoothing": 1.0}, r"smoothing must be in \[0, 1\), got 1.0"),
        (
            {"gradients": "powersgd:0"},
            "gradients must be one of none, fp16, powersgd:RANK, threshold:SHARE, .* got 'pow",
        ),
        ({"exchange": "auto", "codec": "int2"}, "exchange auto chooses all by itself, got options beside it"),
    ],
)
def test_options_that_do_not_fit(change: dict, message: str):
    with pytest.raises(TrainingError, match=message):
        TrainConfig(**change)
