"""Historical halos: hidden rows of halo nodes as their owners last sent them, for ranks that train apart."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from asepr.contracts import HaloPlan, IdArray
from asepr.errors import TrainingError
from asepr.trainer_plugin.exchange import Exchange, ExchangeConfig

Recall = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]
"""Of a layer (1 the first hidden one), rows computed and halo rows wanted: the former, and the latter under them."""

DEFAULT_EVERY = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class HaloConfig:
    """How halo rows are kept.

    Attributes
    ----------
    every : int
        Steps between refreshes.
    codec : str
        A codec of the exchange that keeps nothing between messages.
    seed : int
        Of random rounding.
    timeout_s : float
        How long to wait for a peer.
    """

    every: int = DEFAULT_EVERY
    codec: str = "int8"
    seed: int = 0
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        """Check every value.

        Raises
        ------
        TrainingError
            A value is out of its range.
        """
        if self.every < 1:
            raise TrainingError(f"halo must be refreshed every 1 step or more, got {self.every}; write historical:8")
        self.exchange_config()

    def exchange_config(self) -> ExchangeConfig:
        """Return how rows travel: sent at a refresh, used from the next on."""
        return ExchangeConfig(schedule="pipelined", codec=self.codec, seed=self.seed, timeout_s=self.timeout_s)


def parse_halo(spec: str, codec: str, seed: int, timeout_s: float) -> HaloConfig | None:
    """Return the config that `none`, `historical` or `historical:STEPS` means.

    Raises
    ------
    TrainingError
        It is none of these.
    """
    if spec == "none":
        return None
    name, colon, number = spec.partition(":")
    if name != "historical" or (colon and not number.isdecimal()):
        raise TrainingError(f"halo must be none, historical or historical:STEPS, got '{spec}'; choose one of these")
    return HaloConfig(every=int(number) if colon else DEFAULT_EVERY, codec=codec, seed=seed, timeout_s=timeout_s)


class HistoricalHalo:
    """Keeps the hidden rows of halo nodes, one table a layer, and refreshes them every so many steps.

    At a refresh each rank computes the rows that others hold copies of, from all of their neighbours, and sends
    them off; what the refresh before sent is taken in. So nobody waits for rows but in the first refresh, and
    a row in use is between `every` and twice as many steps old.

    Parameters
    ----------
    plan : HaloPlan
    widths : sequence of int
        Of the hidden layers.
    config : HaloConfig
    compute : callable
        Given a `Recall`, returns the last hidden layer of `shared`, having called it for each layer before.
    dtype, device
        Of rows.

    Attributes
    ----------
    shared : int64 (S,)
        Inner rows that other ranks hold copies of.
    refreshes : int
    staleness : list of int
        Steps trained on rows of each age, in steps.

    Notes
    -----
    All ranks must construct it together and take the same number of steps; `Reconciler.skip_step` counts for one.
    Source: Fey, Lenssen, Weichert, Leskovec, GNNAutoScale, 2021, for historical embeddings; there rows stay on one
    machine and are as old as the last batch that computed them.
    """

    def __init__(
        self,
        plan: HaloPlan,
        widths: Sequence[int],
        config: HaloConfig,
        compute: Callable[[Recall], torch.Tensor],
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> None:
        self.shared, self._place = shared_rows(plan)
        self.refreshes = 0
        self.staleness: list[int] = []
        self._every = config.every
        self._exchange = Exchange(plan, device, config=config.exchange_config())
        self._rows = [torch.zeros(plan.num_halo, width, dtype=dtype, device=device) for width in widths]
        self._compute = compute
        self._steps = 0
        self._sent_at = self._used_since = -1

    def report(self) -> dict[str, Any]:
        """Return refreshes, bytes and seconds waited since the start, and steps by the age of the rows they used."""
        return {
            "refreshes": self.refreshes,
            "bytes_predicted": self.bytes_predicted,
            "bytes_sent": self.bytes_sent,
            "wait_s": self.wait_s,
            "steps_by_age": self.staleness,
        }

    @property
    def bytes_sent(self) -> int:
        """Payload bytes of rows that this rank sent."""
        return self._exchange.bytes_sent

    @property
    def bytes_predicted(self) -> int:
        """The same, as known before messages were made."""
        return sum(traffic.bytes_predicted for _, _, traffic in self._exchange.traffic())

    @property
    def wait_s(self) -> float:
        """Seconds spent waiting for rows."""
        return sum(traffic.wait_s for _, _, traffic in self._exchange.traffic())

    def begin(self) -> None:
        """Fetch all rows as they are now, unless there are some; all ranks together."""
        if self._sent_at < 0:
            self._refresh()

    def after_step(self) -> None:
        """Count a step, and refresh where it is time."""
        age = self._steps - self._used_since
        self.staleness += [0] * (age + 1 - len(self.staleness))
        self.staleness[age] += 1
        self._steps += 1
        if self._steps % self._every == 0:
            self._refresh()

    def recall(self, layer: int, computed: torch.Tensor, halo: torch.Tensor) -> torch.Tensor:
        """Return the rows computed, and under them the last known ones of the halo rows (counted from 0)."""
        return torch.cat([computed, self._rows[layer - 1][halo]]) if len(halo) else computed

    def forget(self) -> None:
        """Wait for what is on its way, and begin anew with the next step."""
        self._exchange.finish()
        self._steps, self._sent_at = 0, -1

    @torch.no_grad()
    def _refresh(self) -> None:
        self._exchange.start_step(self._steps)
        last = self._compute(self._send_and_recall)
        self._send(len(self._rows), last)
        # The first rows are there at once; later ones with the next refresh.
        self._used_since = self._steps if self._sent_at < 0 else self._sent_at
        self._sent_at = self._steps
        self.refreshes += 1

    def _send_and_recall(self, layer: int, computed: torch.Tensor, halo: torch.Tensor) -> torch.Tensor:
        self._send(layer, computed[: len(self.shared)])
        return self.recall(layer, computed, halo)

    def _send(self, layer: int, rows: torch.Tensor) -> None:
        self._exchange.send_shared(rows[self._place], self._rows[layer - 1], f"hidden {layer}")


def shared_rows(plan: HaloPlan) -> tuple[IdArray, torch.Tensor]:
    """Return the inner rows with copies elsewhere, each once, int64 (S,), and the place of each of `send_rows`."""
    rows, place = np.unique(plan.send_rows, return_inverse=True)
    return rows.astype(np.int64), torch.from_numpy(place.reshape(-1))
