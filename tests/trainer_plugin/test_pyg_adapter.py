"""PyG's stock layers on shards, against the whole graph in one process."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")
pytest.importorskip("torch_geometric", reason="torch-geometric is not installed")

from torch_geometric.nn import SAGEConv  # noqa: E402

from asepr.contracts import NO_LABEL, SPLIT_CODES  # noqa: E402
from asepr.trainer_plugin.shard_graph import open_shard  # noqa: E402
from tests.trainer_plugin.processes import run_ranks  # noqa: E402
from tests.trainer_plugin.shards import write_random_shards  # noqa: E402
from tests.trainer_plugin.test_exactness import WIDTH, make_graph  # noqa: E402


def layers() -> list[torch.nn.Module]:
    torch.manual_seed(0)
    return [SAGEConv(WIDTH, 8), SAGEConv(8, 3)]


def run_stock_layers(rank: int, folder: Path) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    shard = open_shard(folder, rank)
    data, exchange, model = shard.pyg_data(), shard.exchange(), layers()
    inner = model[0](data.x, data.edge_index)[data.inner_mask].relu()
    inner = model[1](exchange.scatter(inner), data.edge_index)[data.inner_mask]
    inner.square().sum().backward()
    gradients = [p.grad for layer in model for p in layer.parameters()]
    for gradient in gradients:
        torch.distributed.all_reduce(gradient)
    return data.n_id[data.inner_mask].numpy(), inner.detach().numpy(), [g.numpy() for g in gradients]


def test_stock_layers_are_exact_on_an_edge_cut(tmp_path: Path):
    graph, features, label, split = make_graph()
    folder = write_random_shards(tmp_path / "d", graph, 2, "edge-cut", features, label, split)
    model = layers()
    edge_index = torch.from_numpy(np.stack([graph.src, graph.dst]))
    expected = model[1](model[0](torch.tensor(features), edge_index).relu(), edge_index)
    expected.square().sum().backward()
    gradients = [p.grad.numpy() for layer in model for p in layer.parameters()]
    for nid, found, found_gradients in run_ranks(2, run_stock_layers, folder):
        np.testing.assert_allclose(found, expected.detach().numpy()[nid], atol=1e-5)
        for ours, theirs in zip(found_gradients, gradients, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-3, rtol=1e-4)


def test_columns_are_those_of_the_shard(tmp_path: Path):
    graph, features, label, split = make_graph()
    folder = write_random_shards(tmp_path / "d", graph, 2, "vertex-cut", features, label, split)
    shard = open_shard(folder, 1)
    data = shard.pyg_data()
    assert data.num_nodes == shard.num_local
    assert data.n_id.tolist() == shard.nid.tolist()
    assert np.array_equal(shard.nid[data.edge_index.numpy()], np.stack([graph.src, graph.dst])[:, data.e_id.numpy()])
    assert np.array_equal(data.x.numpy(), features.astype(np.float32)[shard.nid])
    usable = label[shard.nid] != NO_LABEL
    assert data.train_mask.tolist() == ((split[shard.nid] == SPLIT_CODES["train"]) & usable).tolist()
