from dataclasses import replace

import pytest
from clockgated.clock.continuity import Continuity, Look, continuity_between
from clockgated.clock.model import ReasonCode
from hypothesis import given
from hypothesis import strategies as st
from support.evidence import SECOND

MS = 1_000_000
BEFORE = Look(boot_ns=100 * SECOND, mono_ns=90 * SECOND, wall_ns=1_800_000_000 * SECOND, steering_id="chronyd-1")


def after(
    elapsed_ns: int = SECOND, step_ns: int = 0, asleep_ns: int = 0, steering_id: str | None = "chronyd-1"
) -> Look:
    return Look(
        BEFORE.boot_ns + elapsed_ns + asleep_ns,
        BEFORE.mono_ns + elapsed_ns,
        BEFORE.wall_ns + elapsed_ns + asleep_ns + step_ns,
        steering_id,
    )


def codes(continuity: Continuity) -> list[ReasonCode]:
    return [reason.code for reason in continuity.breaks]


def compared(look: Look, leap: bool = False) -> Continuity:
    return continuity_between(BEFORE, look, leap)


@given(st.integers(1, 10**13))
def test_time_that_only_passes_breaks_nothing(elapsed_ns: int) -> None:
    assert not compared(after(elapsed_ns)).is_broken


@pytest.mark.parametrize("step_ns", [5 * MS, -5 * MS, 1_001, -1_001])
def test_every_step_breaks_however_small(step_ns: int) -> None:
    continuity = compared(after(step_ns=step_ns))
    assert codes(continuity) == [ReasonCode.CLOCK_STEPPED]
    assert continuity.set_back_ns == max(0, -step_ns)
    assert not continuity.is_known_to_source


def test_what_reading_the_clocks_may_have_cost_is_no_step() -> None:
    assert not compared(after(step_ns=1_000)).is_broken
    torn = replace(after(step_ns=90_000), error_ns=90_000)
    assert not compared(torn).is_broken
    assert not continuity_between(torn, after(elapsed_ns=2 * SECOND), leap_in_progress=False).is_broken
    assert compared(replace(torn, error_ns=80_000)).is_broken


def test_sleep_breaks_without_being_a_step() -> None:
    assert codes(compared(after(asleep_ns=30 * SECOND))) == [ReasonCode.SUSPENDED]


def test_another_steering_process_breaks() -> None:
    continuity = compared(after(steering_id="chronyd-2"))
    assert codes(continuity) == [ReasonCode.STEERING_CHANGED]
    assert continuity.is_known_to_source, "it measured nothing before it started"


def test_an_unknown_steering_process_is_no_change() -> None:
    assert not compared(after(steering_id=None)).is_broken
    unknown = Look(BEFORE.boot_ns, BEFORE.mono_ns, BEFORE.wall_ns)
    assert not continuity_between(unknown, after(), False).is_broken


def test_all_breaks_are_named() -> None:
    look = after(step_ns=SECOND, asleep_ns=SECOND, steering_id="ntpd-1")
    wanted = [ReasonCode.CLOCK_STEPPED, ReasonCode.SUSPENDED, ReasonCode.STEERING_CHANGED]
    continuity = compared(look)
    assert codes(continuity) == wanted
    assert not continuity.is_known_to_source


@pytest.mark.parametrize("step_ns", [-SECOND, SECOND, 0])
def test_a_leap_second_is_no_step(step_ns: int) -> None:
    assert not compared(after(step_ns=step_ns), leap=True).is_broken
    assert compared(after(step_ns=step_ns)).is_broken == (step_ns != 0)


def test_a_step_during_a_leap_second_is_still_seen() -> None:
    assert codes(compared(after(step_ns=-SECOND - 5 * MS), leap=True)) == [ReasonCode.CLOCK_STEPPED]
    assert codes(compared(after(step_ns=SECOND // 2), leap=True)) == [ReasonCode.CLOCK_STEPPED]
