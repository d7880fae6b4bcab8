from dataclasses import replace
from typing import Any

from clockgated.clock.model import Evidence, Reason, ReasonCode, Reference, Silence, SourceKind, Traceability
from clockgated.steering.blend import Feeding, blended, followed
from hypothesis import given
from hypothesis import strategies as st
from support.evidence import evidence, silence

MS, US = 1_000_000, 1_000
GRANDMASTER = Reference("ptp:0a0000.fffe.000001/0", "0a0000.fffe.000001-1", traceability=Traceability.YES)
REFCLOCK = Reference(None, "PTP0", 1, "50545030", Traceability.UNKNOWN)
NTP = Reference("ntp:10.0.0.1", "10.0.0.1", 3, "0A000001", Traceability.YES)
ACCURACY = Reason(ReasonCode.GRANDMASTER_ACCURACY_UNKNOWN, "says nothing")
LOST = Reason(ReasonCode.INGRESS_STALE, "no Sync")


def on_ptp(**changes: Any) -> Evidence:
    return evidence(reference=REFCLOCK, bound_ns=MS, utc_bound_ns=MS, update_id="chrony", growth_ppb=60_000, **changes)


def ptp(**changes: Any) -> Evidence:
    values: dict[str, Any] = {
        "kind": SourceKind.PTP, "reference": GRANDMASTER, "bound_ns": 40 * US, "utc_bound_ns": 140 * US,
        "offset_ns": 7, "growth_ppb": 50_000, "update_id": "sync", "assumptions": ("path",), "remarks": (ACCURACY,),
        "estimate_95_ns": 300,
    }  # fmt: skip
    return evidence(**{**values, **changes})


def fed(measurement: Evidence | Silence, grandmaster: Reference | None = GRANDMASTER) -> dict[str, Feeding]:
    return {"PTP0": Feeding(measurement, grandmaster)}


def joined(chrony: Evidence, measurement: Evidence | Silence, **options: Reference | None) -> Evidence:
    result = blended(chrony, fed(measurement, **options))
    assert isinstance(result, Evidence)
    return result


def test_while_chronyd_follows_ptp_the_evidence_is_that_of_ptp() -> None:
    result = joined(on_ptp(), ptp())
    assert result.kind is SourceKind.CHRONY
    assert (result.bound_ns, result.utc_bound_ns, result.offset_ns) == (40 * US, 140 * US, 7)
    assert (result.update_id, result.growth_ppb, result.estimate_95_ns) == ("sync", 60_000, 300)
    assert result.reference.identity == GRANDMASTER.identity
    assert (result.reference.source_name, result.reference.stratum) == ("PTP0", 1)
    assert result.reference.traceability is Traceability.YES
    assert result.assumptions == ("path",)
    assert result.remarks == (ACCURACY,)


def test_gates_of_chronyd_hold_whatever_ptp_says() -> None:
    stale = Reason(ReasonCode.REFERENCE_STALE, "old")
    assert joined(on_ptp(faults=(stale,)), ptp()).faults == (stale,)


def test_with_a_faulty_ptp_the_bound_is_that_of_chronyd_and_says_nothing_of_utc() -> None:
    result = joined(on_ptp(), ptp(faults=(LOST,), bound_ns=None))
    assert (result.bound_ns, result.utc_bound_ns, result.update_id) == (MS, None, "chrony")
    assert result.faults == ()
    assert LOST in result.remarks
    assert result.reference.identity == GRANDMASTER.identity, "chronyd's samples are of that one"


def test_without_a_known_grandmaster_a_reference_clock_has_no_name() -> None:
    assert joined(on_ptp(), silence(), grandmaster=None).reference.identity is None


def test_on_another_source_ptp_adds_its_faults_only() -> None:
    chrony = evidence(reference=NTP)
    result = joined(chrony, ptp(faults=(LOST,)))
    assert result == replace(chrony, remarks=(LOST,))
    assert joined(chrony, ptp()) == chrony
    assert joined(chrony, silence()).remarks == (silence().reason,)


def test_a_silent_chronyd_is_silence() -> None:
    assert blended(silence(), fed(ptp())) == silence()


def test_nothing_is_told_twice() -> None:
    result = joined(on_ptp(remarks=(ACCURACY,)), ptp())
    assert result.remarks == (ACCURACY,)


def test_the_grandmaster_followed_is_the_last_one_in_sight() -> None:
    assert followed(None, silence()) is None
    assert followed(None, ptp()) == GRANDMASTER
    assert followed(GRANDMASTER, silence()) == GRANDMASTER
    assert followed(GRANDMASTER, ptp(reference=Reference())) == GRANDMASTER
    other = replace(GRANDMASTER, identity="ptp:0a0000.fffe.000002/0")
    assert followed(GRANDMASTER, ptp(reference=other)) == other


bounds = st.one_of(st.none(), st.integers(0, 10**10))


@given(bounds, bounds, st.booleans(), st.booleans())
def test_a_bound_is_always_one_that_somebody_measured(
    of_chrony: int | None, of_ptp: int | None, is_faulty: bool, is_selected: bool
) -> None:
    chrony = replace(on_ptp() if is_selected else evidence(reference=NTP), bound_ns=of_chrony)
    result = joined(chrony, ptp(bound_ns=of_ptp, faults=(LOST,) if is_faulty else ()))
    is_by_ptp = is_selected and not is_faulty and of_ptp is not None
    assert result.bound_ns == (of_ptp if is_by_ptp else of_chrony)
