"""Links: ranks against OGB's evaluator, parts against one process, and what is refused."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from safetensors.torch import load_file  # noqa: E402

import asepr  # noqa: E402
from asepr.errors import ShardError, TrainingError  # noqa: E402
from asepr.trainer_plugin.link_ranking import link_measures  # noqa: E402
from asepr.trainer_plugin.local_train import LocalConfig, LocalTrainer  # noqa: E402
from asepr.trainer_plugin.reconcile_average import AverageConfig  # noqa: E402
from asepr.trainer_plugin.shard_graph import ShardGraph  # noqa: E402
from asepr.trainer_plugin.train import TrainConfig, Trainer  # noqa: E402
from tests.graphs import random_graph  # noqa: E402
from tests.trainer_plugin.processes import run_ranks  # noqa: E402

TYPES, NODES = 3, 50
LAYOUTS = ("vertex-cut", "edge-cut")


class Holding(ShardGraph):
    """A shard beside which the edges held out of the whole graph lie, each in the part that owns its destination."""

    def held_out_edges(self, split: str) -> pa.Table:
        path = self.path.parent.parent / "held.parquet"
        if not path.is_file():
            raise ShardError("no edges are held out")
        table = pq.read_table(path)
        mine = np.isin(table["dst"].to_numpy(), self.nid[: self.num_inner])
        return table.filter(pa.array(mine & (table["split"].to_numpy(zero_copy_only=False) == split))).drop(["split"])


def edges() -> dict[str, np.ndarray]:
    graph = random_graph(NODES, 220)
    etype = np.random.default_rng(2).integers(0, TYPES, graph.num_edges)
    return {"src": graph.src, "dst": graph.dst, "etype": etype}


def write(
    folder: Path, num_parts: int, layout: str = "edge-cut", has_features: bool = True, has_types: bool = True
) -> Path:
    """Hold out the last 40 edges; node types are odd and even."""
    folder.mkdir(parents=True)
    table = pa.table(edges() if has_types else {name: edges()[name] for name in ("src", "dst")})
    num_train = len(table) - 40
    pq.write_table(table.slice(0, num_train), folder / "edges.parquet")
    held = table.slice(num_train).append_column("eid", pa.array(np.arange(40) + num_train))
    pq.write_table(held.append_column("split", pa.array(["valid", "test"] * 20)), folder / "held.parquet")
    pq.write_table(pa.table({"id": np.arange(NODES), "ntype": np.arange(NODES) % 2}), folder / "nodes.parquet")
    features = np.random.default_rng(3).standard_normal((NODES, 6)).astype(np.float32)
    np.save(folder / "features.npy", features)
    asepr.partition(
        folder / "edges.parquet",
        folder / "out",
        nodes=folder / "nodes.parquet" if has_types else None,
        features=folder / "features.npy" if has_features else None,
        num_nodes=NODES,
        num_parts=num_parts,
        layout=layout,
        method="random",
    )
    return folder / "out"


def options(**given: Any) -> TrainConfig:
    defaults = {"task": "link", "model": "rgcn", "epochs": 4, "hidden": 8, "dropout": 0.0, "dtype": "float64"}
    return TrainConfig(**defaults | {"negatives": 9, "negatives_from": "global", "eval_every": 4} | given)


def quiet(metrics: dict) -> None:
    del metrics


CASES = {
    "features": {},
    "learned": {},
    "dot": {"decoder": "dot", "model": "sage"},
    "few": {"eval_negatives": 20},
}


def train_on_a_rank(rank: int, root: Path) -> dict:
    """Train in every way; return nids, output rows, measures and the rows of relations."""
    found = {}
    for (case, given), layout in itertools.product(CASES.items(), LAYOUTS):
        folder = root / f"{layout}-{'learned' if case == 'learned' else 'features'}" / "out"
        shard = Holding(folder, rank)
        trainer = Trainer(shard, options(**given))
        measures = trainer.run(quiet)
        with torch.no_grad():
            output = trainer.model(trainer.graph, trainer._input.local()).numpy()
        relation = getattr(trainer.model.decoder, "relation", torch.ones(TYPES, 8)).detach().numpy()
        found[case, layout] = (shard.nid[: shard.num_inner].copy(), output, relation, measures)
        if shard.num_parts > 1:
            train = options(**given | {"negatives_from": "local"})
            trainer = LocalTrainer(Holding(folder, rank), LocalConfig(train=train, batch=16, fanout=3, sync_every=2))
            mrr = trainer.run(quiet)["val_mrr"]
            rows = trainer._input.state().get("rows", trainer._input.local()).detach().numpy()
            found[case, layout, "local"] = (trainer.shard.nid.copy(), rows, mrr)
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict]]:
    """What one process and two say."""
    found = {}
    for num_parts in (1, 2):
        root = tmp_path_factory.mktemp(f"parts{num_parts}")
        for layout, kind in itertools.product(LAYOUTS, ("learned", "features")):
            write(root / f"{layout}-{kind}", num_parts, layout, kind == "features")
        found[num_parts] = run_ranks(num_parts, train_on_a_rank, root)
    return found


def ogb_evaluator(name: str) -> Any:
    ogb = pytest.importorskip("ogb.linkproppred", reason="compares with OGB: pip install ogb")
    return ogb.Evaluator(name=name)


def whole(ranks: list[dict], case: str, layout: str) -> np.ndarray:
    output = np.zeros((NODES, 8))
    for rank in ranks:
        nid, own, _, _ = rank[case, layout]
        output[nid] = own
    return output


@pytest.mark.parametrize(("case", "layout"), [*itertools.product(CASES, LAYOUTS)])
def test_two_parts_train_as_one(runs: dict, case: str, layout: str):
    expected = whole(runs[1], case, "edge-cut")
    np.testing.assert_allclose(whole(runs[2], case, layout), expected, atol=1e-10, rtol=1e-9)
    (_, _, relation, measures), (_, _, expected_relation, expected_measures) = (
        runs[num_parts][0][case, layout] for num_parts in (2, 1)
    )
    np.testing.assert_allclose(relation, expected_relation, atol=1e-10)
    for name in ("loss", "val_mrr", "val_hits@1", "val_hits@10", "test_mrr", "best_test_mrr"):
        assert measures[name] == pytest.approx(expected_measures[name], abs=1e-10), name


@pytest.mark.parametrize("case", ["features", "learned", "dot"])
def test_measures_are_those_of_ogb_over_all_pairs_that_are_no_edges(runs: dict, case: str):
    output = whole(runs[2], case, "vertex-cut").astype(np.float64)
    _, _, relation, measures = runs[2][0][case, "vertex-cut"]
    table = edges()
    triples = list(zip(*(table[name].tolist() for name in ("src", "dst", "etype")), strict=True))
    known = set(triples)
    for split, held in (("val", triples[-40::2]), ("test", triples[-39::2])):
        positive, negative = [], []
        for u, v, r in held:
            for corrupt_source in (False, True):
                row = []
                for w in range(NODES):
                    pair = (w, v) if corrupt_source else (u, w)
                    is_negative = (*pair, r) not in known and w % 2 == (u if corrupt_source else v) % 2
                    score = np.float32((output[pair[0]] * relation[r] * output[pair[1]]).sum())
                    row.append(score if is_negative else -np.inf)
                positive.append(np.float32((output[u] * relation[r] * output[v]).sum()))
                negative.append(row)
        ogb = ogb_evaluator("ogbl-wikikg2").eval(
            {"y_pred_pos": torch.tensor(np.array(positive)), "y_pred_neg": torch.tensor(np.array(negative))}
        )
        assert measures[f"{split}_mrr"] == pytest.approx(float(ogb["mrr_list"].mean()), abs=1e-6)
        for k in (1, 3, 10):
            assert measures[f"{split}_hits@{k}"] == pytest.approx(float(ogb[f"hits@{k}_list"].mean()), abs=1e-6)


def test_ties_count_as_ogb_counts_them():
    rng = np.random.default_rng(0)
    positive, negative = rng.integers(0, 4, 300).astype(float), rng.integers(0, 4, (300, 12)).astype(float)
    found = link_measures((negative > positive[:, None]).sum(1), (negative == positive[:, None]).sum(1))
    ogb = ogb_evaluator("ogbl-citation2").eval(
        {"y_pred_pos": torch.from_numpy(positive), "y_pred_neg": torch.from_numpy(negative)}
    )
    assert found["mrr"] == pytest.approx(float(ogb["mrr_list"].mean()), abs=1e-6)
    assert all(found[f"hits@{k}"] == pytest.approx(float(ogb[f"hits@{k}_list"].mean())) for k in (1, 3, 10))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_local_training_ends_with_one_row_a_node(runs: dict, layout: str):
    rows: dict[int, np.ndarray] = {}
    for rank in runs[2]:
        nid, learned, mrr = rank["learned", layout, "local"]
        assert mrr == runs[2][0]["learned", layout, "local"][2]
        assert 0 < mrr <= 1
        for v, row in zip(nid.tolist(), learned, strict=True):
            np.testing.assert_array_equal(rows.setdefault(v, row), row)
    assert len(rows) == NODES


def test_a_model_finds_links_that_follow_a_rule(tmp_path: Path):
    # A ring: every node is joined to the next two; held-out links close what training edges leave open.
    n = 40
    pairs = [(i, (i + step) % n) for i in range(n) for step in (1, 2, 3)]
    pairs += [(v, u) for u, v in pairs]
    held = [pairs.pop(7 * i) for i in range(12)]
    pq.write_table(pa.table({"src": [u for u, _ in pairs], "dst": [v for _, v in pairs]}), tmp_path / "edges.parquet")
    table = {"src": [u for u, _ in held], "dst": [v for _, v in held], "eid": list(range(12))}
    pq.write_table(pa.table(table | {"split": ["valid", "test"] * 6}), tmp_path / "held.parquet")
    asepr.partition(tmp_path / "edges.parquet", tmp_path / "out", num_nodes=n, num_parts=1)
    config = options(model="sage", epochs=60, hidden=16, dtype="float32", negatives=32, eval_every=60)
    chance = sum(1 / r for r in range(1, n)) / n
    assert Trainer(Holding(tmp_path / "out", 0), config).run(quiet)["val_mrr"] > 2 * chance
    config = dataclasses.replace(config, lr=0.05, negatives_from="local")
    trainer = LocalTrainer(Holding(tmp_path / "out", 0), LocalConfig(train=config, batch=32, fanout=4))
    assert trainer.run(quiet)["val_mrr"] > 2 * chance


def test_datasets_that_hold_no_links_out(tmp_path: Path):
    folder = write(tmp_path / "d", 1, has_types=False)
    with pytest.raises(TrainingError, match="decoder distmult must come with edge types, got edges without"):
        Trainer(Holding(folder, 0), options(model="sage", decoder="distmult"))
    (tmp_path / "d" / "held.parquet").unlink()
    with pytest.raises(TrainingError, match="must hold out edges to be predicted, got none"):
        Trainer(Holding(folder, 0), options(model="sage"))


def test_a_model_that_diverges_is_not_the_best(tmp_path: Path):
    folder = write(tmp_path / "d", 1)
    trainer = Trainer(Holding(folder, 0), options())
    with torch.no_grad():
        trainer.model.decoder.relation.fill_(float("nan"))
    with pytest.raises(TrainingError, match="scores must be finite, got NaN or infinity"):
        trainer._evaluate()


def make(mode: str, shard: ShardGraph, config: TrainConfig) -> Trainer:
    # A checkpoint holds one rank's moments, so that all must have the same.
    local = LocalConfig(train=config, batch=64, fanout=0, sync_every=2, average=AverageConfig(moments="average"))
    return Trainer(shard, config) if mode == "exact" else LocalTrainer(shard, local)


def resume_with_learned_rows(rank: int, folder: Path, checkpoints: Path, mode: str) -> list[dict[str, np.ndarray]]:
    """Return model and rows of a whole run, and of one that was stopped and went on."""
    shard, found = Holding(folder, rank), []
    whole = options(
        epochs=6, eval_every=1, checkpoint=str(checkpoints / "whole"), checkpoint_every=2, restore="best", lr=0.3,
        negatives_from="local",
    )  # fmt: skip
    halves = dataclasses.replace(whole, checkpoint=str(checkpoints / "halves"))
    make(mode, shard, dataclasses.replace(halves, epochs=4)).run(quiet)
    for config in (whole, dataclasses.replace(halves, resume=True)):
        trainer = make(mode, shard, config)
        trainer.run(quiet)
        kept = trainer.model.state_dict() | trainer._input.state()
        found.append({name: value.numpy().copy() for name, value in kept.items()} | {"best": trainer._best.values})
    return found


@pytest.mark.parametrize("mode", ["exact", "local"])
def test_learned_rows_go_on_from_a_checkpoint(mode: str, tmp_path: Path):
    folder = write(tmp_path / "d", 2, has_features=False)
    for whole, resumed in run_ranks(2, resume_with_learned_rows, folder, tmp_path / "c", mode):
        assert whole.keys() == resumed.keys()
        for name, value in whole.items():
            np.testing.assert_array_equal(value, resumed[name])
        assert whole["best"] == resumed["best"]
    for name in ("checkpoint", "rank-00000-6", "rank-00001-6"):
        last, found = (load_file(tmp_path / "c" / run / f"{name}.safetensors") for run in ("whole", "halves"))
        assert last.keys() == found.keys()
        assert all(torch.equal(last[key], found[key]) for key in last)


def test_learned_rows_that_do_not_fit(tmp_path: Path):
    folder = write(tmp_path / "d", 1, has_features=False)
    config = options(checkpoint=str(tmp_path / "c"))
    trainer = Trainer(Holding(folder, 0), config)
    trainer.run(quiet)
    with pytest.raises(TrainingError, match=r"rows of learned rows must be .* of shape \(50, 8\), got .* \(49, 8\)"):
        trainer._input.load_state({"rows": torch.zeros(49, 8, dtype=torch.float64)})
    with pytest.raises(TrainingError, match="must hold learned rows, got none"):
        trainer._input.load_state({})
    (tmp_path / "c" / "rank-00000-4.safetensors").write_bytes(b"short")
    with pytest.raises(TrainingError, match="must hold what rank 0 kept between steps, got"):
        Trainer(Holding(folder, 0), dataclasses.replace(config, epochs=5, resume=True))
