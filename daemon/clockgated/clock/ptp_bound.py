"""From a look at a PTP clock to evidence: the error bound, the gates that are not true, and beside them an estimate.

    bound = O + P + H + J + (drift + |F|) * age + S

O is the largest offset of the last Syncs, P what the asymmetry of the path can hide, H an allowance for boundary
clocks, J the floor of time stamps, age that of the last Sync, F the correction with which the servo has run the clock
since then, S how far CLOCK_REALTIME is from the hardware clock. P is the whole mean path delay: with d1 one way and d2
back the error is |d1 - d2| / 2, at most (d1 + d2) / 2, which is just what PTP calls the mean path delay. The bound
against UTC adds the accuracy that the grandmaster claims.

Whoever holds a reading does not see what the servo does by the Syncs that follow: one that was delayed on its way moves
the clock by as much as the servo may correct. So a reading of a clock that a servo steers grows at that rate as well.
"""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from clockgated.clock.details import ptp_details
from clockgated.clock.model import Evidence, Reason, ReasonCode, Reference, SourceKind, Traceability
from clockgated.clock.ptp_report import PortState, PtpReport, SystemOffset
from clockgated.clock.ptp_window import PtpWindow, age_ns, extended
from clockgated.clock.witness import grandmaster_changed, tai_slip, two_grandmasters
from clockgated.units import NS_PER_MS, NS_PER_S, NS_PER_US, PPB_PER_PPM

# Upper edges of gm.ClockAccuracy, ns: IEEE 1588-2008, table 6. Other codes give no bound.
_ACCURACY_NS = {
    0x20: 25, 0x21: 100, 0x22: 250, 0x23: 1_000, 0x24: 2_500, 0x25: 10_000, 0x26: 25_000, 0x27: 100_000,
    0x28: 250_000, 0x29: 1_000_000, 0x2A: 2_500_000, 0x2B: 10_000_000, 0x2C: 25_000_000, 0x2D: 100_000_000,
    0x2E: 250_000_000, 0x2F: NS_PER_S, 0x30: 10 * NS_PER_S,
}  # fmt: skip
# Every class of IEEE 1588 and of the telecom profiles but 255, which never becomes master.
_ALL_CLASSES = frozenset({6, 7, 13, 14, 52, 58, 135, 140, 150, 160, 165, 187, 193, 248})
# Locked to a primary reference, or in holdover within specification after having been.
_TRACEABLE_CLASSES = frozenset({6, 7, 13, 14})
# Few offsets show little of their spread: until the window is full, this many standard deviations are added.
_SMALL_WINDOW_SIGMAS = 4
_ESTIMATE_SIGMAS = 2


class Stamps(Enum):
    """Where packets are stamped, hence which clock ptp4l measures: the interface's own, or CLOCK_REALTIME."""

    HARDWARE = auto()
    SOFTWARE = auto()


class Steering(Enum):
    """Who is meant to move CLOCK_REALTIME: linuxptp, chronyd (PTP feeds it as a reference clock), or nobody."""

    PTP = auto()
    CHRONYD = auto()
    NOBODY = auto()


@dataclass(frozen=True)
class PtpPolicy:
    """What the bound assumes and what the gates demand.

    `max_frequency_ppb` is the largest correction that the servos are configured to make. `asymmetry_ns` is what an
    operator vouches for instead of the whole path delay. `hop_allowance_ns` is granted for
    each boundary clock, which cannot be seen from here. `is_slave_demanded` is False where ptp4l has a servo that
    steers nothing (ntpshm, refclock_sock, free_running): its port stays UNCALIBRATED for ever. `min_syncs` make a full
    window, `window_syncs` are kept. A Sync is stale after `stale_intervals` intervals plus `stale_margin_ns`.
    """

    domain: int = 0
    stamps: Stamps = Stamps.HARDWARE
    steering: Steering = Steering.PTP
    is_slave_demanded: bool = True
    max_drift_ppb: int = 50_000
    max_frequency_ppb: int = 500_000
    asymmetry_ns: int | None = None
    hop_allowance_ns: int = 1_000
    stamp_resolution_ns: int = 8
    software_floor_ns: int = 10_000
    accepted_classes: frozenset[int] = _ALL_CLASSES
    min_syncs: int = 8
    window_syncs: int = 16
    stale_intervals: int = 3
    stale_margin_ns: int = NS_PER_S
    grandmaster_memory_ns: int = 300 * NS_PER_S


@dataclass(frozen=True)
class PtpLook:
    """What we read ourselves around one report.

    `as_of_boot_ns` is read before pmc is asked. `now_ns` is the clock in whose time the Syncs are stamped, read after
    the answer, so that ages come out too long; None when the hardware clock cannot be read. `system` is None with
    software stamps, where ptp4l measures CLOCK_REALTIME itself, and when nobody measured it. `correction_ppb` is that
    in force on the clock that ptp4l measures, either sign; None when it is not known. `table_utc_offset_s` is TAI - UTC
    by this node's leap-second table, None without one. `faults` and `remarks` are those of other witnesses.
    """

    as_of_boot_ns: int
    now_ns: int | None
    system: SystemOffset | None = None
    correction_ppb: float | None = None
    table_utc_offset_s: int | None = None
    faults: tuple[Reason, ...] = ()
    remarks: tuple[Reason, ...] = ()
    is_leap_in_progress: bool = False
    steering_id: str | None = None


@dataclass(frozen=True)
class PtpTerms:
    """The parts of the relative bound, ns; see the head of this file."""

    offset_ns: int
    asymmetry_ns: int
    hops_ns: int
    stamp_floor_ns: int
    ageing_ns: int
    system_ns: int

    @property
    def bound_ns(self) -> int:
        """Their sum: the relative bound."""
        path_ns = self.asymmetry_ns + self.hops_ns + self.stamp_floor_ns
        return self.offset_ns + path_ns + self.ageing_ns + self.system_ns


@dataclass(frozen=True)
class PtpJudgement:
    """One look judged: evidence for the state machine, and the window for the next look.

    `terms` is None when there is no bound.
    """

    evidence: Evidence
    window: PtpWindow
    terms: PtpTerms | None


def judge(report: PtpReport, look: PtpLook, window: PtpWindow, policy: PtpPolicy) -> PtpJudgement:
    """Judge one report beside our own look at the clocks."""
    window = extended(
        window,
        report,
        look.as_of_boot_ns,
        is_port_open=_is_port_open(report, policy),
        capacity=policy.window_syncs,
        memory_ns=policy.grandmaster_memory_ns,
    )
    sync_age_ns = None if report.ingress_ns is None else age_ns(window, look.as_of_boot_ns, look.now_ns)
    terms = _terms(report, look, window, policy, sync_age_ns)
    bound_ns = terms.bound_ns if terms else None
    accuracy_ns, utc_remarks = _reference_accuracy(report, look)
    evidence = Evidence(
        kind=SourceKind.PTP,
        as_of_boot_ns=look.as_of_boot_ns,
        bound_ns=bound_ns,
        utc_bound_ns=None if bound_ns is None or accuracy_ns is None else bound_ns + accuracy_ns,
        offset_ns=report.offset_ns + (look.system.offset_ns if look.system else 0) if terms else None,
        reference=_reference(report, policy),
        faults=(*_closed_gates(report, look, window, policy, sync_age_ns), *look.faults),
        remarks=(*utc_remarks, *look.remarks),
        assumptions=tuple(_assumptions(report, policy)),
        leap_in_progress=look.is_leap_in_progress,
        steering_id=look.steering_id,
        growth_ppb=policy.max_drift_ppb,
        steering_ppb=policy.max_frequency_ppb if policy.steering is Steering.PTP else 0,
        update_id=None if report.ingress_ns is None else str(report.ingress_ns),
        is_provisional=len(window.syncs) < policy.min_syncs,
        estimate_95_ns=_estimate_95_ns(look, window) if terms else None,
        details=ptp_details(report),
    )
    return PtpJudgement(evidence, window, terms)


def _has_grandmaster(report: PtpReport) -> bool:
    return report.is_grandmaster_present and report.grandmaster_id != report.own_clock_id


def _is_port_open(report: PtpReport, policy: PtpPolicy) -> bool:
    return report.port_state is PortState.SLAVE or not policy.is_slave_demanded


def _terms(
    report: PtpReport, look: PtpLook, window: PtpWindow, policy: PtpPolicy, sync_age_ns: int | None
) -> PtpTerms | None:
    """The bound in parts; None when what is reported is stale, or a part is not known."""
    is_hardware = policy.stamps is Stamps.HARDWARE
    if not _has_grandmaster(report) or sync_age_ns is None or not window.syncs or (is_hardware and not look.system):
        return None
    system_ns, system_age_ns = 0, 0
    if look.system:
        system_ns, system_age_ns = abs(look.system.offset_ns) + look.system.error_ns, look.system.age_ns
    floor_ns = 2 * policy.stamp_resolution_ns if is_hardware else max(policy.software_floor_ns, window.delay_jitter_ns)
    asymmetry_ns = abs(report.path_delay_ns) if policy.asymmetry_ns is None else policy.asymmetry_ns
    return PtpTerms(
        offset_ns=_worst_offset_ns(window, policy, floor_ns),
        asymmetry_ns=asymmetry_ns,
        hops_ns=max(0, report.steps_removed - 1) * policy.hop_allowance_ns,
        stamp_floor_ns=floor_ns,
        ageing_ns=_ageing_ns(look, policy, sync_age_ns, system_age_ns),
        system_ns=system_ns,
    )


def _ageing_ns(look: PtpLook, policy: PtpPolicy, sync_age_ns: int, system_age_ns: int) -> int:
    """How far the measured clocks may have run away since: oscillators by their drift, and by what corrects them."""
    if look.correction_ppb is not None:
        corrected_ppb = math.ceil(abs(look.correction_ppb))
    else:
        corrected_ppb = policy.max_frequency_ppb if policy.steering is Steering.PTP else 0
    drifted_ns = -(-policy.max_drift_ppb * (sync_age_ns + system_age_ns) // NS_PER_S)
    return drifted_ns - (-corrected_ppb * sync_age_ns // NS_PER_S)


def _worst_offset_ns(window: PtpWindow, policy: PtpPolicy, floor_ns: int) -> int:
    worst_ns = window.worst_offset_ns
    if len(window.syncs) >= policy.min_syncs:
        return worst_ns
    if len(window.syncs) == 1:
        return worst_ns + _SMALL_WINDOW_SIGMAS * floor_ns
    spread_ns = statistics.stdev(sync.offset_ns for sync in window.syncs)
    return worst_ns + math.ceil(_SMALL_WINDOW_SIGMAS * spread_ns)


def _estimate_95_ns(look: PtpLook, window: PtpWindow) -> int:
    """Mean offset and two standard deviations of it, beside what is measured of CLOCK_REALTIME; for people alone.

    It knows nothing of asymmetry nor of a false grandmaster.
    """
    offsets_ns = [sync.offset_ns for sync in window.syncs]
    noise_ns = _ESTIMATE_SIGMAS * statistics.pstdev(offsets_ns)
    system_ns = abs(look.system.offset_ns) + look.system.error_ns if look.system else 0
    return math.ceil(abs(statistics.fmean(offsets_ns)) + noise_ns) + system_ns


def _reference_accuracy(report: PtpReport, look: PtpLook) -> tuple[int | None, tuple[Reason, ...]]:
    """What the grandmaster is worth against UTC, ns, or None and why."""
    remarks = tuple(_utc_doubts(report, look))
    return (None, remarks) if remarks else (_ACCURACY_NS[report.grandmaster_accuracy], ())


def _utc_doubts(report: PtpReport, look: PtpLook) -> Iterator[Reason]:
    name = f"grandmaster {report.grandmaster_id}"
    if report.grandmaster_class not in _TRACEABLE_CLASSES:
        detail = f"{name} (class {report.grandmaster_class}) follows no primary reference: nothing ties it to UTC"
        yield Reason(ReasonCode.ISLAND, detail)
    if report.grandmaster_accuracy not in _ACCURACY_NS:
        detail = f"{name} claims accuracy {report.grandmaster_accuracy:#04x}, which is no bound; wanted 0x20 to 0x30"
        yield Reason(ReasonCode.GRANDMASTER_ACCURACY_UNKNOWN, detail)
    doubt = _utc_offset_doubt(report, look)
    if doubt:
        yield Reason(ReasonCode.UTC_OFFSET_INVALID, f"{name} {doubt}; only the relative bound holds")


def _utc_offset_doubt(report: PtpReport, look: PtpLook) -> str | None:
    if not report.is_ptp_timescale:
        return "does not serve the PTP timescale (ptpTimescale 0)"
    if not report.is_utc_offset_valid:
        return f"does not vouch for its UTC offset of {report.utc_offset_s} s (currentUtcOffsetValid 0)"
    if look.table_utc_offset_s is None:
        return f"says TAI - UTC is {report.utc_offset_s} s, but this node has no leap-second table (install tzdata)"
    if look.table_utc_offset_s != report.utc_offset_s:
        return f"says TAI - UTC is {report.utc_offset_s} s; this node's table says {look.table_utc_offset_s} s"
    return None


def _reference(report: PtpReport, policy: PtpPolicy) -> Reference:
    if not _has_grandmaster(report):
        return Reference()
    traceability = Traceability.NO
    if report.grandmaster_class in _TRACEABLE_CLASSES:
        traceability = Traceability.YES if report.is_time_traceable else Traceability.UNKNOWN
    return Reference(
        # Two domains of one grandmaster are two clocks.
        identity=f"ptp:{report.grandmaster_id}/{policy.domain}",
        source_name=report.parent_port_id,
        traceability=traceability,
    )


def _closed_gates(
    report: PtpReport, look: PtpLook, window: PtpWindow, policy: PtpPolicy, sync_age_ns: int | None
) -> Iterator[Reason]:
    if not _is_port_open(report, policy):
        yield Reason(ReasonCode.PORT_NOT_SLAVE, f"ptp4l's port is {report.port_state.value}; wanted SLAVE")
    if not report.is_grandmaster_present:
        yield Reason(ReasonCode.GRANDMASTER_LOST, "ptp4l has no grandmaster; is one up in this domain and segment?")
    elif report.grandmaster_id == report.own_clock_id:
        yield Reason(ReasonCode.LOCAL_REFERENCE, "this node is its own grandmaster; wanted one that it follows")
    elif report.grandmaster_class not in policy.accepted_classes:
        accepted = ", ".join(map(str, sorted(policy.accepted_classes)))
        detail = f"the class of grandmaster {report.grandmaster_id} is {report.grandmaster_class}; wanted {accepted}"
        yield Reason(ReasonCode.GRANDMASTER_CLASS, detail)
    yield from _sync_gates(report, look, policy, sync_age_ns)
    yield from _path_gates(report, look, window, policy)


def _sync_gates(report: PtpReport, look: PtpLook, policy: PtpPolicy, sync_age_ns: int | None) -> Iterator[Reason]:
    limit_ns = policy.stale_intervals * report.sync_interval_ns + policy.stale_margin_ns
    if report.ingress_ns is None:
        yield Reason(ReasonCode.INGRESS_STALE, "ptp4l has no Sync of its grandmaster (ingress_time 0)")
    elif sync_age_ns is None:
        yield Reason(ReasonCode.INGRESS_STALE, "the age of the last Sync is not known before the next one")
    elif sync_age_ns > limit_ns:
        detail = f"the last Sync is {sync_age_ns / NS_PER_S:.3f} s old; wanted at most {limit_ns / NS_PER_S:.3f} s"
        yield Reason(ReasonCode.INGRESS_STALE, detail)
    if report.ingress_ns is not None and look.now_ns is not None:
        ahead_ns = report.ingress_ns - look.now_ns
        if ahead_ns > policy.stale_margin_ns:
            detail = (
                f"the last Sync is stamped {ahead_ns / NS_PER_MS:.6g} ms in the future; "
                f"wanted at most {policy.stale_margin_ns / NS_PER_MS:g} ms"
            )
            yield Reason(ReasonCode.REFERENCE_IN_FUTURE, detail)


def _path_gates(report: PtpReport, look: PtpLook, window: PtpWindow, policy: PtpPolicy) -> Iterator[Reason]:
    # Noise of the stamps can make a short path come out a little below zero; more is a fault of theirs.
    floor_ns = 2 * policy.stamp_resolution_ns if policy.stamps is Stamps.HARDWARE else policy.software_floor_ns
    if report.path_delay_ns < -floor_ns:
        detail = f"the path delay is {report.path_delay_ns / NS_PER_US:.6g} us; wanted 0 or more: check the stamps"
        yield Reason(ReasonCode.WITNESS_DISAGREES, detail)
    tai_offset_s = look.table_utc_offset_s or report.utc_offset_s
    slips = (
        tai_slip("CLOCK_REALTIME beside the hardware clock", look.system.offset_ns, tai_offset_s)
        if look.system
        else None,
        tai_slip("the clock that ptp4l measures", report.offset_ns, tai_offset_s),
        grandmaster_changed(window.trail, len(window.syncs), policy.min_syncs),
        two_grandmasters(window.trail),
    )
    yield from (reason for reason in slips if reason)


def _assumptions(report: PtpReport, policy: PtpPolicy) -> Iterator[str]:
    yield f"the clock drifts by at most {policy.max_drift_ppb / PPB_PER_PPM:g} ppm when nobody steers it"
    if policy.steering is Steering.PTP:
        yield f"the PTP servo corrects the clock by at most {policy.max_frequency_ppb / PPB_PER_PPM:g} ppm"
    if policy.asymmetry_ns is not None:
        yield f"the path to the grandmaster is symmetric to within {policy.asymmetry_ns} ns, as the configuration says"
    hops = report.steps_removed - 1
    if hops > 0:
        yield f"each of the {hops} boundary clocks on the path errs by at most {policy.hop_allowance_ns} ns"
    if policy.stamps is Stamps.SOFTWARE:
        yield f"software time stamps are delayed unequally by at most {policy.software_floor_ns} ns plus their jitter"
