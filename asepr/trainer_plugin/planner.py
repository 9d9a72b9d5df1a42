"""Which exchange suits the links and the machines: measured in the first epochs, the same choice on all ranks."""

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from asepr.trainer_plugin.exchange import Exchange, ExchangeConfig, peer_error
from asepr.trainer_plugin.exchange.codecs import make_codec

if TYPE_CHECKING:
    from asepr.trainer_plugin.shard_graph import ShardGraph
    from asepr.trainer_plugin.train import TrainConfig

WARM_EPOCHS = 1
MEASURED_EPOCHS = 2
NEAR_FASTEST = 1.1
CANDIDATES = (
    ("exact", "none"),
    ("exact", "int8"),
    ("pipelined", "none"),
    ("pipelined", "int8"),
    ("pipelined", "int4"),
    ("pipelined", "int2"),
)
"""From the least loss to the most: rounding to 8 bits has no bias, rows one step late have, fewer bits add noise."""


class Planner:
    """Chooses schedule and codec.

    Parameters
    ----------
    config : TrainConfig
    shard : ShardGraph
    exchange : Exchange
        Exact until the choice.

    Notes
    -----
    The policy: of `CANDIDATES`, none of which has rows more than one step late or fewer than 2 bits, the one
    that loses least among those whose predicted epoch is at most `NEAR_FASTEST` times the fastest. An exact
    schedule takes computing plus waiting, a pipelined one the greater of the two; waiting shrinks with bytes.
    """

    def __init__(self, config: "TrainConfig", shard: "ShardGraph", exchange: Exchange) -> None:
        self._config = config
        self._rank, self._num_parts = shard.rank, shard.num_parts
        self._exchange = exchange
        self._epochs = 0
        self._measured = [0.0, 0.0, 0.0]

    def look(self, metrics: dict[str, Any]) -> dict[str, str]:
        """Take an epoch's metrics; return `reason` in the epoch of the choice and after it, else nothing."""
        self._epochs += 1
        if WARM_EPOCHS < self._epochs <= WARM_EPOCHS + MEASURED_EPOCHS:
            moved = metrics["exchange"]
            spent = (moved["compute_s"] + moved["gradient_s"], moved["wait_s"], metrics["bytes_sent"])
            self._measured = [a + b / MEASURED_EPOCHS for a, b in zip(self._measured, spent, strict=True)]
        if self._epochs == WARM_EPOCHS + MEASURED_EPOCHS:
            self._reason = self._choose()
        return {"reason": self._reason} if self._epochs >= WARM_EPOCHS + MEASURED_EPOCHS else {}

    def _choose(self) -> str:
        compute_s, wait_s, num_bytes = self._slowest()
        item_bytes = 8 if self._config.dtype == "float64" else 4
        times = predict(compute_s, wait_s, self._config.hidden, item_bytes)
        chosen = choose(times)
        schedule, codec = chosen
        self._exchange.change(
            ExchangeConfig(schedule=schedule, codec=codec, seed=self._config.seed, timeout_s=self._config.timeout_s)
        )
        mbit = 8e-6 * num_bytes / wait_s if wait_s else 0.0
        return (
            f"auto chose {schedule}, codec {codec}: an exact epoch computes {compute_s:.3f} s and waits {wait_s:.3f} s "
            f"for {num_bytes / 1e6:.2f} MB ({mbit:.0f} Mbit/s); predicted {times[chosen]:.3f} s, exact "
            f"{times['exact', 'none']:.3f} s, fastest {min(times.values()):.3f} s; it loses least of those within "
            f"{100 * (NEAR_FASTEST - 1):.0f} % of the fastest"
        )

    def _slowest(self) -> tuple[float, float, float]:
        """Return the greatest of each measure over all ranks."""
        values = torch.tensor(self._measured, dtype=torch.float64)
        if self._num_parts > 1:
            values = values.to(self._exchange.device)
            try:
                dist.all_reduce(values, dist.ReduceOp.MAX)
            except RuntimeError as error:
                raise peer_error(self._rank, error) from error
        compute_s, wait_s, num_bytes = values.tolist()
        return compute_s, wait_s, num_bytes


def predict(compute_s: float, wait_s: float, width: int, item_bytes: int) -> dict[tuple[str, str], float]:
    """Return the seconds of an epoch with each candidate, from those of an exact one."""
    rows = 1000
    times = {}
    for schedule, codec in CANDIDATES:
        size = make_codec(codec).num_bytes(rows, width, item_bytes)
        assert size is not None
        moving_s = wait_s * size / (rows * width * item_bytes)
        times[schedule, codec] = compute_s + moving_s if schedule == "exact" else max(compute_s, moving_s)
    return times


def choose(times: dict[tuple[str, str], float]) -> tuple[str, str]:
    """Return the first candidate that is near the fastest."""
    return next(name for name in CANDIDATES if times[name] <= NEAR_FASTEST * min(times.values()))
