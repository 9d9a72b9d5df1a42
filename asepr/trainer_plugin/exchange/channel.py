"""One exchange of one layer in one direction, over all steps: where schedule, codec and transport meet."""

from dataclasses import dataclass, field
from typing import Literal

import torch

from asepr.errors import TrainingError
from asepr.trainer_plugin.exchange.codecs import Codec, Memory, Whole
from asepr.trainer_plugin.exchange.schedules import Exact, Pick, Schedule, key_of
from asepr.trainer_plugin.exchange.transport import Flight, Traffic, Transport

Rows = dict[int, torch.Tensor]
"""Rows (n, F) by peer, in the order in which peers are served."""
Direction = Literal["to copies", "to owners"]

_LENGTH_BYTES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How to exchange.

    Attributes
    ----------
    schedule : Schedule
    codec : Codec
    smoothing : float, in [0, 1)
        Of late rows: the share of the rows before that is kept.
    seed : int
    exact_every : int
        Each n-th step is whole and waited for; 0: none but where the first has to be.
    """

    schedule: Schedule = field(default_factory=Exact)
    codec: Codec = field(default_factory=Whole)
    smoothing: float = 0.0
    seed: int = 0
    exact_every: int = 0

    @property
    def keeps_state(self) -> bool:
        """Whether a step depends on those before."""
        return self.schedule.keeps or self.codec.needs_memory

    def is_whole(self, step: int) -> bool:
        """Return whether all rows travel as they are and are waited for."""
        is_due = self.exact_every > 0 and step % self.exact_every == 0
        return is_due or (type(self.schedule) is Exact and isinstance(self.codec, Whole))


@dataclass(slots=True)
class _Late:
    """What is on its way, to be used in the next step."""

    step: int
    flight: Flight
    messages: list[tuple[int, torch.Tensor]]
    picks: dict[int, Pick]


class Channel:
    """Moves rows to each peer's rows, as the recipe says.

    Parameters
    ----------
    name : str
    number : int
        The same on all ranks; chooses random bits and the tag of messages.
    direction : "to copies" or "to owners"
    recipe : Recipe
    transport, lengths : Transport
        `lengths` carries those of messages that say their own, past those that are on their way.
    """

    def __init__(
        self, name: str, number: int, direction: Direction, recipe: Recipe, transport: Transport, lengths: Transport
    ) -> None:
        self.name = name
        self.traffic: dict[int, Traffic] = {}
        self.direction = direction
        self._number = number
        self._recipe = recipe
        self._transport = transport
        self._lengths = lengths
        self._latest: Rows = {}
        self._memory_out: dict[int, Memory] = {}
        self._memory_in: dict[int, Memory] = {}
        self._late: _Late | None = None
        self._buffers: dict[int, torch.Tensor] = {}
        self._started = False

    def move(self, step: int, outgoing: Rows, into: Rows) -> None:
        """Exchange rows.

        Parameters
        ----------
        step : int
        outgoing : Rows
        into : Rows
            Filled: contiguous, the same widths.

        Raises
        ------
        TrainingError
            A peer is gone; or rows differ in width or dtype from the step before, and the recipe keeps them.
        """
        for peer in (*outgoing, *into):
            self.traffic.setdefault(peer, Traffic())
        recipe = self._recipe
        self._collect()
        if recipe.is_whole(step) or (recipe.keeps_state and not self._started):
            self._move_whole(outgoing, into)
            self._started = True
            return
        self._check(into)
        late = self._post(step, outgoing, into)
        if recipe.schedule.late:
            for peer, rows in into.items():
                rows.copy_(self._latest[peer])
            self._late = late
        else:
            late.flight.land()
            self._decode(late, into, 0.0)

    def follow(self, recipe: Recipe, transport: Transport) -> None:
        """Go on by another recipe, as if this were the first step."""
        self.finish()
        self._recipe, self._transport = recipe, transport

    def settle(self) -> None:
        """Wait for what is on its way; it stays late."""
        if self._late is not None:
            self._late.flight.land()

    def finish(self) -> None:
        """Wait for what is on its way, and forget all steps; the next is as the first."""
        self._collect()
        self._latest, self._memory_out, self._memory_in, self._started = {}, {}, {}, False

    def state(self) -> dict[str, torch.Tensor]:
        """Return what the next step builds on, by name; what is on its way arrives first."""
        self.settle()
        found = {"started": torch.tensor(self._started)}
        found |= {f"latest.{peer}": rows for peer, rows in self._latest.items()}
        for end, memories in (("out", self._memory_out), ("in", self._memory_in)):
            for peer, memory in memories.items():
                found[f"{end}.{peer}.numbers"] = torch.tensor([memory.threshold, memory.messages], dtype=torch.float64)
                if memory.held is not None:
                    found[f"{end}.{peer}.held"] = memory.held
        if self._late is not None:
            found["late.step"] = torch.tensor(self._late.step)
            found |= {f"late.{peer}": message for peer, message in self._late.messages}
        return {name: tensor.clone() for name, tensor in found.items()}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from what `state` returned."""
        self._started = bool(state["started"])
        self._latest = {int(name.split(".")[1]): rows for name, rows in state.items() if name.startswith("latest.")}
        for end, memories in (("out", self._memory_out), ("in", self._memory_in)):
            memories.clear()
            for name in state:
                if name.startswith(f"{end}.") and name.endswith(".numbers"):
                    threshold, messages = state[name].tolist()
                    held = state.get(name.removesuffix("numbers") + "held")
                    memories[int(name.split(".")[1])] = Memory(held=held, threshold=threshold, messages=int(messages))
        self._late = None
        if "late.step" in state:
            step = int(state["late.step"])
            messages = [(peer, state[f"late.{peer}"]) for peer in self._latest if f"late.{peer}" in state]
            picks = {
                peer: self._pick(step, len(rows), peer, self._transport.rank) for peer, rows in self._latest.items()
            }
            self._late = _Late(step, self._transport.post([], [], {}), messages, picks)

    def _collect(self) -> None:
        """Take in what the step before sent."""
        if self._late is not None:
            late, self._late = self._late, None
            late.flight.land()
            self._decode(late, self._latest, self._recipe.smoothing)

    def _move_whole(self, outgoing: Rows, into: Rows) -> None:
        """Exchange all rows as they are, and let both ends remember them where the recipe builds on them."""
        for peer, rows in outgoing.items():
            self.traffic[peer].bytes_predicted += rows.numel() * rows.element_size()
        messages = [(peer, rows.contiguous()) for peer, rows in outgoing.items()]
        self._transport.post(messages, list(into.items()), self.traffic, self._number).land()
        if self._recipe.schedule.keeps:
            self._latest = {peer: rows.clone() for peer, rows in into.items()}
        if self._recipe.codec.needs_memory:
            self._memory_out = {peer: Memory(held=rows.clone()) for peer, rows in messages}
            self._memory_in = {peer: Memory(held=rows.clone()) for peer, rows in into.items()}

    def _post(self, step: int, outgoing: Rows, into: Rows) -> _Late:
        """Encode the rows of this step and send them off."""
        codec = self._recipe.codec
        messages = []
        for peer, rows in outgoing.items():
            pick = self._pick(step, len(rows), self._transport.rank, peer)
            picked = rows if pick.rows is None else rows[pick.rows.to(rows.device)]
            if self._size(step, rows) != 0:
                key = key_of(self._recipe.seed, step, self._number, self._transport.rank, peer)
                memory = self._memory_out.setdefault(peer, Memory())
                messages.append((peer, codec.encode(picked, key, memory)))
        picks = {peer: self._pick(step, len(rows), peer, self._transport.rank) for peer, rows in into.items()}
        sizes = {peer: self._size(step, rows) for peer, rows in into.items()}
        sizes |= self._announced(
            [(peer, message) for peer, message in messages], [p for p in sizes if sizes[p] is None]
        )
        for peer, message in messages:
            size = self._size(step, outgoing[peer])
            self.traffic[peer].bytes_predicted += len(message) + _LENGTH_BYTES if size is None else size
        incoming = [(peer, self._buffer(peer, size, into[peer].device)) for peer, size in sizes.items() if size]
        return _Late(step, self._transport.post(messages, incoming, self.traffic, self._number), incoming, picks)

    def _announced(self, messages: list[tuple[int, torch.Tensor]], sources: list[int]) -> dict[int, int]:
        """Tell peers the lengths of messages that say their own, and return those of theirs."""
        if not self._is_unsized():
            return {}
        out = [(peer, torch.tensor([len(message)], device=message.device)) for peer, message in messages]
        device = messages[0][1].device if messages else None
        into = [(peer, torch.zeros(1, dtype=torch.int64, device=device)) for peer in sources]
        self._lengths.post(out, into, self.traffic, self._number).land()
        return {peer: int(length) for peer, length in into}

    def _is_unsized(self) -> bool:
        return self._recipe.codec.num_bytes(1, 1, 4) is None

    def _size(self, step: int, rows: torch.Tensor) -> int | None:
        """Return the bytes of a step's message of these rows, before it is made."""
        count = self._recipe.schedule.count(step, len(rows))
        if count == 0 or rows.shape[1] == 0:
            return 0
        return self._recipe.codec.num_bytes(count, rows.shape[1], rows.element_size())

    def _decode(self, late: _Late, target: Rows, smoothing: float) -> None:
        """Place what came among the target rows; where the schedule keeps none, the others become zeros."""
        received = dict(late.messages)
        for peer, rows in target.items():
            pick = late.picks[peer]
            if not self._recipe.schedule.keeps and pick.rows is not None:
                rows.zero_()
            if peer not in received:
                continue
            if pick.rows is None and not smoothing:
                self._recipe.codec.decode(received[peer], rows, self._memory_in.setdefault(peer, Memory()))
                continue
            index = None if pick.rows is None else pick.rows.to(rows.device)
            fresh = torch.empty_like(rows if index is None else rows[index])
            self._recipe.codec.decode(received[peer], fresh, self._memory_in.setdefault(peer, Memory()))
            fresh *= pick.scale
            if smoothing:
                fresh.lerp_(rows if index is None else rows[index], smoothing)
            if index is None:
                rows.copy_(fresh)
            else:
                rows[index] = fresh

    def _pick(self, step: int, num_rows: int, sender: int, receiver: int) -> Pick:
        """Return the rows that travel: owner and copy, not sender and receiver, choose them."""
        pair = (sender, receiver) if self.direction == "to copies" else (receiver, sender)
        return self._recipe.schedule.pick(step, num_rows, key_of(self._recipe.seed, step, *pair))

    def _buffer(self, peer: int, size: int, device: torch.device) -> torch.Tensor:
        """Return the first bytes of the buffer for a peer's messages, which grows as they do."""
        if peer not in self._buffers or len(self._buffers[peer]) < size:
            self._buffers[peer] = torch.empty(size, dtype=torch.uint8, device=device)
        return self._buffers[peer][:size]

    def _check(self, into: Rows) -> None:
        if not self._recipe.keeps_state:
            return
        for peer, rows in into.items():
            before = self._latest[peer] if self._latest else self._memory_in[peer].held
            if before is None or before.shape != rows.shape or before.dtype != rows.dtype:
                raise TrainingError(
                    f"{self.name}: rows must be {None if before is None else tuple(before.shape)} in every step, got "
                    f"{tuple(rows.shape)}; call the layers in the same order, or use the exact exchange"
                )
