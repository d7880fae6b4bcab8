"""chronyd with one server: polls, estimates, slews, and reports what chronyd would report.

The "cooked" clock is the system clock with the offset removed that is still to be slewed away; chronyd measures,
estimates and reports against it, and dates its samples by it: who sets the system clock sets the cooked one as well,
and chronyd does not know. The correction of asymmetric jitter (off unless ten polls in a row agree) and
several servers are left out.
"""

import math
from dataclasses import replace

from clockgated.clock.report import ChronyReport, LeapStatus, SourceLine, Tracking, Upstream
from clockgated.units import NS_PER_S
from support.simulation.parameters import NtpRanges
from support.simulation.path import Path
from support.simulation.server import Server
from support.simulation.sourcestats import Sample, SourceStats
from support.simulation.world import World

SERVER = "192.0.2.1"
_REF_ID, _SERVER_REF_ID = "C0000201", "47505300"
_PRECISION_NS = 120.0
_BURST_SAMPLES, _LONG_BURST_SAMPLES, _BURST_S = 4, 8, 2.0
_MAX_SLEW = 0.083333
_LEAST_SLEW_S, _LONGEST_SLEW_S = 1.0, 10_000.0
_CORRECTION_TIME_RATIO = 3.0
_MAX_UPDATE_SKEW = 1e-3
_STEP_NS, _STEP_UPDATES = 0.1 * NS_PER_S, 3
_FIRST_SKEW = 1.0
_POLL_TARGET = 8


class Chronyd:
    """chronyd in one world. `report` is what chronyc would get now."""

    def __init__(self, world: World, ranges: NtpRanges, path: Path) -> None:
        rng = world.rng
        self._world = world
        self._path = path
        self._is_steering = ranges.is_steering
        self._server = Server(ranges, rng)
        self._low_poll, self._high_poll = rng.choice(ranges.polls_log2_s)
        self.max_clock_error_ppb = rng.choice(ranges.max_clock_error_ppb)
        self._steps_left = _STEP_UPDATES if rng.choice(ranges.steps_at_start) and ranges.is_steering else 0
        self._timer_late_ns = ranges.timer_late_ns.draw(rng)
        self._stats = SourceStats()
        self._poll, self._poll_score, self._burst, self._reach = self._low_poll, 0.0, _BURST_SAMPLES, 0
        # What is left to slew, and how fast it shrinks; without the right to steer it only grows.
        self._left_ns, self._left_at_s, self._slew = 0.0, 0.0, 0.0
        self._frequency, self._correction_rate, self._slew_run = 0.0, 0.0, 0
        self._skew, self._residual = _FIRST_SKEW, 0.0
        self._ref_wall_ns: float | None = None
        self._root_delay_ns = self._root_dispersion_ns = float(NS_PER_S)
        self._updated_s: float | None = None
        self._update_interval_s = 0.0
        self._last_offset_ns = 0.0
        self._ask_run = 0
        self._ask_after(rng.uniform(0.1, 2.0))

    def report(self) -> ChronyReport:
        """The answer to tracking, sources, sourcestats and ntpdata, in the units behind the parser."""
        line = SourceLine(SERVER, False, self._ref_wall_ns is not None, 1, self._poll, self._reach)
        line = replace(line, oldest_sample_s=self._oldest_sample_s())
        if self._ref_wall_ns is None:
            return ChronyReport(_UNSYNCHRONISED, (line,), ())
        age_s = abs(self._world.wall_ns() - self._left() - self._ref_wall_ns) / NS_PER_S
        grows_ppb = (self._skew + abs(self._residual)) * NS_PER_S + self.max_clock_error_ppb
        tracking = Tracking(
            ref_id=_REF_ID,
            source_name=SERVER,
            stratum=2,
            ref_wall_ns=round(self._ref_wall_ns),
            offset_ns=round(self._left()),
            residual_ppb=round(self._residual * NS_PER_S),
            skew_ppb=round(self._skew * NS_PER_S),
            root_delay_ns=round(self._root_delay_ns),
            root_dispersion_ns=round(self._root_dispersion_ns + age_s * grows_ppb),
            update_interval_ns=round(self._update_interval_s * 10) * (NS_PER_S // 10),
            leap_status=LeapStatus.NORMAL,
            last_offset_ns=round(self._last_offset_ns),
        )
        return ChronyReport(tracking, (line,), (Upstream(SERVER, 1, _SERVER_REF_ID),))

    def forget(self) -> None:
        """What chronyc's `reset sources` and `burst` do: unsynchronised until there are new samples, and these soon."""
        self._stats, self._reach = SourceStats(), 0
        self._ref_wall_ns = None
        self._burst = _LONG_BURST_SAMPLES
        self._ask_after(self._world.rng.uniform(0.1, 0.3))

    def _oldest_sample_s(self) -> int | None:
        """As the parser makes it of chronyd's whole seconds."""
        samples = self._stats.samples
        if not samples:
            return None
        cooked_ns = self._world.wall_ns() - self._left()
        age_s = int(cooked_ns // NS_PER_S - samples[-1].stamp_ns // NS_PER_S)
        span_s = (samples[-1].stamp_ns - samples[0].stamp_ns) / NS_PER_S
        return max(0, age_s) + math.floor(span_s + 0.5) + 2

    # Polling

    def _ask_after(self, seconds: float) -> None:
        self._ask_run += 1
        run = self._ask_run
        self._world.after(seconds, lambda: self._ask() if run == self._ask_run else None)

    def _ask(self) -> None:
        self._burst = max(0, self._burst - 1)
        self._ask_after(_BURST_S if self._burst else 2.0**self._poll * self._world.rng.uniform(0.98, 1.02))
        if self._path.loses():
            self._reach = self._reach << 1 & 0xFF
            self._adjust_poll(0.25)
            return
        there_ns, back_ns = self._path.there_ns(), self._path.back_ns()
        sent_ns, server_ns = self._cooked_offset_ns(), self._server.offset_ns(self._world.now_s)

        def answered() -> None:
            # Offset and delay of NTP's four stamps; what the clock gains under way is in both.
            back_offset_ns = self._cooked_offset_ns()
            offset_ns = (sent_ns + back_offset_ns) / 2 - server_ns - (there_ns - back_ns) / 2
            self._answered(offset_ns, there_ns + back_ns + back_offset_ns - sent_ns)

        self._world.after((there_ns + back_ns) / NS_PER_S, answered)

    def _answered(self, offset_ns: float, delay_ns: float) -> None:
        self._reach = (self._reach << 1 | 1) & 0xFF
        stamp_ns = self._world.wall_ns() - self._left()
        if self._stats.samples and stamp_ns <= self._stats.samples[-1].stamp_ns:
            # A clock that was set back by more than a poll is noticed, and all that was measured before dropped.
            self._stats = SourceStats()
        now_s, stats, server = self._world.now_s, self._stats, self._server
        delay_ns = max(delay_ns, _PRECISION_NS)
        dispersion_ns = _PRECISION_NS + min(stats.skew, 2e-3) * delay_ns
        error_ns = abs(offset_ns - stats.predicted_ns(now_s))
        if not stats.admits(now_s, offset_ns, delay_ns, self.max_clock_error_ppb / NS_PER_S):
            return
        stats.add(
            Sample(
                now_s,
                offset_ns,
                delay_ns,
                dispersion_ns,
                server.root_delay_ns + delay_ns,
                server.root_dispersion_ns + dispersion_ns,
                stamp_ns,
            )
        )
        distance_ns = dispersion_ns + delay_ns / 2
        count = len(stats.samples)
        change = (count / _POLL_TARGET - 1) / _POLL_TARGET * (2 if count < _POLL_TARGET else 1)
        self._adjust_poll(-math.log2(error_ns / distance_ns) if error_ns > distance_ns else change)
        if stats.line is not None:
            self._set_reference()

    def _adjust_poll(self, change: float) -> None:
        self._poll_score += change
        whole = math.floor(self._poll_score)
        self._poll, self._poll_score = self._poll + whole, self._poll_score - whole
        if self._poll < self._low_poll:
            self._poll, self._poll_score = self._low_poll, 0.0
        elif self._poll > self._high_poll:
            self._poll, self._poll_score = self._high_poll, 1.0

    # Steering

    def _set_reference(self) -> None:
        """Believe the new estimate, and begin to correct the clock by it."""
        now_s, stats = self._world.now_s, self._stats
        offset_ns = self._last_offset_ns = stats.predicted_ns(now_s)
        skew = stats.skew
        gain = 0.0 if skew > _MAX_UPDATE_SKEW else 3 * self._skew**2 / (3 * self._skew**2 + skew**2)
        frequency = gain * stats.frequency
        self._residual = stats.frequency - frequency
        extra = math.sqrt(frequency**2 * (1 - gain) + self._residual**2 * gain)
        self._skew += gain * (skew - self._skew) + extra
        self._root_delay_ns, self._root_dispersion_ns = stats.root_distance_ns()
        if self._updated_s is not None:
            self._update_interval_s = now_s - self._updated_s
        self._updated_s = now_s
        self._correction_rate = _CORRECTION_TIME_RATIO / 2 * stats.offset_sd_ns * self._update_interval_s
        left_ns = self._left()
        is_step = self._steps_left > 0 and abs(offset_ns + left_ns) > _STEP_NS
        self._steps_left = max(0, self._steps_left - 1)
        stats.slewed(now_s, frequency, offset_ns)
        self._frequency += frequency
        self._left_ns, self._left_at_s = (0.0 if is_step else left_ns + offset_ns), now_s
        if is_step:
            self._world.system.set_by(-(left_ns + offset_ns))
        self._restart_slew()
        # chronyd blurs the reference time by up to a second into the past.
        self._ref_wall_ns = self._world.wall_ns() - self._left() - self._world.rng.random() * NS_PER_S

    def _left(self) -> float:
        """What is left to correct, ns; positive: the system clock is ahead of what chronyd believes."""
        seconds = self._world.now_s - self._left_at_s
        if not self._is_steering:
            return self._left_ns + self._frequency * NS_PER_S * seconds
        return self._left_ns - self._slew * NS_PER_S * seconds

    def _cooked_offset_ns(self) -> float:
        return self._world.system.offset_ns - self._left()

    def _restart_slew(self) -> None:
        self._slew_run += 1
        self._left_ns, self._left_at_s = self._left(), self._world.now_s
        if not self._is_steering:
            return
        left_s = self._left_ns / NS_PER_S
        if abs(left_s) < 1e-9:
            self._slew, seconds = 0.0, _LONGEST_SLEW_S
        else:
            wanted_s = max(_LEAST_SLEW_S, self._correction_rate / NS_PER_S / abs(left_s))
            self._slew = max(-_MAX_SLEW, min(_MAX_SLEW, left_s / wanted_s))
            seconds = max(_LEAST_SLEW_S, min(_LONGEST_SLEW_S, left_s / self._slew))
        self._world.system.adjust_ppb = -(self._frequency + self._slew) * NS_PER_S
        late_s = self._world.rng.expovariate(1 / self._timer_late_ns) / NS_PER_S
        run = self._slew_run
        self._world.after(seconds + late_s, lambda: self._restart_slew() if run == self._slew_run else None)


_UNSYNCHRONISED = Tracking(
    ref_id="00000000",
    source_name="",
    stratum=0,
    ref_wall_ns=None,
    offset_ns=0,
    residual_ppb=0,
    skew_ppb=0,
    root_delay_ns=NS_PER_S,
    root_dispersion_ns=NS_PER_S,
    update_interval_ns=0,
    leap_status=LeapStatus.UNSYNCHRONISED,
)
