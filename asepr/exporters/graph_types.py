"""Names of node and edge types, and which nodes and edges are of which."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from asepr.contracts import FloatArray, IdArray, PartArray
from asepr.errors import ShardError
from asepr.formats.shard import Shard

EdgeType = tuple[str, str, str]

ONE_NODE_TYPE = "_N"
ONE_RELATION = "_E"


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphTypes:
    """The node and edge types of a dataset.

    Attributes
    ----------
    nodes : tuple of str
    edges : tuple of (source type, relation, destination type)
        The index of an edge type is its code in `edge_codes`.
    ignored : bool
        Whether types of the shards are not looked at.
    keys : int64 (R,), ascending
        One number an edge type, made of its relation and the types of both ends.
    """

    nodes: tuple[str, ...]
    edges: tuple[EdgeType, ...]
    ignored: bool
    keys: IdArray

    def node_codes(self, shard: Shard) -> PartArray:
        """Return int32 (num_local,): the node type of each local row."""
        if shard.ntype is None or self.ignored:
            return np.zeros(shard.num_local, dtype=np.int32)
        return shard.ntype

    def edge_codes(self, shard: Shard) -> npt.NDArray[np.int32]:
        """Return int32 (num_edges,): the edge type of each edge.

        Raises
        ------
        ShardError
            An edge's relation and the types of its ends are no edge type of the dataset.
        """
        keys = _edge_keys(shard, len(self.nodes), self.ignored)
        codes = np.searchsorted(self.keys, keys).astype(np.int32)
        codes = np.minimum(codes, len(self.keys) - 1)
        wrong = self.keys[codes] != keys if len(keys) else np.zeros(0, dtype=bool)
        if wrong.any():
            edge = int(np.argmax(wrong))
            raise ShardError(
                f"{shard.path}: edge {shard.eid[edge]}: its ends must be of the types that its edge type names, got "
                "others; partition again with the right type names"
            )
        return codes

    def features_of(self, shard: Shard, code: int) -> FloatArray | None:
        """Return float32 (local rows of the type, F) in local order, or None where the type has no features."""
        if shard.manifest.node_types and not self.ignored:
            return shard.features_of(code)
        if shard.features is None or len(self.nodes) == 1:
            return shard.features
        features: FloatArray = shard.features[self.node_codes(shard) == code]
        return features


def find_types(shards: Sequence[Shard], ignore: bool) -> GraphTypes:
    """Return the types of a dataset, by the manifest's names or, without any, as `type_<code>`.

    Parameters
    ----------
    shards : all of them
    ignore : bool
        See one type of nodes and one of edges, whatever the shards hold.

    Raises
    ------
    ShardError
        A name cannot be part of a path and of DistDGL's `src:relation:dst`.
    """
    nodes = _node_types(shards, ignore)
    named: list[EdgeType] = [] if ignore else shards[0].manifest.edge_types
    _check_names({*nodes, *(name for edge in named for name in edge)})
    if named:
        src, dst = (np.array([nodes.index(edge[end]) for edge in named], dtype=np.int64) for end in (0, 2))
        keys = _key(src, np.arange(len(named)), dst, len(nodes))
        return GraphTypes(nodes=nodes, edges=tuple(named), ignored=False, keys=keys)
    keys = np.unique(np.concatenate([np.unique(_edge_keys(shard, len(nodes), ignore)) for shard in shards]))
    if len(keys) == 0:
        keys = np.zeros(1, dtype=np.int64)
    typed = not ignore and any(shard.etype is not None for shard in shards)
    edges = tuple(
        (
            nodes[int(key) // len(nodes) % len(nodes)],
            f"type_{int(key) // len(nodes) ** 2}" if typed else ONE_RELATION,
            nodes[int(key) % len(nodes)],
        )
        for key in keys
    )
    return GraphTypes(nodes=nodes, edges=edges, ignored=ignore, keys=keys)


def _check_names(names: set[str]) -> None:
    for name in sorted(names):
        if not re.fullmatch(r"[^:/\\\x00.][^:/\\\x00]*", name):
            raise ShardError(
                f"type names must be without ':', '/', a backslash and a leading '.', got {name!r}; rename the type"
            )


def _node_types(shards: Sequence[Shard], ignore: bool) -> tuple[str, ...]:
    if ignore:
        return (ONE_NODE_TYPE,)
    named: list[str] = shards[0].manifest.node_types
    if named:
        return tuple(named)
    codes = [shard.ntype for shard in shards if shard.ntype is not None]
    if not codes:
        return (ONE_NODE_TYPE,)
    return tuple(f"type_{code}" for code in range(1 + max(int(column.max()) for column in codes)))


def _edge_keys(shard: Shard, num_types: int, ignore: bool) -> IdArray:
    if ignore:
        return np.zeros(shard.num_edges, dtype=np.int64)
    relation = np.zeros(shard.num_edges, dtype=np.int64) if shard.etype is None else shard.etype.astype(np.int64)
    if shard.ntype is None:
        return relation
    ntype = shard.ntype.astype(np.int64)
    return _key(ntype[shard.src], relation, ntype[shard.dst], num_types)


def _key(src: IdArray, relation: IdArray, dst: IdArray, num_types: int) -> IdArray:
    keys: IdArray = (relation * num_types + src) * num_types + dst
    return keys
