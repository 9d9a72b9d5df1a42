"""One host of a DistDGL run: a server and a client, told apart by the environment as DGL's launcher does it.

    python distdgl_host.py RANK HOSTS CONFIG IP_CONFIG SOURCE.npz FOLDER

The client samples all in-edges of every node from the servers and compares them, the degrees and all features
with the source; then it trains GraphSAGE for one epoch of mini-batches together with the other clients.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

os.environ["DGLBACKEND"] = "pytorch"
CLIENT_SECONDS = int(os.environ.get("CLIENT_SECONDS", "120"))
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def host(rank: int, num_hosts: int, config: str, ip_config: str, source: str, folder: str) -> int:
    """Start the server and the client of a host; end with the client."""
    base = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "DGL_DIST_MODE": "distributed",
        "DGL_CONF_PATH": config,
        "DGL_IP_CONFIG": ip_config,
        "DGL_NUM_SERVER": "1",
        "DGL_NUM_SAMPLER": "0",
        "DGL_NUM_CLIENT": str(num_hosts),
        "DGL_GRAPH_FORMAT": "csc",
        "DGL_KEEP_ALIVE": "0",
        "DGL_GROUP_ID": "0",
        "MASTER_ADDR": "10.78.0.1",
        "MASTER_PORT": "29400",
        "WORLD_SIZE": str(num_hosts),
        "RANK": str(rank),
    }
    command = [sys.executable, __file__, "--work", source, str(Path(folder) / f"rank-{rank}.json")]
    with (Path(folder) / f"log-{rank}.txt").open("w") as log:
        roles = ({"DGL_ROLE": "server", "DGL_SERVER_ID": str(rank)}, {"DGL_ROLE": "client"})
        processes = [
            subprocess.Popen(command, env=base | role, stdout=log, stderr=log, preexec_fn=die_with_parent)
            for role in roles
        ]
        try:
            return processes[1].wait(timeout=CLIENT_SECONDS)
        finally:
            for process in processes:
                process.kill()
                process.wait()


def work(source: str, answer: str) -> None:
    """Serve, or compare and train; a server never returns from `initialize`."""
    import dgl
    import numpy as np
    import torch

    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"], net_type="socket")
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    graph = dgl.distributed.DistGraph("graph", part_config=os.environ["DGL_CONF_PATH"])
    with np.load(source) as arrays:
        truth = dict(arrays)
    found = {"sampled": compare(graph, truth), **train(graph)}
    Path(answer).write_text(json.dumps(found))
    torch.distributed.barrier()


def compare(graph, truth: dict) -> int:
    """Sample with full fan-out, and compare edges, degrees and features with the source; return the edges."""
    import dgl
    import numpy as np
    import torch

    nodes = {name: torch.arange(graph.num_nodes(name)) for name in graph.ntypes}
    nid_of = {name: graph.nodes[name].data["orig_id"][ids].numpy() for name, ids in nodes.items()}
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
        eid = data["orig_id"][ids].numpy()
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


def train(graph) -> dict:
    """Train GraphSAGE on the labelled node type for one epoch, with gradients averaged over the clients."""
    import dgl
    import torch
    from dgl.nn import HeteroGraphConv, SAGEConv
    from torch.nn.parallel import DistributedDataParallel

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
    if sys.argv[1] == "--work":
        work(sys.argv[2], sys.argv[3])
    else:
        sys.exit(host(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
