"""Rules for edges equal plain loops, whatever the chunks and the memory; edge splits leak nothing."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asepr.contracts import SPLIT_CODES
from asepr.errors import ConfigError, EdgeSourceError
from asepr.formats.edge_sources import ArrayEdgeSource
from asepr.stream.edge_rules import EdgeRules, RewrittenEdges, TypeCodes, rewrite_edges
from asepr.stream.scratch import ScratchDir

Edge = tuple[int, int, int, float, int, int]
"""src, dst, etype, weight, input row, whether reversed."""


def by_plain_loops(
    lines: list[tuple[int, int, int, float]], held: dict[int, int], rules: EdgeRules, codes: TypeCodes, num_nodes: int
) -> tuple[list[Edge], list[Edge]]:
    """Apply the rules by loops over dicts; return the edges of the graph, and those held out."""
    left = [(row, line) for row, line in enumerate(lines) if rules.self_loops != "drop" or line[0] != line[1]]
    edges: list[Edge] = [(u, v, t, w, row, 0) for row, (u, v, t, w) in left if row not in held]
    kept: list[Edge] = [(u, v, t, w, row, 0) for row, (u, v, t, w) in left if row in held]
    if rules.undirected or rules.add_reverse:
        edges += [(v, u, int(codes.reverse[t]), w, row, 1) for u, v, t, w, row, _ in edges if u != v]
    if rules.duplicates == "merge":
        edges = merged(edges, lambda e: e[:3])
        either = rules.undirected
        kept = merged(kept, lambda e: (*sorted(e[:2]), e[2]) if either and codes.reverse[e[2]] == e[2] else e[:3])
    if rules.self_loops == "add":
        with_loop = {u for u, v, _, _ in lines if u == v}
        loop = codes.loop if codes.loop is not None else np.zeros(num_nodes, dtype=np.int32)
        edges += [(u, u, int(loop[u]), 1.0, -1, 0) for u in range(num_nodes) if u not in with_loop]
    return edges, kept


def merged(edges: list[Edge], key: Any) -> list[Edge]:
    groups: dict[Any, list[Edge]] = {}
    for edge in edges:
        groups.setdefault(key(edge), []).append(edge)
    return [(*group[0][:3], sum(edge[3] for edge in group), *group[0][4:]) for group in groups.values()]


def rows_of(made: RewrittenEdges) -> list[Edge]:
    reverse = made.is_reverse if made.is_reverse is not None else np.zeros(len(made.src), np.uint8)
    columns = (made.src, made.dst, made.etype, made.weight, made.input_row, reverse)
    return list(zip(*(column.tolist() for column in columns if column is not None), strict=True))


@st.composite
def rules_and_graphs(draw: st.DrawFn) -> tuple[EdgeRules, list[tuple[int, int, int, float]], TypeCodes, int]:
    directions = draw(st.sampled_from(["", "undirected", "add_reverse"]))
    rules = EdgeRules(
        undirected=directions == "undirected",
        add_reverse=directions == "add_reverse",
        self_loops=draw(st.sampled_from(["keep", "drop", "add"])),
        duplicates=draw(st.sampled_from(["keep", "merge"])),
        edge_split=draw(st.sampled_from([(), (0.6, 0.2, 0.2)])),
    )
    num_nodes = draw(st.integers(1, 6))
    node = st.integers(0, num_nodes - 1)
    weight = st.integers(1, 8).map(float)
    lines = draw(st.lists(st.tuples(node, node, st.integers(0, 1), weight), max_size=25))
    reverse = draw(st.sampled_from([[0, 1], [2, 3], [0, 2]]))
    return rules, lines, TypeCodes(reverse=np.array(reverse, np.int32), loop=np.full(num_nodes, 4, np.int32)), num_nodes


def source_of(lines: list[tuple[int, int, int, float]], num_nodes: int, chunk_edges: int = 1 << 20) -> ArrayEdgeSource:
    columns = [list(column) for column in zip(*lines, strict=True)] or [[], [], [], []]
    src, dst, etype, weight = columns
    return ArrayEdgeSource(
        np.array(src, np.int64), np.array(dst, np.int64), num_nodes, etype=etype, weight=weight, chunk_edges=chunk_edges
    )


@settings(max_examples=150)
@given(case=rules_and_graphs(), chunk_edges=st.integers(1, 30), memory_bytes=st.sampled_from([3000, 1 << 30]))
def test_any_rules_equal_plain_loops(
    tmp_path_factory: pytest.TempPathFactory, case: Any, chunk_edges: int, memory_bytes: int
):
    rules, lines, codes, num_nodes = case
    with ScratchDir(tmp_path_factory.mktemp("s") / "scratch") as scratch:
        source = source_of(lines, num_nodes, chunk_edges)
        try:
            made = rewrite_edges(source, rules, codes, scratch, seed=3, memory_bytes=memory_bytes)
        except EdgeSourceError:
            assert rules.edge_split, "only a split can have too few edges"
            return
        unmerged = EdgeRules(**(asdict(rules) | {"duplicates": "keep"}))
        split = rewrite_edges(source, unmerged, codes, scratch, seed=3, memory_bytes=memory_bytes).held_out
        held = {} if split is None else dict(zip(split.input_row.tolist(), split.split.tolist(), strict=True))
        edges, kept = by_plain_loops(lines, held, rules, codes, num_nodes)
        assert rows_of(made) == edges
        got = made.held_out
        assert (0 if got is None else len(got)) == len(kept)
        if got is not None:
            columns = (got.src, got.dst, got.etype, got.weight, got.input_row)
            found = list(zip(*(column.tolist() for column in columns if column is not None), strict=True))
            assert [edge[:5] for edge in kept] == found
        assert made.counts.edges == len(edges)
        assert made.counts.edges_in == len(lines)


def draw_split(folder: Path, source: ArrayEdgeSource, rules: EdgeRules, seed: int = 0) -> dict[int, int]:
    with ScratchDir(folder / "scratch") as scratch:
        held = rewrite_edges(source, rules, None, scratch, seed=seed, memory_bytes=1 << 30).held_out
        assert held is not None
        return dict(zip(held.input_row.tolist(), held.split.tolist(), strict=True))


def test_an_edge_split_has_the_sizes_asked_for_and_keeps_pairs_together(tmp_path: Path):
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 400, (2, 5000))
    split = draw_split(tmp_path, ArrayEdgeSource(src, dst, 400), EdgeRules(edge_split=(0.7, 0.1, 0.2)))
    of_pair: dict[tuple[int, ...], set[int]] = {}
    for row, ends in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        of_pair.setdefault(tuple(sorted(ends)), set()).add(split.get(row, 0))
    assert all(len(splits) == 1 for splits in of_pair.values())
    most = max(np.unique(np.sort(np.stack([src, dst]), axis=0), axis=1, return_counts=True)[1])
    for name, share in (("val", 0.1), ("test", 0.2)):
        assert abs(list(split.values()).count(SPLIT_CODES[name]) - share * 5000) <= most


def test_an_edge_split_depends_on_the_seed_and_not_on_chunks(tmp_path: Path):
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 100, (2, 600))
    rules = EdgeRules(edge_split=(0.8, 0.1, 0.1))
    whole, cut, other = (
        draw_split(tmp_path / str(i), ArrayEdgeSource(src, dst, 100, chunk_edges=size), rules, seed)
        for i, (size, seed) in enumerate([(1000, 0), (7, 0), (1000, 1)])
    )
    assert whole == cut
    assert whole != other


def invalid() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"undirected": True, "add_reverse": True}, "add_reverse must not come with undirected"
    yield {"self_loops": "remove"}, "self_loops must be one of keep, drop, add, got 'remove'"
    yield {"duplicates": "sum"}, "duplicates must be one of keep, merge, got 'sum'"
    yield {"edge_split": (0.8, 0.1)}, "edge_split must be three fractions"
    yield {"edge_split": (0.8, 0.1, 0.2)}, "sum to 1"
    yield {"edge_split": (1.2, -0.1, -0.1)}, "edge_split must be"
    yield {"edge_split": (0.0, 0.5, 0.5)}, "train above 0"
    yield {"edge_split": (float("nan"), 0.5, 0.5)}, "edge_split must be"


@pytest.mark.parametrize(("values", "message"), list(invalid()))
def test_rules_that_make_no_sense_are_refused(values: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        EdgeRules(**values)


def test_a_share_without_edges_is_refused(tmp_path: Path):
    with pytest.raises(EdgeSourceError, match="edge_split: val must get at least one edge"):
        draw_split(tmp_path, ArrayEdgeSource([0, 0, 1], [1, 1, 0], 2), EdgeRules(edge_split=(0.8, 0.1, 0.1)))
