"""Exact exchange of halo rows: two linear maps, each the other's adjoint, over torch.distributed."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from asepr.contracts import HaloPlan
from asepr.errors import TrainingError


@dataclass(frozen=True, kw_only=True, slots=True)
class _Peer:
    rank: int
    send: slice
    """Of `send_rows`: the inner rows this peer has copies of."""
    receive: slice
    """Of local rows: the copies here of this peer's inner rows."""


class Exchange:
    """Moves rows between the owner of a node and its copies.

    Let x hold one row an inner node. `scatter(x)` gives one row a local node: x, and under it the
    halo rows that the other ranks sent. Let y hold one row a local node. `gather(y)` gives one row an
    inner node: y there, plus what all its copies elsewhere hold. As maps between the stacked rows of
    all ranks, `gather` is the transpose of `scatter`; so each is the other's backward.

    All ranks must call them in the same order. Each pair of ranks that shares nodes sends one
    contiguous buffer each way; halo rows arrive in place.

    Parameters
    ----------
    plan : HaloPlan
    device : torch.device, optional
        Where the rows will be.
    group : torch.distributed.ProcessGroup, optional
        Ranks are those of the shards; None: the default group. Not needed with one part.

    Attributes
    ----------
    bytes_sent : int
        Payload bytes sent since the start.
    """

    def __init__(
        self, plan: HaloPlan, device: torch.device | None = None, group: dist.ProcessGroup | None = None
    ) -> None:
        self.plan = plan
        self.bytes_sent = 0
        self._group = group
        self._send_rows = torch.from_numpy(plan.send_rows).to(device)
        # Step s of a ring: send to the rank s above, receive from the rank s below.
        ring = [(plan.rank + step) % plan.num_parts for step in range(1, plan.num_parts)]
        peers = [_make_peer(plan, rank) for rank in ring]
        self._targets = [peer for peer in peers if _length(peer.send)]
        self._sources = [peer for peer in reversed(peers) if _length(peer.receive)]

    def scatter(self, inner: torch.Tensor) -> torch.Tensor:
        """Fill halo rows from their owners.

        Parameters
        ----------
        inner : (num_inner, ...)

        Returns
        -------
        (num_local, ...): `inner`, then the halo rows
        """
        result: torch.Tensor = _Scatter.apply(inner, self)  # type: ignore[no-untyped-call]
        return result

    def gather(self, local: torch.Tensor) -> torch.Tensor:
        """Sum the rows of all copies at their owners.

        Parameters
        ----------
        local : (num_local, ...)

        Returns
        -------
        (num_inner, ...)
        """
        result: torch.Tensor = _Gather.apply(local, self)  # type: ignore[no-untyped-call]
        return result

    def scatter_bytes(self, row_bytes: int) -> int:
        """Return how many bytes this rank sends in one `scatter` of rows of that size."""
        return len(self.plan.send_rows) * row_bytes

    def gather_bytes(self, row_bytes: int) -> int:
        """Return how many bytes this rank sends in one `gather` of rows of that size."""
        return self.plan.num_halo * row_bytes

    def send_owned(self, inner: torch.Tensor) -> torch.Tensor:
        """Do what `scatter` does, outside autograd."""
        local = inner.new_empty((self.plan.num_inner + self.plan.num_halo, *inner.shape[1:]))
        local[: self.plan.num_inner] = inner
        outgoing = [(peer.rank, inner[self._send_rows[peer.send]]) for peer in self._targets]
        incoming = [(peer.rank, local[peer.receive]) for peer in self._sources]
        self._transfer(outgoing, incoming)
        return local

    def return_copies(self, local: torch.Tensor) -> torch.Tensor:
        """Do what `gather` does, outside autograd."""
        inner = local[: self.plan.num_inner].clone()
        outgoing = [(peer.rank, local[peer.receive].contiguous()) for peer in self._sources]
        incoming = [
            (peer.rank, local.new_empty((_length(peer.send), *local.shape[1:])))
            for peer in sorted(self._targets, key=lambda peer: peer.rank)
        ]
        self._transfer(outgoing, incoming)
        # In rank order, so that the sums do not depend on who answered first.
        for rank, rows in incoming:
            send = _make_peer(self.plan, rank).send
            inner.index_add_(0, self._send_rows[send], rows)
        return inner

    def _process(self, rank: int) -> int:
        """Return the rank among all processes of a shard's rank in the group."""
        return rank if self._group is None else dist.get_global_rank(self._group, rank)

    def _transfer(self, outgoing: list[tuple[int, torch.Tensor]], incoming: list[tuple[int, torch.Tensor]]) -> None:
        """Send and receive all buffers at once, and wait for them."""
        operations = [dist.P2POp(dist.irecv, buffer, self._process(rank), self._group) for rank, buffer in incoming]
        operations += [dist.P2POp(dist.isend, buffer, self._process(rank), self._group) for rank, buffer in outgoing]
        if not operations:
            return
        self.bytes_sent += sum(buffer.numel() * buffer.element_size() for _, buffer in outgoing)
        try:
            for work in dist.batch_isend_irecv(operations):
                work.wait()
        except RuntimeError as error:
            raise peer_error(self.plan.rank, error) from error


def peer_error(rank: int, error: RuntimeError) -> TrainingError:
    """Return what to say when torch.distributed gives up on a peer."""
    reason = " ".join(str(error).split())[:200]
    return TrainingError(
        f"rank {rank}: every peer must answer within the timeout, got: {reason}; "
        "look at the other ranks' messages, and resume from the last checkpoint"
    )


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inner, exchange):  # type: ignore[no-untyped-def]
        ctx.exchange = exchange
        return exchange.send_owned(inner.contiguous())

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return ctx.exchange.return_copies(gradient.contiguous()), None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local, exchange):  # type: ignore[no-untyped-def]
        ctx.exchange = exchange
        return exchange.return_copies(local.contiguous())

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return ctx.exchange.send_owned(gradient.contiguous()), None


def _make_peer(plan: HaloPlan, rank: int) -> _Peer:
    return _Peer(
        rank=rank,
        send=slice(int(plan.send_offsets[rank]), int(plan.send_offsets[rank + 1])),
        receive=slice(int(plan.recv_offsets[rank]), int(plan.recv_offsets[rank + 1])),
    )


def _length(rows: slice) -> int:
    return int(rows.stop - rows.start)
