"""Tasks and typed models: several labels a node against scikit-learn, relational convolutions against PyG."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from sklearn.metrics import f1_score  # noqa: E402

import asepr  # noqa: E402
from asepr.errors import NodeSourceError, TrainingError  # noqa: E402
from asepr.trainer_plugin.local_train import LocalConfig, LocalTrainer  # noqa: E402
from asepr.trainer_plugin.reconcile_losses import DistillConfig  # noqa: E402
from asepr.trainer_plugin.shard_graph import open_shard  # noqa: E402
from asepr.trainer_plugin.train import TrainConfig, Trainer  # noqa: E402
from tests.trainer_plugin.processes import run_ranks  # noqa: E402
from tests.trainer_plugin.test_exactness import make_graph  # noqa: E402

TYPES, EPOCHS = 3, 6
LAYOUTS = ("vertex-cut", "edge-cut")


def node_labels() -> list[list[int] | None]:
    graph, features, _, _ = make_graph()
    chosen = features @ np.random.default_rng(1).standard_normal((features.shape[1], 5)) > 1
    rows: list[list[int] | None] = chosen.astype(int).tolist()
    for v in range(0, graph.num_nodes, 13):
        rows[v] = None
    return rows


def write(folder: Path, num_parts: int, layout: str = "edge-cut", ids: str = "dense") -> Path:
    """Edges of three types, in random order of types; several labels a node, some unknown."""
    graph, features, _, split = make_graph()
    folder.mkdir(parents=True)
    etype = np.random.default_rng(2).integers(0, TYPES, graph.num_edges)
    pq.write_table(pa.table({"src": graph.src, "dst": graph.dst, "etype": etype}), folder / "edges.parquet")
    names = np.array(["", "train", "val", "test"])
    columns = {"id": np.arange(graph.num_nodes), "label": node_labels(), "split": names[split]}
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    np.save(folder / "features.npy", features)
    asepr.partition(
        folder / "edges.parquet",
        folder / "out",
        nodes=folder / "nodes.parquet",
        features=folder / "features.npy",
        num_parts=num_parts,
        layout=layout,
        method="random",
        ids=ids,
    )
    return folder / "out"


def quiet(metrics: dict) -> None:
    del metrics


def options(**given: Any) -> TrainConfig:
    return TrainConfig(**{"epochs": EPOCHS, "hidden": 9, "dropout": 0.0, "dtype": "float64"} | given)


def local(config: TrainConfig) -> LocalConfig:
    return LocalConfig(train=config, batch=8, fanout=3, sync_every=2)


def train_on_a_rank(rank: int, root: Path) -> dict:
    """Train both kinds of task and model on two parts; return what is said of nodes, weights and measures."""
    found = {}
    for layout, mode in itertools.product(LAYOUTS, ("exact", "local")):
        config = options(task="multilabel")
        shard = open_shard(root / layout / "out", rank)
        trainer = Trainer(shard, config) if mode == "exact" else LocalTrainer(shard, local(config))
        measures = trainer.run(quiet)
        with torch.no_grad():
            output = trainer.model(trainer.graph, trainer._input.local()).numpy()
        found["labels", layout, mode] = (shard.nid[: shard.num_inner].copy(), output, measures)
    for layout, bases, hidden in itertools.product(LAYOUTS, (0, 2), (9, 16)):
        shard = open_shard(root / layout / "out", rank)
        trainer = Trainer(shard, options(task="multilabel", model="rgcn", bases=bases, hidden=hidden))
        first = {name: value.numpy().copy() for name, value in trainer.model.state_dict().items()}
        trainer.run(quiet)
        last = {name: value.numpy() for name, value in trainer.model.state_dict().items()}
        found["typed", layout, bases, hidden] = (first, last)
    config = options(task="multilabel", model="rgcn", epochs=2)
    found["typed", "local"] = LocalTrainer(open_shard(root / "edge-cut" / "out", rank), local(config)).run(quiet)
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    root = tmp_path_factory.mktemp("tasks")
    for layout in LAYOUTS:
        write(root / layout, 2, layout)
    return run_ranks(2, train_on_a_rank, root)


@pytest.mark.parametrize(("layout", "mode"), [*itertools.product(LAYOUTS, ("exact", "local"))])
def test_several_labels_score_as_scikit_learn_counts(ranks: list[dict], layout: str, mode: str):
    _, _, _, split = make_graph()
    labels = node_labels()
    output = np.zeros((len(labels), 5))
    for rank in ranks:
        nid, own, _ = rank["labels", layout, mode]
        output[nid] = own
    measures = ranks[0]["labels", layout, mode][2]
    for code, name in enumerate(("train", "val", "test"), start=1):
        nodes = [v for v, row in enumerate(labels) if row is not None and split[v] == code]
        expected = f1_score([labels[v] for v in nodes], output[nodes] > 0, average="micro")
        assert measures[f"{name}_f1"] == pytest.approx(expected, abs=1e-12)
    assert 0 < measures["best_val_f1"] <= 1


def test_labels_whose_nodes_are_mapped_are_the_same(tmp_path: Path):
    dense, mapped = (open_shard(write(tmp_path / ids, 1, ids=ids), 0) for ids in ("dense", "map"))
    assert dense.labels is not None
    assert mapped.labels is not None
    assert np.array_equal(dense.labels, mapped.labels)
    expected = [[255] * 5 if row is None else row for row in node_labels()]
    assert dense.labels.tolist() == expected
    assert dense.manifest.split_sizes == mapped.manifest.split_sizes


@pytest.mark.parametrize(("layout", "bases", "hidden"), [*itertools.product(LAYOUTS, (0, 2), (9, 16))])
def test_relational_convolutions_on_parts_train_as_those_of_pyg_on_the_whole_graph(
    ranks: list[dict], layout: str, bases: int, hidden: int, tmp_path: Path
):
    pyg = pytest.importorskip("torch_geometric.nn", reason="compares with PyG: pip install 'asepr[pyg]'")
    graph, features, _, split = make_graph()
    etype = torch.from_numpy(np.random.default_rng(2).integers(0, TYPES, graph.num_edges))
    edges = torch.from_numpy(np.stack([graph.src, graph.dst]))
    first, last = ranks[0]["typed", layout, bases, hidden]
    widths = [features.shape[1], hidden, 5]
    layers = [pyg.RGCNConv(a, b, TYPES, bases or None).double() for a, b in itertools.pairwise(widths)]
    names = {"root": "own.weight", "bias": "own.bias", "weight": "basis"} | ({"comp": "share"} if bases else {})
    with torch.no_grad():
        for number, layer in enumerate(layers):
            for theirs, ours in names.items():
                value = torch.from_numpy(first[f"layers.{number}.{ours}"])
                getattr(layer, theirs).copy_(value.T if theirs == "root" else value)
    labels = node_labels()
    nodes = [v for v, row in enumerate(labels) if row is not None and split[v] == 1]
    target = torch.tensor([labels[v] for v in nodes], dtype=torch.float64)
    optimizer = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=0.01, weight_decay=5e-4)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        hidden_rows = layers[0](torch.from_numpy(features).double(), edges, etype).relu()
        output = layers[1](hidden_rows, edges, etype)[nodes]
        torch.nn.functional.binary_cross_entropy_with_logits(output, target).backward()
        optimizer.step()
    for number, layer in enumerate(layers):
        for theirs, ours in names.items():
            value = getattr(layer, theirs).detach().numpy()
            found = last[f"layers.{number}.{ours}"]
            np.testing.assert_allclose(found, value.T if theirs == "root" else value, atol=1e-10, rtol=1e-9)


def test_relational_convolutions_on_whole_batches_are_full_graph_training(tmp_path: Path, ranks: list[dict]):
    folder = write(tmp_path / "d", 1)
    config = options(task="multilabel", model="rgcn", bases=2)
    exact = Trainer(open_shard(folder, 0), config)
    exact.run(quiet)
    parts = LocalTrainer(open_shard(folder, 0), LocalConfig(train=config, batch=1000, fanout=0))
    parts.run(quiet)
    for name, value in exact.model.state_dict().items():
        np.testing.assert_allclose(parts.model.state_dict()[name].numpy(), value.numpy(), atol=1e-10)
    assert ranks[0]["typed", "local"]["val_f1"] == ranks[1]["typed", "local"]["val_f1"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": "nodes"}, "task must be one of node, multilabel, link, got 'nodes'"),
        ({"task": "node"}, "task node must have one label a node, got lists; give --task multilabel"),
        ({"task": "multilabel", "model": "rcgn"}, "model must be one of sage, .*, rgcn, got 'rcgn'"),
        ({"bases": -1}, "bases must not be negative, got -1"),
        ({"decoder": "transe"}, "decoder must be one of dot, distmult, got 'transe'"),
        ({"negatives": 0}, "negatives must be at least 1 .* got 0"),
        ({"negatives_from": "all"}, "negatives_from must be one of local, global, got 'all'"),
    ],
)
def test_tasks_that_cannot_be(given: dict, message: str, tmp_path: Path):
    with pytest.raises(TrainingError, match=message):
        Trainer(open_shard(write(tmp_path / "d", 1), 0), options(**given))


def test_what_goes_with_one_class_a_node_alone(tmp_path: Path):
    with pytest.raises(TrainingError, match="distillation on answers must come with task node, got multilabel"):
        LocalConfig(train=options(task="multilabel"), distill=DistillConfig())
    with pytest.raises(TrainingError, match="negatives_from global must come with mode exact, got mode local"):
        LocalConfig(train=options(task="link", negatives_from="global"))
    with pytest.raises(TrainingError, match="predictions are of classes, which task link has none of"):
        options(task="link", predictions=str(tmp_path))


def test_one_label_a_node_is_not_several_and_untyped_edges_have_no_relations(tmp_path: Path):
    graph, features, label, split = make_graph()
    table = {"id": np.arange(graph.num_nodes), "label": label, "split": np.array(["", "train", "val", "test"])[split]}
    pq.write_table(pa.table(table), tmp_path / "nodes.parquet")
    np.save(tmp_path / "features.npy", features)
    asepr.partition(
        graph.source(),
        tmp_path / "out",
        nodes=tmp_path / "nodes.parquet",
        features=tmp_path / "features.npy",
        num_parts=1,
    )
    shard = open_shard(tmp_path / "out", 0)
    with pytest.raises(TrainingError, match="must have a list of 0 and 1 a node as label, got one label a node"):
        Trainer(shard, options(task="multilabel"))
    with pytest.raises(TrainingError, match="model rgcn must come with edge types, got edges without"):
        Trainer(shard, options(model="rgcn"))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1], [1]], "column 'label' must hold lists of one length, .* got lengths .1, 2."),
        ([[0, 1], [1, 2]], "column 'label' must hold lists of 0 and 1, .* got 2"),
        ([[0, 1], [1, None]], "column 'label' must hold lists of 0 and 1, .* got None"),
        ([[], []], "column 'label' must hold lists of one length"),
        ([["a"], ["b"]], "column 'label' must hold lists of 0 and 1"),
    ],
)
def test_lists_that_are_no_labels(labels: list, message: str, tmp_path: Path):
    pq.write_table(pa.table({"id": [0, 1], "label": labels}), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"src": [0], "dst": [1]}), tmp_path / "edges.parquet")
    for ids in ("dense", "map"):
        with pytest.raises(NodeSourceError, match=message):
            asepr.partition(
                tmp_path / "edges.parquet", tmp_path / "out", nodes=tmp_path / "nodes.parquet", num_parts=1, ids=ids
            )
