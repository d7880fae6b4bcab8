"""What to do about a knob that is no longer as it was set: tell, set it again a few times, or leave it to others. Pure.

Never fight: after two rounds against the same other writer the knob is theirs until the next apply. Time is
CLOCK_BOOTTIME, ns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from clockgated.units import NS_PER_S

HOUR_NS = 3600 * NS_PER_S
MOST_ROUNDS = 2
UNKNOWN_WRITER = "unknown"


class DriftAction(Enum):
    """What is done about it."""

    NOTHING = auto()
    """It is as it was set."""
    REPORT = auto()
    """It is told."""
    REASSERT = auto()
    """It is set again."""
    LEAVE = auto()
    """The same other writer changed it again and again: it is theirs."""


@dataclass(frozen=True)
class DriftPolicy:
    """`may_reassert`: this knob is set again, at most `per_hour` times; everything else is only reported."""

    may_reassert: bool = False
    per_hour: int = 3


@dataclass(frozen=True)
class Round:
    """The knob was set again at `at_boot_ns`, against what `writer` had made of it; UNKNOWN_WRITER is one as well."""

    at_boot_ns: int
    writer: str


def judge(
    rounds: Sequence[Round], writer: str, now_boot_ns: int, policy: DriftPolicy, *, is_as_set: bool
) -> tuple[DriftAction, str]:
    """What to do and why. `rounds` are the times that this knob was set again since its apply, the oldest first."""
    if is_as_set:
        return DriftAction.NOTHING, ""
    by = "by a writer that is not known" if writer == UNKNOWN_WRITER else f"by {writer}"
    against = sum(one.writer == writer for one in rounds)
    if against >= MOST_ROUNDS:
        return DriftAction.LEAVE, (
            f"changed {by}, again after it was set {against} times: left to them; settle who owns it, then plan and "
            "apply"
        )
    if not policy.may_reassert:
        return DriftAction.REPORT, f"changed {by}"
    recent = sum(now_boot_ns - one.at_boot_ns < HOUR_NS for one in rounds)
    if recent >= policy.per_hour:
        return DriftAction.REPORT, f"changed {by}; set again {recent} times within the hour, which is the limit"
    return DriftAction.REASSERT, f"changed {by}; set again"
