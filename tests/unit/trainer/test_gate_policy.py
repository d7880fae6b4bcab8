"""One rank's verdict from what its daemon said last."""

from clockgate.v1 import clock_pb2, gate_pb2
from clockgate_trainer.gate.model import Limits, SaveVerdict, StepVerdict
from clockgate_trainer.gate.policy import Evidence, LocalVerdict, OnUnknown, age_ns, judge_local, reference_hash
from hypothesis import given
from hypothesis import strategies as st
from support.fake_daemon import NS_PER_S, make_reading

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
MADE_NS = 1_000 * NS_PER_S
DOUBT = {OnUnknown.WARN: StepVerdict.WARN, OnUnknown.HOLD: StepVerdict.HOLD, OnUnknown.STOP: StepVerdict.STOP}


def evidence(
    reading: clock_pb2.Reading, *, same_boot: bool = True, answer: gate_pb2.CheckResponse | None = None
) -> Evidence:
    return Evidence(reading, received_boot_ns=MADE_NS, round_trip_ns=2_000_000, same_boot=same_boot, answer=answer)


def reading_of(bound_ns: int | None = 100_000, **more: object) -> clock_pb2.Reading:
    return make_reading(bound_ns=bound_ns, as_of_boot_ns=MADE_NS, **more)  # type: ignore[arg-type]


def judged(
    known: Evidence | None, *, after_s: float = 0.0, silent: bool = False, on_unknown: OnUnknown = OnUnknown.HOLD
) -> LocalVerdict:
    now = MADE_NS + int(after_s * NS_PER_S)
    return judge_local(known, silent=silent, now_boot_ns=now, limits=LIMITS, on_unknown=on_unknown)


def has(verdict: LocalVerdict, code: "clock_pb2.ReasonCode.ValueType") -> bool:
    return bool(verdict.reasons >> code & 1)


def test_a_good_clock_proceeds_with_its_bound_grown_to_now() -> None:
    verdict = judged(evidence(reading_of(growth_ppb=50_000)), after_s=2)
    assert (verdict.step, verdict.save, verdict.reasons) == (StepVerdict.PROCEED, SaveVerdict.SAVE, 0)
    assert verdict.relative_bound_ns == 200_000
    assert verdict.utc_bound_ns is None
    assert verdict.reference_hash == reference_hash("ntp:192.0.2.1")
    assert verdict.epoch == 1


def test_half_of_each_limit_is_the_nodes_share() -> None:
    steps = [judged(evidence(reading_of(bound))).step for bound in (2_500_000, 2_500_001, 25_000_000, 25_000_001)]
    assert steps == [StepVerdict.PROCEED, StepVerdict.WARN, StepVerdict.WARN, StepVerdict.HOLD]


def test_a_silent_daemons_reading_ages_and_says_so_until_it_expires() -> None:
    verdict = judged(evidence(reading_of()), after_s=4, silent=True)
    assert verdict.step is StepVerdict.PROCEED
    assert has(verdict, clock_pb2.REASON_CODE_DAEMON_UNREACHABLE)
    assert "4.0 s old" in verdict.detail


def test_after_expiry_the_operators_choice_decides_and_nothing_of_the_reading_is_used() -> None:
    for choice, step in DOUBT.items():
        verdict = judged(evidence(reading_of()), after_s=5.1, silent=True, on_unknown=choice)
        assert (verdict.step, verdict.save) == (step, SaveVerdict.SAVE_UNTIMED)
        assert has(verdict, clock_pb2.REASON_CODE_READING_EXPIRED)
        assert (verdict.relative_bound_ns, verdict.utc_bound_ns) == (None, None)
        assert (verdict.reference_hash, verdict.epoch) == (None, None)


def test_a_daemon_never_reached_is_the_operators_choice() -> None:
    for choice, step in DOUBT.items():
        verdict = judged(None, on_unknown=choice)
        assert verdict.step is step
        assert has(verdict, clock_pb2.REASON_CODE_DAEMON_NEVER_REACHED)
        assert "--clock_daemon" in verdict.detail


def test_a_daemon_that_cannot_tell_is_the_operators_choice() -> None:
    unknown = reading_of(None, state=clock_pb2.CLOCK_STATE_UNKNOWN)
    answer = gate_pb2.CheckResponse(
        step_verdict=gate_pb2.STEP_VERDICT_UNKNOWN, save_verdict=gate_pb2.SAVE_VERDICT_SAVE_UNTIMED, reading=unknown
    )
    for choice, step in DOUBT.items():
        assert judged(evidence(unknown, answer=answer), on_unknown=choice).step is step


def test_a_state_without_a_usable_bound_holds_whatever_the_choice() -> None:
    reading = reading_of(1_000, state=clock_pb2.CLOCK_STATE_FREE_RUNNING)
    verdict = judged(evidence(reading), on_unknown=OnUnknown.WARN)
    assert verdict.step is StepVerdict.HOLD
    assert verdict.relative_bound_ns is None


def test_never_laxer_than_the_daemons_own_answer() -> None:
    answer = gate_pb2.CheckResponse(
        step_verdict=gate_pb2.STEP_VERDICT_STOP, save_verdict=gate_pb2.SAVE_VERDICT_SKIP_SAVE, reading=reading_of()
    )
    verdict = judged(evidence(reading_of(), answer=answer))
    assert (verdict.step, verdict.save) == (StepVerdict.STOP, SaveVerdict.SKIP_SAVE)


def test_another_boots_reading_ages_from_receipt_with_the_round_trip() -> None:
    reading = reading_of()
    reading.as_of_boot_ns, reading.void_after_boot_ns, reading.age_ns = 77, 77 + 5 * NS_PER_S, 30_000_000
    known = evidence(reading, same_boot=False)
    assert age_ns(known, MADE_NS + NS_PER_S) == 30_000_000 + 2_000_000 + NS_PER_S
    assert judged(known, after_s=4.9).step is StepVerdict.PROCEED
    assert judged(known, after_s=4.97).step is StepVerdict.HOLD


def test_a_shifted_boot_clock_does_not_make_a_reading_younger() -> None:
    reading = reading_of()
    reading.as_of_boot_ns += 3_600 * NS_PER_S
    reading.void_after_boot_ns += 3_600 * NS_PER_S
    assert age_ns(evidence(reading), MADE_NS + NS_PER_S) == NS_PER_S
    assert judged(evidence(reading), after_s=5.1).step is StepVerdict.HOLD


def test_garbage_is_doubt() -> None:
    for spoil in (
        clock_pb2.Reading(),
        clock_pb2.Reading(boot_id="b", as_of_boot_ns=5, void_after_boot_ns=4),
        clock_pb2.Reading(boot_id="b", relative_bound_ns=-1),
        clock_pb2.Reading(boot_id="b", growth_ppb=-1),
    ):
        verdict = judged(evidence(spoil), on_unknown=OnUnknown.STOP)
        assert verdict.step is StepVerdict.STOP
        assert "makes no sense" in verdict.detail


def test_numbers_without_a_meaning_in_an_answer_are_doubt() -> None:
    answer = gate_pb2.CheckResponse(reading=reading_of())
    assert judged(evidence(reading_of(), answer=answer), on_unknown=OnUnknown.HOLD).step is StepVerdict.HOLD


INT64 = st.integers(-(2**63), 2**63 - 1)
ANY_REASON = st.builds(clock_pb2.Reason, code=st.integers(-(2**31), 2**31 - 1), detail=st.text(max_size=3))
ANY_READING = st.builds(
    clock_pb2.Reading,
    state=st.integers(0, 9),
    relative_bound_ns=st.none() | INT64,
    utc_bound_ns=st.none() | INT64,
    growth_ppb=INT64,
    epoch=st.integers(0, 2**64 - 1),
    reference=st.builds(clock_pb2.Reference, identity=st.none() | st.text(max_size=3)),
    as_of_boot_ns=INT64,
    void_after_boot_ns=INT64,
    boot_id=st.sampled_from(["", "b"]),
    age_ns=INT64,
    reasons=st.lists(ANY_REASON, max_size=2),
)
ANY_ANSWER = st.builds(
    gate_pb2.CheckResponse,
    step_verdict=st.integers(-9, 9),
    save_verdict=st.integers(-9, 9),
    reasons=st.lists(ANY_REASON, max_size=2),
)


@given(reading=ANY_READING, answer=st.none() | ANY_ANSWER, same_boot=st.booleans(), now=st.integers(0, 2**63 - 1))
def test_nothing_a_daemon_can_send_raises_or_leaves_the_row(
    reading: clock_pb2.Reading, answer: gate_pb2.CheckResponse | None, same_boot: bool, now: int
) -> None:
    known = Evidence(reading, received_boot_ns=now // 2, round_trip_ns=1, same_boot=same_boot, answer=answer)
    verdict = judge_local(known, silent=True, now_boot_ns=now, limits=LIMITS, on_unknown=OnUnknown.STOP)
    numbers = (verdict.reasons, verdict.relative_bound_ns, verdict.utc_bound_ns, verdict.reference_hash, verdict.epoch)
    assert all(number is None or 0 <= number < 2**63 for number in numbers)


@given(
    bound=st.integers(0, 2**40), early=st.floats(0, 10), later=st.floats(0, 10), choice=st.sampled_from(list(OnUnknown))
)
def test_waiting_never_makes_the_verdict_laxer(bound: int, early: float, later: float, choice: OnUnknown) -> None:
    known = evidence(reading_of(bound))
    first = judged(known, after_s=early, on_unknown=OnUnknown.STOP)
    assert judged(known, after_s=early + later, on_unknown=OnUnknown.STOP).step >= first.step
    assert judged(known, after_s=early, on_unknown=choice).step <= first.step


def test_the_reference_hash_is_stable_and_fits() -> None:
    assert reference_hash("ntp:192.0.2.1") == reference_hash("ntp:192.0.2.1")
    assert 0 <= reference_hash("ptp:00b0c2.fffe.000001") < 2**63
    assert reference_hash("a") != reference_hash("b")
