"""GraphSAGE in DGL's own distributed training, on a partition exported from shards.

    asepr partition EDGES --nodes NODES --features FEATURES -k 2 --layout edge-cut -o OUT
    asepr export OUT DEST --to distdgl --ignore-types
    python examples/distdgl_launch.py DEST/graph.json IP_CONFIG examples/distdgl_train.py [EPOCHS]

The last command runs on each of the machines in IP_CONFIG. Nothing here is asepr's: a DistDGL script that trains on
partitions of `dgl.distributed.partition_graph` trains on an export as it is.
"""

import os
import sys

os.environ["DGLBACKEND"] = "pytorch"

import dgl
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812  # the name the field uses
from dgl.dataloading import DistNodeDataLoader, NeighborSampler
from torch.nn.parallel import DistributedDataParallel


class Sage(torch.nn.Module):
    """Two mean SAGE layers over sampled blocks."""

    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(
            [dgl.nn.SAGEConv(width, hidden, "mean"), dgl.nn.SAGEConv(hidden, classes, "mean")]
        )

    def forward(self, blocks: list, rows: torch.Tensor) -> torch.Tensor:
        """Return the logits of the nodes that the last block ends in."""
        return self.layers[1](blocks[1], self.layers[0](blocks[0], rows).relu())


def main(epochs: int) -> None:
    """Train by mini-batches, then count hits on test nodes with all neighbours."""
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"], net_type="socket")  # a server never returns from this
    dist.init_process_group("gloo")
    graph = dgl.distributed.DistGraph("graph", part_config=os.environ["DGL_CONF_PATH"])
    feat, label = graph.ndata["feat"], graph.ndata["label"]
    train, test = (own_nodes(graph, f"{name}_mask") for name in ("train", "test"))
    classes = over_trainers(int(label[own_nodes(graph, None)].max()) + 1, dist.ReduceOp.MAX)
    torch.manual_seed(0)
    model = Sage(feat.shape[1], 128, classes)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    # Gradients meet in every step, so all trainers take as many steps: one that is a node short repeats a node.
    train = train.repeat(2)[: over_trainers(len(train), dist.ReduceOp.MAX)]
    batches = DistNodeDataLoader(graph, train, NeighborSampler([10, 10]), batch_size=1024, shuffle=True)
    for epoch in range(epochs):
        losses = []
        for inputs, seeds, blocks in batches:
            loss = F.cross_entropy(parallel(blocks, feat[inputs]), label[seeds])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}", flush=True)
    hits = 0
    with torch.no_grad():
        for inputs, seeds, blocks in DistNodeDataLoader(graph, test, NeighborSampler([-1, -1]), batch_size=1024):
            hits += int((model(blocks, feat[inputs]).argmax(1) == label[seeds]).sum())
    accuracy = over_trainers(hits, dist.ReduceOp.SUM) / over_trainers(len(test), dist.ReduceOp.SUM)
    if dist.get_rank() == 0:
        print(f"test accuracy {accuracy:.4f}", flush=True)
    dist.barrier()


def own_nodes(graph: dgl.distributed.DistGraph, mask: str | None) -> torch.Tensor:
    """Return this trainer's share of the nodes, or of those in a mask, from its own part where that has enough."""
    book = graph.get_partition_book()
    nodes = torch.ones(graph.num_nodes(), dtype=torch.bool) if mask is None else graph.ndata[mask]
    return dgl.distributed.node_split(nodes, book, force_even=True)


def over_trainers(value: int, operation: dist.ReduceOp) -> int:
    """Return the sum or the maximum of what each trainer has."""
    total = torch.tensor(value)
    dist.all_reduce(total, operation)
    return int(total)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
