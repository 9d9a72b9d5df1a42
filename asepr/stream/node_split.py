"""Training, validation and test nodes drawn by seed, the same share of each label."""

import numpy as np
import numpy.typing as npt

from asepr.contracts import NO_LABEL, SPLIT_CODES, ByteArray, IdArray
from asepr.errors import NodeSourceError
from asepr.stream.node_split_kernels import deal_splits

_CODES = np.array([SPLIT_CODES[name] for name in ("train", "val", "test")], dtype=np.uint8)


def draw_split(num_nodes: int, label: IdArray | None, fractions: tuple[float, ...], seed: int) -> ByteArray:
    """Draw a split of the nodes that have a label, or of all where there are no labels.

    Parameters
    ----------
    num_nodes : int
    label : int64 (N,) or None
    fractions : three numbers that sum to 1
        Shares of training, validation and test.
    seed : int

    Returns
    -------
    uint8 (N,), values of `SPLIT_CODES`; 0: a node without a label

    Raises
    ------
    NodeSourceError
        A share above 0 gets no node.

    Notes
    -----
    Nodes are shuffled, then grouped by label, and splits are dealt along that row, each time the one that is furthest
    behind its share. So sizes over all are off by less than one, those within a label by less than two. O(N log N)
    time, O(N) memory.
    """
    order = np.random.default_rng(seed).permutation(num_nodes)
    if label is not None:
        order = order[label[order] != NO_LABEL]
        order = order[np.argsort(label[order], kind="stable")]
    dealt = np.empty(len(order), dtype=np.int64)
    shares: npt.NDArray[np.float64] = np.array(fractions, dtype=np.float64)
    deal_splits(shares / shares.sum(), dealt)
    for name, share, size in zip(("train", "val", "test"), fractions, np.bincount(dealt, minlength=3), strict=True):
        if share > 0 and not size:
            raise NodeSourceError(
                f"split: {name} must get at least one node, got none of {len(order)} for a share of {share:g}; "
                "change the fractions"
            )
    split = np.zeros(num_nodes, dtype=np.uint8)
    split[order] = _CODES[dealt]
    return split
