from dataclasses import replace

import pytest
from clockgated.clock.breach import Breach
from clockgated.clock.continuity import UNBROKEN, Look
from clockgated.clock.model import ClockState, Evidence, Reading, Reason, ReasonCode, SourceKind
from clockgated.clock.state import StatePolicy, Track, advance, reading_of
from clockgated.memory.resume import Discarded, Resumed, SavedReading, Steering, resume, saved_reading
from clockgated.units import NS_PER_MS, NS_PER_S, NS_PER_US
from hypothesis import given
from hypothesis import strategies as st
from support.evidence import evidence
from support.saved_readings import BOOT, LOOK, READING, SAVED, STEERING

POLICY = StatePolicy()
HELD = (ClockState.SYNCHRONIZED, ClockState.HOLDOVER, ClockState.FREE_RUNNING)


def _later(seconds: float, jump_ns: int = 0, asleep_ns: int = 0) -> Look:
    passed = int(seconds * NS_PER_S)
    return Look(LOOK.boot_ns + passed, LOOK.mono_ns + passed - asleep_ns, LOOK.wall_ns + passed + jump_ns)


def _resumed(
    now: Look,
    saved: SavedReading = SAVED,
    steering: Steering | None = STEERING,
    policy: StatePolicy = POLICY,
    recorded: Reason | None = None,
) -> Resumed:
    found = resume(saved, now, BOOT, steering, policy, recorded=recorded)
    assert isinstance(found, Resumed)
    return found


def _reading(resumed: Resumed) -> Reading:
    return reading_of(resumed.track, BOOT, POLICY)


def _codes(track: Track) -> list[ReasonCode]:
    return [reason.code for reason in track.reasons]


def test_a_quiet_restart_is_holdover_in_the_same_epoch_with_the_bound_aged() -> None:
    resumed = _resumed(_later(10))
    reading = _reading(resumed)
    assert (reading.state, reading.epoch, resumed.breaks) == (ClockState.HOLDOVER, READING.epoch, ())
    assert reading.relative_bound_ns == 200 * NS_PER_US + 10 * 50 * NS_PER_US
    assert reading.utc_bound_ns == 300 * NS_PER_US + 10 * 50 * NS_PER_US
    assert reading.as_of_boot_ns == LOOK.boot_ns + 10 * NS_PER_S
    assert reading.void_after_boot_ns == reading.as_of_boot_ns + POLICY.reading_ttl_ns
    assert (reading.sequence, reading.reference, reading.boot_id) == (901, READING.reference, BOOT)
    assert resumed.look.steering_id == "chronyd[7]"
    assert [reason.code for reason in reading.reasons] == [ReasonCode.STARTING]
    assert "10.0 s old" in reading.reasons[0].detail


def test_the_first_good_measurement_after_it_is_synchronized() -> None:
    resumed = _resumed(_later(10))
    measured = evidence(resumed.look.boot_ns + NS_PER_S)
    track = advance(resumed.track, measured, UNBROKEN, measured.as_of_boot_ns, POLICY)
    assert (track.state, track.epoch) == (ClockState.SYNCHRONIZED, READING.epoch)


def test_the_holdover_horizon_is_not_renewed_by_a_restart() -> None:
    policy = StatePolicy(holdover_horizon_ns=20 * NS_PER_S)
    assert SAVED.good_boot_ns == LOOK.boot_ns - 5 * NS_PER_S
    assert _resumed(_later(15), policy=policy).track.state is ClockState.HOLDOVER
    late = _resumed(_later(15.1), policy=policy).track
    assert late.state is ClockState.FREE_RUNNING
    assert _codes(late) == [ReasonCode.STARTING, ReasonCode.HOLDOVER_HORIZON]


def test_saving_what_was_resumed_keeps_the_horizon_and_the_assumptions_once() -> None:
    resumed = _resumed(_later(10))
    again = saved_reading(_reading(resumed), resumed.track, resumed.look, STEERING)
    assert again.good_boot_ns == SAVED.good_boot_ns
    twice = _resumed(_later(20), again)
    assert twice.track.promise is not None
    assert len(twice.track.promise.assumptions) == len(set(twice.track.promise.assumptions)) == 3
    # As if it had been away for 20 s at once.
    assert twice.track.promise.bound_ns == 200 * NS_PER_US + 20 * 50 * NS_PER_US


def test_a_good_time_after_the_reading_itself_is_not_believed() -> None:
    resumed = _resumed(_later(10), replace(SAVED, good_boot_ns=LOOK.boot_ns + 9 * NS_PER_S))
    assert resumed.track.promise is not None
    assert resumed.track.promise.good_boot_ns == READING.as_of_boot_ns


def test_a_bound_past_the_limit_is_free_running() -> None:
    track = _resumed(_later(1000)).track
    assert track.state is ClockState.FREE_RUNNING
    assert ReasonCode.BOUND_OVER_LIMIT in _codes(track)


def test_the_unwatched_time_is_an_assumption() -> None:
    assumptions = _reading(_resumed(_later(10))).assumptions
    assert assumptions[0] == "a"
    assert any("no two steps cancelled each other" in text for text in assumptions)
    assert any("its rate stayed between" in text for text in assumptions)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_step_begins_an_epoch_without_a_bound(sign: int) -> None:
    resumed = _resumed(_later(10, jump_ns=sign * NS_PER_MS))
    reading = _reading(resumed)
    assert (reading.state, reading.epoch) == (ClockState.DISRUPTED, READING.epoch + 1)
    assert (reading.relative_bound_ns, reading.utc_bound_ns) == (None, None)
    assert [reason.code for reason in resumed.breaks] == [ReasonCode.CLOCK_STEPPED]
    assert resumed.jump_ns == sign * NS_PER_MS
    assert ("+1 ms" if sign > 0 else "-1 ms") in resumed.breaks[0].detail
    assert _codes(resumed.track) == [ReasonCode.CLOCK_STEPPED, ReasonCode.STARTING]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_step_while_away_is_one_however_small_beside_the_bound(sign: int) -> None:
    stepped = _resumed(_later(10, jump_ns=sign * 2 * NS_PER_US))
    assert [reason.code for reason in stepped.breaks] == [ReasonCode.CLOCK_STEPPED]
    breach = stepped.track.breach
    assert breach is not None
    assert (breach.over_boot_ns, breach.younger_ns) == (stepped.look.boot_ns, 2 * NS_PER_US if sign < 0 else 0)
    torn = replace(SAVED, look=replace(LOOK, error_ns=2 * NS_PER_US))
    assert _resumed(_later(10, jump_ns=sign * 2 * NS_PER_US), torn).breaks == ()


def test_a_servo_may_have_been_at_work_all_the_time() -> None:
    saved = replace(SAVED, reading=replace(READING, growth_ppb=550_000), steering_ppb=500_000)
    resumed = _resumed(_later(10), saved)
    reading = _reading(resumed)
    assert (reading.relative_bound_ns, reading.growth_ppb) == (200 * NS_PER_US + 10 * 550 * NS_PER_US, 550_000)
    assert resumed.track.promise is not None
    assert (resumed.track.promise.growth_ppb, resumed.track.promise.steering_ppb) == (50_000, 500_000)
    assert saved_reading(reading, resumed.track, resumed.look, STEERING).steering_ppb == 500_000


def test_a_changed_kernel_frequency_widens_the_bound() -> None:
    reading = _reading(_resumed(_later(10), steering=Steering(freq_ppb=8_500)))
    assert reading.relative_bound_ns == 200 * NS_PER_US + 10 * (50 + 10) * NS_PER_US


def test_a_changed_tick_counts_as_frequency() -> None:
    assert Steering(0, 10_001).rate_ppb == 100_000
    reading = _reading(_resumed(_later(10), steering=replace(STEERING, tick_us=9_999)))
    assert reading.relative_bound_ns == 200 * NS_PER_US + 10 * (50 + 100) * NS_PER_US


@pytest.mark.parametrize("is_known_then", [False, True])
def test_a_kernel_that_shows_no_frequency_is_an_assumption(is_known_then: bool) -> None:
    saved = SAVED if is_known_then else replace(SAVED, steering=None)
    reading = _reading(_resumed(_later(10), saved, steering=None if is_known_then else STEERING))
    assert reading.relative_bound_ns == 200 * NS_PER_US + 10 * 50 * NS_PER_US
    assert any("nobody changed its rate (adjtimex cannot be read here)" in text for text in reading.assumptions)


def test_growth_is_at_least_that_of_the_configuration_now() -> None:
    resumed = _resumed(_later(10), policy=StatePolicy(growth_ppb=200_000))
    assert resumed.track.promise is not None
    assert resumed.track.promise.bound_ns == 200 * NS_PER_US + 10 * 200 * NS_PER_US
    assert resumed.track.promise.growth_ppb == 200_000


@pytest.mark.parametrize("state", [ClockState.UNKNOWN, ClockState.ACQUIRING, ClockState.DISRUPTED])
def test_a_state_that_held_no_bound_gives_none(state: ClockState) -> None:
    saved = replace(SAVED, reading=replace(READING, state=state))
    reading = _reading(_resumed(_later(1), saved))
    assert (reading.relative_bound_ns, reading.utc_bound_ns) == (None, None)
    assert (reading.state, reading.epoch) == (state, READING.epoch)
    stepped = _resumed(_later(1, jump_ns=51 * NS_PER_MS), saved).track
    assert stepped.epoch == READING.epoch + 1
    # Nothing was promised in UNKNOWN: there only the epoch rises.
    assert stepped.state is (ClockState.UNKNOWN if state is ClockState.UNKNOWN else ClockState.DISRUPTED)


@pytest.mark.parametrize("state", HELD)
def test_a_held_state_without_its_bound_is_unknown(state: ClockState) -> None:
    for bare in (replace(SAVED, good_boot_ns=None), replace(SAVED, reading=replace(READING, relative_bound_ns=None))):
        saved = replace(bare, reading=replace(bare.reading, state=state))
        assert _resumed(_later(1), saved).track.state is ClockState.UNKNOWN


def test_sleep_ends_the_epoch() -> None:
    resumed = _resumed(_later(10, asleep_ns=2 * NS_PER_S))
    assert [reason.code for reason in resumed.breaks] == [ReasonCode.SUSPENDED]
    assert resumed.track.epoch == READING.epoch + 1
    assert "2.000 s" in resumed.breaks[0].detail


def test_another_steering_process_ends_the_epoch() -> None:
    resumed = _resumed(replace(_later(10), steering_id="chronyd[8]"))
    assert [reason.code for reason in resumed.breaks] == [ReasonCode.STEERING_CHANGED]
    assert (resumed.track.epoch, resumed.look.steering_id) == (READING.epoch + 1, "chronyd[8]")
    assert _resumed(replace(_later(10), steering_id="chronyd[7]")).breaks == ()


def test_a_break_that_was_journaled_but_not_saved_ends_the_epoch() -> None:
    recorded = Reason(ReasonCode.FOREIGN_ADJUSTER, "somebody")
    resumed = _resumed(_later(10), recorded=recorded)
    assert resumed.breaks == (recorded,)
    assert (resumed.track.state, resumed.track.epoch) == (ClockState.DISRUPTED, READING.epoch + 1)
    stepped = _resumed(_later(10, jump_ns=NS_PER_S), recorded=recorded)
    assert [reason.code for reason in stepped.breaks] == [ReasonCode.CLOCK_STEPPED]


def _measured(track: Track, update_id: str, after_s: int) -> Track:
    measured: Evidence = evidence(LOOK.boot_ns + after_s * NS_PER_S, update_id=update_id)
    return advance(track, measured, UNBROKEN, measured.as_of_boot_ns, POLICY)


def test_a_break_that_the_source_has_not_looked_across_is_remembered() -> None:
    breach = Breach((Reason(ReasonCode.CLOCK_STEPPED, "x"),), "1")
    saved = replace(SAVED, reading=replace(READING, state=ClockState.DISRUPTED), breach=breach)
    track = _resumed(_later(10), saved).track
    assert ReasonCode.CLOCK_STEPPED in _codes(track)
    track = _measured(track, "1", 11)
    assert track.state is ClockState.DISRUPTED
    assert _measured(track, "2", 12).state is ClockState.ACQUIRING


def test_an_update_while_away_keeps_the_old_bound_for_one_cycle() -> None:
    saved = replace(SAVED, update_id="1", reading=replace(READING, relative_bound_ns=20 * NS_PER_MS))
    track = _measured(_resumed(_later(10), saved).track, "2", 10)
    assert track.promise is not None
    assert track.promise.bound_ns >= 20 * NS_PER_MS
    track = _measured(track, "2", 11)
    assert track.promise is not None
    assert track.promise.bound_ns == NS_PER_MS


def test_another_boot_discards_everything() -> None:
    found = resume(SAVED, _later(10), "boot-2", STEERING, POLICY)
    assert isinstance(found, Discarded)
    assert "boot-1" in found.why
    assert "boot-2" in found.why


def test_a_reading_of_the_future_is_discarded() -> None:
    assert isinstance(resume(SAVED, _later(-1), BOOT, STEERING, POLICY), Discarded)


@pytest.mark.parametrize("state", ClockState)
@pytest.mark.parametrize("kind", SourceKind)
@pytest.mark.parametrize("jump_ns", [0, NS_PER_S])
def test_every_saved_state_is_taken_up_as_something_that_promises_no_more(
    state: ClockState, kind: SourceKind, jump_ns: int
) -> None:
    saved = replace(SAVED, reading=replace(READING, state=state, source_kind=kind))
    reading = _reading(_resumed(_later(3, jump_ns=jump_ns), saved))
    assert reading.source_kind is kind
    assert reading.epoch == READING.epoch + (1 if jump_ns else 0)
    assert reading.state is not ClockState.SYNCHRONIZED
    is_held = state in HELD and not jump_ns
    assert (reading.relative_bound_ns is not None) == is_held


@given(
    st.integers(0, 10**15),
    st.integers(-(10**12), 10**12),
    st.integers(0, 10**10),
    st.integers(-(10**9), 10**9),
    st.integers(0, 10**11),
)
def test_what_is_promised_is_never_narrower_than_before(
    passed_ns: int, jump_ns: int, asleep_ns: int, freq_ppb: int, bound_ns: int
) -> None:
    saved = replace(SAVED, reading=replace(READING, relative_bound_ns=bound_ns))
    now = Look(
        LOOK.boot_ns + passed_ns, LOOK.mono_ns + max(0, passed_ns - asleep_ns), LOOK.wall_ns + passed_ns + jump_ns
    )
    resumed = _resumed(now, saved, Steering(freq_ppb))
    reading = _reading(resumed)
    assert (reading.relative_bound_ns is None) == bool(resumed.breaks)
    assert reading.epoch == READING.epoch + bool(resumed.breaks)
    if reading.relative_bound_ns is not None:
        least = bound_ns + READING.growth_ppb * passed_ns / NS_PER_S
        assert reading.relative_bound_ns >= least or reading.relative_bound_ns == pytest.approx(least)
