"""Whether time passed without a break between two looks at the host's clocks.

The kernel derives CLOCK_REALTIME, CLOCK_MONOTONIC and CLOCK_BOOTTIME from one timekeeper: slewing moves all three
alike, so only setting the wall clock changes REALTIME - BOOTTIME, and only sleep changes BOOTTIME - MONOTONIC.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from clockgated.clock.model import Reason, ReasonCode
from clockgated.units import NS_PER_MS, NS_PER_S

# The clocks are read one after the other; a preempted reader sees them apart by microseconds. Callers pick the
# tightest of several looks, so this margin is rarely needed.
_READ_JITTER_NS = 100_000
# No suspend is this short.
_SHORTEST_SUSPEND_NS = NS_PER_MS


@dataclass(frozen=True)
class Look:
    """One look at the clocks, ns, and who steered them, when known."""

    boot_ns: int
    mono_ns: int
    wall_ns: int
    steering_id: str | None = None


@dataclass(frozen=True)
class Continuity:
    """The breaks between two looks; none means that what held before, aged, still holds."""

    breaks: tuple[Reason, ...] = ()

    @property
    def is_broken(self) -> bool:
        """Whether anything broke."""
        return bool(self.breaks)


UNBROKEN = Continuity()


def continuity_between(before: Look, after: Look, allowed_step_ns: int, leap_in_progress: bool) -> Continuity:
    """Compare two looks of one boot.

    `allowed_step_ns` is what the bound in force allows the wall clock to be corrected by at once. A leap second moves
    the wall clock by one second without a break. Every adjuster is foreign here: slewing and a small step are its
    business, so only larger steps, sleep, and a change of the steering process count.
    """
    return Continuity(tuple(_breaks(before, after, allowed_step_ns, leap_in_progress)))


def jump_between_ns(before: Look, after: Look) -> int:
    """How far the wall clock was set between two looks of one boot, ns; positive: forward."""
    return (after.wall_ns - after.boot_ns) - (before.wall_ns - before.boot_ns)


def _breaks(before: Look, after: Look, allowed_step_ns: int, leap_in_progress: bool) -> Iterator[Reason]:
    jump_ns = jump_between_ns(before, after)
    unexplained_ns = abs(jump_ns)
    if leap_in_progress:
        unexplained_ns = min(unexplained_ns, abs(unexplained_ns - NS_PER_S))
    if unexplained_ns > allowed_step_ns + _READ_JITTER_NS:
        detail = (
            f"the wall clock was set by {jump_ns / NS_PER_MS:+.6g} ms at once; "
            f"the bound allows {allowed_step_ns / NS_PER_MS:.6g} ms"
        )
        yield Reason(ReasonCode.CLOCK_STEPPED, detail)
    asleep_ns = (after.boot_ns - after.mono_ns) - (before.boot_ns - before.mono_ns)
    if asleep_ns > _SHORTEST_SUSPEND_NS:
        yield Reason(ReasonCode.SUSPENDED, f"the machine was suspended for {asleep_ns / NS_PER_S:.3f} s")
    if before.steering_id and after.steering_id and before.steering_id != after.steering_id:
        detail = f"the clock was steered by {before.steering_id} and is now steered by {after.steering_id}"
        yield Reason(ReasonCode.STEERING_CHANGED, detail)
