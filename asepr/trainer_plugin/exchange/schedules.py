"""Which rows travel in a step and when they are used, by name."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from asepr.errors import TrainingError


@dataclass(frozen=True, kw_only=True, slots=True)
class Pick:
    """Rows of one sender to one receiver in one step.

    Attributes
    ----------
    rows : int64 (k,) or None
        Indices among the rows that the two share; None: all.
    scale : float
        What the receiver multiplies them by.
    """

    rows: torch.Tensor | None = None
    scale: float = 1.0


class Schedule(Protocol):
    """Rows in time."""

    late: bool
    """Whether a step uses what was sent in the step before; it is sent while computing."""
    keeps: bool
    """Whether rows that do not travel stay as they last came; else they are zeros."""

    def count(self, step: int, num_rows: int) -> int:
        """Return how many of the rows travel in a step."""

    def pick(self, step: int, num_rows: int, key: int) -> Pick:
        """Return which; `key` is that of step and pair, the same at both ends and in both directions."""


class Exact:
    """All rows, used at once."""

    late, keeps = False, False

    def count(self, step: int, num_rows: int) -> int:
        """Return all."""
        return num_rows

    def pick(self, step: int, num_rows: int, key: int) -> Pick:
        """Return all."""
        return Pick()


class Pipelined(Exact):
    """All rows, used one step late.

    Notes
    -----
    Source: Wan et al., PipeGCN, 2022, algorithm 1. The first step waits for its rows instead of using zeros.
    """

    late, keeps = True, True


class Delayed:
    """A part of the rows in turn, used from the next step on until they come again.

    Parameters
    ----------
    num_bins : int, at least 1

    Notes
    -----
    Source: Md et al., DistGNN, 2021, section on delayed remote partial aggregates. There what is sent in step
    e is used from e + r on; here from e + 1 on, with the same bytes and fresher rows.
    """

    late, keeps = True, True

    def __init__(self, num_bins: int) -> None:
        self._num_bins = num_bins

    def count(self, step: int, num_rows: int) -> int:
        """Return the size of the step's bin."""
        return len(range(step % self._num_bins, num_rows, self._num_bins))

    def pick(self, step: int, num_rows: int, key: int) -> Pick:
        """Return the step's bin: every r-th row."""
        return Pick(rows=torch.arange(step % self._num_bins, num_rows, self._num_bins))


class Sampled:
    """A random share of the rows, scaled up, so that sums over neighbours are unbiased; the others are zeros.

    Parameters
    ----------
    share : float, in (0, 1]

    Notes
    -----
    A fixed number k of n rows, so that sizes are known; features and gradients are divided by k / n. All layers
    and both directions of a step use the same rows.
    Source: Wan et al., BNS-GCN, 2022, algorithm 1; there each row is drawn on its own.
    """

    late, keeps = False, False

    def __init__(self, share: float) -> None:
        self._share = share

    def count(self, step: int, num_rows: int) -> int:
        """Return the share, rounded up."""
        return min(num_rows, math.ceil(self._share * num_rows))

    def pick(self, step: int, num_rows: int, key: int) -> Pick:
        """Return rows drawn without replacement."""
        count = self.count(step, num_rows)
        drawn = torch.randperm(num_rows, generator=torch.Generator().manual_seed(key))[:count]
        return Pick(rows=drawn.sort().values, scale=num_rows / max(count, 1))


class Nothing:
    """No rows: each part trains on what it owns. The baseline that shows what an exchange is worth."""

    late, keeps = False, False

    def count(self, step: int, num_rows: int) -> int:
        """Return none."""
        return 0

    def pick(self, step: int, num_rows: int, key: int) -> Pick:
        """Return none."""
        return Pick(rows=torch.arange(0))


_PLAIN: dict[str, Callable[[], Schedule]] = {"exact": Exact, "pipelined": Pipelined, "none": Nothing}
SCHEDULE_NAMES = (*_PLAIN, "delayed:STEPS", "sampled:SHARE")


def make_schedule(spec: str) -> Schedule:
    """Return the schedule of a name, as `pipelined`, `delayed:5` or `sampled:0.1`.

    Raises
    ------
    TrainingError
        No such schedule, or its number is out of range; the message lists those there are.
    """
    if spec in _PLAIN:
        return _PLAIN[spec]()
    name, _, number = spec.partition(":")
    if name == "delayed":
        if not number.isdecimal() or not int(number):
            raise TrainingError(f"exchange delayed: steps must be at least 1, got '{number}'; write delayed:5")
        return Delayed(int(number))
    if name == "sampled":
        try:
            share = float(number)
        except ValueError:
            share = math.nan
        if not 0 < share <= 1:
            raise TrainingError(f"exchange sampled: share must be in (0, 1], got '{number}'; write sampled:0.1")
        return Sampled(share)
    raise TrainingError(f"exchange must be one of {', '.join(SCHEDULE_NAMES)}, got '{spec}'; choose one of these")


def key_of(*numbers: int) -> int:
    """Return a seed, in [0, 2**63), that any change of the numbers changes."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
