import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from safetensors.torch import load_file  # noqa: E402

import asepr  # noqa: E402
from asepr.errors import OutputError, TrainingError  # noqa: E402
from asepr.trainer_plugin.checkpoint import CHECKPOINT_NAME  # noqa: E402
from asepr.trainer_plugin.local_train import STORED_FOR, LocalConfig, LocalTrainer  # noqa: E402
from asepr.trainer_plugin.reconcile_average import AverageConfig  # noqa: E402
from asepr.trainer_plugin.reconcile_losses import ContrastConfig, DistillConfig  # noqa: E402
from asepr.trainer_plugin.replica_weights import REPLICA_WEIGHTS  # noqa: E402
from asepr.trainer_plugin.shard_graph import open_shard  # noqa: E402
from asepr.trainer_plugin.train import TrainConfig, Trainer  # noqa: E402
from tests.trainer_plugin.processes import run_ranks  # noqa: E402
from tests.trainer_plugin.test_exactness import make_graph  # noqa: E402


def write(folder: Path, num_parts: int, layout: str = "edge-cut", aggregate: str | None = None) -> Path:
    graph, features, label, split = make_graph()
    folder.mkdir()
    np.save(folder / "features.npy", features)
    names = np.array(["", "train", "val", "test"])
    table = pa.table({"id": np.arange(graph.num_nodes), "label": label, "split": names[split]})
    pq.write_table(table, folder / "nodes.parquet")
    asepr.partition(
        graph.source(),
        folder / "out",
        nodes=folder / "nodes.parquet",
        features=folder / "features.npy",
        num_parts=num_parts,
        layout=layout,
        method="random",
        aggregate=aggregate,
    )
    return folder / "out"


def quiet(metrics: dict) -> None:
    del metrics


def exact_steps(**options) -> TrainConfig:
    return TrainConfig(epochs=4, hidden=8, dropout=0.0, dtype="float64", **options)


@pytest.mark.parametrize(("model", "is_stored"), [*itertools.product(STORED_FOR, (False, True)), ("gat", False)])
def test_whole_batches_of_all_neighbours_are_full_graph_training(model: str, is_stored: bool, tmp_path: Path):
    folder = write(tmp_path / "d", 1, aggregate=STORED_FOR[model] if is_stored else None)
    config = exact_steps(model=model)
    exact = Trainer(open_shard(folder, 0), config)
    expected = exact.run(quiet)
    local = LocalTrainer(open_shard(folder, 0), LocalConfig(train=config, batch=1000, fanout=0))
    assert (local._stored is not None) == is_stored
    found = local.run(quiet)
    # Stored aggregates are float32.
    tolerance = 1e-5 if is_stored else 1e-12
    assert found["loss"] == pytest.approx(expected["loss"], abs=tolerance)
    for name, value in exact.model.state_dict().items():
        np.testing.assert_allclose(local.model.state_dict()[name].numpy(), value.numpy(), atol=200 * tolerance)


def test_predictions_are_those_of_the_last_model(tmp_path: Path):
    folder = write(tmp_path / "d", 1)
    config = LocalConfig(train=TrainConfig(epochs=2, hidden=8, predictions=str(tmp_path / "p")))
    trainer = LocalTrainer(open_shard(folder, 0), config)
    trainer.run(quiet)
    found = pq.read_table(tmp_path / "p" / "part-00000.parquet").to_pydict()
    with torch.no_grad():
        logits = trainer.model(trainer.graph, torch.from_numpy(trainer.shard.features))
    assert found["nid"] == list(range(60))
    assert found["prediction"] == logits.argmax(1).tolist()
    np.testing.assert_allclose(found["logits"], logits.numpy(), rtol=1e-6)
    (tmp_path / "file").write_text("")
    train = replace(config.train, predictions=str(tmp_path / "file" / "p"))
    trainer = LocalTrainer(open_shard(folder, 0), replace(config, train=train))
    with pytest.raises(OutputError, match=r"must be a folder that can be written, got: .*; choose another"):
        trainer.run(quiet)


def weigh(rank: int, folders: dict[str, Path]) -> dict:
    found = {}
    for layout, folder in folders.items():
        for kind in REPLICA_WEIGHTS:
            shard = open_shard(folder, rank)
            trainer = LocalTrainer(shard, LocalConfig(train=exact_steps(), replica_weight=kind))
            found[layout, kind] = (shard.nid.copy(), trainer._task._weight)
    return found


CASES = {
    "16 bits": {"average": AverageConfig(bits=16)},
    "everything": {
        "average": AverageConfig(kind="normalised", moments="average"),
        "distill": DistillConfig(layers=0.5),
        "contrast": ContrastConfig(batch=0.5),
    },
    "elastic": {"average": AverageConfig(kind="elastic", moments="reset"), "replica_weight": "uniform"},
    "corrected": {"correction_steps": 2, "replica_weight": "master"},
}


def train_cases(rank: int, folders: dict[str, Path]) -> dict:
    found = {}
    for layout, folder in folders.items():
        for name, options in CASES.items():
            train = TrainConfig(epochs=3, hidden=8, eval_every=2)
            # Batches of 4 and rounds of 3 steps: parts have 4 to 9 training rows, so steps are uneven.
            trainer = LocalTrainer(
                open_shard(folder, rank), LocalConfig(train=train, batch=4, fanout=3, sync_every=3, **options)
            )
            metrics = trainer.run(quiet)
            assert trainer.reconciler.round >= 2
            found[layout, name] = (metrics | {"seconds": 0}, trainer.model.state_dict(), trainer.reconciler.bytes_sent)
    return found


def train_with_an_idle_rank(rank: int, folder: Path) -> list[float]:
    shard = open_shard(folder, rank)
    if rank == 1:
        shard.split[:] = 0  # The mapping is private to this process.
    trainer = LocalTrainer(shard, LocalConfig(train=TrainConfig(epochs=2, hidden=4), batch=3, sync_every=2))
    trainer.run(quiet)
    return torch.cat([p.reshape(-1) for p in trainer.model.parameters()]).tolist()


def all_on_a_rank(rank: int, folders: dict[str, Path]) -> tuple[dict, dict, list[float]]:
    weights = weigh(rank, folders)
    found = train_cases(rank, folders)
    arrays = {
        key: (metrics, {k: v.numpy() for k, v in state.items()}, sent) for key, (metrics, state, sent) in found.items()
    }
    return weights, arrays, train_with_an_idle_rank(rank, folders["vertex-cut"])


def test_ranks_agree_whatever_the_options_and_weights_of_copies_sum_to_one(tmp_path: Path):
    folders = {layout: write(tmp_path / layout, 3, layout, "mean") for layout in ("vertex-cut", "edge-cut")}
    answers = run_ranks(3, all_on_a_rank, folders)
    for key in answers[0][0]:
        total = np.zeros(60)
        for weights, _, _ in answers:
            nid, weight = weights[key]
            total[nid] += weight
        np.testing.assert_allclose(total, 1, rtol=1e-6, err_msg=str(key))
    for key, (metrics, state, sent) in answers[0][1].items():
        assert np.isfinite(metrics["loss"])
        assert sent > 0
        for _, other, _ in answers[1:]:
            assert other[key][0]["loss"] == metrics["loss"], key
            assert other[key][0]["val_acc"] == metrics["val_acc"], key
            for name, value in state.items():
                assert np.array_equal(other[key][1][name], value), (key, name)
    exact = answers[0][1]["edge-cut", "corrected"][2]
    assert answers[0][1]["edge-cut", "16 bits"][2] == pytest.approx(exact / 2, rel=0.01)
    # A part without training rows takes part in every round.
    assert answers[0][2] == answers[1][2] == answers[2][2]


def test_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path):
    folder = write(tmp_path / "d", 1, aggregate="mean")
    train = TrainConfig(epochs=4, hidden=8, checkpoint=str(tmp_path / "whole"), checkpoint_every=2)
    config = LocalConfig(train=train, batch=8, fanout=0)
    LocalTrainer(open_shard(folder, 0), config).run(quiet)
    halves = replace(train, checkpoint=str(tmp_path / "halves"))
    LocalTrainer(open_shard(folder, 0), replace(config, train=replace(halves, epochs=2))).run(quiet)
    LocalTrainer(open_shard(folder, 0), replace(config, train=replace(halves, resume=True))).run(quiet)
    whole, found = (load_file(tmp_path / name / CHECKPOINT_NAME) for name in ("whole", "halves"))
    assert all(torch.equal(whole[name], found[name]) for name in whole)
    with pytest.raises(TrainingError, match="batch must be 8 as in the checkpoint, got 9"):
        LocalTrainer(open_shard(folder, 0), replace(config, batch=9, train=replace(halves, epochs=9, resume=True)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"fanout": -1}, "fanout must be at least 0, got -1"),
        ({"replica_weight": "all"}, "replica_weight must be one of degree, master, uniform, got 'all'"),
    ],
)
def test_options_out_of_range(change: dict, message: str):
    with pytest.raises(TrainingError, match=message):
        LocalConfig(**change)
