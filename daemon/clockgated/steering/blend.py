"""chronyd's evidence beside that of the PTP clocks that feed it. Pure.

chronyd alone steers, so its gates hold for every reading. What it knows of PTP is a reference clock of four letters.
While it follows one of those whose own gates are true, PTP's measurement of CLOCK_REALTIME against the grandmaster is
the evidence: made at every Sync, over the measured path, where chronyd looks every few seconds and takes the path from
its configuration. Else chronyd's own is, and PTP's faults are told beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from clockgated.clock.model import Evidence, Reason, Reference, Silence


@dataclass(frozen=True)
class Feeding:
    """What one PTP clock said this cycle, and the grandmaster that it last followed, None before the first."""

    measurement: Evidence | Silence
    grandmaster: Reference | None


def followed(previous: Reference | None, measurement: Evidence | Silence) -> Reference | None:
    """The grandmaster behind a reference clock: the one in sight, or the last one.

    chronyd goes on following the reference clock for some polls after PTP lost its grandmaster, by samples of that one.
    """
    if isinstance(measurement, Evidence) and measurement.reference.identity is not None:
        return measurement.reference
    return previous


def blended(chrony: Evidence | Silence, feeds: Mapping[str, Feeding]) -> Evidence | Silence:
    """One piece of evidence. `feeds` are keyed by chronyd's name of the reference clock."""
    if isinstance(chrony, Silence):
        return chrony
    selected = feeds.get(chrony.reference.source_name)
    if selected is not None:
        chrony = _through_ptp(chrony, selected)
    doubts = [reason for feed in feeds.values() for reason in _reasons(feed.measurement, is_all=feed is selected)]
    known = chrony.faults + chrony.remarks
    return replace(chrony, remarks=chrony.remarks + tuple(dict.fromkeys(one for one in doubts if one not in known)))


def _through_ptp(chrony: Evidence, feed: Feeding) -> Evidence:
    reference = chrony.reference
    if feed.grandmaster is not None:
        reference = replace(reference, identity=feed.grandmaster.identity, traceability=feed.grandmaster.traceability)
    ptp = feed.measurement
    if isinstance(ptp, Silence) or ptp.faults or ptp.bound_ns is None:
        # chronyd takes any reference clock for UTC; the grandmaster's word about that is not at hand.
        return replace(chrony, reference=reference, utc_bound_ns=None)
    return replace(
        chrony,
        bound_ns=ptp.bound_ns,
        utc_bound_ns=ptp.utc_bound_ns,
        offset_ns=ptp.offset_ns,
        reference=reference,
        assumptions=ptp.assumptions,
        growth_ppb=max(chrony.growth_ppb or 0, ptp.growth_ppb or 0),
        update_id=ptp.update_id,
        is_provisional=ptp.is_provisional,
        last_offset_ns=None,
        estimate_95_ns=ptp.estimate_95_ns,
        details=ptp.details + chrony.details,
    )


def _reasons(measurement: Evidence | Silence, *, is_all: bool) -> tuple[Reason, ...]:
    """What there is to tell; of a clock that is not followed only what keeps it from being so."""
    if isinstance(measurement, Silence):
        return (measurement.reason,)
    return measurement.faults + (measurement.remarks if is_all else ())
