"""The auditor: at every moment, is the true offset inside every bound that somebody may be using?

Two users are imagined: one with the newest reading, and one whose daemon died right after a reading that is about to
expire ("held"). A sample is one look at one usable reading. A step by a stranger cannot be in a reading that is older
than it: looks between the step and the next reading are counted apart.
"""

from collections import deque
from dataclasses import dataclass, field

from clockgated.clock.bound import grown_ns
from clockgated.clock.model import ClockState, Reading
from clockgated.units import NS_PER_S
from support.simulation.world import World

_USABLE = (ClockState.SYNCHRONIZED, ClockState.HOLDOVER)
_SHOWN_VIOLATIONS = 5


@dataclass(frozen=True)
class Violation:
    """The true offset outside a bound in force."""

    run: str
    at_s: float
    kind: str
    error_ns: float
    bound_ns: int
    age_s: float
    state: str

    def __str__(self) -> str:
        return (
            f"{self.run} at {self.at_s:.3f} s: off by {self.error_ns:.0f} ns, {self.kind} bound {self.bound_ns} ns, "
            f"reading {self.age_s:.3f} s old, {self.state}"
        )


@dataclass
class Tally:
    """What was seen: looks at usable readings, and at each usable cycle the bound and the true error, ns.

    `violations` are of newest readings, `held_violations` of older ones. `worst_share` is the largest part of a bound
    that an error took.
    """

    cycles: int = 0
    samples: int = 0
    after_step: int = 0
    violations: int = 0
    held_violations: int = 0
    worst_share: float = 0.0
    bounds_ns: list[int] = field(default_factory=list)
    errors_ns: list[float] = field(default_factory=list)
    shown: list[Violation] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Take over what another run saw."""
        self.cycles += other.cycles
        self.samples += other.samples
        self.after_step += other.after_step
        self.violations += other.violations
        self.held_violations += other.held_violations
        self.worst_share = max(self.worst_share, other.worst_share)
        self.bounds_ns += other.bounds_ns
        self.errors_ns += other.errors_ns
        self.shown = (self.shown + other.shown)[:_SHOWN_VIOLATIONS]


class Audit:
    """The auditor of one run. `reference_error_ns` is what the reference is ahead of UTC."""

    def __init__(self, run: str, world: World, reference_error_ns: float) -> None:
        self.tally = Tally()
        self._run = run
        self._world = world
        self._reference_error_ns = reference_error_ns
        # Usable readings that have not expired, oldest first, each with the steps there were before it.
        self._live: deque[tuple[Reading, int]] = deque()
        self._newest = 0

    def published(self, reading: Reading) -> None:
        """A new reading is out."""
        self.tally.cycles += 1
        self._newest = reading.sequence
        if reading.state not in _USABLE:
            # Who holds an older one goes on using it; whoever asks the daemon does not.
            return
        self._live.append((reading, self._world.steps))
        self.look()
        assert reading.relative_bound_ns is not None
        self.tally.bounds_ns.append(reading.relative_bound_ns)
        self.tally.errors_ns.append(abs(self._world.system.offset_ns))

    def look(self) -> None:
        """One moment."""
        live, now_boot_ns = self._live, self._world.boot_ns()
        while live and live[0][0].void_after_boot_ns < now_boot_ns:
            live.popleft()
        if not live:
            return
        is_newest_live = live[-1][0].sequence == self._newest
        self._check(*live[-1], now_boot_ns, is_held=not is_newest_live)
        if len(live) > 1:
            self._check(*live[0], now_boot_ns, is_held=True)

    def _check(self, reading: Reading, steps: int, now_boot_ns: int, *, is_held: bool) -> None:
        tally = self.tally
        if steps != self._world.steps:
            tally.after_step += 1
            return
        tally.samples += 1
        age_ns, error_ns = now_boot_ns - reading.as_of_boot_ns, self._world.system.offset_ns
        assert reading.relative_bound_ns is not None
        bound_ns = grown_ns(reading.relative_bound_ns, reading.growth_ppb, age_ns)
        tally.worst_share = max(tally.worst_share, abs(error_ns) / bound_ns)
        kind = "relative"
        if reading.utc_bound_ns is not None and abs(error_ns) <= bound_ns:
            kind = "UTC"
            error_ns += self._reference_error_ns
            bound_ns = grown_ns(reading.utc_bound_ns, reading.growth_ppb, age_ns)
        if abs(error_ns) <= bound_ns:
            return
        if is_held:
            tally.held_violations += 1
        else:
            tally.violations += 1
        if len(tally.shown) < _SHOWN_VIOLATIONS:
            age_s, state = age_ns / NS_PER_S, reading.state.name
            tally.shown.append(Violation(self._run, self._world.now_s, kind, error_ns, bound_ns, age_s, state))
