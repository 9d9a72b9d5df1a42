"""Node attributes in few numbers: truncated SVD of wide features, and clusters of like nodes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import TruncatedSVD
from threadpoolctl import threadpool_limits

from asepr.contracts import FeatureSource, FloatArray, IdArray, PartArray, Scratch

FIT_ROWS = 1 << 16
"""Rows that a decomposition is fitted on, drawn at random; the others are only transformed."""

BLOCK_ROWS = 1 << 14
CLUSTER_WIDTH = 32
"""Clusters are sought among this many singular directions."""


class ReducedFeatures:
    """The rows of a feature source, projected on its first singular directions.

    Every row has the same length afterwards, the root of the width, so that the average entry has
    magnitude one whatever the number of words or counts behind it; an all-zero row stays zero.

    Parameters
    ----------
    features : FeatureSource
    width : int
        Number of directions kept, below the width of the source.
    seed : int
    scratch : Scratch
        Holds the result, float32 (N, width).

    Notes
    -----
    Fitted on at most `FIT_ROWS` rows, in one thread, so that the result is the same on any number
    of threads. Source: Halko, Martinsson, Tropp, Finding structure with randomness, 2011.
    """

    def __init__(self, features: FeatureSource, width: int, seed: int, scratch: Scratch) -> None:
        self.num_rows, self.width = features.num_rows, width
        self._array: npt.NDArray[Any] = scratch.array("reduced", (features.num_rows, width), np.float32)
        with threadpool_limits(limits=1):
            svd = TruncatedSVD(width, random_state=seed)
            svd.fit(features.read_as_stored(_sample(features.num_rows, FIT_ROWS, seed)))
            for rows in _blocks(features.num_rows):
                projected = svd.transform(features.read_as_stored(rows))
                length = np.linalg.norm(projected, axis=1, keepdims=True)
                self._array[rows] = projected * (np.sqrt(width) / np.maximum(length, 1e-12))

    def read(self, rows: IdArray) -> FloatArray:
        """Return float32 (len(rows), width)."""
        return np.ascontiguousarray(self._array[rows])

    read_as_stored = read


def cluster_attributes(features: FeatureSource, num_clusters: int, seed: int, scratch: Scratch) -> PartArray:
    """Group nodes of like attributes with mini-batch k-means over chunks of rows.

    Parameters
    ----------
    features : FeatureSource
    num_clusters : int
        At most this many; fewer where there are fewer nodes.
    seed : int
    scratch : Scratch

    Returns
    -------
    int32 (N,), in [0, num_clusters)

    Notes
    -----
    O(N F) time, two passes over the features. Source: Sculley, Web-scale k-means clustering, 2010.
    """
    if features.width > CLUSTER_WIDTH:
        features = ReducedFeatures(features, CLUSTER_WIDTH, seed, scratch)
    num_clusters = min(num_clusters, features.num_rows)
    with threadpool_limits(limits=1):
        model = MiniBatchKMeans(num_clusters, random_state=seed, n_init=1, batch_size=BLOCK_ROWS)
        model.fit(features.read(_sample(features.num_rows, FIT_ROWS, seed)))
        cluster = np.empty(features.num_rows, dtype=np.int32)
        for rows in _blocks(features.num_rows):
            cluster[rows] = model.predict(features.read(rows))
    return cluster


def _sample(num_rows: int, size: int, seed: int) -> IdArray:
    if num_rows <= size:
        return np.arange(num_rows, dtype=np.int64)
    return np.sort(np.random.default_rng(seed).choice(num_rows, size, replace=False))


def _blocks(num_rows: int) -> Iterator[IdArray]:
    for start in range(0, num_rows, BLOCK_ROWS):
        yield np.arange(start, min(start + BLOCK_ROWS, num_rows), dtype=np.int64)
