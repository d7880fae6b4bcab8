"""True time, the clocks of one node against it, and the order of events.

True time is a float in seconds since the start of the run; offsets are floats in nanoseconds, positive: ahead of true
time. Between two events every rate is constant, so every offset is a straight line: whoever looks at both ends of each
piece has looked everywhere.
"""

import heapq
from collections.abc import Callable
from random import Random

from clockgated import host
from clockgated.clock.witness import KernelLook, KernelState
from clockgated.units import NS_PER_S
from support.simulation.parameters import DaemonRanges, OscillatorRanges

# Where true time starts on the wall, and how long the node has been up by then.
_EPOCH_NS = 1_700_000_000 * NS_PER_S
_UPTIME_NS = 100 * NS_PER_S
_WANDER_S = 1.0
_RATE_ERROR_NS = 200
_NOMINAL_TICK_US = 10_000

Action = Callable[[], None]


class Clock:
    """One adjustable clock over one oscillator.

    `adjust_ppb` is what a time daemon adds to the oscillator's rate. `slid_ns` is the offset without the steps: the
    kernel's monotonic clocks are slewed with the wall clock and never set. `raw_slid_ns` is the bare oscillator's.
    """

    def __init__(self, ranges: OscillatorRanges, rng: Random, start_ns: float) -> None:
        self._ranges = ranges
        self._rng = rng
        self._wander_ppb = ranges.wander_ppb.draw(rng)
        self.raw_ppb = ranges.frequency_ppb.draw(rng)
        self.adjust_ppb = 0.0
        self.offset_ns = start_ns
        self.slid_ns = 0.0
        self.raw_slid_ns = 0.0

    @property
    def rate_ppb(self) -> float:
        """How fast the offset grows, ns a second."""
        return self.raw_ppb + self.adjust_ppb + self.raw_ppb * self.adjust_ppb / NS_PER_S

    def run(self, seconds: float) -> None:
        """Let time pass."""
        gained_ns = self.rate_ppb * seconds
        self.offset_ns += gained_ns
        self.slid_ns += gained_ns
        self.raw_slid_ns += self.raw_ppb * seconds

    def set_by(self, step_ns: float) -> None:
        """Step it."""
        self.offset_ns += step_ns

    def wander(self, seconds: float) -> None:
        """Let the oscillator's rate walk; at its limit it is turned back."""
        limit_ppb = self._ranges.limit_ppb
        rate_ppb = self.raw_ppb + self._rng.gauss(0, self._wander_ppb) * seconds**0.5
        self.raw_ppb = max(-limit_ppb, min(limit_ppb, rate_ppb))


class World:
    """Events in order of true time, and a node's system clock beside an optional second clock (a PHC).

    `watch` is called at the end of every piece and after every step. Events at the same moment come in the order in
    which they were made.
    """

    def __init__(self, seed: int, oscillator: OscillatorRanges, start_ns: float) -> None:
        self.rng = Random(seed)
        self.now_s = 0.0
        self.system = Clock(oscillator, self.rng, start_ns)
        self.clocks = [self.system]
        self.steps = 0
        self._asleep_s = 0.0
        self._asleep_ns = 0
        self.watch: Action = _nothing
        self._events: list[tuple[float, int, Action]] = []
        self._made = 0
        self.after(_WANDER_S, self._wander)

    def after(self, seconds: float, act: Action) -> None:
        """Have `act` called `seconds` from now."""
        self._made += 1
        heapq.heappush(self._events, (self.now_s + seconds, self._made, act))

    def pass_s(self, seconds: float) -> None:
        """Let `seconds` of true time pass, with all that happens in them."""
        end_s = self.now_s + seconds
        asleep_s = self._asleep_s
        while self._events and self._events[0][0] <= end_s:
            due_s, _, act = heapq.heappop(self._events)
            self._run_to(due_s)
            offset_ns = self.system.offset_ns
            act()
            if self.system.offset_ns != offset_ns:
                self.watch()
            end_s, asleep_s = end_s + self._asleep_s - asleep_s, self._asleep_s
        self._run_to(end_s)

    def step(self, step_ns: float) -> None:
        """Somebody sets the system clock, and tells nobody."""
        self.system.set_by(step_ns)
        self.steps += 1

    def sleep(self, seconds: float, error_ns: float) -> None:
        """The whole node stands still; then the kernel puts its clocks forward by what it believes to have slept.

        Whatever was due is late by as much. Other clocks of the node, on a card that is not asleep, run on.
        """
        for clock in self.clocks:
            if clock is not self.system:
                clock.run(seconds)
        self._events = [(due_s + seconds, made, act) for due_s, made, act in self._events]
        self.now_s += seconds
        self.system.offset_ns += error_ns
        self.system.slid_ns += error_ns
        self._asleep_s += seconds
        self._asleep_ns += round(seconds * NS_PER_S) + round(error_ns)
        self.steps += 1

    def wall_ns(self) -> int:
        """CLOCK_REALTIME."""
        return self.true_ns() + round(self.system.offset_ns)

    def boot_ns(self) -> int:
        """CLOCK_BOOTTIME."""
        return _UPTIME_NS + round(self.now_s * NS_PER_S) + round(self.system.slid_ns)

    def mono_ns(self) -> int:
        """CLOCK_MONOTONIC: CLOCK_BOOTTIME without what the kernel believes to have slept."""
        return self.boot_ns() - self._asleep_ns

    def raw_ns(self) -> int:
        """CLOCK_MONOTONIC_RAW."""
        return _UPTIME_NS + round((self.now_s - self._asleep_s) * NS_PER_S) + round(self.system.raw_slid_ns)

    def true_ns(self) -> int:
        """What a perfect clock on the wall would show."""
        return _EPOCH_NS + round(self.now_s * NS_PER_S)

    def _run_to(self, moment_s: float) -> None:
        seconds = moment_s - self.now_s
        for clock in self.clocks:
            clock.run(seconds)
        self.now_s = moment_s
        self.watch()

    def _wander(self) -> None:
        for clock in self.clocks:
            clock.wander(_WANDER_S)
        self.after(_WANDER_S, self._wander)


class Looks:
    """What the daemon itself sees of this world's clocks, as `host` and adjtimex would tell it."""

    def __init__(self, world: World, ranges: DaemonRanges, rng: Random) -> None:
        self._world = world
        self._ranges = ranges
        self._rng = rng

    def stamp(self) -> host.Stamp:
        """Three clocks read one after the other; a reader that was preempted sees the wall clock too late."""
        boot_ns, wall_ns, error_ns = self._world.boot_ns(), self._world.wall_ns(), 0
        if self._rng.random() < self._ranges.preempted_chance:
            error_ns = round(self._ranges.preempted_ns.draw(self._rng))
        return host.Stamp(boot_ns, self._world.mono_ns(), wall_ns + error_ns, error_ns)

    def rate(self) -> host.RateStamp:
        """The slewed clock beside the bare oscillator, read in a few hundred ns."""
        return host.RateStamp(self._world.raw_ns(), self._world.mono_ns(), _RATE_ERROR_NS)

    def kernel(self) -> KernelLook:
        """The kernel's variables: the time daemon's correction, and nothing else of note."""
        correction_ppb = self._world.system.adjust_ppb
        return KernelLook(self._world.boot_ns(), correction_ppb, _NOMINAL_TICK_US, 0, KernelState.OK)


def _nothing() -> None:
    return None
