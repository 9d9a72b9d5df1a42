"""What each server and trainer of a DistDGL run does to show that an export holds the source, and that it trains.

    python examples/distdgl_launch.py CONFIG IP_CONFIG benchmarks/distdgl_check.py SOURCE.npz FOLDER

A trainer samples all in-edges of every node from the servers and compares them, the degrees and all features
with the source; then it trains GraphSAGE for one epoch of mini-batches together with the other trainers, and
writes what it found to FOLDER/rank-R.json.
"""

import json
import os
import sys
from pathlib import Path

os.environ["DGLBACKEND"] = "pytorch"

import dgl
import numpy as np
import torch
from dgl.nn import HeteroGraphConv, SAGEConv
from torch.nn.parallel import DistributedDataParallel


def main(source: str, folder: str) -> None:
    """Serve, or compare and train; a server never returns from `initialize`."""
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"], net_type="socket")
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    graph = dgl.distributed.DistGraph("graph", part_config=os.environ["DGL_CONF_PATH"])
    with np.load(source) as arrays:
        truth = dict(arrays)
    found = {"sampled": compare(graph, truth), **train(graph)}
    (Path(folder) / f"rank-{torch.distributed.get_rank()}.json").write_text(json.dumps(found))
    torch.distributed.barrier()


def compare(graph, truth: dict) -> int:
    """Sample with full fan-out, and compare edges, degrees and features with the source; return the edges."""
    nodes = {name: torch.arange(graph.num_nodes(name)) for name in graph.ntypes}
    nid_of = {name: original_ids(graph.nodes[name].data, ids, "orig_nids.dgl", name) for name, ids in nodes.items()}
    for name, nids in nid_of.items():
        for column in graph.nodes[name].data:
            if column != "orig_id":
                values = graph.nodes[name].data[column][nodes[name]].numpy()
                assert np.array_equal(values.astype(truth[f"node_{column}"].dtype), truth[f"node_{column}"][nids]), (
                    column
                )
    assert np.array_equal(np.sort(np.concatenate(list(nid_of.values()))), np.arange(len(truth["in_degree"])))
    sampled = dgl.distributed.sample_neighbors(graph, nodes if len(graph.ntypes) > 1 else nodes[graph.ntypes[0]], -1)
    degree = np.zeros_like(truth["in_degree"])
    eids = []
    for edge_type in graph.canonical_etypes:
        ids = sampled.edges[edge_type].data[dgl.EID]
        src, dst = sampled.edges(order="eid", etype=edge_type)
        data = graph.edges[edge_type].data
        eid = original_ids(data, ids, "orig_eids.dgl", ":".join(edge_type))
        eids.append(eid)
        assert np.array_equal(nid_of[edge_type[0]][src.numpy()], truth["src"][eid])
        assert np.array_equal(nid_of[edge_type[2]][dst.numpy()], truth["dst"][eid])
        degree += np.bincount(nid_of[edge_type[2]][dst.numpy()], minlength=len(degree))
        for column in data:
            if column != "orig_id":
                assert np.array_equal(data[column][ids].numpy(), truth[f"edge_{column}"][eid]), column
        if len(graph.etypes) == 1:
            asked = graph.in_degrees(nodes[graph.ntypes[0]]).numpy()
            assert np.array_equal(asked, truth["in_degree"][nid_of[graph.ntypes[0]]])
    assert np.array_equal(degree, truth["in_degree"])
    assert np.array_equal(np.sort(np.concatenate(eids)), np.arange(len(truth["src"])))
    return sum(map(len, eids))


def original_ids(data, ids: torch.Tensor, file: str, type_name: str) -> np.ndarray:
    """Return the source's ids from the servers or, for a type that has no features, from the export's own files."""
    if "orig_id" in list(data):
        return data["orig_id"][ids].numpy()
    config = Path(os.environ["DGL_CONF_PATH"])
    parts = range(json.loads(config.read_text())["num_parts"])
    stored = [dgl.data.utils.load_tensors(str(config.parent / f"part{part}" / file))[type_name] for part in parts]
    return torch.cat(stored)[ids].numpy()


def train(graph) -> dict:
    """Train GraphSAGE on the labelled node type for one epoch, with gradients averaged over the clients."""
    target = next(name for name in graph.ntypes if "label" in graph.nodes[name].data)
    data = graph.nodes[target].data
    seeds = dgl.distributed.node_split(data["train_mask"], graph.get_partition_book(), ntype=target, force_even=True)
    steps = torch.tensor(len(seeds))
    torch.distributed.all_reduce(steps, torch.distributed.ReduceOp.MIN)
    seeds = seeds[: int(steps)]
    width = data["feat"].shape[1]
    classes = int(data["label"][torch.arange(graph.num_nodes(target))].max()) + 1
    typed = len(graph.ntypes) > 1
    torch.manual_seed(0)
    if typed:
        layer = HeteroGraphConv(
            {edge: SAGEConv(width, classes, "mean") for edge in graph.canonical_etypes}, aggregate="sum"
        )
    else:
        layer = SAGEConv(width, classes, "mean")
    model = DistributedDataParallel(layer, find_unused_parameters=typed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = dgl.dataloading.DistNodeDataLoader(
        graph, {target: seeds} if typed else seeds, dgl.dataloading.NeighborSampler([10]), batch_size=256, shuffle=True
    )
    losses = []
    for inputs, outputs, (block,) in loader:
        if typed:
            inputs = {name: graph.nodes[name].data["feat"][ids] for name, ids in inputs.items()}
            logits, outputs = model(block, inputs)[target], outputs[target]
        else:
            logits = model(block, data["feat"][inputs])
        loss = torch.nn.functional.cross_entropy(logits, data["label"][outputs])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"steps": len(losses), "first_loss": losses[0], "last_loss": losses[-1]}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
