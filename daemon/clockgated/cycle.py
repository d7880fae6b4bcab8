"""One cycle: measure, distort (drills only), advance the state, publish. The only writer of the published reading."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from clockgated import host
from clockgated.clock.continuity import UNBROKEN, Continuity, Look, continuity_between
from clockgated.clock.model import Evidence, Reading, Reason, ReasonCode, Silence
from clockgated.clock.state import StatePolicy, advance, allowed_step_ns, reading_of, start
from clockgated.drill import ActiveFault, DrillBoard, describe, distort
from clockgated.publish import Publisher
from clockgated.sources.base import Source
from clockgated.units import NS_PER_S

_logger = logging.getLogger(__name__)
_LOOKS = 3


class Cycle:
    """Measures one source for ever. Not thread-safe: one thread calls `run` or `run_once`.

    Epoch and sequence go on from the publisher's reading, so that a new cycle (a reload) never lets them fall.
    `stamp` and `mono_ns` are the host's clocks; tests pass their own.
    """

    def __init__(
        self,
        *,
        source: Source,
        publisher: Publisher,
        drills: DrillBoard,
        policy: StatePolicy,
        boot_id: str,
        interval_s: float = 1.0,
        stamp: Callable[[], host.Stamp] = host.stamp,
        mono_ns: Callable[[], int] = host.mono_ns,
    ) -> None:
        self._source = source
        self._publisher = publisher
        self._drills = drills
        self._policy = policy
        self._boot_id = boot_id
        self._interval_ns = round(interval_s * NS_PER_S)
        self._stamp = stamp
        self._mono_ns = mono_ns
        latest = publisher.latest()
        self._track = start(source.kind, stamp().boot_ns, latest.epoch, latest.sequence)
        self._look: Look | None = None
        self._was_leaping = False

    def reconfigure(self, *, source: Source, policy: StatePolicy, interval_s: float) -> None:
        """Take other settings into use; only while `run` does not run.

        What is known goes on under the new policy. A source of another kind measures against something else, so the
        state starts anew; the epoch stays, since nobody touched the clock.
        """
        if source.kind is not self._source.kind:
            self._track = start(source.kind, self._stamp().boot_ns, self._track.epoch, self._track.sequence)
            if self._look is not None:
                self._look = replace(self._look, steering_id=None)
        self._source = source
        self._policy = policy
        self._interval_ns = round(interval_s * NS_PER_S)

    def run_once(self) -> Reading:
        """One cycle; blocks for at most the source's own timeout."""
        measurement = self._source.read()
        look = self._looked(measurement)
        continuity = self._continuity(look, measurement)
        active = self._drills.take(look.boot_ns)
        measurement, continuity = distort(measurement, continuity, active.fault if active else None)
        self._track = advance(self._track, measurement, continuity, look.boot_ns, self._policy)
        reading = _marked(reading_of(self._track, self._boot_id, self._policy), active)
        self._publisher.publish(reading)
        return reading

    def run(self, stop: threading.Event, on_cycle: Callable[[], None]) -> None:
        """Cycle every interval until `stop` is set. `on_cycle` is called after each cycle that published.

        A cycle that raises publishes nothing: the last reading then expires by itself, and `on_cycle` is not called,
        so that a watchdog fed by it restarts a daemon whose cycles never succeed.
        """
        due_ns = self._mono_ns()
        while not stop.is_set():
            try:
                self.run_once()
                on_cycle()
            except Exception:
                _logger.exception("this cycle failed and published nothing; going on with the next one")
            now_ns = self._mono_ns()
            due_ns = next_beat_ns(due_ns, now_ns, self._interval_ns)
            stop.wait((due_ns - now_ns) / NS_PER_S)

    def _looked(self, measurement: Evidence | Silence) -> Look:
        """Look at the clocks after the measurement, so that a break during it is found before it is published.

        The tightest of several looks counts: one preempted between two clocks would show a step that never was.
        """
        stamp = min((self._stamp() for _ in range(_LOOKS)), key=lambda one: one.wall_ns - one.boot_ns)
        steering_id = measurement.steering_id if isinstance(measurement, Evidence) else None
        if steering_id is None and self._look is not None:
            steering_id = self._look.steering_id
        return Look(stamp.boot_ns, stamp.mono_ns, stamp.wall_ns, steering_id)

    def _continuity(self, look: Look, measurement: Evidence | Silence) -> Continuity:
        before, was_leaping = self._look, self._was_leaping
        self._look = look
        self._was_leaping = isinstance(measurement, Evidence) and measurement.leap_in_progress
        if before is None:
            return UNBROKEN
        allowed_ns = allowed_step_ns(self._track, look.boot_ns, self._policy)
        return continuity_between(before, look, allowed_ns, was_leaping or self._was_leaping)


def next_beat_ns(due_ns: int, now_ns: int, interval_ns: int) -> int:
    """When the next cycle is due: on the same grid as `due_ns`, after `now_ns`; missed beats are skipped."""
    return due_ns + max(1, -(-(now_ns - due_ns) // interval_ns)) * interval_ns


def _marked(reading: Reading, active: ActiveFault | None) -> Reading:
    if active is None:
        return reading
    reason = Reason(ReasonCode.DRILL, describe(active.fault))
    return replace(reading, reasons=(*reading.reasons, reason))
