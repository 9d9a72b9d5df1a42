"""Datasets with an arbitrary assignment, written with the format's own pieces but no partitioner."""

from pathlib import Path

import numpy as np

from asepr.contracts import Assignment, Layout, NodeTable
from asepr.formats.manifest import Manifest, write_manifest
from asepr.formats.node_sources import DenseFeatures
from asepr.formats.shard_writer import ShardWriter
from asepr.partition.copies import mark_copies
from asepr.partition.edge_buckets import bucket_edges
from asepr.partition.halo import HaloIndex
from asepr.partition.hops import bucket_outer_edges, widen_halos
from asepr.stream.degrees import count_degrees
from asepr.stream.scratch import ScratchDir
from tests.graphs import Graph


def write_random_shards(
    folder: Path,
    graph: Graph,
    num_parts: int,
    layout: Layout,
    features: np.ndarray,
    label: np.ndarray,
    split: np.ndarray,
    seed: int = 0,
    halo_hops: int = 1,
) -> Path:
    """Assign edges and owners at random, and write the shards."""
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, num_parts, graph.num_nodes).astype(np.int32)
    owner[:num_parts] = np.arange(num_parts)
    edge_part = None
    if layout == "vertex-cut":
        edge_part = rng.integers(0, num_parts, graph.num_edges).astype(np.int16)
    source = graph.source(7)
    copies = mark_copies(source, edge_part, owner, num_parts)
    assignment = Assignment(layout=layout, num_parts=num_parts, owner=owner, copies=copies, edge_part=edge_part)
    assignment = widen_halos(assignment, source, halo_hops)
    table = NodeTable(num_nodes=graph.num_nodes, label=label.astype(np.int64), split=split.astype(np.uint8))
    folder.mkdir(parents=True)
    with ScratchDir(folder / "scratch") as scratch:
        writer = ShardWriter(folder, count_degrees(source), table, DenseFeatures(features, "test"), None)
        edges, halo = bucket_edges(source, assignment, scratch), HaloIndex(assignment, scratch)
        outer = bucket_outer_edges(source, assignment, scratch)
        entries = []
        for rank in range(num_parts):
            nodes = halo.nodes(rank)
            beyond = None if outer is None else outer.read(rank)
            entries.append(writer.write_part(nodes, halo.plan(rank, nodes), edges.read(rank), outer_edges=beyond))
    sizes = np.bincount(split[label >= 0], minlength=4).tolist()
    manifest = Manifest(
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        num_parts=num_parts,
        layout=layout,
        halo_hops=halo_hops,
        method="random",
        num_classes=int(label.max()) + 1,
        feature_width=features.shape[1],
        edge_feature_width=0,
        split_sizes={"train": sizes[1], "val": sizes[2], "test": sizes[3]},
        config={},
        quality={},
        parts=entries,
    )
    write_manifest(folder, manifest)
    return folder
