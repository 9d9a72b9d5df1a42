"""Datasets to export, and the edges, types and features they were made of."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from asepr.pipeline import partition
from tests.graphs import Graph, random_graph

NUM_PARTS = 3
NUM_NODE_TYPES = 3
NUM_RELATIONS = 2


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a dataset was made of, and the dataset."""

    path: Path
    graph: Graph
    edges: Path
    feat: np.ndarray
    label: np.ndarray
    split: np.ndarray
    edge_feat: np.ndarray
    weight: np.ndarray
    ntype: np.ndarray | None
    etype: np.ndarray | None


def make_source(
    folder: Path, layout: str, *, typed: bool, graph: Graph | None = None, num_parts: int = NUM_PARTS
) -> Source:
    """Partition a small graph with everything that shards can carry; only nodes of type 0 have labels if typed."""
    rng = np.random.default_rng(3)
    graph = graph or random_graph(80, 400)
    num_nodes, num_edges = graph.num_nodes, graph.num_edges
    feat = rng.standard_normal((num_nodes, 4)).astype(np.float32)
    edge_feat = rng.standard_normal((num_edges, 2)).astype(np.float32)
    weight = rng.random(num_edges).astype(np.float32)
    label, split = rng.integers(-1, 3, num_nodes), rng.integers(0, 4, num_nodes)
    ntype = etype = None
    nodes = {"id": np.arange(num_nodes)}
    edges = {"src": graph.src, "dst": graph.dst, "weight": weight}
    if typed:
        ntype, etype = rng.integers(0, NUM_NODE_TYPES, num_nodes), rng.integers(0, NUM_RELATIONS, num_edges)
        label[ntype != 0] = -1
        nodes["ntype"], edges["etype"] = ntype, etype
    nodes |= {"label": label, "split": np.array(["", "train", "val", "test"])[split]}
    folder.mkdir(parents=True)
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    np.save(folder / "feat.npy", feat)
    np.save(folder / "edge_feat.npy", edge_feat)
    partition(
        folder / "edges.parquet",
        folder / "shards",
        nodes=folder / "nodes.parquet",
        features=folder / "feat.npy",
        edge_features=folder / "edge_feat.npy",
        num_parts=num_parts,
        layout=layout,
        method="random",
    )
    return Source(
        path=folder / "shards",
        graph=graph,
        edges=folder / "edges.parquet",
        feat=feat,
        label=label,
        split=split,
        edge_feat=edge_feat,
        weight=weight,
        ntype=ntype,
        etype=etype,
    )
