"""Edges that give held-out edges away: those between the same two nodes, in either direction."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from asepr.contracts import IdArray
from asepr.formats.shard import HELD_OUT_SPLITS, Shard

BLOCK_EDGES = 1 << 20


def count_leaking(shards: Iterable[Shard], num_nodes: int) -> int:
    """Count the edges of all shards that join two nodes between which an edge is held out.

    Parameters
    ----------
    shards : iterable of Shard, all parts
        Gone through twice; each must hold out edges.
    num_nodes : int, below 2**32

    Returns
    -------
    int: 0 where held-out edges were drawn, since then all edges of a pair go the same way
    """
    pairs = [
        _pair_keys(held.column("src").to_numpy(), held.column("dst").to_numpy(), num_nodes)
        for shard in shards
        for held in map(shard.held_out_edges, HELD_OUT_SPLITS)
    ]
    held_pairs = np.unique(np.concatenate(pairs))
    found = 0
    for shard in shards:
        for start in range(0, shard.num_edges, BLOCK_EDGES):
            block = slice(start, start + BLOCK_EDGES)
            keys = _pair_keys(shard.nid[shard.src[block]], shard.nid[shard.dst[block]], num_nodes)
            found += int(np.count_nonzero(np.isin(keys, held_pairs)))
    return found


def _pair_keys(src: IdArray, dst: IdArray, num_nodes: int) -> npt.NDArray[np.uint64]:
    """Return uint64 (E,): one number for each pair of nodes, the same in either direction."""
    low, high = np.minimum(src, dst).astype(np.uint64), np.maximum(src, dst).astype(np.uint64)
    keys: npt.NDArray[np.uint64] = low * np.uint64(num_nodes) + high
    return keys
