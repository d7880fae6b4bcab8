from dataclasses import replace

import pytest
from clockgated.manage.facts import Facts, TimeDaemon, UnitState
from clockgated.manage.mode import PlanCode
from clockgated.manage.takeover import UnitRecord, decide_take_over, give_back, is_rival, take
from hypothesis import given
from hypothesis import strategies as st

TIMESYNCD = TimeDaemon("systemd-timesyncd", 311, "systemd-timesyncd.service", may_steer=True)
CHRONYD = TimeDaemon("chronyd", 512, "chrony.service", may_steer=True)
STRAY = TimeDaemon("phc2sys", 900, None, may_steer=True)
ENABLED = UnitState("systemd-timesyncd.service", "enabled", is_active=True)


def facts(*daemons: TimeDaemon, units: tuple[UnitState, ...] = ()) -> Facts:
    return Facts(time_daemons=daemons, time_units=units, systemd_runs=True)


@pytest.mark.parametrize("take_over", [False, True])
def test_host_without_rivals_may_be_steered(take_over: bool) -> None:
    decision = decide_take_over(take_over, facts())
    assert decision.may_steer
    assert decision.units == ()
    assert decision.reasons == ()


def test_other_daemons_are_named_and_observed_without_take_over() -> None:
    decision = decide_take_over(False, facts(TIMESYNCD, CHRONYD, units=(ENABLED,)))
    assert not decision.may_steer
    assert decision.units == ()
    assert [reason.code for reason in decision.reasons] == [PlanCode.OTHER_TIME_DAEMON] * 2
    detail = decision.reasons[0].detail
    for part in ("chronyd", "512", "chrony.service", "take_over = true"):
        assert part in detail


def test_units_are_recorded_as_they_were_and_taken_over() -> None:
    decision = decide_take_over(True, facts(TIMESYNCD, CHRONYD, units=(ENABLED,)))
    assert decision.may_steer
    assert decision.units == (
        UnitRecord("chrony.service", was_enabled=False, was_active=True, was_masked=False),
        UnitRecord("systemd-timesyncd.service", was_enabled=True, was_active=True, was_masked=False),
    )


def test_unit_that_would_come_back_at_the_next_boot_is_taken_over_too() -> None:
    dormant = UnitState("ntpsec.service", "enabled", is_active=False)
    assert [record.unit for record in decide_take_over(True, facts(units=(dormant,))).units] == ["ntpsec.service"]
    alone = decide_take_over(False, facts(units=(dormant,)))
    assert alone.may_steer
    assert "ntpsec.service is enabled" in alone.warnings[0]


@pytest.mark.parametrize("file_state", ["disabled", "masked", "static"])
def test_unit_that_stays_away_is_left_alone(file_state: str) -> None:
    decision = decide_take_over(True, facts(units=(UnitState("ntp.service", file_state, is_active=False),)))
    assert decision.units == ()
    assert decision.warnings == ()


def test_process_without_a_unit_is_never_taken_over() -> None:
    decision = decide_take_over(True, facts(CHRONYD, STRAY))
    assert not decision.may_steer
    (reason,) = decision.reasons
    assert "end process 900" in reason.detail


@pytest.mark.parametrize(
    ("daemon", "rival"),
    [
        (TIMESYNCD, True),
        (replace(CHRONYD, may_steer=False), False),
        (replace(CHRONYD, may_steer=None), True),
        (replace(STRAY, may_steer=False), True),
    ],
    ids=["with-the-right", "chronyd-in-a-container", "unknown", "hardware-clocks-need-no-right"],
)
def test_rival_is_who_may_write_a_clock(daemon: TimeDaemon, rival: bool) -> None:
    assert is_rival(daemon) is rival
    assert decide_take_over(False, facts(daemon)).may_steer is not rival


def run(state: dict[str, bool], commands: tuple[tuple[str, ...], ...]) -> dict[str, bool]:
    """What systemd would make of the commands: enabled, active, masked."""
    state = dict(state)
    for _, verb, *rest in commands:
        if verb == "disable":
            state["enabled"] = False
            state["active"] = state["active"] and "--now" not in rest
        elif verb == "stop":
            state["active"] = False
        elif verb in ("mask", "unmask"):
            state["masked"] = verb == "mask"
        elif verb == "enable":
            assert not state["masked"]
            state["enabled"] = True
        elif verb == "start":
            assert not state["masked"]
            state["active"] = True
    return state


@given(enabled=st.booleans(), active=st.booleans(), masked=st.booleans())
def test_give_back_restores_what_was_taken(enabled: bool, active: bool, masked: bool) -> None:
    before = {"enabled": enabled and not masked, "active": active, "masked": masked}
    record = UnitRecord("x.service", before["enabled"], before["active"], before["masked"])
    taken = run(before, take(record))
    assert taken == {"enabled": False, "active": False, "masked": True}
    after = run(taken, give_back(record))
    # A masked unit cannot be started again, though it may have gone on running.
    assert after == {**before, "active": active and not masked}


def test_taking_lasts_over_a_reboot() -> None:
    commands = take(UnitRecord("x.service", was_enabled=True, was_active=True, was_masked=False))
    assert commands == (("systemctl", "disable", "--now", "x.service"), ("systemctl", "mask", "x.service"))
    assert not any("--runtime" in command for command in commands)
