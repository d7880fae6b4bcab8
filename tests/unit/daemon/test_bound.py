from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clockgate import rule
from clockgated.clock.bound import BoundPolicy, chrony_evidence, grown_ns
from clockgated.clock.model import Evidence, ReasonCode, Traceability
from clockgated.clock.report import ChronyReport, LeapStatus, SourceLine, Tracking, Upstream
from clockgated.sources.chrony_csv import parse
from hypothesis import given
from hypothesis import strategies as st
from support.evidence import SECOND

RECORDED = Path(__file__).parents[2] / "support" / "recorded" / "chrony_4.3"
WALL_NS = 1_800_000_000 * SECOND
TRACKING = Tracking(
    ref_id="C0000201",
    source_name="192.0.2.1",
    stratum=2,
    ref_wall_ns=WALL_NS - 10 * SECOND,
    offset_ns=-3_000,
    residual_ppb=-2_000,
    skew_ppb=1_000,
    root_delay_ns=200_001,
    root_dispersion_ns=50_000,
    update_interval_ns=16 * SECOND,
    leap_status=LeapStatus.NORMAL,
)
SELECTED = SourceLine("192.0.2.1", is_refclock=False, is_selected=True, stratum=1, poll_log2_s=4, reach=0o377)
GOOD = ChronyReport(TRACKING, (SELECTED,), (Upstream("192.0.2.1", 1, "47505300"),))


def judged(report: ChronyReport, wall_ns: int = WALL_NS, policy: BoundPolicy | None = None) -> Evidence:
    return chrony_evidence(
        report,
        as_of_boot_ns=5 * SECOND,
        wall_ns=wall_ns,
        policy=policy or BoundPolicy(),
        node_id="boot-1",
        steering_id="chronyd-1",
    )


def tracked(**changes: Any) -> ChronyReport:
    return replace(GOOD, tracking=replace(TRACKING, **changes))


def codes(evidence: Evidence) -> list[ReasonCode]:
    return [reason.code for reason in evidence.faults]


def test_bound_is_root_distance_aged_at_our_own_drift() -> None:
    evidence = judged(GOOD)
    # Correction, dispersion and its growth by 50 - 1 - 1 - 2 = 46 ppm in 10 s, half the delay rounded up, floor.
    assert evidence.bound_ns == 3_000 + 50_000 + 460_000 + 100_001 + 1_000
    assert evidence.utc_bound_ns == evidence.bound_ns
    assert evidence.offset_ns == -3_000
    assert evidence.as_of_boot_ns == 5 * SECOND
    assert codes(evidence) == []


def test_what_chronyd_covers_by_its_own_drift_is_not_added_twice() -> None:
    covering = judged(GOOD, policy=BoundPolicy(assumed_clockerror_ppb=50_000))
    assert covering.bound_ns == 3_000 + 50_000 + 100_001 + 1_000


def test_bound_grows_as_fast_as_chronyds_own() -> None:
    assert judged(GOOD).growth_ppb == 50_000
    assert judged(tracked(skew_ppb=80_000)).growth_ppb == 1_000 + 80_000 + 2_000


def test_a_clock_ahead_and_a_clock_behind_are_bounded_alike() -> None:
    assert judged(tracked(offset_ns=9_000)).bound_ns == judged(tracked(offset_ns=-9_000)).bound_ns


def test_a_stratum_1_server_with_a_clock_of_its_own_is_traceable() -> None:
    reference = judged(GOOD).reference
    assert reference.traceability is Traceability.YES
    assert (reference.identity, reference.stratum, reference.ref_id) == ("ntp:192.0.2.1", 2, "C0000201")


def test_a_longer_chain_is_believed_and_said_to_be_an_assumption() -> None:
    evidence = judged(replace(GOOD, sources=(replace(SELECTED, stratum=2),)))
    assert evidence.reference.traceability is Traceability.UNKNOWN
    assert evidence.utc_bound_ns == evidence.bound_ns
    assert any("192.0.2.1" in assumption for assumption in evidence.assumptions)


@pytest.mark.parametrize("ref_id", ["7F7F0101", "7F7F0100", "4C4F434C"])
def test_an_island_keeps_its_relative_bound_and_has_none_against_utc(ref_id: str) -> None:
    evidence = judged(replace(GOOD, upstreams=(Upstream("192.0.2.1", 8, ref_id),)))
    assert evidence.reference.traceability is Traceability.NO
    assert evidence.bound_ns == judged(GOOD).bound_ns
    assert evidence.utc_bound_ns is None
    assert [remark.code for remark in evidence.remarks] == [ReasonCode.ISLAND]
    assert codes(evidence) == []


def test_without_upstreams_traceability_is_unknown() -> None:
    assert judged(replace(GOOD, upstreams=None)).reference.traceability is Traceability.UNKNOWN


def test_a_reference_clock_has_no_identity_across_nodes() -> None:
    clock = SourceLine("PHC0", is_refclock=True, is_selected=True, stratum=0, poll_log2_s=4, reach=0o377)
    evidence = judged(replace(tracked(source_name="PHC0", ref_id="50484330"), sources=(clock,)))
    assert evidence.reference.identity is None
    assert evidence.reference.traceability is Traceability.UNKNOWN
    assert codes(evidence) == []


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.123", "fe80::1"])
def test_an_address_that_only_exists_on_one_node_is_no_shared_reference(address: str) -> None:
    evidence = judged(tracked(source_name=address))
    assert evidence.reference.identity == f"ntp:{address}@boot-1"


@pytest.mark.parametrize(
    ("name", "code"),
    [("local_reference.csv", ReasonCode.LOCAL_REFERENCE), ("unsynchronised.csv", ReasonCode.SOURCE_UNSYNCHRONISED)],
)
def test_a_node_without_a_reference_has_no_bound_instead_of_a_bound_of_zero(name: str, code: ReasonCode) -> None:
    report = parse((RECORDED / name).read_bytes())
    assert isinstance(report, ChronyReport)
    evidence = judged(report, wall_ns=1796071950 * SECOND)
    assert (evidence.bound_ns, evidence.utc_bound_ns, evidence.offset_ns) == (None, None, None)
    assert codes(evidence) == [code]
    is_local = code is ReasonCode.LOCAL_REFERENCE
    assert evidence.reference.traceability is (Traceability.NO if is_local else Traceability.UNKNOWN)


def test_the_client_of_an_island_is_recognised_in_real_output() -> None:
    report = parse((RECORDED / "client_of_island.csv").read_bytes())
    assert isinstance(report, ChronyReport)
    evidence = judged(report, wall_ns=1796071949 * SECOND)
    assert codes(evidence) == []
    assert evidence.reference.traceability is Traceability.NO
    assert evidence.bound_ns is not None
    assert evidence.bound_ns > 70_000


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (tracked(leap_status=LeapStatus.INVALID), ReasonCode.SOURCE_UNSYNCHRONISED),
        (tracked(stratum=16), ReasonCode.STRATUM_OUT_OF_RANGE),
        (tracked(stratum=0), ReasonCode.STRATUM_OUT_OF_RANGE),
        (tracked(skew_ppb=1_000_000_000), ReasonCode.SKEW_TOO_LARGE),
        (tracked(skew_ppb=2_000_000), ReasonCode.SKEW_TOO_LARGE),
        (tracked(ref_wall_ns=None), ReasonCode.REFERENCE_STALE),
        (tracked(ref_wall_ns=WALL_NS - 128 * SECOND - 1), ReasonCode.REFERENCE_STALE),
        (tracked(ref_wall_ns=WALL_NS + SECOND), ReasonCode.REFERENCE_IN_FUTURE),
        (replace(GOOD, sources=()), ReasonCode.NO_SELECTED_SOURCE),
        (replace(GOOD, sources=(replace(SELECTED, is_selected=False),)), ReasonCode.NO_SELECTED_SOURCE),
        (replace(GOOD, sources=(SELECTED, SELECTED)), ReasonCode.NO_SELECTED_SOURCE),
        (replace(GOOD, sources=(replace(SELECTED, reach=0),)), ReasonCode.NO_SELECTED_SOURCE),
    ],
)
def test_each_gate_closes_alone(report: ChronyReport, code: ReasonCode) -> None:
    assert codes(judged(report)) == [code]


def test_limits_of_the_gates_are_inclusive() -> None:
    at_limits = tracked(skew_ppb=100_000, ref_wall_ns=WALL_NS - 128 * SECOND, stratum=15)
    assert codes(judged(at_limits)) == []


def test_a_slow_poll_allows_an_old_reference() -> None:
    report = tracked(ref_wall_ns=WALL_NS - 1000 * SECOND)
    assert codes(judged(report)) == [ReasonCode.REFERENCE_STALE]
    assert codes(judged(replace(report, sources=(replace(SELECTED, poll_log2_s=7),)))) == []


def test_a_reference_time_ahead_by_less_than_the_bound_is_no_fault() -> None:
    # chronyd -x keeps its own time, which the wall clock may trail by the correction.
    assert codes(judged(tracked(offset_ns=-20_000_000, ref_wall_ns=WALL_NS + 19_000_000))) == []


def test_a_leap_second_in_progress_is_no_fault() -> None:
    evidence = judged(tracked(leap_status=LeapStatus.UNSYNCHRONISED))
    assert evidence.leap_in_progress
    assert codes(evidence) == []
    assert [remark.code for remark in evidence.remarks] == [ReasonCode.LEAP_IN_PROGRESS]


def test_every_update_of_the_reference_has_an_id_of_its_own() -> None:
    assert judged(GOOD).update_id == judged(tracked(offset_ns=5)).update_id
    assert judged(GOOD).update_id != judged(tracked(ref_wall_ns=WALL_NS - 9 * SECOND)).update_id


def test_the_claim_rests_on_the_samples_of_every_source_that_takes_part() -> None:
    assert judged(GOOD).oldest_sample_ns is None
    selected = replace(SELECTED, oldest_sample_s=80)
    other = replace(selected, name="192.0.2.2", is_selected=False, oldest_sample_s=500)
    assert judged(replace(GOOD, sources=(selected, other))).oldest_sample_ns == 80 * SECOND
    assert not judged(replace(GOOD, sources=(selected, other))).is_combined
    taking_part = replace(other, is_combined=True)
    assert judged(replace(GOOD, sources=(selected, taking_part))).is_combined
    assert judged(replace(GOOD, sources=(selected, taking_part))).oldest_sample_ns == 500 * SECOND


def test_what_the_last_update_found_is_passed_on() -> None:
    assert judged(GOOD).last_offset_ns is None
    assert judged(tracked(last_offset_ns=-17)).last_offset_ns == -17


HEAD, TAIL = "C0000201,192.0.2.1,3,1800000000.000000000", "0.000000000,-0.000005000,0.000005000"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "7F7F0101,,10,1800000000.000000000,0.150000000,0.000000000,0.000000000,"
            "0.000,0.000,0.000,0.000000000,0.000000000,0.0,Normal",
            ReasonCode.LOCAL_REFERENCE,
        ),
        (
            f"{HEAD},{TAIL},0.000,4.000,1000000.000,0.040000000,2500.000000000,1.0,Normal",
            ReasonCode.SKEW_TOO_LARGE,
        ),
        (
            f"C0000201,192.0.2.1,2,1900000000.000000000,{TAIL},0.000,0.000,0.050,0.000200000,0.000100000,64.2,Normal",
            ReasonCode.REFERENCE_IN_FUTURE,
        ),
        (f"{HEAD},{TAIL},0.000,0.000,0.050,0.000200000,0.000100000,64.2,Insert second", None),
    ],
    ids=["local reference", "first sample", "future", "leap second tonight"],
)
def test_reports_that_look_synchronised_are_seen_through(line: str, code: ReasonCode | None) -> None:
    source = "^,*,192.0.2.1,2,6,377,11,0.000001010,0.000001481,0.000006056"
    report = parse(f"{line}\n{source}\n".encode())
    assert isinstance(report, ChronyReport)
    assert codes(judged(report, wall_ns=WALL_NS + SECOND)) == ([] if code is None else [code])


def test_a_large_correction_is_a_large_bound_although_chronyd_says_normal() -> None:
    line = f"{HEAD},5000.250000000,0.000010000,300.000000000,20.000,0.010,0.050,0.030000000,0.004000000,2.0,Normal"
    source = "^,*,192.0.2.1,2,6,377,11,0.000001010,0.000001481,0.000006056"
    report = parse(f"{line}\n{source}\n".encode())
    assert isinstance(report, ChronyReport)
    evidence = judged(report)
    assert evidence.bound_ns is not None
    assert evidence.bound_ns > 5000 * SECOND
    # chronyd's positive is slow: behind.
    assert evidence.offset_ns == -5000_250_000_000


BOUNDS = st.integers(0, 10**15)
GROWTHS = st.integers(0, 10**9)
AGES = st.integers(-(10**12), 10**18)


@given(BOUNDS, GROWTHS, AGES)
def test_clients_let_a_bound_grow_as_the_daemon_does(bound_ns: int, growth_ppb: int, age_ns: int) -> None:
    assert grown_ns(bound_ns, growth_ppb, age_ns) == rule.grown_ns(bound_ns, growth_ppb, age_ns)


@given(BOUNDS, GROWTHS, AGES, st.integers(0, 10**15))
def test_a_bound_never_shrinks_with_age(bound_ns: int, growth_ppb: int, age_ns: int, more_ns: int) -> None:
    assert bound_ns <= grown_ns(bound_ns, growth_ppb, age_ns) <= grown_ns(bound_ns, growth_ppb, age_ns + more_ns)


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_growth_is_rounded_up(growth_ppb: int, age_ns: int) -> None:
    assert grown_ns(0, growth_ppb, age_ns) * 10**9 >= growth_ppb * age_ns
    assert grown_ns(0, growth_ppb, age_ns) >= 1


@given(
    offset_ns=st.integers(-(10**12), 10**12),
    delay_ns=st.integers(0, 10**12),
    dispersion_ns=st.integers(0, 10**12),
    skew_ppb=st.integers(0, 10**9),
    age_ns=st.integers(0, 10**13),
)
def test_bound_is_never_below_root_distance(
    offset_ns: int, delay_ns: int, dispersion_ns: int, skew_ppb: int, age_ns: int
) -> None:
    report = tracked(
        offset_ns=offset_ns,
        root_delay_ns=delay_ns,
        root_dispersion_ns=dispersion_ns,
        skew_ppb=skew_ppb,
        ref_wall_ns=WALL_NS - age_ns,
    )
    bound_ns = judged(report).bound_ns
    assert bound_ns is not None
    assert 2 * bound_ns > 2 * abs(offset_ns) + 2 * dispersion_ns + delay_ns
