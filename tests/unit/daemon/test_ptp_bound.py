from dataclasses import replace
from typing import Any

import pytest
from clockgated.clock.model import Reason, ReasonCode, SourceKind, Traceability
from clockgated.clock.ptp_bound import PtpJudgement, PtpLook, PtpPolicy, Stamps, Steering, judge
from clockgated.clock.ptp_report import PortState, SystemOffset
from clockgated.clock.ptp_window import PtpWindow
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ptp_text import MASTER, OTHER, OWN, a_report, codes, remark_codes

MS, SECOND = 1_000_000, 1_000_000_000
START = 1_000_000 * SECOND
HARDWARE = PtpPolicy()
SOFTWARE = PtpPolicy(stamps=Stamps.SOFTWARE)
EXACT = SystemOffset(0, 0)


def judged(
    policy: PtpPolicy = HARDWARE,
    *,
    syncs: int = 8,
    system: SystemOffset | None = EXACT,
    window: PtpWindow | None = None,
    first: int = 0,
    look: dict[str, Any] | None = None,
    offsets_ns: tuple[int, ...] = (),
    **changes: Any,
) -> PtpJudgement:
    """The judgement of the last of `syncs` looks, a second apart, each at the very moment of a new Sync."""
    window = window or PtpWindow()
    for cycle in range(first, first + syncs):
        now_ns = START + cycle * SECOND
        report = a_report(ingress_ns=now_ns, offset_ns=offsets_ns[cycle - first] if offsets_ns else 0)
        own = system if policy.stamps is Stamps.HARDWARE else None
        seen = PtpLook(
            as_of_boot_ns=cycle * SECOND, now_ns=now_ns, system=own, correction_ppb=0.0, table_utc_offset_s=37
        )
        if cycle == first + syncs - 1:
            report, seen = replace(report, **changes), replace(seen, **(look or {}))
        judgement = judge(report, seen, window, policy)
        window = judgement.window
    return judgement


def terms_of(judgement: PtpJudgement) -> dict[str, int]:
    assert judgement.terms is not None
    return vars(judgement.terms)


def test_the_bound_is_the_sum_of_its_terms() -> None:
    judgement = judged(
        offsets_ns=(5, -40, 3, 0, 0, 0, 0, 1),
        system=SystemOffset(-70, 30),
        path_delay_ns=900,
        steps_removed=3,
        look={"now_ns": START + 7 * SECOND + SECOND // 10},
    )
    assert terms_of(judgement) == {
        "offset_ns": 40,
        "asymmetry_ns": 900,
        "hops_ns": 2_000,
        "stamp_floor_ns": 16,
        "ageing_ns": 5_000,
        "system_ns": 100,
    }
    evidence = judgement.evidence
    assert evidence.bound_ns == 40 + 900 + 2_000 + 16 + 5_000 + 100
    assert evidence.kind is SourceKind.PTP
    assert (evidence.growth_ppb, evidence.steering_ppb) == (50_000, 500_000)
    assert evidence.offset_ns == 1 - 70
    assert evidence.faults == ()


@pytest.mark.parametrize("policy", [HARDWARE, SOFTWARE])
@pytest.mark.parametrize(
    ("correction_ppb", "ageing_ns"),
    [(0.0, 5_000), (30_000.0, 8_000), (-30_000.0, 8_000), (-500_000.0, 55_000), (None, 55_000)],
)
def test_a_clock_ages_by_its_drift_and_by_the_correction_in_force(
    policy: PtpPolicy, correction_ppb: float | None, ageing_ns: int
) -> None:
    look = {"now_ns": START + 7 * SECOND + SECOND // 10, "correction_ppb": correction_ppb}
    assert terms_of(judged(policy, look=look))["ageing_ns"] == ageing_ns


@pytest.mark.parametrize(("syncs", "is_provisional"), [(1, True), (7, True), (8, False), (20, False)])
def test_evidence_of_few_syncs_is_provisional(syncs: int, is_provisional: bool) -> None:
    assert judged(syncs=syncs).evidence.is_provisional == is_provisional


@pytest.mark.parametrize("steering", [Steering.CHRONYD, Steering.NOBODY])
def test_a_servo_of_ptp_that_does_not_steer_moves_nothing(steering: Steering) -> None:
    policy = replace(SOFTWARE, steering=steering)
    judgement = judged(policy, look={"now_ns": START + 7 * SECOND + SECOND // 10, "correction_ppb": None})
    assert terms_of(judgement)["ageing_ns"] == 5_000
    assert judgement.evidence.steering_ppb == 0
    assert not any("servo" in text for text in judgement.evidence.assumptions)


def test_utc_bound_adds_the_accuracy_of_the_grandmaster() -> None:
    evidence = judged(grandmaster_accuracy=0x23).evidence
    assert evidence.bound_ns is not None
    assert evidence.utc_bound_ns == evidence.bound_ns + 1_000
    assert evidence.remarks == ()
    assert evidence.reference.identity == f"ptp:{MASTER}/0"
    assert evidence.reference.traceability is Traceability.YES


@pytest.mark.parametrize(
    ("changes", "look", "code"),
    [
        ({"is_ptp_timescale": False}, {}, ReasonCode.UTC_OFFSET_INVALID),
        ({"is_utc_offset_valid": False}, {}, ReasonCode.UTC_OFFSET_INVALID),
        ({"utc_offset_s": 36}, {}, ReasonCode.UTC_OFFSET_INVALID),
        ({}, {"table_utc_offset_s": None}, ReasonCode.UTC_OFFSET_INVALID),
        ({"grandmaster_accuracy": 0xFE}, {}, ReasonCode.GRANDMASTER_ACCURACY_UNKNOWN),
        ({"grandmaster_accuracy": 0x31}, {}, ReasonCode.GRANDMASTER_ACCURACY_UNKNOWN),
        ({"grandmaster_accuracy": 0}, {}, ReasonCode.GRANDMASTER_ACCURACY_UNKNOWN),
        ({"grandmaster_class": 248}, {}, ReasonCode.ISLAND),
        ({"grandmaster_class": 187}, {}, ReasonCode.ISLAND),
    ],
)
def test_a_doubt_about_utc_leaves_the_relative_bound(
    changes: dict[str, Any], look: dict[str, Any], code: ReasonCode
) -> None:
    evidence = judged(look=look, **changes).evidence
    assert evidence.utc_bound_ns is None
    assert evidence.bound_ns is not None
    assert remark_codes(evidence) == {code}
    assert evidence.faults == ()


@pytest.mark.parametrize(
    ("grandmaster_class", "is_traceable", "traceability"),
    [
        (6, True, Traceability.YES),
        (7, True, Traceability.YES),
        (6, False, Traceability.UNKNOWN),
        (248, True, Traceability.NO),
        (52, False, Traceability.NO),
    ],
)
def test_traceability_takes_class_and_flag(
    grandmaster_class: int, is_traceable: bool, traceability: Traceability
) -> None:
    evidence = judged(grandmaster_class=grandmaster_class, is_time_traceable=is_traceable).evidence
    assert evidence.reference.traceability is traceability


@pytest.mark.parametrize("state", [state for state in PortState if state is not PortState.SLAVE])
def test_slave_is_demanded_where_ptp4l_steers(state: PortState) -> None:
    evidence = judged(port_state=state).evidence
    assert codes(evidence) == {ReasonCode.PORT_NOT_SLAVE}
    assert evidence.bound_ns is None


@pytest.mark.parametrize("steering", [Steering.CHRONYD, Steering.NOBODY])
def test_slave_is_not_demanded_of_a_servo_that_steers_nothing(steering: Steering) -> None:
    policy = replace(SOFTWARE, steering=steering, is_slave_demanded=False)
    evidence = judged(policy, port_state=PortState.UNCALIBRATED).evidence
    assert evidence.faults == ()
    assert evidence.bound_ns is not None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"is_grandmaster_present": False, "grandmaster_id": OWN}, ReasonCode.GRANDMASTER_LOST),
        ({"grandmaster_id": OWN}, ReasonCode.LOCAL_REFERENCE),
        ({"ingress_ns": None}, ReasonCode.INGRESS_STALE),
    ],
)
def test_after_loss_the_stale_offset_is_no_bound(changes: dict[str, Any], expected: ReasonCode) -> None:
    evidence = judged(**changes).evidence
    assert expected in codes(evidence)
    assert evidence.bound_ns is None
    assert evidence.offset_ns is None


def test_own_identity_as_grandmaster_is_no_reference() -> None:
    assert judged(grandmaster_id=OWN).evidence.reference.identity is None


@pytest.mark.parametrize(("grandmaster_class", "is_open"), [(6, True), (248, True), (255, False), (100, False)])
def test_grandmaster_class_must_be_accepted(grandmaster_class: int, is_open: bool) -> None:
    evidence = judged(grandmaster_class=grandmaster_class).evidence
    assert codes(evidence) == (set() if is_open else {ReasonCode.GRANDMASTER_CLASS})


def test_accepted_classes_are_policy() -> None:
    policy = replace(HARDWARE, accepted_classes=frozenset({6, 7}))
    assert codes(judged(policy, grandmaster_class=248).evidence) == {ReasonCode.GRANDMASTER_CLASS}


@pytest.mark.parametrize(
    ("age_ns", "interval_ns", "is_stale"),
    [
        (4 * SECOND, SECOND, False),
        (4 * SECOND + 1, SECOND, True),
        (SECOND + 375 * MS, 125 * MS, False),
        (SECOND + 376 * MS, 125 * MS, True),
    ],
)
def test_a_sync_is_stale_after_three_intervals_and_a_margin(age_ns: int, interval_ns: int, is_stale: bool) -> None:
    look = {"now_ns": START + 7 * SECOND + age_ns}
    evidence = judged(look=look, sync_interval_ns=interval_ns).evidence
    assert codes(evidence) == ({ReasonCode.INGRESS_STALE} if is_stale else set())


def test_a_sync_in_the_future_is_a_fault() -> None:
    evidence = judged(look={"now_ns": START}).evidence
    assert ReasonCode.REFERENCE_IN_FUTURE in codes(evidence)


def test_age_is_by_our_own_watch_when_the_clock_was_set_back() -> None:
    window = judged().window
    report = a_report(ingress_ns=START + 7 * SECOND)
    # Three seconds later, but the clock that stamped the Sync shows the same second again.
    look = PtpLook(as_of_boot_ns=10 * SECOND, now_ns=START + 7 * SECOND, system=EXACT, correction_ppb=0.0)
    terms = judge(report, look, window, HARDWARE).terms
    assert terms is not None
    assert terms.ageing_ns == 150_000


def test_without_the_hardware_clock_age_is_since_the_last_look_that_lacked_the_sync() -> None:
    terms = terms_of(judged(look={"now_ns": None}))
    assert terms["ageing_ns"] == 50_000
    first = judged(syncs=1, look={"now_ns": None})
    assert codes(first.evidence) == {ReasonCode.INGRESS_STALE}
    assert first.terms is None


def test_hardware_stamps_without_a_measure_of_the_system_clock_give_no_bound() -> None:
    assert judged(system=None).evidence.bound_ns is None


def test_age_of_a_claimed_system_offset_widens_the_bound() -> None:
    assert terms_of(judged(system=SystemOffset(10, 5, SECOND)))["ageing_ns"] == 50_000


def test_software_stamps_have_a_floor_and_no_system_term() -> None:
    terms = terms_of(judged(SOFTWARE))
    assert terms["stamp_floor_ns"] == 10_000
    assert terms["system_ns"] == 0


def test_jitter_of_the_path_delay_raises_the_floor_of_software_stamps() -> None:
    terms = terms_of(judged(SOFTWARE, path_delay_ns=2_031 + 40_000))
    assert terms["stamp_floor_ns"] == 40_000


def test_a_declared_asymmetry_replaces_the_path_delay_and_is_told() -> None:
    judgement = judged(replace(HARDWARE, asymmetry_ns=50))
    assert terms_of(judgement)["asymmetry_ns"] == 50
    assert any("symmetric to within 50 ns" in text for text in judgement.evidence.assumptions)
    assert not any("symmetric" in text for text in judged().evidence.assumptions)


@pytest.mark.parametrize(("steps", "hops_ns"), [(0, 0), (1, 0), (2, 1_000), (5, 4_000)])
def test_each_boundary_clock_is_granted_an_allowance(steps: int, hops_ns: int) -> None:
    judgement = judged(steps_removed=steps)
    assert terms_of(judgement)["hops_ns"] == hops_ns
    assert any("boundary clocks" in text for text in judgement.evidence.assumptions) is (hops_ns > 0)


def test_a_small_window_adds_the_spread_that_it_cannot_show_yet() -> None:
    offsets_ns = (0, 100, 0, 100, 0, 100, 0, 100)
    sizes = [terms_of(judged(syncs=n, offsets_ns=offsets_ns))["offset_ns"] for n in (1, 2, 7, 8)]
    assert sizes == [64, 383, 314, 100]


def test_old_offsets_leave_the_window() -> None:
    spike = judged(offsets_ns=(0, 0, 0, 9_000, 0, 0, 0, 0))
    assert terms_of(spike)["offset_ns"] == 9_000
    later = judged(window=spike.window, first=8, syncs=12)
    assert terms_of(later)["offset_ns"] == 0
    assert len(later.window.syncs) == HARDWARE.window_syncs


def test_one_sync_seen_twice_counts_once() -> None:
    window = judged().window
    again = judge(
        a_report(ingress_ns=START + 7 * SECOND), PtpLook(8 * SECOND, START + 8 * SECOND, EXACT), window, HARDWARE
    )
    assert len(again.window.syncs) == 8


def test_another_grandmaster_starts_a_new_window_and_is_not_believed_at_once() -> None:
    window = judged(offsets_ns=(500,) * 8).window
    for cycle in range(8, 16):
        report = a_report(ingress_ns=START + cycle * SECOND, grandmaster_id=OTHER, offset_ns=3)
        judgement = judge(report, PtpLook(cycle * SECOND, START + cycle * SECOND, EXACT), window, HARDWARE)
        window = judgement.window
        seen = codes(judgement.evidence)
        assert seen == ({ReasonCode.GRANDMASTER_CHANGED} if cycle < 15 else set())
    assert terms_of(judgement)["offset_ns"] == 3
    assert judgement.evidence.reference.identity == f"ptp:{OTHER}/0"


@pytest.mark.parametrize("is_present", [False, True])
def test_the_node_itself_as_grandmaster_is_no_change_of_grandmaster(is_present: bool) -> None:
    window = judged(is_grandmaster_present=is_present, grandmaster_id=OWN, ingress_ns=None).window
    back = judged(window=window, first=8, syncs=1).evidence
    assert back.faults == ()


def test_alternating_grandmasters_are_two() -> None:
    window = PtpWindow()
    for cycle, identity in enumerate((MASTER, OTHER, MASTER, OTHER)):
        report = a_report(ingress_ns=START + cycle * SECOND, grandmaster_id=identity)
        judgement = judge(report, PtpLook(cycle * SECOND, START + cycle * SECOND, EXACT), window, HARDWARE)
        window = judgement.window
    assert ReasonCode.TWO_GRANDMASTERS in codes(judgement.evidence)


def test_offsets_from_before_the_servo_was_engaged_are_dropped() -> None:
    window = judged(offsets_ns=(SECOND,) * 8, port_state=PortState.UNCALIBRATED).window
    assert window.syncs == ()
    assert terms_of(judged(window=window, first=8))["offset_ns"] == 0


@pytest.mark.parametrize("policy", [HARDWARE, SOFTWARE])
def test_a_clock_37_s_off_is_a_tai_slip(policy: PtpPolicy) -> None:
    if policy is HARDWARE:
        evidence = judged(policy, system=SystemOffset(37 * SECOND, 100)).evidence
    else:
        evidence = judged(policy, offset_ns=-37 * SECOND).evidence
    assert codes(evidence) == {ReasonCode.TAI_SLIP}


@pytest.mark.parametrize(
    ("policy", "delay_ns", "is_fault"),
    [(HARDWARE, -17, True), (HARDWARE, -16, False), (SOFTWARE, -10_000, False), (SOFTWARE, -17_000_000, True)],
)
def test_a_negative_path_delay_beyond_the_noise_is_a_fault(policy: PtpPolicy, delay_ns: int, is_fault: bool) -> None:
    judgement = judged(policy, path_delay_ns=delay_ns)
    assert codes(judgement.evidence) == ({ReasonCode.WITNESS_DISAGREES} if is_fault else set())
    assert terms_of(judgement)["asymmetry_ns"] == -delay_ns


def test_domain_is_part_of_the_reference() -> None:
    assert judged(replace(HARDWARE, domain=24)).evidence.reference.identity == f"ptp:{MASTER}/24"


def test_every_sync_is_another_update() -> None:
    first, second = judged(syncs=7).evidence, judged(syncs=8).evidence
    assert None not in (first.update_id, second.update_id)
    assert first.update_id != second.update_id


def test_the_estimate_is_smaller_than_the_bound_and_beside_it() -> None:
    judgement = judged(offsets_ns=(10, -10) * 4)
    assert judgement.evidence.estimate_95_ns == 20
    assert judgement.evidence.estimate_95_ns < (judgement.evidence.bound_ns or 0)
    assert judged(ingress_ns=None).evidence.estimate_95_ns is None


@settings(deadline=None)
@given(
    true_ns=st.integers(-10 * MS, 10 * MS),
    forth_ns=st.integers(0, MS),
    back_ns=st.integers(0, MS),
    drift_ppb=st.integers(-50_000, 50_000),
    age_ns=st.integers(0, 4 * SECOND),
    system_ns=st.integers(-MS, MS),
    read_ns=st.integers(0, 10_000),
)
def test_the_true_offset_is_inside_whatever_asymmetry_and_drift(
    *, true_ns: int, forth_ns: int, back_ns: int, drift_ppb: int, age_ns: int, system_ns: int, read_ns: int
) -> None:
    # A Sync arrives late by the way here, which PTP corrects by the mean of both ways.
    path_delay_ns = -(-(forth_ns + back_ns) // 2)
    measured_ns = true_ns + forth_ns - path_delay_ns
    judgement = judged(
        syncs=8,
        offsets_ns=(measured_ns,) * 8,
        system=SystemOffset(system_ns, -(-read_ns // 2)),
        path_delay_ns=path_delay_ns,
        look={"now_ns": START + 7 * SECOND + age_ns},
    )
    bound_ns = judgement.evidence.bound_ns
    assert bound_ns is not None
    # Wrong by half the time that reading both clocks took, either way; then the clock drifts until now.
    for read_error_ns in (-(read_ns // 2), read_ns // 2):
        now_ns = true_ns + system_ns + read_error_ns + drift_ppb * age_ns // SECOND
        assert abs(now_ns) <= bound_ns


@settings(deadline=None)
@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_the_bound_never_shrinks_with_the_age_of_the_sync(one_ns: int, other_ns: int) -> None:
    younger, older = sorted((one_ns, other_ns))
    bounds = [
        judged(look={"now_ns": START + 7 * SECOND + age_ns}).evidence.bound_ns or 0 for age_ns in (younger, older)
    ]
    assert bounds[0] <= bounds[1]


def test_what_other_witnesses_say_is_passed_on() -> None:
    fault, remark = Reason(ReasonCode.PHC_FROZEN, "it stands"), Reason(ReasonCode.LEAP_IN_PROGRESS, "it leaps")
    look = {"faults": (fault,), "remarks": (remark,), "is_leap_in_progress": True, "steering_id": "ptp4l:7"}
    evidence = judged(look=look).evidence
    assert evidence.faults == (fault,)
    assert evidence.remarks == (remark,)
    assert evidence.leap_in_progress
    assert evidence.steering_id == "ptp4l:7"
