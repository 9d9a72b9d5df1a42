"""Averages that wait for nobody who is only a little late: what ranks last posted, weighed by its age."""

import os
import time
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # documented, but not in its __all__

from asepr.errors import TrainingError

POLL_SECONDS = 0.002
_DONE = 2**62
"""Round of a rank that takes no more steps before all come together: nobody waits for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Posted:
    """What a rank last posted: after which of its rounds, its training weight, and its model."""

    round: int
    weight: float
    values: torch.Tensor


class BoundedAverage:
    """A board to which each rank posts its model, and on which all read those of the others.

    The board is a key-value store in the process of rank 0, which answers whatever its rank does. All ranks
    construct theirs together.

    Parameters
    ----------
    staleness : int, at least 1
        How many rounds a rank may be ahead of the slowest before it waits.
    bits : 32 or 16
        Of each number posted.
    timeout_s : float
        How long to wait for a peer.
    group : torch.distributed.ProcessGroup, optional

    Attributes
    ----------
    bytes_sent : int
        Payload bytes that this rank posted and read.
    ages : list of int
        Of the models averaged, in rounds: `ages[a]` were a rounds old, the last that many or more.

    Notes
    -----
    Source of the bound: Ho et al., More effective distributed ML via a stale synchronous parallel parameter
    server, 2013; of weighing by age: Xie, Koyejo, Gupta, Asynchronous federated optimization, 2019.
    """

    def __init__(
        self, staleness: int, bits: int, timeout_s: float = 300.0, group: dist.ProcessGroup | None = None
    ) -> None:
        self.bytes_sent = 0
        self.ages = [0] * (staleness + 1)
        self._staleness = staleness
        self._dtype = torch.float32 if bits == 32 else torch.bfloat16
        self._timeout_s = timeout_s
        self._rank, self._num_ranks = dist.get_rank(group), dist.get_world_size(group)
        self._store = self._meet(group)
        self._seen: dict[int, Posted] = {}
        self._ended: set[int] = set()
        self._cycle = self._round = 0

    def begin(self) -> None:
        """Start anew after all ranks came together."""
        self._cycle += 1
        self._round = 0
        self._seen.clear()
        self._ended.clear()

    def average(self, own: torch.Tensor, weight: float) -> torch.Tensor:
        """Post a model, and return the mean of what all posted last, (n,).

        A model that is a rounds behind counts `weight / (1 + a)`; one that is ahead counts in full. Waits for ranks
        more than `staleness` rounds behind.

        Raises
        ------
        TrainingError
            One of them does not come within the timeout.
        """
        self._round += 1
        self._post(own, weight, self._round)
        total, weights = own.double() * weight, weight
        for peer in range(self._num_ranks):
            posted = None if peer == self._rank else self._look(peer)
            if posted is not None and posted.weight:
                age = max(0, self._round - posted.round)
                self.ages[min(age, self._staleness)] += 1
                share = posted.weight / (1 + age)
                total += share * posted.values.double().to(total.device)
                weights += share
        return own if not weights else (total / weights).to(own.dtype)

    def end(self) -> None:
        """Say that this rank takes no more steps before all come together."""
        # What was posted before all came together the last time; now nobody can read that any more.
        for what in ("model", "round"):
            self._store.delete_key(self._key(self._rank, what, self._cycle - 1))
        self._store.set(self._key(self._rank, "round"), str(_DONE))

    def _look(self, peer: int) -> Posted | None:
        """Return what a peer posted last, once it is not too far behind; None where it has posted nothing yet."""
        waits_until = time.monotonic() + self._timeout_s
        while True:
            found = self._round_of(peer)
            if found >= self._round - self._staleness:
                break
            if time.monotonic() > waits_until:
                raise TrainingError(
                    f"rank {self._rank}: every peer must answer within the timeout, got none from rank {peer}, "
                    f"{self._round - found} rounds behind; look at its messages, and resume from the last checkpoint"
                )
            time.sleep(POLL_SECONDS)
        known = self._seen.get(peer)
        is_new = found and peer not in self._ended and (known is None or known.round < found)
        if is_new and self._store.check([self._key(peer, "model")]):
            self._seen[peer] = self._read(peer)
        if found == _DONE:
            self._ended.add(peer)
        return self._seen.get(peer)

    def _round_of(self, peer: int) -> int:
        key = self._key(peer, "round")
        return int(self._store.get(key)) if self._store.check([key]) else 0

    def _post(self, own: torch.Tensor, weight: float, number: int) -> None:
        values = own.detach().cpu().to(self._dtype).view(torch.uint8).numpy().tobytes()
        payload = np.array([number, weight], dtype=np.float64).tobytes() + values
        self._store.set(self._key(self._rank, "model"), payload)  # type: ignore[arg-type]  # bytes are taken as well
        self._store.set(self._key(self._rank, "round"), str(number))
        self.bytes_sent += len(payload)

    def _read(self, peer: int) -> Posted:
        payload = self._store.get(self._key(peer, "model"))
        self.bytes_sent += len(payload)
        number, weight = np.frombuffer(payload[:16], dtype=np.float64)
        values = torch.frombuffer(bytearray(payload[16:]), dtype=self._dtype).float()
        return Posted(round=int(number), weight=float(weight), values=values)

    def _key(self, rank: int, what: str, cycle: int | None = None) -> str:
        # A cycle of its own: what was posted before all came together must not be read after.
        return f"{what}/{self._cycle if cycle is None else cycle}/{rank}"

    def _meet(self, group: dist.ProcessGroup | None) -> TCPStore:
        port = torch.zeros(1, dtype=torch.int64)
        timeout = timedelta(seconds=self._timeout_s)
        # Of torchrun: where rank 0 is.
        host = os.environ.get("MASTER_ADDR", "localhost")
        if self._rank == 0:
            store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
            port[0] = store.port
        dist.broadcast(port, group=group, group_src=0)
        if self._rank:
            store = TCPStore(host, int(port), is_master=False, timeout=timeout)
        return store
