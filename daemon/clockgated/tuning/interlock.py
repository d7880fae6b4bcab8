"""Whether a link may be reset now: not while a job holds a lease, nor while PTP alone keeps the time. Pure."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from clockgated.clock.model import ClockState, Reading, SourceKind
from clockgated.tuning.model import Change


@dataclass(frozen=True)
class ClockLook:
    """What the clock rests on. `is_ptp_locked` None: no PTP here. `as_of_boot_ns`: CLOCK_BOOTTIME of the evidence.

    `is_protected`: another source takes over by itself when PTP is lost.
    """

    as_of_boot_ns: int = 0
    is_ptp_locked: bool | None = None
    is_protected: bool = False


def clock_look(reading: Reading, ptp_sources: AbstractSet[str]) -> ClockLook:
    """What `reading` says about PTP. `ptp_sources` are chronyd's names of the reference clocks that PTP feeds."""
    is_good = reading.state is ClockState.SYNCHRONIZED
    if reading.source_kind is SourceKind.PTP:
        return ClockLook(reading.as_of_boot_ns, is_good)
    if reading.source_kind is SourceKind.CHRONY and ptp_sources:
        is_on_ptp = reading.reference.source_name in ptp_sources
        return ClockLook(reading.as_of_boot_ns, is_good and is_on_ptp, is_protected=True)
    return ClockLook(reading.as_of_boot_ns)


def reset_refusal(change: Change, lease_refusal: str | None, clock: ClockLook, *, ignore_leases: bool) -> str | None:
    """Why `change` has to wait, and what to do; None when it may be made.

    `lease_refusal` says which leases are open; an operator may choose to ignore those, never the clock.
    """
    if not change.resets_link:
        return None
    if lease_refusal is not None and not ignore_leases:
        return f"it resets the link, and {lease_refusal}, or `--ignore-leases`"
    if clock.is_ptp_locked and not clock.is_protected:
        return (
            "it resets the link, and the clock is locked to PTP with no other source to fall back on; set [clock] mode "
            'to "ptp+ntp", or make the change while PTP is not in use'
        )
    return None
