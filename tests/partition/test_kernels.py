"""Small kernels, each against the same rule written plainly."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from asepr.contracts import Degrees
from asepr.errors import EdgeSourceError
from asepr.formats.edge_sources import ArrayEdgeSource
from asepr.partition.adjacency import build_adjacency
from asepr.partition.attribute_prior import agreement_lift, attribute_prior, pack_clusters
from asepr.partition.hashing import dbh, hash_edges
from asepr.partition.hashing_kernels import hash_to_unit
from asepr.partition.hdrf import hdrf
from asepr.partition.owners import choose_owners
from asepr.partition.ranking import rank_nodes
from asepr.stream.scratch import ScratchDir
from tests.graphs import NAMED_GRAPHS, Graph, copies_of, graphs, problem, random_graph

quick = settings(max_examples=60)


@given(graphs(), st.integers(1, 7))
def test_adjacency_equals_scipy(graph: Graph, chunk_edges: int):
    matrix = scipy.sparse.coo_matrix((np.ones(graph.num_edges), (graph.src, graph.dst)), (graph.num_nodes,) * 2)
    matrix = (matrix + matrix.T).tolil()
    matrix.setdiag(0)
    expected = matrix.tocsr()
    expected.eliminate_zeros()
    expected.sort_indices()
    found = build_adjacency(graph.source(chunk_edges))
    assert found.offsets.tolist() == expected.indptr.tolist()
    assert found.neighbour.tolist() == expected.indices.tolist()
    assert found.multiplicity.tolist() == expected.data.tolist()


@given(graphs(), st.integers(1, 7), st.data())
def test_a_weighted_adjacency_adds_up_what_edges_weigh(graph: Graph, chunk_edges: int, data: st.DataObject):
    units = data.draw(st.lists(st.integers(1, 300), min_size=graph.num_edges, max_size=graph.num_edges))
    weight = np.array(units, dtype=np.float32) / 4
    source = ArrayEdgeSource(graph.src, graph.dst, graph.num_nodes, weight=weight, chunk_edges=chunk_edges)
    expected: dict[tuple[int, int], float] = {}
    for u, v, w in zip(graph.src.tolist(), graph.dst.tolist(), weight.tolist(), strict=True):
        if u != v:
            expected[u, v] = expected.get((u, v), 0) + w
            expected[v, u] = expected.get((v, u), 0) + w
    found = build_adjacency(source, is_weighted=True)
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(found.offsets))
    assert list(zip(rows.tolist(), found.neighbour.tolist(), strict=True)) == sorted(expected)
    if expected:
        unit = found.multiplicity[0] / expected[sorted(expected)[0]]
        wanted = np.array([expected[pair] for pair in sorted(expected)]) * unit
        # A weight counts whole units of at most 1/128 of the mean, and at least one.
        allowed = 1.01 + 0.02 * wanted.max()
        np.testing.assert_allclose(found.multiplicity, wanted, atol=allowed)


def test_a_negative_weight_is_refused():
    with pytest.raises(EdgeSourceError, match="row 1: weight must not be negative"):
        build_adjacency(ArrayEdgeSource([0, 1], [1, 2], weight=[1.0, -2.0]), is_weighted=True)


def check_hdrf_choices(graph: Graph, found: list[int], k: int, cap: int) -> None:
    """Follow the choices, and check each against the score of the paper's section 4, with a hard cap."""
    seen = [0] * graph.num_nodes
    held: list[set[int]] = [set() for _ in seen]
    load = [0] * k
    for u, v, chosen in zip(graph.src.tolist(), graph.dst.tolist(), found, strict=True):
        seen[u] += 1
        seen[v] += 1
        theta = {x: seen[x] / (seen[u] + seen[v]) for x in (u, v)}
        spread = 1 + max(load) - min(load)
        scores = {}
        for p in range(k):
            if load[p] < cap:
                replicas = (p in held[u]) * (2 - theta[u]) + (p in held[v]) * (2 - theta[v])
                scores[p] = replicas + 1.1 * (max(load) - load[p]) / spread
        assert scores[chosen] > max(scores.values()) - 1e-9
        load[chosen] += 1
        held[u].add(chosen)
        held[v].add(chosen)


@quick
@given(graph=graphs(), num_parts=st.integers(1, 4))
def test_hdrf_always_takes_the_best_score(tmp_path_factory: pytest.TempPathFactory, graph: Graph, num_parts: int):
    cap = max(-(-graph.num_edges // num_parts), int(1.05 * graph.num_edges / num_parts), 1)
    with ScratchDir(tmp_path_factory.mktemp("h") / "scratch") as scratch:
        found = np.array(hdrf(problem(graph, num_parts, "vertex-cut", scratch)))
    check_hdrf_choices(graph, found.tolist(), num_parts, cap)


def test_hash_is_even_and_depends_on_the_seed():
    values = np.array([[hash_to_unit(key, seed) for key in range(20_000)] for seed in range(3)])
    assert np.abs(np.bincount((values[0] * 10).astype(int)) / 2000 - 1).max() < 0.1
    assert np.abs(np.corrcoef(values) - np.eye(3)).max() < 0.03
    assert ((values >= 0) & (values < 1)).all()


def test_dbh_keeps_a_low_degree_node_together(scratch: ScratchDir):
    graph = random_graph(2000, 8000)
    part = np.array(dbh(problem(graph, 4, "vertex-cut", scratch, imbalance=5)))
    degree = np.bincount(graph.src, minlength=2000) + np.bincount(graph.dst, minlength=2000)
    low = np.where(degree[graph.src] < degree[graph.dst], graph.src, graph.dst)
    low = np.where(degree[graph.src] == degree[graph.dst], np.minimum(graph.src, graph.dst), low)
    assert all(len(set(part[low == node].tolist())) == 1 for node in set(low.tolist()))


def test_random_edges_are_spread_evenly(scratch: ScratchDir):
    graph = random_graph(2000, 20000)
    load = np.bincount(np.array(hash_edges(problem(graph, 5, "vertex-cut", scratch))), minlength=5)
    assert load.max() / load.mean() < 1.03


@quick
@given(graph=graphs(), data=st.data())
def test_owners_hold_their_nodes(tmp_path_factory: pytest.TempPathFactory, graph: Graph, data: st.DataObject):
    num_parts = data.draw(st.integers(1, graph.num_nodes))
    part = np.array([data.draw(st.integers(0, num_parts - 1)) for _ in range(graph.num_edges)], dtype=np.int16)
    held = copies_of(graph, part)
    bits = np.array([[sum(1 << p for p in parts)] for parts in held], dtype=np.uint64).reshape(-1, 1)
    with ScratchDir(tmp_path_factory.mktemp("w") / "scratch") as scratch:
        owner = choose_owners(problem(graph, num_parts, "vertex-cut", scratch), bits)
    assert set(owner.tolist()) == set(range(num_parts))
    outside = [node for node, parts in enumerate(held) if parts and owner[node] not in parts]
    owned = np.bincount(owner, minlength=num_parts)
    assert (owned[owner[outside]] == 1).all(), "only a part left without a node may own one that it does not hold"
    assert [int(row[0]) for row in bits] == [
        sum(1 << p for p in parts | {int(owner[node])}) for node, parts in enumerate(held)
    ]


def test_owners_are_balanced_in_nodes_training_nodes_and_rows_sent(scratch: ScratchDir, rng: np.random.Generator):
    graph = random_graph(4000, 30000)
    part = rng.integers(0, 4, graph.num_edges).astype(np.int16)
    held = copies_of(graph, part)
    bits = np.array([[sum(1 << p for p in parts)] for parts in held], dtype=np.uint64)
    train = rng.random(graph.num_nodes) < 0.1
    owner = choose_owners(problem(graph, 4, "vertex-cut", scratch, train=train), bits)
    rows = np.array([max(len(parts) - 1, 0) for parts in held])
    for weights in (np.ones(len(owner)), train, rows):
        load = np.bincount(owner, weights=weights, minlength=4)
        assert load.max() / load.mean() < 1.1


def test_lift_is_agreement_over_chance():
    graph = NAMED_GRAPHS["two components"]
    home = np.array([0, 0, 0, 0, 1, 1, 1], dtype=np.int32)
    assert agreement_lift(graph.source(), home, 2) == pytest.approx(1 - 0.5)
    assert agreement_lift(graph.source(), np.zeros(7, dtype=np.int32), 2) == 0
    assert agreement_lift(NAMED_GRAPHS["one self-loop"].source(), np.zeros(1, dtype=np.int32), 2) == 0


def test_clusters_are_packed_evenly_by_volume(scratch: ScratchDir, rng: np.random.Generator):
    graph = random_graph(2000, 20000)
    about = problem(graph, 4, "vertex-cut", scratch, capacities=[1, 1, 1, 3])
    home = pack_clusters(rng.integers(0, 60, 2000).astype(np.int32), about)
    volume = np.bincount(home, weights=about.degrees.total, minlength=4)
    assert np.abs(volume / volume.sum() / about.capacities - 1).max() < 0.1


def test_attributes_without_bearing_on_edges_give_no_prior(scratch: ScratchDir, rng: np.random.Generator):
    graph = random_graph(2000, 20000)
    noise = rng.integers(0, 16, 2000).astype(np.int32)
    assert attribute_prior(problem(graph, 4, "vertex-cut", scratch, attribute_cluster=noise)) is None
    sides = np.arange(2000) % 2
    ends = np.stack([graph.src, (graph.dst // 2 * 2 + graph.src % 2)])
    telling = Graph(num_nodes=2000, src=ends[0], dst=ends[1])
    prior = attribute_prior(problem(telling, 2, "vertex-cut", scratch, attribute_cluster=sides.astype(np.int32)))
    assert prior is not None
    assert prior.weight == 0.25


@quick
@given(degree=st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_ranking_sorts_by_falling_degree_then_id(tmp_path_factory: pytest.TempPathFactory, degree: list[int]):
    ends = np.repeat(np.arange(len(degree)), degree)
    graph = Graph(num_nodes=len(degree), src=ends, dst=np.zeros(len(ends), dtype=np.int64))
    with (
        pytest.MonkeyPatch.context() as patch,
        ScratchDir(tmp_path_factory.mktemp("w") / "scratch") as scratch,
    ):
        patch.setattr("asepr.partition.ranking.MANY_EDGES", 7)
        order, ranked = rank_nodes(problem(graph, 1, "vertex-cut", scratch))
    total = [d + (sum(degree) if v == 0 else 0) for v, d in enumerate(degree)]
    assert order.tolist() == sorted(range(len(total)), key=lambda v: (-total[v], v))
    assert ranked.tolist() == sorted(total, reverse=True)


def test_degrees_widen_where_a_sum_needs_it():
    most = np.array([2**31 - 1, 5], dtype=np.int32)
    assert Degrees(in_degree=most, out_degree=most).total.tolist() == [2**32 - 2, 10]
    assert Degrees(in_degree=most[1:], out_degree=most[1:]).total.dtype == np.int32
