from dataclasses import replace
from enum import Enum, auto
from itertools import product
from typing import Any

import pytest
from clockgated.clock.bound import grown_ns
from clockgated.clock.continuity import UNBROKEN, Continuity
from clockgated.clock.model import (
    ClockState,
    Evidence,
    Reading,
    Reason,
    ReasonCode,
    Reference,
    Silence,
    SourceKind,
    Traceability,
)
from clockgated.clock.state import StatePolicy, Track, advance, has_forgotten, must_forget, reading_of, start
from hypothesis import given
from hypothesis import strategies as st
from support.evidence import REFERENCE, SECOND, evidence, faulty, silence

MS = 1_000_000
POLICY = StatePolicy()
STEPPED = Continuity((Reason(ReasonCode.CLOCK_STEPPED, "stepped"),))

UNKNOWN, ACQUIRING, SYNCHRONIZED, HOLDOVER, FREE_RUNNING, DISRUPTED = ClockState


class Kind(Enum):
    GOOD = auto()
    WIDE = auto()
    FAULTY = auto()
    LEAP = auto()
    SILENT = auto()


def measurement(kind: Kind, at_ns: int) -> Evidence | Silence:
    match kind:
        case Kind.GOOD:
            return evidence(at_ns)
        case Kind.WIDE:
            return evidence(at_ns, bound_ns=51 * MS, utc_bound_ns=51 * MS)
        case Kind.FAULTY:
            return faulty(at_ns)
        case Kind.LEAP:
            return evidence(at_ns, leap_in_progress=True)
        case Kind.SILENT:
            return silence(at_ns)


class Run:
    """Cycles one second apart; remembers the track and the last reading."""

    def __init__(self, policy: StatePolicy = POLICY) -> None:
        self.policy = policy
        self.track = start(SourceKind.CHRONY, 0)
        self.now_ns = 0

    def cycle(
        self,
        seen: Kind | Evidence | Silence,
        continuity: Continuity = UNBROKEN,
        after_ns: int = SECOND,
        slew_ppb: int | None = 0,
    ) -> Reading:
        self.now_ns += after_ns
        what = measurement(seen, self.now_ns) if isinstance(seen, Kind) else replace(seen, as_of_boot_ns=self.now_ns)
        self.track = advance(self.track, what, continuity, self.now_ns, self.policy, slew_ppb=slew_ppb)
        return self.reading()

    def reading(self) -> Reading:
        return reading_of(self.track, "boot-1", self.policy)

    def codes(self) -> list[ReasonCode]:
        return [reason.code for reason in self.track.reasons]


def run_to(state: ClockState, policy: StatePolicy = POLICY) -> Run:
    """A run that has just entered `state`."""
    run = Run(policy)
    good = [Kind.GOOD] * (policy.sync_cycles + 1)
    match state:
        case ClockState.ACQUIRING:
            run.cycle(Kind.GOOD)
        case ClockState.SYNCHRONIZED:
            for kind in good:
                run.cycle(kind)
        case ClockState.HOLDOVER:
            for kind in [*good, Kind.SILENT]:
                run.cycle(kind)
        case ClockState.FREE_RUNNING:
            for kind in [*good, Kind.WIDE]:
                run.cycle(kind)
        case ClockState.DISRUPTED:
            for kind in good:
                run.cycle(kind)
            run.cycle(Kind.SILENT, STEPPED)
            # The source's first word after the break may be older than the break.
            run.cycle(Kind.FAULTY)
        case _:
            pass
    assert run.track.state is state
    return run


NEXT = {
    UNKNOWN: (ACQUIRING, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ACQUIRING: (ACQUIRING, ACQUIRING, ACQUIRING, ACQUIRING, ACQUIRING),
    SYNCHRONIZED: (SYNCHRONIZED, FREE_RUNNING, HOLDOVER, HOLDOVER, HOLDOVER),
    HOLDOVER: (SYNCHRONIZED, FREE_RUNNING, HOLDOVER, HOLDOVER, HOLDOVER),
    FREE_RUNNING: (FREE_RUNNING, FREE_RUNNING, FREE_RUNNING, FREE_RUNNING, FREE_RUNNING),
    DISRUPTED: (ACQUIRING, DISRUPTED, DISRUPTED, DISRUPTED, DISRUPTED),
}
ALL = [(state, kind, NEXT[state][index]) for state in ClockState for index, kind in enumerate(Kind)]


@pytest.mark.parametrize(("state", "kind", "wanted"), ALL)
def test_unbroken_cycle_leads_from_every_state_where_the_table_says(
    state: ClockState, kind: Kind, wanted: ClockState
) -> None:
    run = run_to(state)
    before = run.track
    run.cycle(kind)
    assert run.track.state is wanted
    assert run.track.epoch == before.epoch
    assert run.track.sequence == before.sequence + 1


@pytest.mark.parametrize(("state", "kind"), list(product(ClockState, Kind)))
def test_broken_cycle_leads_from_every_state_into_a_new_epoch(state: ClockState, kind: Kind) -> None:
    run = run_to(state)
    before = run.track
    reading = run.cycle(kind, STEPPED)
    assert reading.state is (UNKNOWN if state is UNKNOWN else DISRUPTED)
    assert reading.epoch == before.epoch + 1
    assert (reading.relative_bound_ns, reading.utc_bound_ns) == (None, None)
    assert ReasonCode.CLOCK_STEPPED in run.codes()


@pytest.mark.parametrize("state", list(ClockState))
def test_only_synchronized_holdover_and_free_running_show_a_bound(state: ClockState) -> None:
    has_bound = state in (SYNCHRONIZED, HOLDOVER, FREE_RUNNING)
    reading = run_to(state).reading()
    assert (reading.relative_bound_ns is not None) == has_bound
    assert (reading.utc_bound_ns is not None) == has_bound


@pytest.mark.parametrize("sync_cycles", [1, 2, 3, 7])
def test_synchronized_takes_the_wanted_number_of_good_cycles(sync_cycles: int) -> None:
    run = Run(replace(POLICY, sync_cycles=sync_cycles))
    states = [run.cycle(Kind.GOOD).state for _ in range(sync_cycles + 1)]
    # UNKNOWN always passes through ACQUIRING, so one good cycle needs two.
    settled = max(sync_cycles, 2)
    assert states == [ACQUIRING] * (settled - 1) + [SYNCHRONIZED] * (sync_cycles + 2 - settled)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.GOOD])
def test_a_bad_cycle_starts_the_count_again(kind: Kind) -> None:
    run = Run()
    for seen in (Kind.GOOD, Kind.GOOD, kind, Kind.GOOD, Kind.GOOD):
        assert run.cycle(seen).state is ACQUIRING
    assert ReasonCode.SETTLING in run.codes()
    assert run.cycle(Kind.GOOD).state is SYNCHRONIZED
    assert ReasonCode.SETTLING not in run.codes()


def test_free_running_takes_the_same_number_of_good_cycles_as_acquiring() -> None:
    run = run_to(FREE_RUNNING)
    states = [run.cycle(Kind.GOOD).state for _ in range(3)]
    assert states == [FREE_RUNNING, FREE_RUNNING, SYNCHRONIZED]


def test_a_reading_is_dated_by_its_measurement_and_expires() -> None:
    run = run_to(SYNCHRONIZED)
    run.now_ns += SECOND
    late_ns = run.now_ns + SECOND // 2
    run.track = advance(run.track, evidence(run.now_ns), UNBROKEN, late_ns, POLICY)
    reading = run.reading()
    assert reading.as_of_boot_ns == run.now_ns
    assert reading.void_after_boot_ns == run.now_ns + POLICY.reading_ttl_ns
    assert reading.relative_bound_ns == MS
    assert reading.reference == REFERENCE


def test_holdover_keeps_its_reading_alive_while_the_bound_grows() -> None:
    run = run_to(SYNCHRONIZED)
    lost_ns = run.now_ns
    for seconds in range(1, 60):
        reading = run.cycle(Kind.SILENT)
        assert reading.state is HOLDOVER
        assert reading.as_of_boot_ns == run.now_ns
        assert reading.void_after_boot_ns == run.now_ns + POLICY.reading_ttl_ns
        assert reading.relative_bound_ns == MS + 50_000 * seconds
        assert reading.utc_bound_ns == MS + 50_000 * seconds
        assert reading.reference == REFERENCE
        assert reading.assumptions == ("assumed",)
    assert run.now_ns == lost_ns + 59 * SECOND


def test_holdover_is_not_moved_by_what_a_closed_gate_claims() -> None:
    run = run_to(SYNCHRONIZED)
    other = Reference("ntp:192.0.2.66", "192.0.2.66", 3, "C0000242", Traceability.NO)
    reading = run.cycle(faulty(bound_ns=1, utc_bound_ns=1, reference=other))
    assert reading.state is HOLDOVER
    assert reading.relative_bound_ns == MS + 50_000
    assert reading.reference == REFERENCE
    assert run.codes() == [ReasonCode.REFERENCE_STALE]


def test_bound_grows_at_the_sources_own_rate_when_that_is_faster() -> None:
    run = Run()
    for _ in range(3):
        run.cycle(evidence(growth_ppb=80_000))
    assert run.reading().growth_ppb == 80_000
    assert run.cycle(Kind.SILENT).relative_bound_ns == MS + 80_000
    run = run_to(SYNCHRONIZED)
    assert run.cycle(evidence(growth_ppb=2_000)).growth_ppb == 50_000


def test_holdover_beyond_its_horizon_is_free_running() -> None:
    run = run_to(SYNCHRONIZED, replace(POLICY, max_bound_ns=10**12))
    assert run.cycle(Kind.SILENT, after_ns=1000 * SECOND).state is HOLDOVER
    reading = run.cycle(Kind.SILENT)
    assert reading.state is FREE_RUNNING
    assert reading.relative_bound_ns == MS + 50_000 * 1001
    assert ReasonCode.HOLDOVER_HORIZON in run.codes()


def test_holdover_whose_bound_outgrows_the_limit_is_free_running() -> None:
    run = run_to(SYNCHRONIZED)
    assert run.cycle(Kind.SILENT, after_ns=980 * SECOND).state is HOLDOVER
    assert run.cycle(Kind.SILENT).state is FREE_RUNNING
    assert ReasonCode.BOUND_OVER_LIMIT in run.codes()


def test_a_leap_second_is_holdover_and_says_so() -> None:
    run = run_to(SYNCHRONIZED)
    leap = Reason(ReasonCode.LEAP_IN_PROGRESS, "leaping")
    assert run.cycle(evidence(leap_in_progress=True, remarks=(leap,))).state is HOLDOVER
    assert run.codes() == [ReasonCode.LEAP_IN_PROGRESS]
    assert run.cycle(Kind.GOOD).state is SYNCHRONIZED


def test_a_wide_bound_is_shown_but_not_usable() -> None:
    run = run_to(SYNCHRONIZED)
    reading = run.cycle(Kind.WIDE)
    assert reading.state is FREE_RUNNING
    assert reading.relative_bound_ns == 51 * MS
    assert ReasonCode.BOUND_OVER_LIMIT in run.codes()


def test_after_an_update_the_wider_of_old_and_new_bound_holds_for_one_cycle() -> None:
    run = Run()
    for _ in range(4):
        run.cycle(evidence(update_id="first"))
    better = evidence(bound_ns=100_000, utc_bound_ns=200_000, update_id="second")
    reading = run.cycle(better)
    assert (reading.relative_bound_ns, reading.utc_bound_ns) == (MS + 50_000, MS + 50_000)
    reading = run.cycle(better)
    assert (reading.relative_bound_ns, reading.utc_bound_ns) == (100_000, 200_000)
    worse = evidence(bound_ns=2 * MS, utc_bound_ns=2 * MS, update_id="third")
    assert run.cycle(worse).relative_bound_ns == 2 * MS


def test_an_island_has_no_utc_bound() -> None:
    run = run_to(SYNCHRONIZED)
    reading = run.cycle(evidence(utc_bound_ns=None))
    assert (reading.relative_bound_ns, reading.utc_bound_ns) == (MS, None)


def test_a_source_that_has_not_measured_since_the_break_is_not_believed() -> None:
    run = run_to(SYNCHRONIZED)
    run.cycle(evidence(update_id="old"), STEPPED)
    for _ in range(100):
        assert run.cycle(evidence(update_id="old")).state is DISRUPTED
    assert ReasonCode.CLOCK_STEPPED in run.codes()
    states = [run.cycle(evidence(update_id="new")).state for _ in range(3)]
    assert states == [ACQUIRING, ACQUIRING, SYNCHRONIZED]
    assert run.codes() == []


def test_the_first_word_after_a_silent_break_may_be_old() -> None:
    run = run_to(SYNCHRONIZED)
    run.cycle(Kind.SILENT, STEPPED)
    assert run.cycle(evidence(update_id="maybe old")).state is DISRUPTED
    assert run.cycle(evidence(update_id="new")).state is ACQUIRING


def test_a_source_that_names_no_updates_is_believed_after_the_break() -> None:
    run = run_to(SYNCHRONIZED)
    run.cycle(evidence(), STEPPED)
    assert run.cycle(evidence()).state is ACQUIRING


def stepped(set_back_ns: int = 0, *, is_known: bool = False) -> Continuity:
    return replace(STEPPED, set_back_ns=set_back_ns, is_known_to_source=is_known)


def sampled(update: int, oldest_s: int) -> Evidence:
    return evidence(update_id=str(update), oldest_sample_ns=oldest_s * SECOND)


def test_samples_from_before_a_break_are_waited_out() -> None:
    run = run_to(SYNCHRONIZED)
    run.cycle(sampled(0, 100), stepped())
    assert run.cycle(sampled(1, 100), after_ns=99 * SECOND).state is DISRUPTED
    assert ReasonCode.CLOCK_STEPPED in run.codes()
    assert run.cycle(sampled(2, 99)).state is ACQUIRING
    assert run.codes() == [ReasonCode.SETTLING]


@pytest.mark.parametrize(("slew_ppb", "oldest_s"), [(0, 99), (80_000_000, 91), (None, 89)])
def test_a_clock_that_was_slewed_makes_old_samples_look_younger(slew_ppb: int | None, oldest_s: int) -> None:
    run = run_to(SYNCHRONIZED)
    run.cycle(sampled(0, 100), stepped())
    run.cycle(sampled(0, 100), after_ns=99 * SECOND, slew_ppb=slew_ppb)
    assert run.cycle(sampled(1, oldest_s + 1), slew_ppb=slew_ppb).state is DISRUPTED
    run = run_to(SYNCHRONIZED)
    run.cycle(sampled(0, 100), stepped())
    run.cycle(sampled(0, 100), after_ns=99 * SECOND, slew_ppb=slew_ppb)
    assert run.cycle(sampled(1, oldest_s), slew_ppb=slew_ppb).state is ACQUIRING


def test_young_samples_alone_are_no_update() -> None:
    run = run_to(SYNCHRONIZED)
    run.cycle(sampled(0, 1), stepped())
    assert run.cycle(sampled(0, 1), after_ns=1000 * SECOND).state is DISRUPTED
    assert run.cycle(sampled(1, 1)).state is ACQUIRING


def test_an_update_made_of_several_sources_is_believed_when_all_were_young_before_it() -> None:
    run = run_to(SYNCHRONIZED)
    run.cycle(sampled(0, 100), stepped())
    combined = [replace(sampled(update, 1), is_combined=True) for update in range(4)]
    # Of update 1 one source may still have had old samples, which it dropped since.
    assert run.cycle(replace(combined[1], oldest_sample_ns=900 * SECOND), after_ns=100 * SECOND).state is DISRUPTED
    for _ in range(3):
        assert run.cycle(combined[1]).state is DISRUPTED
    assert run.cycle(combined[2]).state is ACQUIRING
    # But not where the samples are known to be dropped.
    run.cycle(combined[2], stepped())
    run.track = has_forgotten(run.track)
    assert run.cycle(combined[3]).state is ACQUIRING


def test_a_clock_that_was_set_back_makes_old_samples_look_younger() -> None:
    run = run_to(SYNCHRONIZED)
    run.cycle(sampled(0, 100), stepped(set_back_ns=40 * SECOND))
    # Set back again, before the first break was over: both count.
    run.cycle(sampled(1, 100), stepped(set_back_ns=20 * SECOND), after_ns=99 * SECOND)
    assert run.cycle(sampled(2, 40), after_ns=100 * SECOND).state is DISRUPTED
    assert run.cycle(sampled(3, 40)).state is ACQUIRING
    # Over: the next break starts without them.
    run.cycle(sampled(3, 40), stepped())
    assert run.cycle(sampled(4, 99), after_ns=100 * SECOND).state is ACQUIRING


def test_a_break_that_the_source_knows_of_asks_for_no_younger_samples() -> None:
    run = run_to(SYNCHRONIZED)
    run.cycle(sampled(0, 100), stepped(is_known=True))
    assert run.cycle(sampled(0, 101)).state is DISRUPTED
    assert run.cycle(sampled(1, 117)).state is ACQUIRING


def test_a_break_that_the_source_knows_of_does_not_excuse_an_earlier_one() -> None:
    run = run_to(SYNCHRONIZED)
    run.cycle(sampled(0, 100), stepped())
    run.cycle(sampled(1, 100), stepped(is_known=True))
    assert run.cycle(sampled(2, 100)).state is DISRUPTED
    assert run.cycle(sampled(3, 100), after_ns=120 * SECOND).state is ACQUIRING


def test_a_source_that_dropped_its_samples_is_believed_at_its_next_update() -> None:
    run = run_to(SYNCHRONIZED)
    run.cycle(sampled(0, 100), stepped(set_back_ns=SECOND))
    run.track = has_forgotten(run.track)
    assert run.cycle(sampled(0, 3)).state is DISRUPTED
    assert run.cycle(sampled(1, 3)).state is ACQUIRING
    assert has_forgotten(run.track) == run.track


def test_the_source_must_forget_once_when_a_break_begins_that_it_does_not_know_of() -> None:
    run = run_to(SYNCHRONIZED)
    for seen, continuity, wanted in (
        (sampled(0, 100), UNBROKEN, False),
        (sampled(0, 100), stepped(), True),
        (sampled(1, 100), UNBROKEN, False),
        (sampled(1, 100), stepped(is_known=True), True),
        (sampled(2, 1), UNBROKEN, False),
    ):
        before = run.track
        run.cycle(seen, continuity)
        assert must_forget(before, run.track) == wanted
    run = run_to(SYNCHRONIZED)
    before = run.track
    run.cycle(sampled(0, 100), stepped(is_known=True))
    assert not must_forget(before, run.track)


def test_a_reading_grows_by_what_a_servo_may_do_and_the_bound_itself_only_by_drift() -> None:
    run = Run()
    steered = evidence(growth_ppb=50_000, steering_ppb=500_000, update_id="1")
    for _ in range(3):
        run.cycle(steered)
    assert run.reading().growth_ppb == 550_000
    # The older bound is kept for the cycle of an update; it has not aged by what the servo may have done.
    assert run.cycle(replace(steered, update_id="2", bound_ns=1)).relative_bound_ns == MS + 50_000
    run.cycle(steered)
    reading = run.cycle(Kind.SILENT)
    assert (reading.state, reading.relative_bound_ns, reading.growth_ppb) == (HOLDOVER, MS + 50_000, 550_000)


def steered(update: int, bound_ns: int = MS, **changes: Any) -> Evidence:
    return evidence(update_id=str(update), bound_ns=bound_ns, utc_bound_ns=bound_ns, steering_ppb=500_000, **changes)


def test_a_servo_that_lost_its_reference_leaves_its_last_correction_in_force() -> None:
    run = Run()
    for update in range(3):
        run.cycle(steered(update))
    run.cycle(steered(2))
    # Whatever moves the clock against the bare oscillator counts beside the drift, second by second.
    bounds_ns = [run.cycle(Kind.SILENT, slew_ppb=slew_ppb).relative_bound_ns for slew_ppb in (30_000, 350_000, None, 0)]
    assert bounds_ns == [MS + 80_000, MS + 480_000, MS + 1_030_000, MS + 1_080_000]
    assert run.reading().utc_bound_ns == MS + 1_080_000
    assert run.reading().growth_ppb == 550_000


def test_what_chronyd_slews_away_is_in_its_bound_already() -> None:
    run = run_to(SYNCHRONIZED)
    assert run.cycle(Kind.SILENT, slew_ppb=80_000_000).relative_bound_ns == MS + 50_000


def test_provisional_evidence_does_not_replace_an_older_bound_that_still_holds() -> None:
    run = Run()
    for update in range(3):
        run.cycle(steered(update))
    run.cycle(steered(2))
    run.cycle(Kind.SILENT)
    for update in range(3, 6):
        reading = run.cycle(steered(update, bound_ns=7, is_provisional=True), slew_ppb=20_000)
        assert reading.state is SYNCHRONIZED
        assert reading.relative_bound_ns == MS + 50_000 + (update - 2) * 70_000
        assert reading.utc_bound_ns == reading.relative_bound_ns
    run.cycle(steered(6, bound_ns=7))
    assert run.cycle(steered(6, bound_ns=7)).relative_bound_ns == 7


def test_provisional_evidence_does_for_a_clock_that_has_nothing_better() -> None:
    run = Run()
    for _ in range(3):
        run.cycle(steered(1, bound_ns=7, is_provisional=True))
    assert run.reading().relative_bound_ns == 7


def test_a_break_while_unknown_only_raises_the_epoch() -> None:
    run = Run()
    assert run.cycle(Kind.FAULTY, STEPPED).epoch == 2
    assert run.cycle(Kind.FAULTY).state is UNKNOWN
    assert run.cycle(Kind.GOOD).state is ACQUIRING


def test_a_clock_whose_bound_is_never_trusted_stays_unknown() -> None:
    run = Run()
    untrusted = faulty(code=ReasonCode.KERNEL_BOUND_NOT_TRUSTED, bound_ns=None, utc_bound_ns=None)
    for _ in range(10):
        assert run.cycle(untrusted).state is UNKNOWN
    assert run.codes() == [ReasonCode.KERNEL_BOUND_NOT_TRUSTED]


def test_start_goes_on_from_an_earlier_reading() -> None:
    track = start(SourceKind.KERNEL, 7, epoch=4, sequence=9)
    reading = reading_of(track, "boot-1", POLICY)
    assert (reading.state, reading.epoch, reading.sequence, reading.as_of_boot_ns) == (UNKNOWN, 4, 9, 7)
    assert [reason.code for reason in reading.reasons] == [ReasonCode.STARTING]


EVENTS = st.lists(st.tuples(st.sampled_from(Kind), st.booleans(), st.integers(1, 400 * SECOND)), max_size=30)


@given(EVENTS, st.integers(1, 4))
def test_no_history_publishes_a_bound_that_shrinks_without_a_measurement(
    events: list[tuple[Kind, bool, int]], sync_cycles: int
) -> None:
    run = Run(replace(POLICY, sync_cycles=sync_cycles))
    before = run.reading()
    for kind, is_broken, after_ns in events:
        reading = run.cycle(kind, STEPPED if is_broken else UNBROKEN, after_ns)
        assert reading.epoch == before.epoch + is_broken
        assert reading.sequence == before.sequence + 1
        assert reading.as_of_boot_ns > before.as_of_boot_ns
        if reading.state is SYNCHRONIZED:
            assert kind is Kind.GOOD
        if reading.state in (SYNCHRONIZED, HOLDOVER):
            assert reading.relative_bound_ns is not None
            assert 0 < reading.relative_bound_ns <= POLICY.max_bound_ns
        # A wide bound was measured behind open gates: like a good one it replaces what was promised before.
        is_measured = kind in (Kind.GOOD, Kind.WIDE)
        if reading.relative_bound_ns is not None and before.relative_bound_ns is not None and not is_measured:
            age_ns = reading.as_of_boot_ns - before.as_of_boot_ns
            # But for what was rounded up twice.
            assert reading.relative_bound_ns >= grown_ns(before.relative_bound_ns, before.growth_ppb, age_ns) - 1
        before = reading


def test_tracks_are_values() -> None:
    track: Track = run_to(SYNCHRONIZED).track
    assert replace(track) == track
    assert hash(track) == hash(replace(track))
