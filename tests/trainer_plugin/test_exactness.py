"""Training on shards gives what one process on the whole graph gives, to the last digits of float64."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

from asepr.trainer_plugin.exchange import Exchange  # noqa: E402
from asepr.trainer_plugin.shard_graph import ShardGraph, open_shard  # noqa: E402
from asepr.trainer_plugin.train import TrainConfig, Trainer  # noqa: E402
from tests.graphs import Graph, random_graph  # noqa: E402
from tests.trainer_plugin.processes import run_ranks  # noqa: E402
from tests.trainer_plugin.reference import DenseReference  # noqa: E402
from tests.trainer_plugin.shards import write_random_shards  # noqa: E402

MODELS = ("sage", "sage-sum", "gcn", "gin", "gat")
LAYOUTS = ("vertex-cut", "edge-cut")
WIDTH, CLASSES, EPOCHS = 12, 4, 10


def make_graph() -> tuple[Graph, np.ndarray, np.ndarray, np.ndarray]:
    """Isolated nodes, self-loops, parallel and reciprocal edges; some nodes without a label or a split."""
    graph = random_graph(60, 150)
    rng = np.random.default_rng(3)
    pairs = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert len(pairs) < graph.num_edges, "has parallel edges"
    assert any(u == v for u, v in pairs), "has self-loops"
    assert any((v, u) in pairs for u, v in pairs if u != v), "has reciprocal edges"
    assert len(set(graph.src) | set(graph.dst)) < graph.num_nodes, "has isolated nodes"
    label = rng.integers(0, CLASSES, graph.num_nodes)
    label[::11] = -1
    features = rng.standard_normal((graph.num_nodes, WIDTH)).astype(np.float32)
    return graph, features, label, rng.integers(0, 4, graph.num_nodes)


def config(model: str, hidden: int = 9) -> TrainConfig:
    return TrainConfig(model=model, epochs=EPOCHS, hidden=hidden, dropout=0.0, dtype="float64", eval_every=EPOCHS)


def train_all(rank: int, folder: Path) -> dict:
    """Train every model on every layout; return first outputs, first and last weights."""
    found = {}
    for layout in LAYOUTS:
        for model in MODELS:
            # Wider than the features, so that both ways of mapping rows before sums are taken.
            for hidden in (9, 16):
                shard = open_shard(folder / layout, rank)
                trainer = Trainer(shard, config(model, hidden))
                first = {name: value.clone() for name, value in trainer.model.state_dict().items()}
                with torch.no_grad():
                    output = trainer.model(trainer.graph, torch.from_numpy(shard.features).double())
                trainer.run(lambda metrics: None)
                found[layout, model, hidden] = {
                    "nid": shard.nid[: shard.num_inner].copy(),
                    "output": output.numpy(),
                    "first": {name: value.numpy() for name, value in first.items()},
                    "last": {name: value.numpy() for name, value in trainer.model.state_dict().items()},
                }
    return found


@pytest.mark.parametrize("num_parts", [1, 2, 3, 4])
def test_outputs_and_trained_weights_equal_the_whole_graph(num_parts: int, tmp_path: Path):
    graph, features, label, split = make_graph()
    for layout in LAYOUTS:
        write_random_shards(tmp_path / layout, graph, num_parts, layout, features, label, split)
    reference = DenseReference(graph, features, label, split)
    ranks = run_ranks(num_parts, train_all, tmp_path)
    for case in ranks[0]:
        model = case[1]
        first = {name: torch.tensor(value) for name, value in ranks[0][case]["first"].items()}
        expected = reference.forward(model, first).numpy()
        last = reference.train_weights(model, first, EPOCHS)
        seen = np.zeros(graph.num_nodes, dtype=int)
        for rank in ranks:
            seen[rank[case]["nid"]] += 1
            np.testing.assert_allclose(rank[case]["output"], expected[rank[case]["nid"]], atol=1e-10, rtol=1e-10)
            for name, value in last.items():
                np.testing.assert_allclose(rank[case]["last"][name], value.numpy(), atol=1e-10, rtol=1e-10)
        assert (seen == 1).all()


def train_on_deep_halos(rank: int, folder: Path, layers: int) -> dict:
    """Train every model, with dropout, on halos of every depth; return outputs, weights and bytes of rows sent."""
    found = {}
    for model in MODELS:
        for hops in HOPS:
            shard = open_shard(folder / str(hops), rank)
            options = {"layers": layers, "dropout": 0.3, "dtype": "float64", "hidden": 9}
            trainer = Trainer(shard, TrainConfig(model=model, epochs=3, eval_every=3, **options))
            trainer.run(lambda metrics: None)
            with torch.no_grad():
                output = trainer.model(trainer.graph, torch.from_numpy(shard.features).double())
            found[model, hops] = {
                "nid": shard.nid[: shard.num_inner].copy(),
                "output": output.numpy(),
                "weights": {name: value.numpy() for name, value in trainer.model.state_dict().items()},
                "bytes": trainer.bytes_sent,
            }
    return found


HOPS = (1, 2, 3)


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_halos_several_hops_deep_spare_exchanges_and_change_nothing(layers: int, tmp_path: Path):
    graph, features, label, split = make_graph()
    for hops in HOPS:
        folder = tmp_path / str(hops)
        write_random_shards(folder, graph, 3, "edge-cut", features, label, split, halo_hops=hops)
    for found in run_ranks(3, train_on_deep_halos, tmp_path, layers):
        for model in MODELS:
            expected = found[model, 1]
            for hops in HOPS:
                case = found[model, hops]
                np.testing.assert_allclose(case["output"], expected["output"], atol=1e-10, rtol=1e-10)
                for name, value in expected["weights"].items():
                    np.testing.assert_allclose(case["weights"][name], value, atol=1e-10, rtol=1e-10)
                assert (case["bytes"] == 0) == (hops >= layers)


def exchange_products(rank: int, folder: Path) -> dict:
    """Return <scatter x, y>, <x, gather y>, gradients through both, and bytes."""
    shard = open_shard(folder, rank)
    exchange = Exchange(shard.plan)
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(shard.num_inner, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    y = torch.randn(shard.num_local, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    scattered, gathered = exchange.scatter(x), exchange.gather(y)
    (scattered * y.detach()).sum().backward()
    (gathered * x.detach()).sum().backward()
    return {
        "scatter": float((scattered * y).sum()),
        "gather": float((x * gathered).sum()),
        "x_gradient": (x.grad - gathered).abs().max().item() if len(x) else 0.0,
        "y_gradient": (y.grad - scattered).abs().max().item() if len(y) else 0.0,
        "bytes": exchange.bytes_sent,
        "predicted": 2 * exchange.scatter_bytes(24) + 2 * exchange.gather_bytes(24),
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scatter_and_gather_are_adjoint_and_count_their_bytes(layout: str, tmp_path: Path):
    graph, features, label, split = make_graph()
    folder = write_random_shards(tmp_path / "d", graph, 3, layout, features, label, split)
    ranks = run_ranks(3, exchange_products, folder)
    assert abs(sum(r["scatter"] for r in ranks) - sum(r["gather"] for r in ranks)) < 1e-10
    assert max(r["x_gradient"] + r["y_gradient"] for r in ranks) < 1e-12
    assert all(r["bytes"] == r["predicted"] for r in ranks)
    copies = sum(ShardGraph(folder, rank).num_halo for rank in range(3))
    assert sum(r["bytes"] for r in ranks) == 4 * copies * 24


def exchange_in_a_subgroup(rank: int, folder: Path) -> np.ndarray | None:
    group = torch.distributed.new_group([1, 2])
    if rank == 0:
        return None
    shard = open_shard(folder, rank - 1)
    rows = torch.from_numpy(shard.nid[: shard.num_inner]).double()
    found = Exchange(shard.plan, group=group).scatter(rows).numpy()
    return found - shard.nid


def test_a_subgroup_of_the_processes_exchanges_among_itself(tmp_path: Path):
    graph, features, label, split = make_graph()
    folder = write_random_shards(tmp_path / "d", graph, 2, "vertex-cut", features, label, split)
    for difference in run_ranks(3, exchange_in_a_subgroup, folder)[1:]:
        assert len(difference)
        assert not difference.any()


def train_beside_an_empty_rank(rank: int, folder: Path) -> tuple:
    shard = open_shard(folder, rank)
    trainer = Trainer(shard, config("sage"))
    metrics = trainer.run(lambda metrics: None)
    return shard.num_halo, metrics, [p.detach().numpy() for p in trainer.model.parameters()]


def test_ranks_without_halo_edges_or_training_nodes(tmp_path: Path):
    # Part 0 owns node 0 alone, which is isolated and not for training.
    graph = Graph(num_nodes=6, src=np.array([2, 3, 4, 5]), dst=np.array([3, 4, 5, 2]))
    features = np.random.default_rng(0).standard_normal((6, WIDTH)).astype(np.float32)
    label, split = np.arange(6) % CLASSES, np.array([2, 3, 1, 1, 1, 1])
    with pytest.MonkeyPatch.context() as patch:
        owner_of_all_but_node_0 = type("Rng", (), {"integers": lambda *_: np.ones(6)})
        patch.setattr(np.random, "default_rng", lambda seed: owner_of_all_but_node_0())
        folder = write_random_shards(tmp_path / "d", graph, 2, "edge-cut", features, label, split)
    ranks = run_ranks(2, train_beside_an_empty_rank, folder)
    assert [num_halo for num_halo, _, _ in ranks] == [0, 0]
    assert all(np.array_equal(a, b) for a, b in zip(ranks[0][2], ranks[1][2], strict=True))
    unlike = {name: ranks[0][1][name] for name in ("seconds", "exchange")}
    assert ranks[0][1] == ranks[1][1] | unlike
