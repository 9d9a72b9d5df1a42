from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'asepr[train]'")

import asepr  # noqa: E402
from asepr.trainer_plugin.sampling import NeighbourSampler, StoredBlock  # noqa: E402
from asepr.trainer_plugin.shard_graph import open_shard, open_shards  # noqa: E402
from tests.graphs import NAMED_GRAPHS, Graph, graph  # noqa: E402


def shard_of(graph: Graph, folder: Path):
    asepr.partition(graph.source(), folder, num_parts=1)
    return open_shard(folder, 0)


def sources(sampler: NeighbourSampler, rows: list[int]) -> list[list[int]]:
    """Return the sampled sources of each row, by their numbers."""
    batch = sampler.sample(np.array(rows))
    block = batch.blocks[-1]
    # Row u holds the u-th unit vector, so sums over edges of weight 1 count each source.
    units = torch.eye(sampler.local_in_degree.shape[0])[batch.rows]
    counts = block.sum_neighbours(units[: len(rows)], units)
    return [torch.nonzero(row).reshape(-1).tolist() for row in counts]


@pytest.mark.parametrize("name", NAMED_GRAPHS)
def test_all_neighbours_give_the_exact_sums(name: str, tmp_path: Path):
    shard = shard_of(NAMED_GRAPHS[name], tmp_path / "d")
    features = torch.from_numpy(np.random.default_rng(0).standard_normal((shard.num_local, 3)).astype(np.float32))
    expected = np.zeros((shard.num_local, 3))
    for u, v in zip(shard.src.tolist(), shard.dst.tolist(), strict=True):
        expected[v] += features[u].numpy()
    rows = np.random.default_rng(1).permutation(shard.num_local)[: max(1, shard.num_local // 2)]
    for fanout in (0, 1000):
        batch = NeighbourSampler(shard, [fanout], None, [0]).sample(rows)
        assert batch.rows[: len(rows)].tolist() == rows.tolist()
        assert len(set(batch.rows.tolist())) == len(batch.rows)
        local = features[batch.rows]
        found = batch.blocks[0].sum_neighbours(local[: len(rows)], local)
        np.testing.assert_allclose(found.numpy(), expected[rows], atol=1e-5)


def test_samples_are_distinct_neighbours_all_equally_likely(tmp_path: Path):
    star = graph(9, [(i, 0) for i in range(1, 9)] + [(0, 1), (2, 1)])
    sampler = NeighbourSampler(shard_of(star, tmp_path / "d"), [3], None, [0])
    times = np.zeros(9)
    for _ in range(400):
        of_hub, of_one = sources(sampler, [0, 1])
        assert len(of_hub) == 3
        assert of_one == [0, 2]
        times[of_hub] += 1
    assert times[0] == 0
    # Each is in 3 of 8 samples; the standard deviation of a count is 9.7.
    assert np.abs(times[1:] - 150).max() < 45


def test_sampled_sum_is_unbiased_and_scaled_by_the_degree(tmp_path: Path):
    star = graph(9, [(i, 0) for i in range(1, 9)])
    sampler = NeighbourSampler(shard_of(star, tmp_path / "d"), [2], None, [0])
    batch = sampler.sample(np.array([0]))
    ones = torch.ones(len(batch.rows), 1)
    assert batch.blocks[0].sum_neighbours(ones[:1], ones).item() == pytest.approx(8)
    assert batch.blocks[0].in_degree.item() == 8


def test_rows_without_edges_and_hops_that_lead_on(tmp_path: Path):
    path = graph(8, [(i, i + 1) for i in range(6)])
    sampler = NeighbourSampler(shard_of(path, tmp_path / "d"), [5, 5], None, [0])
    batch = sampler.sample(np.array([5, 7]))
    assert sorted(batch.rows.tolist()) == [3, 4, 5, 7]
    assert [block.num_inner for block in batch.blocks] == [3, 2]
    lone = sampler.sample(np.array([7]))
    assert lone.blocks[1].sum_neighbours(torch.ones(1, 2), torch.ones(1, 2)).tolist() == [[0, 0]]


def test_stored_block_stands_for_one_summed_neighbour():
    degrees = torch.tensor([[3.0], [0.0]])
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert StoredBlock("mean", degrees, degrees).in_degree.tolist() == [[1], [1]]
    assert torch.equal(StoredBlock("sum", degrees, degrees).rows_for(rows), rows)
    assert StoredBlock("gcn", degrees, degrees).rows_for(rows).tolist() == [[4, 8], [3, 4]]


@pytest.mark.parametrize("layout", ["vertex-cut", "edge-cut"])
def test_local_in_degrees_add_up_to_the_global(layout: str, tmp_path: Path):
    whole = NAMED_GRAPHS["skewed"]
    asepr.partition(whole.source(), tmp_path / "d", num_parts=3, layout=layout)
    total = np.zeros(whole.num_nodes)
    for shard in open_shards(tmp_path / "d"):
        total[shard.nid] += NeighbourSampler(shard, [1], None, [0]).local_in_degree
    assert total.tolist() == np.bincount(whole.dst, minlength=whole.num_nodes).tolist()
