"""ptp4l following one grandmaster, and phc2sys where stamps are made in hardware.

True time is the grandmaster's, so the true offset of a clock is its offset from the grandmaster.
"""

import statistics
from collections import deque
from random import Random

from clockgated.clock.ptp_report import PortState, PtpReport, SystemOffset
from clockgated.units import NS_PER_S
from support.simulation.parameters import OscillatorRanges, PtpRanges
from support.simulation.path import Path
from support.simulation.servo import PiServo, ServoState
from support.simulation.world import Clock, World

_OWN_ID, _MASTER_ID = "02aa00.fffe.000002", "02aa00.fffe.000001"
_DELAY_FILTER = 10
_ANNOUNCE_S, _PHC2SYS_S = 2.0, 1.0
_TAI_OFFSET_S = 37
_CLASS_LOCKED, _ACCURACY_100_NS = 6, 0x21


class Ptp4l:
    """ptp4l in one world: `clock` is the one that it steers. `report` is what pmc would get now."""

    def __init__(self, world: World, ranges: PtpRanges, path: Path, oscillator: OscillatorRanges) -> None:
        rng = world.rng
        self._world = world
        self._ranges = ranges
        self._path = path
        self.clock = world.system
        if ranges.is_hardware:
            self.clock = Clock(oscillator, rng, rng.uniform(-1, 1) * ranges.start_offset_ns.draw(rng))
            world.clocks.append(self.clock)
        self._sync_s, self._delay_s = 2.0 ** rng.choice(ranges.log_sync_s), 2.0 ** rng.choice(ranges.log_delay_s)
        self._servo = PiServo(self._sync_s, ranges.max_frequency_ppb, is_hardware=ranges.is_hardware)
        self._hops = rng.choice(ranges.hops)
        self._hops_error_ns = sum(ranges.hop_error_ns.draw(rng) for _ in range(self._hops - 1))
        # linuxptp shows the loss of a grandmaster in one of two ways: itself as the grandmaster, or what was last true.
        self._forgets_master = rng.random() < 0.5
        self.port_state = PortState.LISTENING
        self._heard_s: float | None = None
        self._delays_ns: deque[float] = deque(maxlen=_DELAY_FILTER)
        self._down_ns: float | None = None
        self._offset_ns, self._path_delay_ns = 0.0, 0.0
        self._ingress_ns: int | None = None
        for interval_s, act in ((_ANNOUNCE_S, self._announce), (self._sync_s, self._sync), (1.0, self._ask)):
            world.after(rng.random() * interval_s, act)

    def local_ns(self) -> int:
        """What the steered clock shows: TAI in hardware, UTC in software."""
        tai_ns = _TAI_OFFSET_S * NS_PER_S if self._ranges.is_hardware else 0
        return self._world.true_ns() + tai_ns + round(self.clock.offset_ns)

    def report(self) -> PtpReport:
        """The data sets, in the units behind the parser."""
        has_master = self._heard_s is not None and not (self.port_state is PortState.LISTENING and self._forgets_master)
        return PtpReport(
            own_clock_id=_OWN_ID,
            grandmaster_id=_MASTER_ID if has_master else _OWN_ID,
            is_grandmaster_present=has_master,
            parent_port_id=f"{_MASTER_ID}-1",
            port_state=self.port_state,
            offset_ns=round(self._offset_ns),
            ingress_ns=self._ingress_ns if has_master else None,
            path_delay_ns=round(self._path_delay_ns),
            steps_removed=self._hops,
            grandmaster_class=_CLASS_LOCKED,
            grandmaster_accuracy=_ACCURACY_100_NS,
            sync_interval_ns=round(self._sync_s * NS_PER_S),
            utc_offset_s=_TAI_OFFSET_S,
            is_utc_offset_valid=True,
            is_ptp_timescale=True,
            is_time_traceable=True,
            leap=0,
        )

    def _announce(self) -> None:
        self._world.after(_ANNOUNCE_S, self._announce)
        now_s = self._world.now_s
        if not self._path.loses():
            self._heard_s = now_s
            if self.port_state is PortState.LISTENING:
                self.port_state = PortState.UNCALIBRATED
        elif self._heard_s is not None and now_s - self._heard_s > self._ranges.announce_timeout_s:
            self.port_state = PortState.LISTENING
            if self._forgets_master:
                self._delays_ns.clear()
                self._ingress_ns = self._down_ns = None
                self._path_delay_ns = 0.0

    def _sync(self) -> None:
        self._world.after(self._sync_s, self._sync)
        if not self._path.loses():
            back_ns = self._path.back_ns()
            self._world.after(back_ns / NS_PER_S, lambda: self._synced(back_ns))

    def _synced(self, back_ns: float) -> None:
        if self.port_state is PortState.LISTENING:
            return
        self._down_ns = self.clock.offset_ns - self._hops_error_ns + back_ns + self._noise_ns()
        self._ingress_ns = self.local_ns()
        if not self._delays_ns:
            return
        self._offset_ns = self._down_ns - self._path_delay_ns
        correction = self._servo.sample(self._offset_ns, self._world.now_s)
        if correction.state is ServoState.LOCKED:
            self.port_state = PortState.SLAVE
        else:
            self.port_state = PortState.UNCALIBRATED
        if correction.state is not ServoState.UNLOCKED:
            self.clock.adjust_ppb = -correction.frequency_ppb
        if correction.state is ServoState.JUMP:
            self.clock.set_by(-self._offset_ns)
            self._ingress_ns = self._down_ns = None

    def _ask(self) -> None:
        rng = self._world.rng
        self._world.after(rng.uniform(0, 2) * self._delay_s, self._ask)
        if self._path.loses() or self._down_ns is None or self.port_state is PortState.LISTENING:
            return
        there_ns = self._path.there_ns()
        up_ns = there_ns - self.clock.offset_ns + self._hops_error_ns + self._noise_ns()

        def answered() -> None:
            if self._down_ns is not None:
                self._delays_ns.append((self._down_ns + up_ns) / 2)
                self._path_delay_ns = statistics.median(self._delays_ns)

        self._world.after((there_ns + self._path.back_ns()) / NS_PER_S, answered)

    def _noise_ns(self) -> float:
        noise_ns = self._ranges.stamp_noise_ns
        return self._world.rng.uniform(-noise_ns, noise_ns) if noise_ns else 0.0


class Phc2sys:
    """phc2sys in one world: makes the system clock follow ptp4l's, from when that is first synchronised."""

    def __init__(self, world: World, ranges: PtpRanges, ptp4l: Ptp4l) -> None:
        self._world = world
        self._ptp4l = ptp4l
        self._read_ns = ranges.phc_read_ns.draw(world.rng)
        self._servo = PiServo(_PHC2SYS_S, ranges.max_frequency_ppb, is_hardware=True)
        self._is_started = False
        world.after(world.rng.random(), self._correct)

    def measured(self, rng: Random) -> SystemOffset:
        """What anybody measures who reads both clocks: the system stamp lies somewhere inside the read."""
        error_ns = rng.uniform(-0.5, 0.5) * self._read_ns
        offset_ns = self._world.system.offset_ns - self._ptp4l.clock.offset_ns + error_ns
        return SystemOffset(round(offset_ns), -(-round(self._read_ns) // 2) + 1)

    def _correct(self) -> None:
        self._world.after(_PHC2SYS_S, self._correct)
        self._is_started = self._is_started or self._ptp4l.port_state is PortState.SLAVE
        if not self._is_started:
            return
        offset_ns = self.measured(self._world.rng).offset_ns
        correction = self._servo.sample(offset_ns, self._world.now_s)
        if correction.state is ServoState.JUMP:
            self._world.system.set_by(-offset_ns)
        if correction.state is not ServoState.UNLOCKED:
            self._world.system.adjust_ppb = -correction.frequency_ppb
