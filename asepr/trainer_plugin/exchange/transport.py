"""Messages between pairs of ranks over torch.distributed: bounded, timed, and never silent about a dead peer."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from asepr.trainer_plugin.exchange.codecs import as_bytes
from asepr.trainer_plugin.exchange.faults import peer_error

MAX_MESSAGE_BYTES = 64 << 20
"""Longer buffers travel in pieces, so that no single message holds a connection or a driver's buffer for long."""

Buffers = Sequence[tuple[int, torch.Tensor]]
"""Peer and contiguous buffer, in the order to be posted."""
Operation = tuple[Callable[..., Any], int, torch.Tensor]
"""`isend` or `irecv`, peer and buffer."""
Pending = tuple[tuple[int, ...], Any]
"""Work that ends when messages with all these peers have."""


@dataclass(slots=True)
class Traffic:
    """What went over one channel to or from one peer.

    Attributes
    ----------
    bytes_predicted : int
        Of messages to the peer, known before they were made.
    bytes_sent : int
        Payload handed to torch.distributed.
    messages : int
    wait_s : float
        Spent doing nothing but waiting for the peer.
    hidden_s : float
        Between posting a message and the wait for it: while other work was done.
    """

    bytes_predicted: int = 0
    bytes_sent: int = 0
    messages: int = 0
    wait_s: float = 0.0
    hidden_s: float = 0.0


class Transport:
    """Posts buffers to peers and from peers.

    Parameters
    ----------
    rank : int
        Of the shard.
    group : torch.distributed.ProcessGroup, optional
        Ranks are those of the shards; None: the default group.
    batched : bool, optional
        Whether all messages of a post start as one; None: on NCCL, where pairs would else wait for each other.
    """

    def __init__(self, rank: int, group: dist.ProcessGroup | None = None, batched: bool | None = None) -> None:
        self.rank = rank
        self._group = group
        self._batched = batched

    def post(self, outgoing: Buffers, incoming: Buffers, traffic: dict[int, Traffic], tag: int = 0) -> "Flight":
        """Start to send and receive all buffers; they must stay as they are until the flight has landed.

        Parameters
        ----------
        outgoing, incoming : Buffers
            Both ends post the same sizes in the same order a pair.
        traffic : dict of Traffic by peer
            Counted up.
        tag : int
            The same at both ends.

        Raises
        ------
        TrainingError
            A peer is gone.
        """
        operations: list[Operation] = [
            (dist.irecv, peer, piece) for peer, buffer in incoming for piece in _pieces(buffer)
        ]
        operations += [(dist.isend, peer, piece) for peer, buffer in outgoing for piece in _pieces(buffer)]
        for peer, buffer in outgoing:
            traffic[peer].bytes_sent += buffer.numel() * buffer.element_size()
            traffic[peer].messages += len(_pieces(buffer))
        if not operations:
            return Flight(self, [], [], traffic)
        start = self._start_batch if self._is_batched(operations[0][2]) else self._start_each
        return Flight(self, start(operations, tag), [piece for _, _, piece in operations], traffic)

    def _is_batched(self, piece: torch.Tensor) -> bool:
        # NCCL, which wants batches, serves the tensors of GPUs, gloo those of CPUs.
        return piece.is_cuda if self._batched is None else self._batched

    def _start_each(self, operations: list[Operation], tag: int) -> list[Pending]:
        works: list[Pending] = []
        for call, peer, piece in operations:
            try:
                works.append(((peer,), call(piece, self._process(peer), group=self._group, tag=tag)))
            except RuntimeError as error:
                raise peer_error(self.rank, error, peer) from error
        return works

    def _start_batch(self, operations: list[Operation], tag: int) -> list[Pending]:
        batch = [dist.P2POp(call, piece, self._process(peer), self._group, tag) for call, peer, piece in operations]
        peers = [peer for _, peer, _ in operations]
        try:
            works = dist.batch_isend_irecv(batch)
        except RuntimeError as error:
            raise peer_error(self.rank, error) from error
        if len(works) == len(peers):
            return [((peer,), work) for peer, work in zip(peers, works, strict=True)]
        # NCCL ends a batch as one.
        return [(tuple(dict.fromkeys(peers)), work) for work in works]

    def _process(self, rank: int) -> int:
        """Return the rank among all processes of a shard's rank in the group."""
        return rank if self._group is None else dist.get_global_rank(self._group, rank)


class Flight:
    """Messages on their way."""

    def __init__(
        self,
        transport: Transport,
        works: list[Pending],
        buffers: list[torch.Tensor],
        traffic: dict[int, Traffic],
    ) -> None:
        self._transport = transport
        self._works = works
        self._buffers = buffers
        self._traffic = traffic
        self._posted = time.perf_counter()

    def land(self) -> None:
        """Wait for all messages, sent and received.

        Raises
        ------
        TrainingError
            A peer is gone, or did not answer within the group's timeout.
        """
        started = time.perf_counter()
        for peer in {peer for peers, _ in self._works for peer in peers}:
            self._traffic[peer].hidden_s += started - self._posted
        for peers, work in self._works:
            try:
                work.wait()
            except RuntimeError as error:
                raise peer_error(self._transport.rank, error, peers[0] if len(peers) == 1 else None) from error
            now = time.perf_counter()
            for peer in peers:
                self._traffic[peer].wait_s += (now - started) / len(peers)
            started = now
        self._works, self._buffers = [], []


def _pieces(buffer: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.split(as_bytes(buffer), MAX_MESSAGE_BYTES) if buffer.numel() else ()
