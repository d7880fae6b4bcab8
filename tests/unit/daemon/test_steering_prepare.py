from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from clockgated import config
from clockgated.config import Config
from clockgated.errors import ConfigError
from clockgated.manage.facts import Facts, TimeDaemon, UnitState
from clockgated.manage.handover import Handover
from clockgated.manage.mode import PlanCode
from clockgated.manage.planned import Folders
from clockgated.manage.settings import Mode
from clockgated.manage.takeover import Command
from clockgated.steering.prepare import Prepared, look_at_host, prepare, survey
from support.plan_hosts import host

NTPD = TimeDaemon("ntpd", 7, "ntp.service", may_steer=True)
STRAY = TimeDaemon("ntpd", 8, None, may_steer=True)
NTP_UNIT = UnitState("ntp.service", "enabled", is_active=True)


class Host:
    """A host on which a unit may run beside us, and a systemctl that ends it."""

    def __init__(self, folder: Path, *daemons: TimeDaemon) -> None:
        self.daemons = daemons
        self.commands: list[str] = []
        self.is_stubborn = False
        self.handover = Handover(Folders(f"{folder}/run", str(folder)), self.run)
        self.has_chronyd = True
        self.looks = 0

    def look(self, settings: Config) -> Facts:
        self.looks += 1
        units = (NTP_UNIT,) if NTPD in self.daemons else ()
        found = replace(host(), time_daemons=self.daemons, time_units=units)
        return found if self.has_chronyd else replace(found, chronyd=None)

    def run(self, command: Command) -> str | None:
        self.commands.append(" ".join(command[1:]))
        if self.is_stubborn:
            return "refused"
        if command[1] == "disable":
            self.daemons = ()
        return None


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Host]:
    return lambda *daemons: Host(tmp_path, *daemons)


def settings(mode: str = "ntp", take_over: bool = False, servers: str = '"10.0.0.1"') -> Config:
    text = f'[clock]\nmode = "{mode}"\ntake_over = {str(take_over).lower()}\n[ntp]\nservers = [{servers}]\n'
    return config.parse(text.encode(), "x.toml")


def prepared(here: Host, wanted: Config) -> Prepared:
    return prepare(wanted, here.handover, here.look)


def codes(found: Prepared) -> list[PlanCode]:
    return [reason.code for reason in found.plan.reasons]


def test_a_host_of_our_own_is_planned_for(make: Callable[..., Host]) -> None:
    here = make()
    found = prepared(here, settings())
    assert (found.plan.mode, found.gives_back) == (Mode.NTP, False)
    assert (here.commands, here.looks) == ([], 1)


def test_without_take_over_another_daemon_is_observed_and_left_alone(make: Callable[..., Host]) -> None:
    here = make(NTPD)
    found = prepared(here, settings())
    assert (found.plan.mode, found.gives_back) == (Mode.OBSERVE, False)
    assert codes(found)[0] is PlanCode.OTHER_TIME_DAEMON
    assert here.commands == []


def test_with_take_over_it_is_recorded_silenced_and_planned_without(make: Callable[..., Host]) -> None:
    here = make(NTPD)
    found = prepared(here, settings(take_over=True))
    assert found.plan.mode is Mode.NTP
    assert found.plan.take_over == ()
    assert here.commands == ["disable --now ntp.service", "mask ntp.service"]
    assert [record.unit for record in here.handover.records()] == ["ntp.service"]


def test_a_survey_silences_nobody(make: Callable[..., Host]) -> None:
    here = make(NTPD)
    assert survey(settings(take_over=True), here.look).plan.take_over != ()
    assert here.commands == []
    assert here.handover.records() == ()


def test_one_that_does_not_end_is_observed(make: Callable[..., Host]) -> None:
    here = make(NTPD)
    here.is_stubborn = True
    found = prepared(here, settings(take_over=True))
    assert (found.plan.mode, found.plan.daemons) == (Mode.OBSERVE, ())
    assert "ntp.service could not be taken over (refused)" in found.plan.reasons[0].detail


def test_one_that_belongs_to_no_unit_is_observed(make: Callable[..., Host]) -> None:
    here = make(STRAY)
    found = prepared(here, settings(take_over=True))
    assert found.plan.mode is Mode.OBSERVE
    assert here.commands == []


@pytest.mark.parametrize(("mode", "take_over"), [("ntp", False), ("observe", True), ("observe", False)])
def test_what_was_taken_over_is_given_back_when_it_is_not_wanted_any_more(
    make: Callable[..., Host], mode: str, take_over: bool
) -> None:
    here = make(NTPD)
    prepared(here, settings(take_over=True))
    found = prepared(here, settings(mode, take_over))
    assert (found.plan.mode, found.plan.daemons, found.gives_back) == (Mode.OBSERVE, (), True)
    assert codes(found) == [PlanCode.OTHER_TIME_DAEMON]


def test_what_was_taken_over_stays_so_over_restarts(make: Callable[..., Host]) -> None:
    here = make(NTPD)
    prepared(here, settings(take_over=True))
    found = prepared(here, settings(take_over=True))
    assert (found.plan.mode, found.gives_back) == (Mode.NTP, False)


def test_a_node_that_we_cannot_manage_gets_its_daemon_back(make: Callable[..., Host]) -> None:
    here = make(NTPD)
    prepared(here, settings(take_over=True))
    here.has_chronyd = False
    found = prepared(here, settings(take_over=True))
    assert (found.plan.mode, found.gives_back) == (Mode.OBSERVE, True)


def test_an_unreadable_record_is_a_reason_and_no_end(make: Callable[..., Host], tmp_path: Path) -> None:
    (tmp_path / "taken-over.json").write_text("?")
    found = prepared(make(), settings())
    assert found.plan.mode is Mode.OBSERVE
    assert "taken-over.json" in found.plan.reasons[0].detail


def test_settings_that_allow_no_plan_are_an_error_of_the_configuration(make: Callable[..., Host]) -> None:
    wanted = replace(settings(), folders=replace(settings().folders, run="/a b"))
    with pytest.raises(ConfigError, match="the run folder is '/a b'"):
        prepared(make(), wanted)


def test_observing_looks_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clockgated.steering.prepare.gather_facts", None)
    assert look_at_host(settings("observe")).time_daemons == ()
