"""Limits as people give them, in milliseconds and seconds. Pure."""

from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import WARN_SHARE, WEEK_S
from clockgate_trainer.gate.model import Limits

_NS_PER_MS = 1_000_000
_LONGEST_DELAY_MS = 24 * 3_600_000.0


def make_limits(max_sync_delay_ms: float, warn_sync_delay_ms: float | None = None) -> Limits:
    """Limits from milliseconds; the warn limit is a tenth of the hold limit unless given. Raises ConfigError."""
    warn_ms = max_sync_delay_ms * WARN_SHARE if warn_sync_delay_ms is None else warn_sync_delay_ms
    if not 0 < warn_ms <= max_sync_delay_ms < _LONGEST_DELAY_MS:
        raise ConfigError(
            f"max_sync_delay is {max_sync_delay_ms} ms and warn_sync_delay {warn_ms} ms: wanted above 0, below "
            f"{_LONGEST_DELAY_MS:.0f}, and the second at most the first"
        )
    return Limits(warn_ns=max(1, round(warn_ms * _NS_PER_MS)), hold_ns=max(1, round(max_sync_delay_ms * _NS_PER_MS)))


def demand_seconds(name: str, value_s: float, *, low_s: float) -> None:
    """Raise ConfigError unless a time limit is from `low_s` to a week: an endless one could not be waited out."""
    if not low_s <= value_s <= WEEK_S:
        raise ConfigError(f"{name} is {value_s} s: wanted from {low_s:g} to {WEEK_S:g}")
