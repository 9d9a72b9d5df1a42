"""Halo rows between owners and copies: two linear maps, each the other's adjoint, over torch.distributed."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist

from asepr.contracts import HaloPlan
from asepr.errors import TrainingError
from asepr.trainer_plugin.exchange.channel import Channel, Direction, Recipe
from asepr.trainer_plugin.exchange.codecs import make_codec
from asepr.trainer_plugin.exchange.schedules import Delayed, Nothing, Sampled, make_schedule
from asepr.trainer_plugin.exchange.transport import Traffic, Transport


@dataclass(frozen=True, kw_only=True, slots=True)
class ExchangeConfig:
    """How rows are exchanged while training.

    Attributes
    ----------
    schedule : str
        exact, pipelined, delayed:STEPS, sampled:SHARE or none.
    codec : str
        none, bf16, fp16, int8, int4, int2, int1, topk:SHARE or threshold:SHARE.
    exact_every : int
        Every n-th step is exact; 0: none but the first, and that only where later ones build on it.
    smoothing : float, in [0, 1)
        Late rows become this share of the rows before and the rest of what came.
    seed : int
        Of random rounding and sampling.
    timeout_s : float
        How long to wait for a peer.
    """

    schedule: str = "exact"
    codec: str = "none"
    exact_every: int = 0
    smoothing: float = 0.0
    seed: int = 0
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        """Check every value.

        Raises
        ------
        TrainingError
            A name is unknown, a value is out of its range, or two do not go together.
        """
        recipe = self.recipe()
        if self.exact_every < 0:
            raise TrainingError(f"exact_every must not be negative, got {self.exact_every}; 0 is never")
        if not 0 <= self.smoothing < 1:
            raise TrainingError(f"smoothing must be in [0, 1), got {self.smoothing}; 0 is none")
        if recipe.codec.needs_memory and isinstance(recipe.schedule, Sampled | Delayed):
            raise TrainingError(
                f"codec {self.codec}: the same rows must travel in every step, got exchange {self.schedule}; "
                "choose exact or pipelined, or another codec"
            )

    @property
    def is_plain(self) -> bool:
        """Whether every step is exact and whole."""
        return self.schedule == "exact" and self.codec == "none"

    def recipe(self) -> Recipe:
        """Return what channels follow."""
        return Recipe(
            schedule=make_schedule(self.schedule),
            codec=make_codec(self.codec),
            smoothing=self.smoothing,
            seed=self.seed,
            exact_every=self.exact_every,
        )


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
    contiguous buffer each way; whole halo rows arrive in place.

    Between `start_step` and the next, the n-th `scatter` or `gather` and its backward each have a channel
    of their own, which follows the config. Before the first step, and within `exactly()`, all is exact.

    Parameters
    ----------
    plan : HaloPlan
    device : torch.device, optional
        Where the rows will be.
    group : torch.distributed.ProcessGroup, optional
        Ranks are those of the shards; None: the default group. Not needed with one part.
    config : ExchangeConfig, optional
        None: exact. Else, without a group, all processes must construct their exchanges together: rows then
        have connections of their own, so that no sum of gradients waits behind them.
    """

    def __init__(
        self,
        plan: HaloPlan,
        device: torch.device | None = None,
        group: dist.ProcessGroup | None = None,
        config: ExchangeConfig | None = None,
    ) -> None:
        self.plan = plan
        self.config = config or ExchangeConfig()
        self.device = device
        self._send_rows = torch.from_numpy(plan.send_rows).to(device)
        # Step s of a ring: send to the rank s above, receive from the rank s below.
        ring = [(plan.rank + step) % plan.num_parts for step in range(1, plan.num_parts)]
        peers = [_make_peer(plan, rank) for rank in ring]
        self._targets = [peer for peer in peers if _length(peer.send)]
        self._sources = [peer for peer in reversed(peers) if _length(peer.receive)]
        self._lengths = Transport(plan.rank, group)
        self._transport = self._lengths
        self._has_own_group = group is not None
        self._open_group()
        self._outside: dict[Direction, Channel] = {
            "to copies": self._make_channel("exact", 0, "to copies", Recipe()),
            "to owners": self._make_channel("exact", 0, "to owners", Recipe()),
        }
        self._channels: dict[str, Channel] = {}
        self._greatest: dict[int, torch.Tensor] = {}
        self._step: int | None = None
        self._calls = 0

    @property
    def keeps_state(self) -> bool:
        """Whether a step depends on those before."""
        return self.config.recipe().keeps_state

    @property
    def bytes_sent(self) -> int:
        """Payload bytes sent since the start."""
        return sum(traffic.bytes_sent for _, _, traffic in self.traffic())

    def traffic(self) -> Iterator[tuple[str, int, Traffic]]:
        """Yield channel, peer and what went between since the start; `exact` are calls outside steps."""
        for channel in (*self._outside.values(), *self._channels.values()):
            for peer, traffic in channel.traffic.items():
                yield channel.name, peer, traffic

    def start_step(self, step: int) -> None:
        """Begin a step of training; calls are numbered anew."""
        self._step, self._calls = step, 0

    @contextlib.contextmanager
    def exactly(self) -> Iterator[None]:
        """Make all calls exact, whatever the config; for evaluation."""
        step, self._step = self._step, None
        try:
            yield
        finally:
            self._step = step

    def finish(self) -> None:
        """Wait for what is on its way and forget the steps so far: the next is as the first.

        After this a run is in the state of one that begins. All ranks must call it, at the same step.
        """
        self._greatest.clear()
        for channel in self._channels.values():
            channel.finish()

    def settle(self) -> None:
        """Wait for what is on its way; it is used in the next step as ever."""
        for channel in self._channels.values():
            channel.settle()

    def state(self) -> dict[str, torch.Tensor]:
        """Return what the next step builds on, by name, for a checkpoint of this rank; waits for what is under way."""
        greatest = {f"greatest/{call}": rows.clone() for call, rows in self._greatest.items()}
        return greatest | {
            f"{number:04d}/{channel.direction}/{name}/{part}": tensor
            for number, (name, channel) in enumerate(self._channels.items())
            for part, tensor in channel.state().items()
        }

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from what `state` returned on this rank, under the same config."""
        parts: dict[str, dict[str, torch.Tensor]] = {}
        for key, tensor in state.items():
            channel, _, part = key.rpartition("/")
            parts.setdefault(channel, {})[part] = tensor.to(self.device)
        self._greatest = {int(call): rows for call, rows in parts.pop("greatest", {}).items()}
        for key in sorted(parts):
            _, direction, name = key.split("/")
            self._channel(cast(Direction, direction), name).load(parts[key])

    def change(self, config: ExchangeConfig) -> None:
        """Follow another config from the next step on; all ranks together."""
        self.config = config
        self._open_group()
        self._greatest.clear()
        for channel in self._channels.values():
            channel.follow(config.recipe(), self._transport)

    @property
    def is_cut(self) -> bool:
        """Whether calls now exchange nothing."""
        recipe = self.config.recipe()
        return self._step is not None and isinstance(recipe.schedule, Nothing) and not recipe.is_whole(self._step)

    def scatter(self, inner: torch.Tensor) -> torch.Tensor:
        """Fill halo rows from their owners.

        Parameters
        ----------
        inner : (num_inner, ...)

        Returns
        -------
        (num_local, ...): `inner`, then the halo rows
        """
        result: torch.Tensor = _Scatter.apply(inner, self, self._next("scatter"))  # type: ignore[no-untyped-call]
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
        result: torch.Tensor = _Gather.apply(local, self, self._next("gather"))  # type: ignore[no-untyped-call]
        return result

    def greatest_of_copies(self, local: torch.Tensor) -> torch.Tensor:
        """Return for each local node the greatest of the rows of all its copies: whole, outside autograd.

        Where the schedule lets rows be late, they were made with what this returned then. So it is found anew
        in whole steps alone, and stands from one to the next: sums of early and late rows then share it.

        Parameters
        ----------
        local : (num_local, ...)

        Returns
        -------
        (num_local, ...)
        """
        recipe = self.config.recipe()
        if self._step is None or not recipe.schedule.keeps:
            return self.send_owned(self._gather_max(local))
        if self._calls not in self._greatest or recipe.is_whole(self._step):
            self._greatest[self._calls] = self.send_owned(self._gather_max(local))
        return self._greatest[self._calls]

    def _gather_max(self, local: torch.Tensor) -> torch.Tensor:
        inner = local[: self.plan.num_inner].clone()
        for rows, received in self._receive_copies(local, None):
            inner[rows] = torch.maximum(inner[rows], received)
        return inner

    def scatter_bytes(self, row_bytes: int) -> int:
        """Return how many bytes this rank sends in one exact `scatter` of rows of that size."""
        return len(self.plan.send_rows) * row_bytes

    def gather_bytes(self, row_bytes: int) -> int:
        """Return how many bytes this rank sends in one exact `gather` of rows of that size."""
        return self.plan.num_halo * row_bytes

    def send_owned(self, inner: torch.Tensor, name: str | None = None) -> torch.Tensor:
        """Do what `scatter` does, outside autograd; exact unless a channel is named."""
        local = inner.new_empty((self.plan.num_inner + self.plan.num_halo, *inner.shape[1:]))
        local[: self.plan.num_inner] = inner
        outgoing = {peer.rank: _flat(inner[self._send_rows[peer.send]]) for peer in self._targets}
        into = {peer.rank: _flat(local[peer.receive]) for peer in self._sources}
        self._channel("to copies", name).move(self._step or 0, outgoing, into)
        return local

    def send_shared(self, shared: torch.Tensor, halo: torch.Tensor, name: str) -> None:
        """Fill halo rows from their owners, in place, by a channel of the step; outside autograd.

        Parameters
        ----------
        shared : (len(plan.send_rows), F)
            The rows of `plan.send_rows`.
        halo : (num_halo, F), contiguous
            As it was where the schedule keeps rows and none came.
        name : str
            Of the channel.
        """
        first = self.plan.num_inner
        outgoing = {peer.rank: shared[peer.send] for peer in self._targets}
        into = {peer.rank: halo[peer.receive.start - first : peer.receive.stop - first] for peer in self._sources}
        self._channel("to copies", name).move(self._step or 0, outgoing, into)

    def return_copies(self, local: torch.Tensor, name: str | None = None) -> torch.Tensor:
        """Do what `gather` does, outside autograd; exact unless a channel is named."""
        inner = local[: self.plan.num_inner].clone()
        for rows, received in self._receive_copies(local, name):
            inner.index_add_(0, rows, received)
        return inner

    def _receive_copies(self, local: torch.Tensor, name: str | None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield inner rows and what a peer's copies of them hold: in rank order, so that sums do not vary."""
        outgoing = {peer.rank: _flat(local[peer.receive].contiguous()) for peer in self._sources}
        targets = sorted(self._targets, key=lambda peer: peer.rank)
        received = {peer.rank: local.new_empty((_length(peer.send), *local.shape[1:])) for peer in targets}
        into = {rank: _flat(rows) for rank, rows in received.items()}
        self._channel("to owners", name).move(self._step or 0, outgoing, into)
        for peer in targets:
            yield self._send_rows[peer.send], received[peer.rank]

    def _open_group(self) -> None:
        """Give rows connections of their own, where they may be on their way while other calls are made."""
        if not self._has_own_group and self.plan.num_parts > 1 and not self.config.is_plain:
            group = dist.new_group(timeout=timedelta(seconds=self.config.timeout_s))
            self._transport, self._has_own_group = Transport(self.plan.rank, group), True

    def _next(self, operation: str) -> str | None:
        """Return the name of this call within the step; None outside one."""
        if self._step is None:
            return None
        self._calls += 1
        return f"{self._calls} {operation}"

    def _channel(self, direction: Direction, name: str | None) -> Channel:
        if name is None:
            return self._outside[direction]
        if name not in self._channels:
            number = len(self._channels) + 1
            self._channels[name] = self._make_channel(name, number, direction, self.config.recipe())
        return self._channels[name]

    def _make_channel(self, name: str, number: int, direction: Direction, recipe: Recipe) -> Channel:
        return Channel(name, number, direction, recipe, self._transport, self._lengths)


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inner, exchange, name):  # type: ignore[no-untyped-def]
        ctx.exchange, ctx.name = exchange, name and f"{name} backward"
        return exchange.send_owned(inner.contiguous(), name and f"{name} forward")

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return ctx.exchange.return_copies(gradient.contiguous(), ctx.name), None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local, exchange, name):  # type: ignore[no-untyped-def]
        ctx.exchange, ctx.name = exchange, name and f"{name} backward"
        return exchange.return_copies(local.contiguous(), name and f"{name} forward")

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return ctx.exchange.send_owned(gradient.contiguous(), ctx.name), None, None


def _make_peer(plan: HaloPlan, rank: int) -> _Peer:
    return _Peer(
        rank=rank,
        send=slice(int(plan.send_offsets[rank]), int(plan.send_offsets[rank + 1])),
        receive=slice(int(plan.recv_offsets[rank]), int(plan.recv_offsets[rank + 1])),
    )


def _length(rows: slice) -> int:
    return int(rows.stop - rows.start)


def _flat(rows: torch.Tensor) -> torch.Tensor:
    """Return contiguous rows as (n, F), in the same memory."""
    return rows.view(len(rows), -1 if rows.numel() else 0)
