"""A PyG training loop of your own on shards: stock layers, with halo rows filled between them.

    asepr partition EDGES --nodes NODES --features FEATURES -k 2 --layout edge-cut -o OUT
    torchrun --standalone --nproc-per-node 2 examples/pyg_loop.py OUT [EPOCHS]

On an edge-cut shard all in-edges of an inner node are local, so what a stock layer computes for inner
rows is what it would compute on the whole graph.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812  # the name the field uses
from torch_geometric.nn import SAGEConv

import asepr


def main(path: str, epochs: int) -> None:
    """Train two stock SAGEConv layers full-graph, one shard a process."""
    dist.init_process_group("gloo")
    shard = asepr.open_shard(path, dist.get_rank())
    data, exchange, inner = shard.pyg_data(), shard.exchange(), slice(0, shard.num_inner)
    label, train, test = data.y[inner], data.train_mask[inner], data.test_mask[inner]
    torch.manual_seed(0)
    model = torch.nn.ModuleList([SAGEConv(data.x.shape[1], 128), SAGEConv(128, shard.manifest.num_classes)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        hidden = model[0](data.x, data.edge_index)[inner].relu()
        logits = model[1](exchange.scatter(hidden), data.edge_index)[inner]
        # Each rank sums over its own nodes and divides by the number of all ranks': gradients then add up.
        loss = F.cross_entropy(logits[train], label[train], reduction="sum") / shard.manifest.split_sizes["train"]
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        hits = (logits.argmax(1) == label)[test].sum()
        dist.all_reduce(hits)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: test accuracy {int(hits) / shard.manifest.split_sizes['test']:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10)
