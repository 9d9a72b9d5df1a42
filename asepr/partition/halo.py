"""Who is where: each part's local nodes in their order, and the rows that parts exchange."""

import numpy as np

from asepr.contracts import Assignment, Buckets, HaloPlan, IdArray, LocalNodes, PartArray, Scratch
from asepr.partition.copies_kernels import count_copies, list_halo_copies

BLOCK_NODES = 1 << 18

_SEND_ROW = np.dtype([("peer", np.int32), ("nid", np.int64)])


class HaloIndex:
    """Inner nodes, halo nodes and send lists of every part, kept on disk, read a part at a time.

    Parameters
    ----------
    assignment : Assignment
    scratch : Scratch

    Notes
    -----
    One pass over the nodes in blocks: O(N K / 64) time, memory of one block.
    """

    def __init__(self, assignment: Assignment, scratch: Scratch) -> None:
        self.num_parts = assignment.num_parts
        self._owner = assignment.owner
        self._inner: Buckets = scratch.buckets("inner", self.num_parts, np.int64)
        self._halo: Buckets = scratch.buckets("halo", self.num_parts, np.int64)
        self._send: Buckets = scratch.buckets("send", self.num_parts, _SEND_ROW)
        for start in range(0, self._owner.shape[0], BLOCK_NODES):
            self._add_block(assignment, start)

    def nodes(self, rank: int) -> LocalNodes:
        """Return the local nodes of a part: inner ascending, then halo by owner, each ascending."""
        inner, halo = self._inner.read(rank), self._halo.read(rank)
        halo = halo[np.argsort(self._owner[halo], kind="stable")]
        nid = np.concatenate([inner, halo])
        return LocalNodes(nid=nid, owner=self._owner[nid], num_inner=len(inner))

    def plan(self, rank: int, nodes: LocalNodes) -> HaloPlan:
        """Return what a part sends to and receives from each peer, given its own local nodes."""
        send = self._send.read(rank)
        send = send[np.argsort(send["peer"], kind="stable")]
        inner = nodes.nid[: nodes.num_inner]
        halo_owner = nodes.owner[nodes.num_inner :]
        return HaloPlan(
            rank=rank,
            num_inner=nodes.num_inner,
            num_halo=len(halo_owner),
            send_rows=np.searchsorted(inner, send["nid"]).astype(np.int64),
            send_offsets=self._offsets(send["peer"], 0),
            recv_offsets=self._offsets(halo_owner, nodes.num_inner),
        )

    def _add_block(self, assignment: Assignment, start: int) -> None:
        owner = assignment.owner[start : start + BLOCK_NODES]
        bits = assignment.copies[start : start + BLOCK_NODES]
        num_copies = np.empty(len(owner), dtype=np.int32)
        count_copies(bits, num_copies)
        num_halo = int(num_copies.sum()) - len(owner)
        part, nid = np.empty(num_halo, dtype=np.int32), np.empty(num_halo, dtype=np.int64)
        list_halo_copies(bits, owner, start, part, nid)
        send = np.empty(num_halo, dtype=_SEND_ROW)
        send["peer"], send["nid"] = part, nid
        self._inner.append(owner, np.arange(start, start + len(owner), dtype=np.int64))
        self._halo.append(part, nid)
        self._send.append(self._owner[nid], send)

    def _offsets(self, part: PartArray, first: int) -> IdArray:
        counts = np.bincount(part, minlength=self.num_parts)
        return first + np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
