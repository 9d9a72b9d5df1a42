"""What DGL users get: a faithful DGLGraph, and stock layers that are exact once halo rows are filled."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")
adapter = pytest.importorskip("asepr.trainer_plugin.dgl_adapter", reason="there is no DGL here", exc_type=ImportError)

import dgl.nn  # noqa: E402

from asepr.trainer_plugin.layers import GCNConv, GINConv, SAGEConv  # noqa: E402
from asepr.trainer_plugin.shard_graph import open_shard, open_shards  # noqa: E402
from tests.graphs import Graph  # noqa: E402
from tests.trainer_plugin.processes import run_ranks  # noqa: E402
from tests.trainer_plugin.shards import write_random_shards  # noqa: E402
from tests.trainer_plugin.test_exactness import WIDTH, make_graph  # noqa: E402


def whole_graph(graph: Graph) -> dgl.DGLGraph:
    return dgl.graph((torch.tensor(graph.src), torch.tensor(graph.dst)), num_nodes=graph.num_nodes)


def test_graph_holds_what_the_shard_holds(tmp_path: Path):
    graph, features, label, split = make_graph()
    folder = write_random_shards(tmp_path / "d", graph, 3, "vertex-cut", features, label, split)
    seen = []
    for shard in open_shards(folder):
        local = shard.dgl_graph()
        nid, eid = local.ndata[dgl.NID].numpy(), local.edata[dgl.EID].numpy()
        src, dst = (nid[ends.numpy()] for ends in local.edges())
        assert np.array_equal(src, graph.src[eid])
        assert np.array_equal(dst, graph.dst[eid])
        assert np.array_equal(local.ndata["feat"].numpy(), features[nid])
        assert np.array_equal(local.ndata["label"].numpy(), label[nid])
        for code, name in enumerate(("train_mask", "val_mask", "test_mask"), start=1):
            assert np.array_equal(local.ndata[name].numpy(), (split[nid] == code) & (label[nid] >= 0))
        whole = whole_graph(graph)
        assert np.array_equal(local.ndata["in_degree"].numpy(), whole.in_degrees().numpy()[nid])
        assert np.array_equal(local.ndata["out_degree"].numpy(), whole.out_degrees().numpy()[nid])
        assert int(local.ndata["inner_node"].sum()) == shard.num_inner
        seen += eid.tolist()
    assert sorted(seen) == list(range(graph.num_edges))


def test_writing_into_a_graph_leaves_the_files_alone(tmp_path: Path):
    graph, features, label, split = make_graph()
    folder = write_random_shards(tmp_path / "d", graph, 1, "edge-cut", features, label, split)
    open_shard(folder, 0).dgl_graph().ndata["feat"].mul_(0)
    assert np.array_equal(open_shard(folder, 0).features, features)


def test_our_layers_equal_those_of_dgl_on_the_whole_graph(tmp_path: Path):
    graph, features, label, split = make_graph()
    folder = write_random_shards(tmp_path / "d", graph, 1, "vertex-cut", features, label, split)
    local, whole = open_shard(folder, 0).local_graph(), whole_graph(graph)
    rows = torch.tensor(features)
    ours, theirs = SAGEConv(WIDTH, 5), dgl.nn.SAGEConv(WIDTH, 5, "mean")
    theirs.fc_self.weight.data, theirs.fc_neigh.weight.data = ours.own.weight.data, ours.neighbour.weight.data
    theirs.fc_self.bias.data = ours.own.bias.data
    torch.testing.assert_close(ours(local, rows, rows), theirs(whole, rows), atol=1e-5, rtol=1e-5)
    ours, theirs = GCNConv(WIDTH, 5), dgl.nn.GraphConv(WIDTH, 5, norm="both")
    theirs.weight.data, theirs.bias.data = ours.linear.weight.data.T.contiguous(), ours.bias.data
    torch.testing.assert_close(ours(local, rows, rows), theirs(dgl.add_self_loop(whole), rows), atol=1e-5, rtol=1e-5)
    ours = GINConv(WIDTH, 5)
    theirs = dgl.nn.GINConv(ours.mlp, "sum")
    torch.testing.assert_close(ours(local, rows, rows), theirs(whole, rows), atol=1e-4, rtol=1e-5)


def run_stock_layers(rank: int, folder: Path) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """A user's own loop: stock layers on the local graph, halo rows filled between them."""
    shard = open_shard(folder, rank)
    graph, exchange = shard.dgl_graph(), shard.exchange()
    torch.manual_seed(0)
    layers = [dgl.nn.SAGEConv(WIDTH, 8, "mean"), dgl.nn.SAGEConv(8, 3, "mean")]
    rows = graph.ndata["feat"]
    inner = layers[0](graph, rows)[: shard.num_inner].relu()
    inner = layers[1](graph, exchange.scatter(inner))[: shard.num_inner]
    inner.square().sum().backward()
    gradients = [p.grad for layer in layers for p in layer.parameters()]
    for gradient in gradients:
        torch.distributed.all_reduce(gradient)
    return shard.nid[: shard.num_inner].copy(), inner.detach().numpy(), [g.numpy() for g in gradients]


def test_a_users_own_loop_is_exact_on_an_edge_cut(tmp_path: Path):
    graph, features, label, split = make_graph()
    folder = write_random_shards(tmp_path / "d", graph, 2, "edge-cut", features, label, split)
    whole = whole_graph(graph)
    torch.manual_seed(0)
    layers = [dgl.nn.SAGEConv(WIDTH, 8, "mean"), dgl.nn.SAGEConv(8, 3, "mean")]
    expected = layers[1](whole, layers[0](whole, torch.tensor(features)).relu())
    expected.square().sum().backward()
    gradients = [p.grad.numpy() for layer in layers for p in layer.parameters()]
    for nid, found, found_gradients in run_ranks(2, run_stock_layers, folder):
        np.testing.assert_allclose(found, expected.detach().numpy()[nid], atol=1e-5)
        for ours, theirs in zip(found_gradients, gradients, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-3, rtol=1e-4)
