"""One cycle: measure, witness, distort (drills only), advance the state, keep, publish.

The only writer of the published reading.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from clockgated import host
from clockgated.beats import Beats
from clockgated.clock.continuity import Continuity, Look
from clockgated.clock.model import Evidence, Reading, Reason, ReasonCode, Silence
from clockgated.clock.state import (
    StatePolicy,
    Track,
    advance,
    has_bound,
    has_forgotten,
    must_forget,
    reading_of,
    start,
)
from clockgated.clock.watch import HostLook, Watch, Watched, watched
from clockgated.clock.witness import KernelLook, RateLook
from clockgated.drill import ActiveFault, DrillBoard, describe, distort
from clockgated.lease_desk import LeaseDesk
from clockgated.memory.keeper import Keeper, Opening
from clockgated.publish import Publisher
from clockgated.sources.base import Source
from clockgated.sources.kernel import read_look
from clockgated.units import NS_PER_MS, NS_PER_S

_logger = logging.getLogger(__name__)
_LOOKS = 3


class Cycle:
    """Measures one source for ever. Not thread-safe: one thread calls `run` or `run_once`.

    Epoch and sequence go on from the publisher's reading, so that a new cycle (a reload) never lets them fall; with
    `opening` everything goes on from there, and `keeper` keeps each cycle for the next start. `own_steering` says that
    units of ours steer: other adjusters are foreign then, and an offset above `step_needed_ns` that a lease on `desk`
    forbids to step is told. `forget` has the source's time daemon, one of ours, drop what it measured before a break:
    True when it did. It may take as long as a measurement. `stamp`, `rate`, `kernel` and `mono_ns` look at the host;
    tests pass their own.
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
        opening: Opening | None = None,
        keeper: Keeper | None = None,
        desk: LeaseDesk | None = None,
        own_steering: bool = False,
        step_needed_ns: int = 100 * NS_PER_MS,
        forget: Callable[[], bool] | None = None,
        stamp: Callable[[], host.Stamp] = host.stamp,
        rate: Callable[[], host.RateStamp] = host.rate_stamp,
        kernel: Callable[[], KernelLook | None] = read_look,
        mono_ns: Callable[[], int] = host.mono_ns,
        beats: Beats | None = None,
    ) -> None:
        self._source = source
        self._publisher = publisher
        self._drills = drills
        self._policy = policy
        self._boot_id = boot_id
        self._interval_ns = round(interval_s * NS_PER_S)
        self._keeper = keeper
        self._desk = desk
        self._own_steering = own_steering
        self._step_needed_ns = step_needed_ns
        self._forget = forget
        self._stamp = stamp
        self._rate = rate
        self._kernel = kernel
        self._mono_ns = mono_ns
        self._beats = beats or Beats()
        latest = publisher.latest()
        self._track = opening.track if opening else start(source.kind, stamp().boot_ns, latest.epoch, latest.sequence)
        self._watch = Watch(HostLook(opening.look)) if opening else Watch()
        self._handover: tuple[Reason, ...] = ()

    def reconfigure(
        self,
        *,
        source: Source,
        policy: StatePolicy,
        interval_s: float,
        own_steering: bool | None = None,
        forget: Callable[[], bool] | None = None,
    ) -> None:
        """Take other settings into use; only while `run` does not run. `own_steering` of None stays as it was.

        What is known goes on under the new policy. A source of another kind measures against something else, so the
        state starts anew; the epoch stays while nobody of ours touched the clock, and rises with a change of servo.
        """
        was_steering = self._own_steering
        self._own_steering = was_steering if own_steering is None else own_steering
        if source.kind is not self._source.kind:
            self._track = start(source.kind, self._stamp().boot_ns, self._track.epoch, self._track.sequence)
            self._watch = _without_steering(self._watch)
            if was_steering or self._own_steering:
                was, now = self._source.kind.name.lower(), source.kind.name.lower()
                self._handover = (Reason(ReasonCode.STEERING_CHANGED, f"the clock was kept by {was}, now by {now}"),)
        self._source = source
        self._policy = policy
        self._interval_ns = round(interval_s * NS_PER_S)
        self._forget = forget

    def run_once(self) -> Reading:
        """One cycle; blocks for at most the source's own timeout."""
        measurement = self._source.read()
        look = self._looked(measurement)
        seen = self._witnessed(measurement, look)
        boot_ns = look.clocks.boot_ns
        active = self._drills.take(boot_ns)
        measurement, continuity = distort(seen.measurement, seen.continuity, active.fault if active else None)
        before = self._track
        self._track = advance(before, measurement, continuity, boot_ns, self._policy, slew_ppb=seen.slew_ppb)
        added = (*seen.remarks, *self._forbidden_step(measurement), *_drilled(active))
        reading = reading_of(self._track, self._boot_id, self._policy)
        reading = replace(reading, reasons=(*reading.reasons, *added))
        self._keep(before, reading, continuity, look, seen.jump_ns)
        self._publisher.publish(reading)
        if self._forget is not None and must_forget(before, self._track) and self._forget():
            self._track = has_forgotten(self._track)
        return reading

    def run(self, stop: threading.Event, on_cycle: Callable[[], None]) -> None:
        """Cycle every interval until `stop` is set. `on_cycle` is called after each cycle that published.

        A cycle that raises publishes nothing: the last reading then expires by itself, and `on_cycle` is not called,
        so that a watchdog fed by it restarts a daemon whose cycles never succeed.
        """
        due_ns = self._mono_ns()
        while not stop.is_set():
            began_ns, sequence = self._mono_ns(), self._track.sequence
            try:
                self.run_once()
                on_cycle()
            except Exception:
                _logger.exception("this cycle failed and published nothing; going on with the next one")
            now_ns = self._mono_ns()
            is_published = self._publisher.latest().sequence > sequence
            self._beats.note(late_ns=began_ns - due_ns, took_ns=now_ns - began_ns, is_published=is_published)
            due_ns = next_beat_ns(due_ns, now_ns, self._interval_ns)
            stop.wait((due_ns - now_ns) / NS_PER_S)

    def _looked(self, measurement: Evidence | Silence) -> HostLook:
        """Look at the host after the measurement, so that a break during it is found before it is published."""
        stamp = host.tightest(self._stamp)
        rate = min((self._rate() for _ in range(_LOOKS)), key=lambda one: one.error_ns)
        steering_id = measurement.steering_id if isinstance(measurement, Evidence) else None
        if steering_id is None and self._watch.before is not None:
            steering_id = self._watch.before.clocks.steering_id
        clocks = Look(stamp.boot_ns, stamp.mono_ns, stamp.wall_ns, steering_id, stamp.error_ns)
        return HostLook(clocks, self._kernel(), RateLook(rate.raw_ns, rate.mono_ns, rate.error_ns))

    def _witnessed(self, measurement: Evidence | Silence, look: HostLook) -> Watched:
        seen = watched(
            self._watch,
            measurement,
            look,
            own_steering=self._own_steering,
            is_promised=has_bound(self._track),
        )
        self._watch = seen.watch
        handover, self._handover = self._handover, ()
        if not handover:
            return seen
        # A source that just took over has not measured anything across the change.
        continuity = seen.continuity if seen.continuity.is_broken else Continuity(is_known_to_source=True)
        return replace(seen, continuity=replace(continuity, breaks=(*continuity.breaks, *handover)))

    def _forbidden_step(self, measurement: Evidence | Silence) -> tuple[Reason, ...]:
        """What to say when the clock is too far off to be slewed and a job's lease keeps it from being stepped."""
        if self._desk is None or not self._own_steering or isinstance(measurement, Silence):
            return ()
        offset_ns = measurement.offset_ns
        if offset_ns is None or abs(offset_ns) <= self._step_needed_ns:
            return ()
        refusal = self._desk.step_refusal()
        if refusal is None:
            return ()
        detail = f"the clock is {offset_ns / NS_PER_MS:+.6g} ms off and is slewed only: {refusal}"
        return (Reason(ReasonCode.STEP_FORBIDDEN_BY_LEASE, detail),)

    def _keep(
        self, before: Track, reading: Reading, continuity: Continuity, look: HostLook, jump_ns: int | None
    ) -> None:
        """Journal a new epoch and save the cycle, both before the reading is published."""
        if self._keeper is None:
            return
        if self._track.epoch != before.epoch:
            self._keeper.begin_epoch(self._track.epoch, look.clocks, continuity.breaks, jump_ns)
        self._keeper.keep(reading, self._track, look.clocks, look.kernel)


def next_beat_ns(due_ns: int, now_ns: int, interval_ns: int) -> int:
    """When the next cycle is due: on the same grid as `due_ns`, after `now_ns`; missed beats are skipped."""
    return due_ns + max(1, -(-(now_ns - due_ns) // interval_ns)) * interval_ns


def _without_steering(watch: Watch) -> Watch:
    if watch.before is None:
        return watch
    clocks = replace(watch.before.clocks, steering_id=None)
    return replace(watch, before=replace(watch.before, clocks=clocks))


def _drilled(active: ActiveFault | None) -> tuple[Reason, ...]:
    return (Reason(ReasonCode.DRILL, describe(active.fault)),) if active else ()
