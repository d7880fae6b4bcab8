"""From a report of chronyd to evidence: the error bound, and the gates that are not true.

The bound is what NTP calls root distance, |correction| + root dispersion + root delay / 2, with the dispersion aged
again at the drift that we promise (RFC 5905, section 11.2; chronyd ages it at its `maxclockerror`, 1 ppm unless set).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address

from clockgated.clock.details import chrony_details
from clockgated.clock.model import Evidence, Reason, ReasonCode, Reference, SourceKind, Traceability
from clockgated.clock.report import ChronyReport, LeapStatus, SourceLine, Tracking
from clockgated.units import NS_PER_MS, NS_PER_S, PPB_PER_PPM

_UNSYNCHRONISED_REF_ID = "00000000"
# 127.127.1.x is the local clock of chronyd and ntpd, "LOCL" its name at stratum 1.
_LOCAL_REF_ID_PREFIX = "7F7F01"
_LOCAL_REF_ID_NAME = "4C4F434C"
_STALE_INTERVALS = 8
_NEVER_UPDATED = "never"


@dataclass(frozen=True)
class BoundPolicy:
    """What the bound assumes.

    `max_drift_ppb` is the drift that we promise to cover, `assumed_clockerror_ppb` the one that chronyd covers
    already (its `maxclockerror`), `floor_ns` what reading clocks costs, `max_skew_ppb` the largest uncertainty of the
    frequency that still counts as measured.
    """

    max_drift_ppb: int = 50_000
    assumed_clockerror_ppb: int = 1_000
    floor_ns: int = 1_000
    max_skew_ppb: int = 100_000


def grown_ns(bound_ns: int, growth_ppb: int, age_ns: int) -> int:
    """`bound_ns` after `age_ns` more nanoseconds at `growth_ppb`, rounded up; a negative age counts as none.

    Clients have the same function in clockgate/rule.py; a test compares them.
    """
    return bound_ns + -(-growth_ppb * max(age_ns, 0) // NS_PER_S)


def chrony_evidence(
    report: ChronyReport,
    *,
    as_of_boot_ns: int,
    wall_ns: int,
    policy: BoundPolicy,
    node_id: str,
    steering_id: str | None,
) -> Evidence:
    """Judge one report.

    `as_of_boot_ns` is read before the query, so that the reading is never younger than it says. `wall_ns`, against
    which the reference time is aged, is read after the answer: an age too long only widens the bound, and an update
    during the query is not mistaken for one in the future. `node_id` separates references that only exist on one node.
    """
    tracking = report.tracking
    if tracking.ref_id == _UNSYNCHRONISED_REF_ID or _is_local(tracking.ref_id):
        without = _without_bound(tracking, as_of_boot_ns, steering_id)
        return replace(without, details=chrony_details(report, wall_ns))
    traceability, remarks, assumptions = _traceability(report)
    bound_ns = _bound_ns(tracking, wall_ns, policy)
    is_leaping = tracking.leap_status is LeapStatus.UNSYNCHRONISED
    if is_leaping:
        remarks += (Reason(ReasonCode.LEAP_IN_PROGRESS, "chronyd is inside a leap second; the last bound is kept"),)
    return Evidence(
        kind=SourceKind.CHRONY,
        as_of_boot_ns=as_of_boot_ns,
        bound_ns=bound_ns,
        utc_bound_ns=None if traceability is Traceability.NO else bound_ns,
        offset_ns=tracking.offset_ns,
        reference=Reference(
            identity=_identity(tracking.source_name, node_id),
            source_name=tracking.source_name,
            stratum=tracking.stratum,
            ref_id=tracking.ref_id,
            traceability=traceability,
        ),
        faults=tuple(_closed_gates(report, bound_ns, wall_ns, policy)),
        remarks=remarks,
        assumptions=(_drift_assumption(policy), *assumptions),
        leap_in_progress=is_leaping,
        steering_id=steering_id,
        growth_ppb=_growth_ppb(tracking, policy),
        update_id=_NEVER_UPDATED if tracking.ref_wall_ns is None else str(tracking.ref_wall_ns),
        is_combined=any(line.is_combined for line in report.sources),
        oldest_sample_ns=_oldest_sample_ns(report.sources),
        last_offset_ns=tracking.last_offset_ns,
        details=chrony_details(report, wall_ns),
    )


def _oldest_sample_ns(sources: tuple[SourceLine, ...]) -> int | None:
    ages_s = [line.oldest_sample_s for line in sources if line.is_selected or line.is_combined]
    told_s = [age_s for age_s in ages_s if age_s is not None]
    return max(told_s) * NS_PER_S if told_s else None


def _bound_ns(tracking: Tracking, wall_ns: int, policy: BoundPolicy) -> int:
    covered_ppb = policy.assumed_clockerror_ppb + tracking.skew_ppb + abs(tracking.residual_ppb)
    age_ns = 0 if tracking.ref_wall_ns is None else wall_ns - tracking.ref_wall_ns
    dispersion_ns = grown_ns(tracking.root_dispersion_ns, max(0, policy.max_drift_ppb - covered_ppb), age_ns)
    half_delay_ns = -(-tracking.root_delay_ns // 2)
    return abs(tracking.offset_ns) + dispersion_ns + half_delay_ns + policy.floor_ns


def _growth_ppb(tracking: Tracking, policy: BoundPolicy) -> int:
    # chronyd's own bound grows at this rate; ours must not grow slower between two measurements.
    own_ppb = policy.assumed_clockerror_ppb + tracking.skew_ppb + abs(tracking.residual_ppb)
    return max(policy.max_drift_ppb, own_ppb)


def _closed_gates(report: ChronyReport, bound_ns: int, wall_ns: int, policy: BoundPolicy) -> Iterator[Reason]:
    tracking = report.tracking
    if tracking.leap_status is LeapStatus.INVALID:
        yield Reason(ReasonCode.SOURCE_UNSYNCHRONISED, "chronyd's leap status is Invalid; wanted Normal")
    if not 1 <= tracking.stratum <= 15:
        detail = f"chronyd's stratum is {tracking.stratum}; wanted 1 to 15"
        yield Reason(ReasonCode.STRATUM_OUT_OF_RANGE, detail)
    if tracking.skew_ppb > policy.max_skew_ppb:
        detail = (
            f"chronyd's skew is {tracking.skew_ppb / PPB_PER_PPM:g} ppm; wanted at most "
            f"{policy.max_skew_ppb / PPB_PER_PPM:g} ppm, which takes a few samples"
        )
        yield Reason(ReasonCode.SKEW_TOO_LARGE, detail)
    selected = [line for line in report.sources if line.is_selected]
    if len(selected) != 1 or selected[0].reach == 0:
        yield Reason(ReasonCode.NO_SELECTED_SOURCE, _selection(report.sources, selected))
    yield from _reference_time_gates(tracking, selected, bound_ns, wall_ns)


def _reference_time_gates(
    tracking: Tracking, selected: list[SourceLine], bound_ns: int, wall_ns: int
) -> Iterator[Reason]:
    if tracking.ref_wall_ns is None:
        yield Reason(ReasonCode.REFERENCE_STALE, "chronyd never updated its reference time")
        return
    age_ns = wall_ns - tracking.ref_wall_ns
    polls_ns = (int(2.0**line.poll_log2_s * NS_PER_S) for line in selected)
    limit_ns = _STALE_INTERVALS * max(tracking.update_interval_ns, *polls_ns, 0)
    if age_ns > limit_ns:
        detail = f"the last update is {age_ns / NS_PER_S:.1f} s old; wanted at most {limit_ns / NS_PER_S:.1f} s"
        yield Reason(ReasonCode.REFERENCE_STALE, detail)
    if -age_ns > bound_ns:
        detail = (
            f"the reference time is {-age_ns / NS_PER_MS:.6g} ms in the future; "
            f"wanted at most the bound of {bound_ns / NS_PER_MS:.6g} ms"
        )
        yield Reason(ReasonCode.REFERENCE_IN_FUTURE, detail)


def _selection(sources: tuple[SourceLine, ...], selected: list[SourceLine]) -> str:
    if not sources:
        return "chronyd has no source; add a server or pool line to its configuration"
    if not selected:
        return f"none of chronyd's {len(sources)} sources is selected; wanted one"
    if len(selected) > 1:
        names = ", ".join(line.name for line in selected)
        return f"{len(selected)} sources are selected ({names}); wanted one"
    return f"the selected source {selected[0].name} answered none of the last 8 polls"


def _traceability(report: ChronyReport) -> tuple[Traceability, tuple[Reason, ...], tuple[str, ...]]:
    """Look one hop up. A chain that cannot be seen to its end is taken as it claims, which is an assumption."""
    name = report.tracking.source_name
    lines = [line for line in report.sources if line.name == name]
    upstreams = [upstream for upstream in report.upstreams or () if upstream.address == name]
    if any(_is_local(upstream.ref_id) for upstream in upstreams):
        remark = Reason(ReasonCode.ISLAND, f"the server {name} is its own reference: nothing ties it to UTC")
        return Traceability.NO, (remark,), ()
    if any(line.is_refclock for line in lines):
        return Traceability.UNKNOWN, (), (f"the reference clock {name} shows UTC",)
    if upstreams and lines and all(line.stratum == 1 for line in lines):
        return Traceability.YES, (), (f"the clock of the stratum-1 server {name} shows UTC",)
    return Traceability.UNKNOWN, (), (f"the chain of servers above {name or 'the reference'} ends at UTC as it claims",)


def _without_bound(tracking: Tracking, as_of_boot_ns: int, steering_id: str | None) -> Evidence:
    """A node without a reference. Its report shows a distance of 0 or of 1 s; neither is a bound."""
    if _is_local(tracking.ref_id):
        detail = f"chronyd is its own reference (local stratum {tracking.stratum}); wanted a server that it follows"
        fault, traceability = Reason(ReasonCode.LOCAL_REFERENCE, detail), Traceability.NO
    else:
        detail = "chronyd is not synchronised; see `chronyc sources`"
        fault, traceability = Reason(ReasonCode.SOURCE_UNSYNCHRONISED, detail), Traceability.UNKNOWN
    return Evidence(
        kind=SourceKind.CHRONY,
        as_of_boot_ns=as_of_boot_ns,
        bound_ns=None,
        utc_bound_ns=None,
        offset_ns=None,
        reference=Reference(
            source_name=tracking.source_name,
            stratum=tracking.stratum or None,
            ref_id=tracking.ref_id,
            traceability=traceability,
        ),
        faults=(fault,),
        steering_id=steering_id,
        update_id=_NEVER_UPDATED,
    )


def _identity(source_name: str, node_id: str) -> str | None:
    """Name of the reference across nodes. A reference clock has none: each node reads its own device."""
    try:
        address = ip_address(source_name)
    except ValueError:
        return None
    if address.is_loopback or address.is_link_local:
        # The same text means another server on every node.
        return f"ntp:{source_name}@{node_id}"
    return f"ntp:{source_name}"


def _is_local(ref_id: str) -> bool:
    return ref_id.startswith(_LOCAL_REF_ID_PREFIX) or ref_id == _LOCAL_REF_ID_NAME


def _drift_assumption(policy: BoundPolicy) -> str:
    return f"the clock drifts by at most {policy.max_drift_ppb / PPB_PER_PPM:g} ppm when nobody steers it"
