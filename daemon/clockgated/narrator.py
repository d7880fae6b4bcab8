"""What the daemon says about its readings: changes in the log, the state in one line."""

import logging
from collections.abc import Callable

from clockgated import units
from clockgated.clock.model import Reading, ReasonCode

_LOG = logging.getLogger(__name__)
# What an operator has to do something about.
_ALERTS = frozenset(
    {
        ReasonCode.STEP_FORBIDDEN_BY_LEASE,
        ReasonCode.FOREIGN_ADJUSTER,
        ReasonCode.STEERING_DENIED,
        ReasonCode.TIME_DAEMON_CRASH_LOOP,
        ReasonCode.TIME_DAEMON_MISSING,
    }
)


class Narrator:
    """Logs what changed from one reading to the next, and tells the state in one line."""

    def __init__(self, latest: Callable[[], Reading]) -> None:
        self._latest = latest
        self._before = latest()

    def tell(self) -> str:
        """Log a change of state, epoch or reasons; returns the line for `systemctl status`."""
        reading, before = self._latest(), self._before
        self._before = reading
        line = summary(reading)
        codes = [reason.code for reason in reading.reasons]
        known_codes = [reason.code for reason in before.reasons]
        is_alert = reading.epoch != before.epoch or bool(_ALERTS.intersection(codes).difference(known_codes))
        level = logging.WARNING if is_alert else logging.INFO
        if (reading.state, reading.epoch) != (before.state, before.epoch):
            _LOG.log(level, "%s (was %s)%s", line, before.state.name, _because(reading))
        elif codes != known_codes:
            _LOG.log(level, "%s%s", line, _because(reading))
        return line


def summary(reading: Reading) -> str:
    """The reading in a few words."""
    bound_ns = reading.relative_bound_ns
    bound = "no bound" if bound_ns is None else f"bound ±{bound_ns / units.NS_PER_MS:.6g} ms"
    return f"{reading.state.name}, {bound}, epoch {reading.epoch}, source {reading.source_kind.name.lower()}"


def _because(reading: Reading) -> str:
    return "".join(f"; {reason.code.name}: {reason.detail}" for reason in reading.reasons)
