"""Where the time and the bytes of a step went, on this rank."""

import dataclasses
import time
from typing import Any

from asepr.trainer_plugin.exchange import Exchange
from asepr.trainer_plugin.exchange.transport import Traffic
from asepr.trainer_plugin.gradients import GradientSum

_COUNTERS = tuple(field.name for field in dataclasses.fields(Traffic))


class Meter:
    """Differences of counters between `start` and `stop`.

    Parameters
    ----------
    exchange : Exchange
    gradients : GradientSum
    """

    def __init__(self, exchange: Exchange, gradients: GradientSum) -> None:
        self._exchange = exchange
        self._gradients = gradients
        self.start()

    def start(self) -> None:
        """Look at the counters."""
        self._before = self._counters()
        self._gradient_s = self._gradients.seconds
        self._started = time.perf_counter()

    def stop(self) -> dict[str, Any]:
        """Return seconds and bytes since `start`, in all and by channel and peer.

        Returns
        -------
        dict
            `seconds`, `bytes_sent`, and `exchange`: `schedule`, `codec`, `bytes_predicted`, `wait_s` (for rows),
            `hidden_s` (between posting rows and the wait for them), `gradient_s` (summing gradients),
            `compute_s` (all other time), and `channels`: the same counters by channel and peer.
        """
        seconds = time.perf_counter() - self._started
        channels: list[dict[str, Any]] = []
        for (name, peer), counters in self._counters().items():
            before = self._before.get((name, peer), (0,) * len(counters))
            since = [now - then for now, then in zip(counters, before, strict=True)]
            values = dict(zip(_COUNTERS, since, strict=True))
            if values["messages"] or values["wait_s"] or values["bytes_predicted"]:
                channels.append({"channel": name, "peer": peer} | values)
        total: dict[str, Any] = {name: sum(channel[name] for channel in channels) for name in _COUNTERS}
        gradient_s = self._gradients.seconds - self._gradient_s
        config = self._exchange.config
        exchange = {
            "schedule": config.schedule,
            "codec": config.codec,
            "bytes_predicted": total["bytes_predicted"],
            "wait_s": total["wait_s"],
            "hidden_s": total["hidden_s"],
            "gradient_s": gradient_s,
            "compute_s": seconds - total["wait_s"] - gradient_s,
            "channels": channels,
        }
        return {"seconds": seconds, "bytes_sent": total["bytes_sent"], "exchange": exchange}

    def _counters(self) -> dict[tuple[str, int], tuple[float, ...]]:
        found: dict[tuple[str, int], tuple[float, ...]] = {}
        for name, peer, traffic in self._exchange.traffic():
            values = dataclasses.astuple(traffic)
            found[name, peer] = tuple(map(sum, zip(values, found.get((name, peer), (0,) * len(values)), strict=True)))
        return found
