"""The last Syncs of the grandmaster that is followed: the history that a PTP bound needs, as a value."""

from dataclasses import dataclass, field, replace

from clockgated.clock.ptp_report import PtpReport
from clockgated.clock.witness import GrandmasterTrail


@dataclass(frozen=True)
class Sync:
    """One Sync as measured: its local stamp, the offset (positive: local clock ahead), half the round trip, ns."""

    ingress_ns: int
    offset_ns: int
    path_delay_ns: int


@dataclass(frozen=True)
class PtpWindow:
    """What is remembered from one look to the next; the empty window is the start.

    `syncs` are those of the grandmaster now followed, from while the port was open, oldest first. `ingress_ns` is the
    stamp of the newest Sync; a look at `seen_boot_ns` was the first to show it and one at `unseen_boot_ns`, when there
    was one, the last not to.
    """

    trail: GrandmasterTrail = field(default_factory=GrandmasterTrail)
    syncs: tuple[Sync, ...] = ()
    ingress_ns: int | None = None
    seen_boot_ns: int = 0
    unseen_boot_ns: int | None = None
    looked_boot_ns: int | None = None

    @property
    def worst_offset_ns(self) -> int:
        """Largest offset either way, 0 in an empty window."""
        return max((abs(sync.offset_ns) for sync in self.syncs), default=0)

    @property
    def delay_jitter_ns(self) -> int:
        """Spread of the path delays, 0 in an empty window."""
        delays_ns = [sync.path_delay_ns for sync in self.syncs]
        return max(delays_ns) - min(delays_ns) if delays_ns else 0


def extended(
    window: PtpWindow, report: PtpReport, as_of_boot_ns: int, *, is_port_open: bool, capacity: int, memory_ns: int
) -> PtpWindow:
    """The window after one more look.

    Without a grandmaster the report shows figures of better days: only the look itself is noted. `is_port_open` says
    whether ptp4l's servo is where it should be; what it measured before that, maybe from before a step, is dropped.
    `capacity` Syncs are kept; changes of grandmaster are forgotten after `memory_ns`.
    """
    looked = replace(window, looked_boot_ns=as_of_boot_ns)
    if not report.is_grandmaster_present or report.grandmaster_id == report.own_clock_id:
        return looked
    trail = window.trail.followed(report.grandmaster_id, as_of_boot_ns, memory_ns)
    is_same = bool(window.trail.changes) and window.trail.changes[-1][1] == report.grandmaster_id
    syncs = window.syncs if is_same and is_port_open else ()
    if report.ingress_ns is None or report.ingress_ns == window.ingress_ns:
        return replace(looked, trail=trail, syncs=syncs)
    if is_port_open:
        syncs = (*syncs, Sync(report.ingress_ns, report.offset_ns, report.path_delay_ns))[-capacity:]
    return PtpWindow(
        trail=trail,
        syncs=syncs,
        ingress_ns=report.ingress_ns,
        seen_boot_ns=as_of_boot_ns,
        unseen_boot_ns=window.looked_boot_ns,
        looked_boot_ns=as_of_boot_ns,
    )


def age_ns(window: PtpWindow, as_of_boot_ns: int, now_ns: int | None) -> int | None:
    """Age of the newest Sync, ns, rather too long than too short; None when there is none or nothing tells.

    By the clock that stamped it, `now_ns` minus the stamp; but never younger than our own watch says, as that clock may
    have been set back or stand still. Without it the Sync came, at the earliest, just after the last look that did not
    show it.
    """
    if window.ingress_ns is None:
        return None
    if now_ns is not None:
        return max(0, now_ns - window.ingress_ns, as_of_boot_ns - window.seen_boot_ns)
    return None if window.unseen_boot_ns is None else as_of_boot_ns - window.unseen_boot_ns
