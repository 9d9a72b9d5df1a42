"""How rows become messages, by name: whole, in 16 bits, in 8 to 1 random bits, or the largest changes alone.

A message is a flat uint8 tensor. Its size is known before it is made (`num_bytes`), but for
`threshold`, whose messages say their own length.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from asepr.errors import TrainingError

THRESHOLD_REFRESH = 200
"""Messages between two looks for the threshold of the wanted share."""
_FP16_MAX = 65504.0


@dataclass(slots=True)
class Memory:
    """What a codec keeps between two messages of one sender to one receiver, the same at both ends.

    Attributes
    ----------
    held : (n, F) or None
        The rows as the receiver has them.
    threshold : float
        Known to the sender alone.
    messages : int
        Sent since the threshold was set.
    """

    held: torch.Tensor | None = None
    threshold: float = 0.0
    messages: int = 0


class Codec(Protocol):
    """Rows to a message and back."""

    needs_memory: bool
    """Whether messages build on those before; then the first has to be whole, and rows the same each time."""

    def num_bytes(self, num_rows: int, width: int, item_bytes: int) -> int | None:
        """Return the exact size of the message of that many rows; None where only the message knows."""

    def encode(self, rows: torch.Tensor, key: int, memory: Memory) -> torch.Tensor:
        """Return the message, uint8, of rows (n, F); random choices depend on `key` alone."""

    def decode(self, message: torch.Tensor, out: torch.Tensor, memory: Memory) -> None:
        """Fill `out`, (n, F), from a message of as many rows."""


class Whole:
    """Every bit."""

    needs_memory = False

    def num_bytes(self, num_rows: int, width: int, item_bytes: int) -> int:
        """Return n F item bytes."""
        return num_rows * width * item_bytes

    def encode(self, rows: torch.Tensor, key: int, memory: Memory) -> torch.Tensor:
        """Return the rows' own memory where they are contiguous."""
        return as_bytes(rows.contiguous())

    def decode(self, message: torch.Tensor, out: torch.Tensor, memory: Memory) -> None:
        """Copy."""
        out.copy_(message.view(out.dtype).view(out.shape))


class Half:
    """Each value in 16 bits, rounded to the nearest.

    Parameters
    ----------
    dtype : torch.bfloat16 or torch.float16
        Values beyond the range of float16 become its largest.
    """

    needs_memory = False

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def num_bytes(self, num_rows: int, width: int, item_bytes: int) -> int:
        """Return 2 n F."""
        return 2 * num_rows * width

    def encode(self, rows: torch.Tensor, key: int, memory: Memory) -> torch.Tensor:
        """Round."""
        if self._dtype == torch.float16:
            rows = rows.clamp(-_FP16_MAX, _FP16_MAX)
        return as_bytes(rows.to(self._dtype).contiguous())

    def decode(self, message: torch.Tensor, out: torch.Tensor, memory: Memory) -> None:
        """Widen."""
        out.copy_(message.view(self._dtype).view(out.shape))


class Rounded:
    """Each value as one of 2**bits levels between the least and the greatest of its row, at random, unbiased.

    Parameters
    ----------
    bits : 1, 2, 4 or 8

    Notes
    -----
    Level q = floor((x - low) / step + u) with u uniform in [0, 1), so that E[low + q step] = x. `low` and `step`
    travel as bfloat16, rounded so that the levels still span the row (low down, step up): rounding to the
    nearest would cut off the ends, and with them unbiasedness. A row of equal values has step 0 where
    bfloat16 holds the value.
    Source: Alistarh et al., QSGD, 2017, for random rounding; Zhang et al., Sylvie, 2023, for rows of halos.
    """

    needs_memory = False

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def num_bytes(self, num_rows: int, width: int, item_bytes: int) -> int:
        """Return the packed levels and 4 bytes a row."""
        return packed_bytes(num_rows * width, self._bits) + 4 * num_rows

    def encode(self, rows: torch.Tensor, key: int, memory: Memory) -> torch.Tensor:
        """Round at random and pack."""
        if rows.numel() == 0:
            return rows.new_zeros(self.num_bytes(len(rows), rows.shape[1], 0), dtype=torch.uint8)
        rows = rows.float()
        top = 2**self._bits - 1
        least, greatest = rows.aminmax(dim=1, keepdim=True)
        low = _below(least)
        step = _above((greatest - low.float()) / top)
        per_step = torch.where(step > 0, step.float().reciprocal(), 0.0)
        generator = torch.Generator(device=rows.device).manual_seed(key)
        levels = torch.rand(rows.shape, generator=generator, device=rows.device)
        levels.addcmul_(rows - low.float(), per_step).clamp_(0, top)
        ends = torch.cat([low.view(-1), step.view(-1)])
        return torch.cat([as_bytes(ends), pack(levels.to(torch.uint8).view(-1), self._bits)])

    def decode(self, message: torch.Tensor, out: torch.Tensor, memory: Memory) -> None:
        """Unpack."""
        if out.numel() == 0:
            return
        num_rows = len(out)
        # The rows' ends may begin at an odd address of a larger buffer, where no view is allowed.
        low, step = message[: 4 * num_rows].clone().view(torch.bfloat16).view(2, num_rows, 1).to(out.dtype)
        levels = unpack(message[4 * num_rows :], self._bits, out.numel()).view(out.shape)
        torch.addcmul(low, levels.to(out.dtype), step, out=out)


class Largest:
    """The entries that changed most against what the receiver holds; the others follow later.

    Parameters
    ----------
    share : float, in (0, 1]
        Of the entries, in each message.

    Notes
    -----
    Both ends hold the same rows h; a message moves k entries of h to their true values, and the error x - h
    stays with the sender and competes again. With rows that stand still h is exact after 1 / share
    messages. Adding the error to the next *rows* instead, as is done to gradients that are summed over
    steps, would send an activation several times its size.
    Source: Richtarik, Sokolov, Fatkhullin, EF21, 2021, algorithm 2; Gupta et al., Training
    recommender systems at scale (DCT), 2021, for the choice of what to keep.
    """

    needs_memory = True

    def __init__(self, share: float) -> None:
        self._share = share

    def _count(self, num_entries: int) -> int:
        return min(num_entries, math.ceil(self._share * num_entries))

    def num_bytes(self, num_rows: int, width: int, item_bytes: int) -> int:
        """Return 4 bytes an entry kept, and its place: 4 bytes, or a bit for each entry where that is less."""
        num_entries = num_rows * width
        count = self._count(num_entries)
        return 4 * count + min(4 * count, packed_bytes(num_entries, 1))

    def encode(self, rows: torch.Tensor, key: int, memory: Memory) -> torch.Tensor:
        """Pick, and follow what the receiver will hold."""
        change, held = _change(rows, memory)
        count = self._count(len(change))
        places = torch.topk(change.abs(), count, sorted=False).indices.sort().values
        values = _apply(change, held, places)
        if 4 * count <= packed_bytes(len(change), 1):
            return torch.cat([as_bytes(places.int()), values])
        mask = torch.zeros(len(change), dtype=torch.uint8, device=rows.device)
        mask[places] = 1
        return torch.cat([pack(mask, 1), values])

    def decode(self, message: torch.Tensor, out: torch.Tensor, memory: Memory) -> None:
        """Move what is held."""
        held = _held(out, memory).view(-1)
        count = self._count(len(held))
        split = len(message) - 4 * count
        if 4 * count <= packed_bytes(len(held), 1):
            places = message[:split].clone().view(torch.int32).long()
        else:
            places = unpack(message[:split], 1, len(held)).nonzero().view(-1)
        held[places] += message[split:].clone().view(torch.float32).to(held.dtype)
        out.copy_(held.view(out.shape))


class AboveThreshold:
    """The entries that changed by at least a threshold, which is set anew now and then.

    Parameters
    ----------
    share : float, in (0, 1]
        Of the entries that were above the threshold when it was set.

    Notes
    -----
    As `Largest`, without looking for the largest each time. The threshold is the k-th largest change of the
    first message, and of every `THRESHOLD_REFRESH`-th after it.
    Source: as for `Largest`.
    """

    needs_memory = True

    def __init__(self, share: float) -> None:
        self._share = share

    def num_bytes(self, num_rows: int, width: int, item_bytes: int) -> None:
        """Return None: how many entries are above is known when they are looked at."""
        return None

    def encode(self, rows: torch.Tensor, key: int, memory: Memory) -> torch.Tensor:
        """Pick, and follow what the receiver will hold."""
        change, held = _change(rows, memory)
        size = change.abs()
        if memory.messages % THRESHOLD_REFRESH == 0 and len(size):
            rank = max(1, len(size) - math.ceil(self._share * len(size)) + 1)
            memory.threshold = float(torch.kthvalue(size, rank).values)
        memory.messages += 1
        mask = (size >= memory.threshold) & (size > 0)
        return torch.cat([pack(mask.to(torch.uint8), 1), _apply(change, held, mask.nonzero().view(-1))])

    def decode(self, message: torch.Tensor, out: torch.Tensor, memory: Memory) -> None:
        """Move what is held."""
        held = _held(out, memory).view(-1)
        split = packed_bytes(len(held), 1)
        places = unpack(message[:split], 1, len(held)).nonzero().view(-1)
        held[places] += message[split:].clone().view(torch.float32).to(held.dtype)
        out.copy_(held.view(out.shape))


_PLAIN: dict[str, Callable[[], Codec]] = {
    "none": Whole,
    "bf16": lambda: Half(torch.bfloat16),
    "fp16": lambda: Half(torch.float16),
    "int8": lambda: Rounded(8),
    "int4": lambda: Rounded(4),
    "int2": lambda: Rounded(2),
    "int1": lambda: Rounded(1),
}
_WITH_SHARE: dict[str, Callable[[float], Codec]] = {"topk": Largest, "threshold": AboveThreshold}
CODEC_NAMES = (*_PLAIN, *(f"{name}:SHARE" for name in _WITH_SHARE))


def make_codec(spec: str) -> Codec:
    """Return the codec of a name, as `int2` or `topk:0.1`.

    Raises
    ------
    TrainingError
        No such codec, or its share is out of (0, 1]; the message lists those there are.
    """
    if spec in _PLAIN:
        return _PLAIN[spec]()
    name, _, share = spec.partition(":")
    if name not in _WITH_SHARE:
        raise TrainingError(f"codec must be one of {', '.join(CODEC_NAMES)}, got '{spec}'; choose one of these")
    try:
        value = float(share)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise TrainingError(f"codec {name}: share must be in (0, 1], got '{share}'; write {name}:0.1")
    return _WITH_SHARE[name](value)


def packed_bytes(num_entries: int, bits: int) -> int:
    """Return the bytes that so many entries of so few bits take."""
    return -(-num_entries * bits // 8)


def pack(levels: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack uint8 (n,) below 2**bits; byte i holds entries i, i + m, i + 2 m, ... of m bytes in all."""
    if bits == 8:
        return levels
    per_byte = 8 // bits
    size = packed_bytes(len(levels), bits)
    padded = levels.new_zeros(per_byte, size)
    padded.view(-1)[: len(levels)] = levels
    packed = padded[0]
    for place in range(1, per_byte):
        packed |= padded[place] << (place * bits)
    return packed


def unpack(packed: torch.Tensor, bits: int, num_entries: int) -> torch.Tensor:
    """Undo `pack`."""
    if bits == 8:
        return packed
    mask = 2**bits - 1
    return torch.cat([(packed >> shift) & mask for shift in range(0, 8, bits)])[:num_entries]


def as_bytes(values: torch.Tensor) -> torch.Tensor:
    """Return the memory of a contiguous tensor as flat uint8."""
    return values.view(-1).view(torch.uint8)


def _below(values: torch.Tensor) -> torch.Tensor:
    """Return the greatest bfloat16 at most each value."""
    near = values.bfloat16()
    return torch.where(near.float() > values, torch.nextafter(near, torch.full_like(near, -math.inf)), near)


def _above(values: torch.Tensor) -> torch.Tensor:
    """Return the least bfloat16 at least each value."""
    return -_below(-values)


def _held(rows: torch.Tensor, memory: Memory) -> torch.Tensor:
    if memory.held is None:
        memory.held = torch.zeros_like(rows, memory_format=torch.contiguous_format)
    return memory.held


def _change(rows: torch.Tensor, memory: Memory) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what changed, flat float32, and what is held, flat."""
    held = _held(rows, memory)
    return (rows - held).float().view(-1), held.view(-1)


def _apply(change: torch.Tensor, held: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Move what is held at these places as the receiver will; return the values as bytes."""
    values = change[places]
    held[places] += values.to(held.dtype)
    return as_bytes(values)
