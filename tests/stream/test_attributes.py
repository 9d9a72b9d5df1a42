import numpy as np
import scipy.sparse
from sklearn.metrics import adjusted_rand_score

from asepr.formats.node_sources import DenseFeatures, SparseFeatures
from asepr.stream.attributes import ReducedFeatures, cluster_attributes
from asepr.stream.scratch import ScratchDir


def test_clusters_find_planted_groups(scratch: ScratchDir, rng: np.random.Generator):
    group = rng.integers(0, 5, 2000)
    centres = 20 * rng.standard_normal((5, 40))
    features = DenseFeatures(centres[group] + rng.standard_normal((2000, 40)), "test")
    found = cluster_attributes(features, 5, 0, scratch)
    assert adjusted_rand_score(group, found) > 0.75
    assert np.array_equal(found, cluster_attributes(features, 5, 0, scratch))


def test_reduction_keeps_angles_of_low_rank_rows(scratch: ScratchDir, rng: np.random.Generator):
    rows = rng.standard_normal((300, 4)) @ rng.standard_normal((4, 50))
    reduced = ReducedFeatures(SparseFeatures(scipy.sparse.csr_matrix(rows), "test"), 4, 0, scratch)
    kept = reduced.read(np.arange(300))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.allclose(kept @ kept.T / 4, unit @ unit.T, atol=1e-4)


def test_an_all_zero_row_stays_zero(scratch: ScratchDir, rng: np.random.Generator):
    rows = rng.standard_normal((50, 10))
    rows[7] = 0
    reduced = ReducedFeatures(DenseFeatures(rows, "test"), 3, 0, scratch)
    assert not reduced.read(np.array([7])).any()


def test_more_clusters_than_nodes(scratch: ScratchDir, rng: np.random.Generator):
    found = cluster_attributes(DenseFeatures(rng.standard_normal((3, 2)), "test"), 16, 0, scratch)
    assert found.shape == (3,)
    assert found.max() < 3
