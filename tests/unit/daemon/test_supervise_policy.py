from dataclasses import replace

import pytest
from clockgated.supervise.policy import (
    ExitHistory,
    RestartPolicy,
    after_exit,
    delay_ns,
    is_crash_loop,
    is_stale,
    next_start_ns,
    watched,
)
from clockgated.units import NS_PER_S
from hypothesis import given
from hypothesis import strategies as st

POLICY = RestartPolicy()
RUN = (10, 20)


def test_first_attempt_is_not_delayed() -> None:
    assert next_start_ns(POLICY, ExitHistory()) is None
    assert delay_ns(POLICY, 0) == 0


def test_delay_doubles_up_to_the_ceiling() -> None:
    seen = [delay_ns(POLICY, failures) // NS_PER_S for failures in range(1, 10)]
    assert seen == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@given(st.integers(0, 10**9))
def test_delay_never_falls_and_never_passes_the_ceiling(failures: int) -> None:
    assert delay_ns(POLICY, failures) <= delay_ns(POLICY, failures + 1) <= POLICY.max_delay_ns


def test_healthy_run_forgets_earlier_failures() -> None:
    failed = ExitHistory()
    for at in range(4):
        failed = after_exit(POLICY, failed, at, at)
    lasted = after_exit(POLICY, failed, 0, POLICY.healthy_after_ns)
    assert lasted.failures_in_a_row == 1
    assert lasted.exits == 5
    assert next_start_ns(POLICY, lasted) == POLICY.healthy_after_ns + POLICY.first_delay_ns


def test_a_program_that_never_comes_up_stays_in_crash_loop_at_the_ceiling() -> None:
    history, now = ExitHistory(), 0
    for attempt in range(1, 200):
        history = after_exit(POLICY, history, now, now)
        assert len(history.recent_mono_ns) <= POLICY.loop_exits
        due = next_start_ns(POLICY, history)
        assert due is not None
        assert is_crash_loop(POLICY, history, None, due) is (attempt >= POLICY.loop_exits)
        now = due


def test_crash_loop_ends_with_a_healthy_run() -> None:
    history = ExitHistory(exits=5, failures_in_a_row=5, recent_mono_ns=(1, 2, 3, 4, 5))
    assert is_crash_loop(POLICY, history, 5, 5 + POLICY.healthy_after_ns - 1)
    assert not is_crash_loop(POLICY, history, 5, 5 + POLICY.healthy_after_ns)


def test_few_exits_far_apart_are_no_crash_loop() -> None:
    history = ExitHistory()
    for at in range(10):
        now = at * POLICY.loop_window_ns
        history = after_exit(POLICY, history, now - NS_PER_S, now)
        assert not is_crash_loop(POLICY, history, None, now)


@pytest.mark.parametrize(
    "change",
    [{"first_delay_ns": 0}, {"max_delay_ns": 1}, {"loop_exits": 0}, {"loop_window_ns": NS_PER_S}],
)
def test_policy_that_cannot_show_a_crash_loop_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"wanted|must be"):
        replace(POLICY, **change)


def test_silence_longer_than_allowed_is_stale() -> None:
    watch = watched(None, RUN, None, 0)
    for second in range(1, 31):
        watch = watched(watch, RUN, None, second * NS_PER_S)
        assert not is_stale(watch, 30 * NS_PER_S)
    assert is_stale(watched(watch, RUN, None, 31 * NS_PER_S), 30 * NS_PER_S)
    assert not is_stale(watched(watch, RUN, None, 31 * NS_PER_S), None)


def test_fresh_evidence_ends_the_silence_and_old_evidence_does_not() -> None:
    watch = watched(None, RUN, 5, 0)
    for second in range(1, 20):
        watch = watched(watch, RUN, 5, second * NS_PER_S)
    assert watch.silent_ns == 19 * NS_PER_S
    watch = watched(watch, RUN, 19 * NS_PER_S, 20 * NS_PER_S)
    assert watch.silent_ns == NS_PER_S


def test_another_run_begins_unsilent() -> None:
    watch = watched(None, RUN, None, 0)
    for second in range(60):
        watch = watched(watch, RUN, None, second * NS_PER_S)
    assert watched(watch, (RUN[0], RUN[1] + 1), None, 61 * NS_PER_S).silent_ns == 0


@given(st.integers(0, 10**15))
def test_silence_that_we_slept_through_is_not_blamed_on_the_child(asleep_ns: int) -> None:
    watch = watched(watched(None, RUN, 1, 0), RUN, 1, asleep_ns)
    assert not is_stale(watch, 10 * NS_PER_S)
