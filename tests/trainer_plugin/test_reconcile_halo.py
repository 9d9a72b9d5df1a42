"""Historical halos against dense algebra in one process that follows which weights each row came from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from asepr.errors import TrainingError  # noqa: E402
from asepr.trainer_plugin.local_train import LocalConfig, LocalTrainer  # noqa: E402
from asepr.trainer_plugin.options import make_config  # noqa: E402
from asepr.trainer_plugin.reconcile_halo import HaloConfig  # noqa: E402
from asepr.trainer_plugin.shard_graph import ShardGraph, open_shard  # noqa: E402
from asepr.trainer_plugin.train import TrainConfig  # noqa: E402
from tests.trainer_plugin.processes import run_ranks  # noqa: E402
from tests.trainer_plugin.reference import DenseReference  # noqa: E402
from tests.trainer_plugin.test_exactness import make_graph  # noqa: E402
from tests.trainer_plugin.test_local_train import quiet, write  # noqa: E402

PARTS, HIDDEN, LAYERS, STEPS = 3, 8, 3, 4
WHOLE = LocalConfig(
    train=TrainConfig(epochs=STEPS, hidden=HIDDEN, layers=LAYERS, dropout=0.0, dtype="float64", eval_every=STEPS),
    batch=1000,
    fanout=0,
    sync_every=1,
    halo=HaloConfig(every=1, codec="none"),
)


def follow(trainer: LocalTrainer) -> tuple[list[dict], list[np.ndarray]]:
    """Train; return the weights before each step, and what they say of the training rows."""
    weights, logits = [], []
    with trainer.reconciler:
        for epoch in range(STEPS):
            trainer._halo.begin()
            weights.append({name: value.numpy().copy() for name, value in trainer.model.state_dict().items()})
            with torch.no_grad():
                batch = trainer._sampler.sample(trainer._examples)
                logits.append(trainer._outputs(trainer.model, batch).logits.numpy())
            trainer._step(epoch)
    return weights, logits


def train_all(rank: int, folders: dict[str, Path]) -> dict:
    found = {}
    for name, folder in folders.items():
        trainer = LocalTrainer(open_shard(folder, rank), WHOLE)
        weights, logits = follow(trainer)
        found[name] = weights, logits, trainer.shard.nid[trainer._examples], trainer._halo.report()
    # Batches of 4 in 3 to 9 training rows: some ranks have fewer than steps.
    small = LocalConfig(
        train=TrainConfig(epochs=3, hidden=HIDDEN, eval_every=2),
        batch=4,
        fanout=2,
        sync_every=3,
        halo=HaloConfig(every=2),
    )
    trainer = LocalTrainer(open_shard(folders["vertex-cut"], rank), small)
    metrics = trainer.run(quiet)
    found["small"] = metrics, trainer._num_steps, trainer._halo.report()
    shard = open_shard(folders["edge-cut"], rank)
    if rank == 1:
        shard.split[:] = 0  # The mapping is private to this process.
    idle = LocalTrainer(shard, replace(small, batch=2))
    found["idle"] = idle.run(quiet)["loss"], idle._halo.refreshes
    return found


def by_dense_algebra(folder: Path, weights: list[dict]) -> list[list[np.ndarray]]:
    """Return, for each step and rank, what the rank's model says of every node it owns."""
    graph, features, label, split = make_graph()
    dense = DenseReference(graph, features, label, split)
    owned = [torch.zeros(graph.num_nodes, 1, dtype=torch.bool) for _ in range(PARTS)]
    for rank in range(PARTS):
        shard = ShardGraph(folder, rank)
        owned[rank][torch.from_numpy(shard.nid[: shard.num_inner].copy())] = True

    def layer(number: int, h: torch.Tensor, state: dict) -> torch.Tensor:
        names = ("own.weight", "own.bias", "neighbour.weight")
        return dense._sage(h, {name: torch.from_numpy(state[f"layers.{number}.{name}"]) for name in names})

    sent: list[torch.Tensor] = []
    answers = []
    for step, state in enumerate(weights):
        first = torch.relu(layer(0, dense.features, state))
        before = torch.relu(layer(0, dense.features, weights[max(step - 1, 0)]))
        second = [torch.relu(layer(1, torch.where(own, first, before), state)) for own in owned]
        sent.append(sum(torch.where(own, h, 0.0) for own, h in zip(owned, second, strict=True)))
        known = sent[max(step - 1, 0)]
        answers.append(
            [layer(2, torch.where(own, h, known), state).numpy() for own, h in zip(owned, second, strict=True)]
        )
    return answers


def test_rows_are_those_of_the_refresh_before_and_bytes_are_as_predicted(tmp_path: Path):
    folders = {
        "edge-cut": write(tmp_path / "e", PARTS),
        "stored": write(tmp_path / "s", PARTS, aggregate="mean"),
        "vertex-cut": write(tmp_path / "v", PARTS, "vertex-cut"),
    }
    ranks = run_ranks(PARTS, train_all, folders)
    for name, tolerance in (("edge-cut", 1e-12), ("stored", 1e-5)):
        expected = by_dense_algebra(folders[name], ranks[0][name][0])
        for rank, found in enumerate(ranks):
            _, logits, nid, report = found[name]
            for step in range(STEPS):
                np.testing.assert_allclose(logits[step], expected[step][rank][nid], atol=tolerance, err_msg=name)
            # Fresh in the first step, then one step old; the last refresh comes after the last step.
            assert report["steps_by_age"] == [1, STEPS - 1]
            copies = len(ShardGraph(folders[name], rank).plan.send_rows)
            assert report["bytes_sent"] == report["bytes_predicted"] == (STEPS + 1) * copies * HIDDEN * (LAYERS - 1) * 8
    for found in ranks:
        metrics, num_steps, report = found["small"]
        assert metrics["loss"] == ranks[0]["small"][0]["loss"]
        assert sum(report["steps_by_age"]) == 3 * num_steps
        assert len(report["steps_by_age"]) <= 4, "at most twice as old as refreshes are apart"
        assert report["bytes_sent"] == report["bytes_predicted"] > 0
        assert found["idle"] == ranks[0]["idle"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"halo": "late"}, "halo must be none, historical or historical:STEPS, got 'late'"),
        ({"halo": "historical:x"}, "halo must be none, historical or historical:STEPS, got 'historical:x'"),
        ({"halo": "historical:0"}, "halo must be refreshed every 1 step or more, got 0"),
        ({"halo": "historical", "halo_codec": "int3"}, "codec must be one of .*, got 'int3'"),
    ],
)
def test_options_out_of_range(options: dict, message: str):
    with pytest.raises(TrainingError, match=message):
        make_config({"mode": "local", **options})


def test_one_part_has_no_halo(tmp_path: Path):
    trainer = LocalTrainer(open_shard(write(tmp_path / "d", 1), 0), WHOLE)
    assert trainer._halo is None
    assert make_config({"mode": "local", "halo": "historical:3"}).halo.every == 3
