"""Exchange of halo rows: `schedules` say when, `codecs` how small, `transport` how; a `Channel` joins them."""

from asepr.trainer_plugin.exchange.exchange import Exchange, ExchangeConfig
from asepr.trainer_plugin.exchange.faults import peer_error

__all__ = ["Exchange", "ExchangeConfig", "peer_error"]
