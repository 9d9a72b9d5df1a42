"""What went into a run and what came out in shards, counted apart, so that nothing is lost without a word."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from asepr.contracts import EdgeChunk, EdgeSource, FeatureSource, NodeTable
from asepr.errors import ShardError
from asepr.formats.shard import Shard
from asepr.partition.metrics import QualityReport
from asepr.stream.edge_rules import EdgeCounts

Census = dict[str, dict[str, int]]
"""By what is counted: `in`, what was taken or added on the way, and `out`."""


class TypeTally:
    """An edge source that counts the edges of each type as they pass."""

    def __init__(self, source: EdgeSource) -> None:
        self._source = source
        self.num_nodes, self.num_edges = source.num_nodes, source.num_edges
        self.has_etype, self.has_weight = source.has_etype, source.has_weight
        self.types: set[int] = set()

    def __iter__(self) -> Iterator[EdgeChunk]:
        """Yield the chunks of the source."""
        for chunk in self._source:
            if chunk.etype is not None:
                self.types.update(np.unique(chunk.etype).tolist())
            yield chunk


def take_census(
    counts: EdgeCounts,
    table: NodeTable,
    feature_columns: int,
    num_edge_types: int,
    edge_features: FeatureSource | None,
    quality: QualityReport,
    shard: Shard,
) -> Census:
    """Set what was read beside what was counted in the shards.

    Parameters
    ----------
    counts : EdgeCounts
        What became of the edges that were read.
    table : NodeTable
        As it was read.
    feature_columns : int
        Columns of node features that were read, over all types.
    num_edge_types : int
        Types that occur among the edges of the graph; 0 where they have none.
    edge_features : FeatureSource or None
    quality : QualityReport
        Counted from the shards.
    shard : Shard
        Any one.

    Returns
    -------
    Census of `nodes`, `edges`, and `node_types`, `edge_types` (those that occur), `feature_columns`,
    `edge_feature_columns`

    Raises
    ------
    ShardError
        Nodes, edges or types in the shards are not as many as they must be.
    """
    steps = {name: value for name, value in asdict(counts).items() if value and name != "edges_in"}
    census = {
        "nodes": {"in": table.num_nodes, "out": sum(quality.inner_nodes)},
        "edges": {"in": counts.edges_in, **steps, "out": sum(quality.edges)},
        "node_types": {
            "in": 0 if table.ntype is None else len(np.unique(table.ntype)),
            "out": _occurring(quality.node_types),
        },
        "edge_types": {"in": num_edge_types, "out": _occurring(quality.edge_types)},
        "feature_columns": {"in": feature_columns, "out": _feature_columns(shard)},
        "edge_feature_columns": {
            "in": 0 if edge_features is None else edge_features.width,
            "out": 0 if shard.edge_features is None else shard.edge_features.shape[1],
        },
    }
    _check(census, counts.edges)
    return census


def _occurring(by_type: dict[str, list[int]] | None) -> int:
    return sum(1 for by_part in (by_type or {}).values() if any(by_part))


def _feature_columns(shard: Shard) -> int:
    found = [shard.features, *(shard.features_of(code) for code in range(len(shard.manifest.node_feature_widths)))]
    return sum(features.shape[1] for features in found if features is not None)


def _check(census: Census, num_edges: int) -> None:
    must = {name: census[name]["in"] for name in ("nodes", "node_types", "edge_types")} | {"edges": num_edges}
    for name, number in must.items():
        if census[name]["out"] != number:
            raise ShardError(
                f"shards: {name.replace('_', ' ')} must be {number}, as read, got {census[name]['out']}; "
                "this is a fault of the program"
            )


def census_lines(census: Census) -> Sequence[str]:
    """Return a line a kind that there is any of: what came in, what became of it, what came out."""
    return [_line(name, dict(entry)) for name, entry in census.items() if any(entry.values())]


def _line(name: str, entry: dict[str, Any]) -> str:
    came, went = entry.pop("in"), entry.pop("out")
    steps = "".join(
        f" {'+' if step.endswith('added') else '-'} {number:,} {step.replace('_', ' ')}"
        for step, number in entry.items()
    )
    sign = "=" if entry or came == went else "->"
    return f"{name.replace('_', ' ')}: {came:,} in{steps} {sign} {went:,} in shards"
