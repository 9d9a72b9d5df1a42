"""Rules for edges applied to an opened graph: types of reverses and self-loops, and what edges carry beside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from asepr.contracts import EdgeSource, EdgeTable, FeatureSource, FloatArray, IdArray, Scratch
from asepr.errors import ConfigError, EdgeSourceError
from asepr.formats.stored_edges import StoredEdges
from asepr.stream.edge_rules import EdgeCounts, EdgeRules, TypeCodes, rewrite_edges

REVERSED = "rev_"
"""What the relation of reverses is called: this, and the relation that they reverse."""

SELF_RELATION = "self"
"""Relation of the self-loops that are added to a graph whose edge types have names."""

BLOCK_ROWS = 1 << 20

EdgeTypeName = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class RuledGraph:
    """The edges of the graph and all that goes with them, after the rules."""

    source: EdgeSource
    edge_table: EdgeTable
    edge_types: tuple[EdgeTypeName, ...]
    counts: EdgeCounts


def choose_rules(given: Mapping[str, Any], described: Mapping[str, Any]) -> EdgeRules:
    """Return the rules that options ask for (None: nothing said), else the graph description, else the defaults.

    Raises
    ------
    ConfigError
        A value is not one of its names, or two do not go together.
    """
    names = {field.name for field in fields(EdgeRules)}
    said = dict(described) | {name: value for name, value in given.items() if value is not None}
    return EdgeRules(**{name: value for name, value in said.items() if name in names})


def apply_rules(
    source: EdgeSource,
    edge_table: EdgeTable,
    rules: EdgeRules,
    scratch: Scratch,
    *,
    node_types: Sequence[str],
    type_offsets: Sequence[int],
    edge_types: Sequence[EdgeTypeName],
    seed: int,
    memory_bytes: int,
    chunk_edges: int,
) -> RuledGraph:
    """Rewrite the edges of a graph as rules ask; nothing is touched where they ask for nothing.

    The split of `edge_table`, where it has one, goes before shares to draw.

    Raises
    ------
    ConfigError
        A relation that the rules make is there already.
    EdgeSourceError
        Self-loops are to be added to edges with times; a share of the edge split gets no edge.
    """
    if rules.change_nothing and edge_table.split is None:
        counts = EdgeCounts(edges_in=source.num_edges)
        return RuledGraph(source=source, edge_table=edge_table, edge_types=tuple(edge_types), counts=counts)
    if rules.self_loops == "add" and edge_table.time is not None:
        raise EdgeSourceError(
            "edges: self_loops must not be add where edges have times, which a loop has not; keep them"
        )
    names = _names(rules, node_types, edge_types)
    codes = _codes(source, rules, node_types, type_offsets, edge_types, names)
    made = rewrite_edges(source, rules, codes, scratch, seed=seed, memory_bytes=memory_bytes, split=edge_table.split)
    held = made.held_out
    if held is not None and edge_table.time is not None:
        held = replace(held, time=_gather(edge_table.time, held.input_row, "held_time", scratch))
    return RuledGraph(
        source=StoredEdges(made.src, made.dst, source.num_nodes, chunk_edges, etype=made.etype, weight=made.weight),
        edge_table=EdgeTable(
            time=None if edge_table.time is None else _gather(edge_table.time, made.input_row, "edge_time", scratch),
            input_row=made.input_row,
            is_reverse=made.is_reverse,
            held_out=held,
        ),
        edge_types=names,
        counts=made.counts,
    )


class FollowedFeatures:
    """Edge features by input row, given to the edges that rules made of them; added self-loops have zeros.

    Parameters
    ----------
    features : FeatureSource of one row an input edge
    input_row : int64 (E,), -1 where an edge has none
    """

    def __init__(self, features: FeatureSource, input_row: IdArray) -> None:
        self._features, self._input_row = features, input_row
        self.num_rows, self.width = len(input_row), features.width

    def read(self, rows: IdArray) -> FloatArray:
        """Return float32 (len(rows), F)."""
        input_row = self._input_row[rows]
        values = self._features.read(np.maximum(input_row, 0))
        values[input_row < 0] = 0
        return values

    def read_as_stored(self, rows: IdArray) -> Any:
        """Return the same."""
        return self.read(rows)


def _names(rules: EdgeRules, node_types: Sequence[str], edge_types: Sequence[EdgeTypeName]) -> tuple[EdgeTypeName, ...]:
    """Return the names of all edge types: those of the input, of reverses, of added self-loops."""
    if not edge_types:
        return ()
    names = list(edge_types)
    names += [_reverse_name(name) for name in edge_types if _has_own_reverse(rules, name)]
    if rules.self_loops == "add":
        names += [(kind, SELF_RELATION, kind) for kind in node_types]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(
            f"edges: {':'.join(twice[0])} must not be an edge type already where reverses or self-loops of that name "
            "are added, got it; rename the relation"
        )
    return tuple(names)


def _reverse_name(name: EdgeTypeName) -> EdgeTypeName:
    source, relation, target = name
    return target, REVERSED + relation, source


def _has_own_reverse(rules: EdgeRules, name: EdgeTypeName) -> bool:
    return rules.add_reverse or (rules.undirected and name[0] != name[2])


def _codes(
    source: EdgeSource,
    rules: EdgeRules,
    node_types: Sequence[str],
    type_offsets: Sequence[int],
    edge_types: Sequence[EdgeTypeName],
    names: tuple[EdgeTypeName, ...],
) -> TypeCodes | None:
    """Number the types of reverses and of added self-loops; None where edges have no type before and after."""
    if names:
        reverse = [
            names.index(_reverse_name(name)) if _has_own_reverse(rules, name) else code
            for code, name in enumerate(edge_types)
        ]
        loop = None
        if rules.self_loops == "add":
            first = len(names) - len(node_types)
            loop = np.repeat(np.arange(first, len(names), dtype=np.int32), np.diff(type_offsets))
        needed = len(names) > 1 or source.has_etype
        return TypeCodes(reverse=np.array(reverse, dtype=np.int32), loop=loop) if needed else None
    if not source.has_etype or not (rules.reverses or rules.self_loops == "add"):
        return None
    own = count_edge_types(source)
    same: npt.NDArray[np.int32] = np.arange(own, dtype=np.int32)
    loop_code = own * (1 + rules.add_reverse)
    loop = np.full(source.num_nodes, loop_code, dtype=np.int32) if rules.self_loops == "add" else None
    return TypeCodes(reverse=same + own if rules.add_reverse else same, loop=loop)


def count_edge_types(source: EdgeSource) -> int:
    """Return one more than the largest code of an edge type, in one pass.

    Raises
    ------
    EdgeSourceError
        A code is negative.
    """
    top = -1
    for chunk in source:
        if chunk.etype is None or not len(chunk):
            continue
        if chunk.etype.min() < 0:
            row = chunk.first_eid + int(np.argmin(chunk.etype))
            raise EdgeSourceError(
                f"edges: row {row}: etype must not be negative, got {chunk.etype.min()}; number the types from 0"
            )
        top = max(top, int(chunk.etype.max()))
    return top + 1


def _gather(values: npt.NDArray[Any], rows: IdArray, name: str, scratch: Scratch) -> npt.NDArray[Any]:
    gathered = scratch.array(name, rows.shape, values.dtype)
    for start in range(0, len(rows), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        gathered[block] = values[rows[block]]
    return gathered
