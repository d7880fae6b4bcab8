"""Whether time passed without a break between two looks at the host's clocks.

The kernel derives CLOCK_REALTIME, CLOCK_MONOTONIC and CLOCK_BOOTTIME from one timekeeper: slewing moves all three
alike, so only setting the wall clock changes REALTIME - BOOTTIME, and only sleep changes BOOTTIME - MONOTONIC.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from clockgated.clock.model import Reason, ReasonCode
from clockgated.units import NS_PER_MS, NS_PER_S, NS_PER_US

# Less than every bound allows for reading clocks.
_LEAST_STEP_NS = NS_PER_US
# No suspend is this short.
_SHORTEST_SUSPEND_NS = NS_PER_MS


@dataclass(frozen=True)
class Look:
    """One look at the clocks, ns, read at most `error_ns` apart, and who steered them, when known."""

    boot_ns: int
    mono_ns: int
    wall_ns: int
    steering_id: str | None = None
    error_ns: int = 0


@dataclass(frozen=True)
class Continuity:
    """The breaks between two looks; none means that what held before, aged, still holds.

    `set_back_ns` is how far the wall clock was set back: by so much everything before it looks younger to whoever
    dates it by that clock. `is_known_to_source`: it was the source's own doing, or none of what it measured before is
    left, so that its next measurement is as good as any.
    """

    breaks: tuple[Reason, ...] = ()
    set_back_ns: int = 0
    is_known_to_source: bool = False

    @property
    def is_broken(self) -> bool:
        """Whether anything broke."""
        return bool(self.breaks)


UNBROKEN = Continuity()


def continuity_between(before: Look, after: Look, leap_in_progress: bool) -> Continuity:
    """Compare two looks of one boot.

    Every step counts, however small beside the bound: a time daemon that did not make it goes on computing with what
    it measured before it. A leap second moves the wall clock by one second without a break. Every adjuster is foreign
    here: slewing is its business.
    """
    breaks = tuple(_breaks(before, after, leap_in_progress))
    if not breaks:
        return UNBROKEN
    return Continuity(
        breaks,
        set_back_ns=max(0, -jump_between_ns(before, after)),
        # Another process has not measured anything yet.
        is_known_to_source=all(reason.code is ReasonCode.STEERING_CHANGED for reason in breaks),
    )


def jump_between_ns(before: Look, after: Look) -> int:
    """How far the wall clock was set between two looks of one boot, ns; positive: forward."""
    return (after.wall_ns - after.boot_ns) - (before.wall_ns - before.boot_ns)


def _breaks(before: Look, after: Look, leap_in_progress: bool) -> Iterator[Reason]:
    jump_ns = jump_between_ns(before, after)
    unexplained_ns = abs(jump_ns)
    if leap_in_progress:
        unexplained_ns = min(unexplained_ns, abs(unexplained_ns - NS_PER_S))
    if unexplained_ns > before.error_ns + after.error_ns + _LEAST_STEP_NS:
        detail = f"the wall clock was set by {jump_ns / NS_PER_MS:+.6g} ms at once"
        yield Reason(ReasonCode.CLOCK_STEPPED, detail)
    asleep_ns = (after.boot_ns - after.mono_ns) - (before.boot_ns - before.mono_ns)
    if asleep_ns > _SHORTEST_SUSPEND_NS:
        yield Reason(ReasonCode.SUSPENDED, f"the machine was suspended for {asleep_ns / NS_PER_S:.3f} s")
    if before.steering_id and after.steering_id and before.steering_id != after.steering_id:
        detail = f"the clock was steered by {before.steering_id} and is now steered by {after.steering_id}"
        yield Reason(ReasonCode.STEERING_CHANGED, detail)
