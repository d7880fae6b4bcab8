"""Whether a change that may cut the node off is proven not to have done so. Pure; time is an argument."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, auto

from clockgated.tuning.interlock import ClockLook
from clockgated.units import NS_PER_S


class Decision(Enum):
    """What to do with a change that is made and not yet confirmed."""

    CONFIRM = auto()
    WAIT = auto()
    UNDO = auto()


@dataclass(frozen=True)
class Target:
    """Something that answers: an address, with `port` for a TCP connection. `ifindex`: the way to it; 0 is unknown."""

    name: str
    address: str
    port: int | None = None
    ifindex: int = 0


@dataclass(frozen=True)
class Look:
    """What could be reached at one moment, by name, and what the clock rested on."""

    reached: AbstractSet[str]
    clock: ClockLook


@dataclass(frozen=True)
class Patience:
    """How long proof is waited for after the change, and for how long after it nothing counts as proof, ns.

    A link goes down some time after it was told to, and until then everything looks well.
    """

    limit_ns: int = 55 * NS_PER_S
    settle_ns: int = 2 * NS_PER_S


def judge(
    before: Look, after: Look, changed_boot_ns: int, now_boot_ns: int, patience: Patience
) -> tuple[Decision, str]:
    """What to do, and what proof is missing. Evidence of the clock that is older than the change proves nothing."""
    since_change_ns = now_boot_ns - changed_boot_ns
    missing = [f"{name} is not reached" for name in sorted(before.reached - after.reached)]
    has_lock = after.clock.is_ptp_locked and after.clock.as_of_boot_ns >= changed_boot_ns + patience.settle_ns
    if before.clock.is_ptp_locked and not has_lock:
        missing.append("PTP is not locked again")
    if not missing and since_change_ns >= patience.settle_ns:
        return Decision.CONFIRM, ""
    why = "; ".join(missing)
    return (Decision.UNDO if missing and since_change_ns >= patience.limit_ns else Decision.WAIT), why
