import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from safetensors.torch import load_file  # noqa: E402

import asepr  # noqa: E402
from asepr.errors import TrainingError  # noqa: E402
from asepr.formats.node_sources import NodeColumns  # noqa: E402
from asepr.trainer_plugin.checkpoint import BEST_NAME, CHECKPOINT_NAME  # noqa: E402
from asepr.trainer_plugin.local_train import LocalConfig, LocalTrainer  # noqa: E402
from asepr.trainer_plugin.progress import BestScore, ProgressConfig, RateSchedule  # noqa: E402
from asepr.trainer_plugin.shard_graph import open_shard  # noqa: E402
from asepr.trainer_plugin.train import TrainConfig, Trainer  # noqa: E402
from tests.trainer_plugin.processes import run_ranks  # noqa: E402
from tests.trainer_plugin.test_local_train import write  # noqa: E402

MODES = ("exact", "local")


def make(mode: str, folder: Path, config: TrainConfig, rank: int = 0) -> Trainer:
    shard = open_shard(folder, rank)
    if mode == "exact":
        return Trainer(shard, config)
    return LocalTrainer(shard, LocalConfig(train=config, batch=8, fanout=0, sync_every=2))


def quiet(metrics: dict) -> None:
    del metrics


def rates(config: ProgressConfig, epochs: int, steps: int, scores: dict[int, float] | None = None) -> list[float]:
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = RateSchedule(optimizer, config, epochs, steps)
    found = []
    for position in range(epochs * steps):
        schedule.move_to(position)
        found.append(schedule.rate)
        optimizer.step()
        if scores and position in scores:
            schedule.look(scores[position])
    return found


def expected_rate(kind: str, position: int, warm: int, total: int, step: int) -> float:
    """Say by hand what a schedule is."""
    if position < warm:
        return (position + 1) / (warm + 1)
    past, left = position - warm, total - warm
    return {
        "constant": 1.0,
        "linear": 1 - past / left,
        "cosine": (1 + math.cos(math.pi * past / left)) / 2,
        "step": 0.5 ** (past // step),
    }[kind]


@pytest.mark.parametrize("warmup", [0, 2])
@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "step"])
def test_rates_are_those_of_the_formula(kind: str, warmup: int):
    config = ProgressConfig(lr_schedule=kind, warmup=warmup, lr_step=3, lr_decay=0.5)
    found = rates(config, 8, 5)
    assert found == pytest.approx([expected_rate(kind, i, warmup * 5, 40, 15) for i in range(40)], abs=1e-9)


def test_rate_falls_where_the_score_stays():
    config = ProgressConfig(lr_schedule="plateau", lr_decay=0.5, lr_patience=1)
    found = rates(config, 6, 1, dict(enumerate([0.5, 0.6, 0.6, 0.6, 0.7, 0.7])))
    assert found == [1, 1, 1, 1, 0.5, 0.5]


def test_patience_counts_evaluations_that_are_no_better_by_min_delta():
    best = BestScore(patience=2, min_delta=0.1)
    stale = []
    for epoch, score in enumerate([0.5, 0.55, 0.65, 0.7, float("nan")]):
        best.look(epoch, {"val_acc": score, "test_acc": 0.0})
        stale.append(best.is_stale)
    assert stale == [False, False, False, False, True]
    assert best.values == {"val_acc": 0.7, "test_acc": 0.0, "epoch": 3}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["cosine", "plateau"])
def test_interrupted_run_resumes_to_the_same_weights_rate_and_best(mode: str, kind: str, tmp_path: Path):
    folder = write(tmp_path / "d", 1)
    config = TrainConfig(
        epochs=9, hidden=8, checkpoint=str(tmp_path / "whole"), checkpoint_every=3, lr_schedule=kind, warmup=2,
        lr_decay=0.5, lr_patience=0, clip=0.1, dropout=0.0, restore="best",
    )  # fmt: skip
    expected = make(mode, folder, config).run(quiet)

    def interrupt(metrics: dict) -> None:
        if metrics["epoch"] == 7:
            raise KeyboardInterrupt

    halves = replace(config, checkpoint=str(tmp_path / "halves"))
    first = make(mode, folder, halves)
    with pytest.raises(KeyboardInterrupt):
        first.run(interrupt)
    found = make(mode, folder, replace(halves, resume=True)).run(quiet)
    for name in (".", BEST_NAME):
        whole, resumed = (load_file(tmp_path / run / name / CHECKPOINT_NAME) for run in ("whole", "halves"))
        assert all(torch.equal(whole[key], resumed[key]) for key in whole)
    for name in ("lr", "best_val_acc", "best_epoch"):
        assert found[name] == expected[name]
    if kind == "cosine":
        with pytest.raises(TrainingError, match="epochs must be 9 as in the checkpoint, got 20"):
            make(mode, folder, replace(halves, epochs=20, resume=True))


def stop_early(rank: int, folder: Path, checkpoints: Path, out: Path) -> list[tuple]:
    found = []
    for mode in MODES:
        config = TrainConfig(
            epochs=60, hidden=8, patience=3, eval_every=2, restore="best", checkpoint=str(checkpoints / mode),
            predictions=str(out / mode / "p"), embeddings=str(out / mode / "e"),
        )  # fmt: skip
        trainer = make(mode, folder, config, rank)
        epochs: list[int] = []
        summary = trainer.run(lambda metrics, epochs=epochs: epochs.append(metrics["epoch"]))
        with torch.no_grad():
            logits = trainer.model(trainer.graph, trainer._input.local()).numpy()
        weights = {name: value.numpy() for name, value in trainer.model.state_dict().items()}
        nid = trainer.shard.nid[: trainer.shard.num_inner].tolist()
        found.append((epochs, summary, weights, dict(zip(nid, logits, strict=True))))
    return found


def test_ranks_stop_after_the_same_epoch_and_end_with_the_best_weights(tmp_path: Path):
    folder = write(tmp_path / "d", 2)
    for name in MODES:
        (tmp_path / "out" / name / "p").mkdir(parents=True)
        (tmp_path / "out" / name / "p" / "part-00007.parquet").write_text("of a run with more parts")
    answers = run_ranks(2, stop_early, folder, tmp_path / "c", tmp_path / "out")
    for mode, (epochs, summary, weights, logits), (none, other, other_weights, other_logits) in zip(
        MODES, *answers, strict=True
    ):
        assert none == []
        assert summary["epoch"] == other["epoch"] == epochs[-1] < 59
        assert summary["stopped_early"]
        assert summary["epoch"] == summary["best_epoch"] + 2 * 3
        saved = load_file(tmp_path / "c" / mode / BEST_NAME / CHECKPOINT_NAME)
        for name, value in weights.items():
            assert np.array_equal(value, other_weights[name])
            assert np.array_equal(value, saved[f"model.{name}"].numpy())
        # One call reads all parts; each node is there once, by the id of the input.
        table = pq.read_table(tmp_path / "out" / mode / "p").to_pydict()
        assert sorted(table["id"]) == list(range(60))
        expected = logits | other_logits
        for node, row, label in zip(table["id"], table["logits"], table["prediction"], strict=True):
            np.testing.assert_allclose(row, expected[node], atol=1e-6)
            assert label == expected[node].argmax()
        embeddings = pq.read_table(tmp_path / "out" / mode / "e")
        assert sorted(embeddings["id"].to_pylist()) == list(range(60))
        assert embeddings["embedding"].type.list_size == 8
    config = TrainConfig(hidden=8, epochs=60, patience=3, checkpoint=str(tmp_path / "c" / "exact"), resume=True)
    alone = write(tmp_path / "alone", 1)
    with pytest.raises(TrainingError, match="must be of a run that patience has not ended, got one stopped after"):
        make("exact", alone, config)


def test_predictions_have_the_ids_of_the_source(tmp_path: Path):
    names = [f"n{number}" for number in range(12)]
    ends = [(names[i], names[(i + 1) % 12]) for i in range(12)]
    (tmp_path / "edges.csv").write_text("src,dst\n" + "".join(f"{a},{b}\n" for a, b in ends))
    rows = "".join(f"{name},{i % 3},train,{i * 10}\n" for i, name in enumerate(names))
    (tmp_path / "nodes.csv").write_text("id,label,split,size\n" + rows)
    columns = NodeColumns(features=("size",))
    asepr.partition(
        tmp_path / "edges.csv", tmp_path / "out", nodes=tmp_path / "nodes.csv", node_columns=columns, num_parts=1
    )
    config = TrainConfig(epochs=1, hidden=4, layers=1, embeddings=str(tmp_path / "e"))
    make("exact", tmp_path / "out", config).run(quiet)
    table = pq.read_table(tmp_path / "e").to_pydict()
    # One layer reads the features themselves.
    assert dict(zip(table["id"], table["embedding"], strict=True)) == {name: [i * 10.0] for i, name in enumerate(names)}


@pytest.mark.parametrize("model", ["sage", "gcn", "gin", "gat"])
@pytest.mark.parametrize("mode", MODES)
def test_products_in_bf16_train_nearly_as_well(mode: str, model: str, tmp_path: Path):
    folder = write(tmp_path / "d", 1)
    config = TrainConfig(epochs=10, hidden=16, dropout=0.0, model=model)
    whole = make(mode, folder, config).run(quiet)
    trainer = make(mode, folder, replace(config, precision="bf16"))
    lowered = trainer.run(quiet)
    assert lowered["loss"] == pytest.approx(whole["loss"], rel=0.1)
    assert lowered["loss"] != whole["loss"]
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("mode", MODES)
def test_clipped_gradient_has_the_norm(mode: str, tmp_path: Path):
    trainer = make(mode, write(tmp_path / "d", 1), TrainConfig(epochs=1, hidden=8, clip=1e-3))
    norms: list[float] = []
    trainer.optimizer.register_step_pre_hook(
        lambda *_: norms.append(float(torch.cat([p.grad.reshape(-1) for p in trainer.model.parameters()]).norm()))
    )
    trainer.run(quiet)
    assert norms == pytest.approx([1e-3] * len(norms), rel=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr_schedule": "fast"}, "lr_schedule must be one of constant, linear, cosine, step, plateau, got 'fast'"),
        ({"patience": -1}, "patience must be at least 0, got -1"),
        ({"min_delta": float("nan")}, "min_delta must be at least 0, got nan"),
        ({"lr_decay": 1.0}, r"lr_decay must be in \(0, 1\), got 1.0"),
        ({"clip": -1.0}, "clip must be a number of at least 0, got -1.0"),
        ({"restore": "first"}, "restore must be one of last, best, got 'first'"),
        ({"precision": "bf16", "dtype": "float64"}, "precision bf16 must come with dtype float32, got 'float64'"),
        ({"device": "tpu"}, "device must be one of auto, cpu, cuda, got 'tpu'"),
    ],
)
def test_options_out_of_range(change: dict, message: str):
    with pytest.raises(TrainingError, match=message):
        TrainConfig(**change)
