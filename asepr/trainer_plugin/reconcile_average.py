"""How the weights of ranks that trained apart become one: the arithmetic, and what it sends."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist

from asepr.errors import TrainingError

AverageKind = Literal["weighted", "uniform", "normalised", "elastic"]
Moments = Literal["persist", "reset", "average"]
KINDS = ("weighted", "uniform", "normalised", "elastic")
MOMENTS = ("persist", "reset", "average")


@dataclass(frozen=True, kw_only=True, slots=True)
class AverageConfig:
    """How weights are averaged.

    Attributes
    ----------
    kind : str
        `weighted`: by each rank's training weight. `uniform`: all ranks alike. `normalised`: as
        weighted, but each rank's change is divided by its number of steps first and the sum goes as
        far as the mean number of steps, so that a rank that took more steps does not pull harder.
        `elastic`: ranks keep weights of their own, drawn to a common centre.
    bits : 32 or 16
        Of each number sent; with 16 the changes since the last round are sent, and what rounding
        left out is added to the next.
    moments : str
        What becomes of Adam's moments: each rank's `persist`, or `reset`, or `average`, which sends
        three times as much.
    elasticity : float, in (0, 1]
        Of `elastic`: the centre moves so far to the mean of the ranks in a round, and a rank one Pth of
        so far to the centre, P being the number of ranks.

    Notes
    -----
    Sources: Wang, Liu, Liang, Joshi, Poor, Tackling the objective inconsistency problem in
    heterogeneous federated optimization, 2020, equation 6 (`normalised`); Zhang, Choromanska, LeCun,
    Deep learning with elastic averaging SGD, 2015, equations 2.3 and 2.4 (`elastic`, synchronous).
    """

    kind: AverageKind = "weighted"
    bits: int = 32
    moments: Moments = "persist"
    elasticity: float = 0.5

    def __post_init__(self) -> None:
        """Check every value.

        Raises
        ------
        TrainingError
            A value is not among those there are.
        """
        for name, value, known in (
            ("average", self.kind, KINDS),
            ("moments", self.moments, MOMENTS),
            ("bits", self.bits, (32, 16)),
        ):
            if value not in known:
                raise TrainingError(
                    f"{name} must be one of {', '.join(map(str, known))}, got '{value}'; choose one of these"
                )
        if not 0 < self.elasticity <= 1:
            raise TrainingError(f"elasticity must be in (0, 1], got {self.elasticity}; 0.5 is usual")


def round_shares(kind: AverageKind, weights: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Return float64 (P,): the factor of each rank's change since the last round in the common change.

    Parameters
    ----------
    kind : str
        As in `AverageConfig`; for `elastic` all ranks that took a step alike.
    weights : float64 (P,), not negative
    steps : float64 (P,)
        Steps since the last round; a rank that took none has no share.
    """
    took_part = (steps > 0).double()
    plain = took_part * (weights if kind in ("weighted", "normalised") else torch.ones_like(weights))
    if plain.sum() == 0:
        return torch.zeros_like(plain)
    plain = plain / plain.sum()
    if kind != "normalised":
        return plain
    return plain / steps.clamp(min=1) * (plain * steps).sum()


class WeightedSum:
    """Sums vectors over all ranks, each with its own factor, at 32 or 16 bits a number.

    Parameters
    ----------
    bits : 32 or 16
    group : torch.distributed.ProcessGroup, optional

    Attributes
    ----------
    bytes_sent : int
        Payload bytes that this rank sent; with 32 bits those of a ring.
    """

    def __init__(self, bits: int, group: dist.ProcessGroup | None = None) -> None:
        self.bytes_sent = 0
        self._bits = bits
        self._group = group
        self._num_ranks = dist.get_world_size(group) if dist.is_initialized() else 1
        self._left_out: torch.Tensor | None = None

    def __call__(self, vector: torch.Tensor, factor: float) -> torch.Tensor:
        """Return the sum over ranks of `factor * vector`, float32 (n,), the same on every rank."""
        if self._num_ranks == 1:
            return vector * factor
        return self._sum_exact(vector, factor) if self._bits == 32 else self._sum_rounded(vector, factor)

    def _sum_exact(self, vector: torch.Tensor, factor: float) -> torch.Tensor:
        total = vector * factor
        dist.all_reduce(total, group=self._group)
        piece = -(-len(vector) // self._num_ranks)
        self.bytes_sent += 2 * (self._num_ranks - 1) * piece * vector.element_size()
        return total

    def _sum_rounded(self, vector: torch.Tensor, factor: float) -> torch.Tensor:
        """Let each rank sum one piece, at full precision, of what all sent it rounded, and tell the others."""
        scaled = vector * factor
        if self._left_out is not None:
            scaled += self._left_out
        rounded = scaled.to(torch.bfloat16)
        self._left_out = scaled - rounded.to(scaled.dtype)
        size = -(-len(vector) // self._num_ranks)
        sent = torch.zeros(self._num_ranks * size, dtype=torch.bfloat16)
        sent[: len(vector)] = rounded.cpu()
        received = torch.empty_like(sent)
        # As bytes: gloo does not know every kind of 16-bit number.
        dist.all_to_all_single(received.view(torch.uint8), sent.view(torch.uint8), group=self._group)
        piece = received.reshape(self._num_ranks, size).float().sum(0).to(torch.bfloat16)
        total = torch.empty_like(sent)
        pieces = list(total.view(torch.uint8).chunk(self._num_ranks))
        dist.all_gather(pieces, piece.view(torch.uint8), group=self._group)
        self.bytes_sent += 2 * (self._num_ranks - 1) * size * 2
        return total[: len(vector)].to(vector)


def gather_vectors(vector: torch.Tensor, group: dist.ProcessGroup | None = None) -> list[torch.Tensor]:
    """Return the vectors of all ranks, each (n,), in rank order."""
    found = [torch.empty_like(vector) for _ in range(dist.get_world_size(group))]
    dist.all_gather(found, vector, group=group)
    return found


def gather_numbers(numbers: list[float], group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Return float64 (P, n): the numbers of every rank."""
    own = torch.tensor(numbers, dtype=torch.float64)
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return own[None]
    found = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(found, own, group=group)
    return torch.stack(found)
