from dataclasses import replace

import pytest
from clockgated.clock.model import Evidence, Reason, ReasonCode
from clockgated.manage.facts import TimeDaemon
from clockgated.manage.plan import make_plan
from clockgated.manage.settings import ManageSettings, Mode
from clockgated.steering.notices import NOBODY_STEERS, Notices, annotated, plan_notices, status_notices
from clockgated.supervise.base import ChildStatus
from clockgated.supervise.supervisor import SuperviseStatus
from support.evidence import evidence, faulty, silence
from support.plan_hosts import FOLDERS, NTP_CLIENT, PTP_SOFTWARE, host

HINT = Reason(ReasonCode.NO_SELECTED_SOURCE, "name a server")
ALWAYS = Reason(ReasonCode.OTHER_TIME_DAEMON, "ntpd runs")
RIVAL = replace(host(), time_daemons=(TimeDaemon("ntpd", 7, "ntp.service", may_steer=True),))


def notices(settings: ManageSettings, **facts: object) -> Notices:
    here = replace(host(), **facts)  # type: ignore[arg-type]
    return plan_notices(settings.mode, make_plan(settings, here, FOLDERS), has_clock_right=here.has_clock_right)


def codes(reasons: tuple[Reason, ...]) -> list[ReasonCode]:
    return [reason.code for reason in reasons]


def test_a_plan_that_steers_says_nothing() -> None:
    assert notices(NTP_CLIENT) == Notices()


def test_without_the_clock_right_every_reading_says_that_nobody_steers() -> None:
    found = notices(NTP_CLIENT, has_clock_right=False)
    assert codes(found.always) == [ReasonCode.NOT_STEERED]
    assert found.assumptions == (NOBODY_STEERS,)


@pytest.mark.parametrize("settings", [NTP_CLIENT, replace(NTP_CLIENT, mode=Mode.AUTO)])
def test_another_time_daemon_is_told_with_the_next_step(settings: ManageSettings) -> None:
    found = notices(settings, time_daemons=RIVAL.time_daemons)
    (reason,) = found.always
    assert reason.code is ReasonCode.OTHER_TIME_DAEMON
    assert "ntpd (pid 7, ntp.service)" in reason.detail
    assert "set take_over = true, or stop it" in reason.detail


@pytest.mark.parametrize(
    ("settings", "facts", "code"),
    [
        (NTP_CLIENT, {"chronyd": None}, ReasonCode.TIME_DAEMON_MISSING),
        (PTP_SOFTWARE, {"interfaces": ()}, ReasonCode.PORT_NOT_SLAVE),
        (NTP_CLIENT, {"is_root": False}, ReasonCode.NOT_STEERED),
    ],
)
def test_a_mode_that_was_named_and_cannot_run_is_told_on_every_reading(
    settings: ManageSettings, facts: dict[str, object], code: ReasonCode
) -> None:
    assert codes(notices(settings, **facts).always) == [code]


def test_the_automatic_mode_gives_a_hint_only() -> None:
    found = notices(ManageSettings())
    assert found.always == ()
    (hint,) = found.hints
    assert "name servers in ntp.servers" in hint.detail
    assert notices(ManageSettings(), is_root=False) == Notices()


def test_observing_on_purpose_says_nothing() -> None:
    assert notices(ManageSettings(Mode.OBSERVE), time_daemons=RIVAL.time_daemons) == Notices()


def test_a_good_measurement_carries_notices_and_no_hints() -> None:
    noted = annotated(evidence(), Notices((ALWAYS,), (HINT,), ("assumed too",)))
    assert noted == replace(evidence(), remarks=(ALWAYS,), assumptions=("assumed", "assumed too"))


def test_a_bad_measurement_carries_hints_as_well() -> None:
    noted = annotated(faulty(), Notices((ALWAYS,), (HINT,)))
    assert isinstance(noted, Evidence)
    assert noted.remarks == (ALWAYS, HINT)
    assert noted.faults == faulty().faults


def test_silence_with_notices_claims_nothing() -> None:
    noted = annotated(silence(5), Notices((ALWAYS,)))
    assert isinstance(noted, Evidence)
    assert (noted.as_of_boot_ns, noted.bound_ns, noted.utc_bound_ns, noted.offset_ns) == (5, None, None, None)
    assert noted.faults == (silence().reason,)
    assert noted.remarks == (ALWAYS,)
    assert annotated(silence(), Notices()) == silence()


def status(**changes: object) -> SuperviseStatus:
    child = ChildStatus("chronyd", **changes)  # type: ignore[arg-type]
    return SuperviseStatus((child,), (), ())


@pytest.mark.parametrize(
    ("changes", "missing", "code"),
    [
        ({"running": True}, set(), None),
        ({"running": False}, set(), None),
        ({"running": False, "last_exit": "exit status 1"}, set(), ReasonCode.TIME_DAEMON_DOWN),
        ({"running": False, "last_exit": "x", "crash_loop": True}, set(), ReasonCode.TIME_DAEMON_CRASH_LOOP),
        ({"running": True, "last_exit": "x", "crash_loop": True}, set(), ReasonCode.TIME_DAEMON_CRASH_LOOP),
        ({"running": False, "last_exit": "x"}, {"chronyd"}, ReasonCode.TIME_DAEMON_MISSING),
        ({"running": True}, {"chronyd"}, None),
    ],
)
def test_state_of_a_child_becomes_a_reason(
    changes: dict[str, object], missing: set[str], code: ReasonCode | None
) -> None:
    assert codes(status_notices(status(**changes), missing)) == ([] if code is None else [code])
