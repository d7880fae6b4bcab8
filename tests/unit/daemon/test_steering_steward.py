import os
import pwd
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from clockgated.clock.model import ReasonCode
from clockgated.clock.witness import KernelLook, KernelState
from clockgated.manage.facts import Facts, TimeDaemon
from clockgated.manage.handover import Handover
from clockgated.manage.plan import make_plan
from clockgated.manage.planned import Folders, Plan
from clockgated.manage.settings import ManageSettings, Mode, NtpSettings, TimeServer
from clockgated.manage.takeover import Command, UnitRecord
from clockgated.steering.backends import Runner
from clockgated.steering.prepare import Prepared
from clockgated.steering.signs import SignsOfLife
from clockgated.steering.steward import HostHooks, Steward, Told
from clockgated.supervise.base import ChildStatus
from clockgated.supervise.output import LineCallback
from support.fake_backend import FakeBackend
from support.plan_hosts import NTP_CLIENT, PTP_SOFTWARE, host

ME = pwd.getpwuid(os.geteuid()).pw_name
HERE = replace(host(), chrony_user=ME)
OTHER_NTP = replace(NTP_CLIENT, ntp=NtpSettings(servers=(TimeServer("10.9.9.9"),)))
OBSERVE = Plan(Mode.OBSERVE, ())
UNIT = UnitRecord("ntp.service", was_enabled=True, was_active=True, was_masked=False)


class Node:
    """A steward over a fake backend, on a host that tests change."""

    def __init__(self, folder: Path, backend: FakeBackend, outlives_us: bool = False) -> None:
        self.folders = Folders(f"{folder}/run", f"{folder}/state")
        self.backend = backend
        self.commands: list[str] = []
        self.opened = 0
        self.rivals: tuple[TimeDaemon, ...] = ()
        self.freq_ppm = 0.0
        self.resets = 0
        self.may_step = True
        self.outlives_us = outlives_us
        self.refusal: str | None = None
        self.signs = SignsOfLife()
        self.handover = Handover(self.folders, self.systemctl)
        hooks = HostHooks(self.open, lambda own: self.rivals, self.kernel, self.reset)
        self.steward = Steward(
            self.folders, "boot", self.signs, may_step=lambda: self.may_step, handover=self.handover, hooks=hooks
        )

    def open(self, _folders: Folders, _boot: str, _on_line: LineCallback, _with_units: bool) -> Runner:
        self.opened += 1
        return Runner(self.backend, self.outlives_us)

    def systemctl(self, command: Command) -> str | None:
        self.commands.append(" ".join(command[1:]))
        return self.refusal

    def kernel(self) -> KernelLook:
        return KernelLook(0, self.freq_ppm * 1000, 10_000, 0, KernelState.OK)

    def reset(self) -> None:
        self.resets += 1

    def plan(self, settings: ManageSettings, facts: Facts = HERE) -> Prepared:
        return Prepared(make_plan(settings, facts, self.folders), facts)

    def order(self, prepared: Prepared, steps: int = 3) -> Told:
        self.steward.carry_out(prepared)
        told = self.steward.step()
        for _ in range(steps - 1):
            told = self.steward.step()
        return told


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, FakeBackend())


def codes(told: Told) -> list[ReasonCode]:
    return [reason.code for reason in told.reasons]


def test_a_plan_is_written_and_its_daemons_run(node: Node) -> None:
    told = node.order(node.plan(NTP_CLIENT))
    assert Path(node.folders.run, "chronyd.conf").exists()
    assert [child.name for child in told.status.children if child.running] == ["chronyd"]
    assert (told.reasons, told.needs_plan) == ((), False)


def test_observing_opens_nothing(node: Node) -> None:
    assert not node.order(Prepared(OBSERVE, Facts())).runs_anything
    assert node.opened == 0
    assert not Path(node.folders.run).exists()


def test_the_way_back_to_observing_ends_what_runs(node: Node) -> None:
    node.order(node.plan(NTP_CLIENT))
    node.order(Prepared(OBSERVE, Facts()))
    assert node.backend.stopped == ["chronyd"]
    assert node.backend.names() == ()


def test_a_change_of_mode_ends_the_old_before_the_new_begins(node: Node) -> None:
    node.order(node.plan(NTP_CLIENT))
    node.backend.is_slow = True
    node.order(node.plan(PTP_SOFTWARE))
    assert "ptp4l@eth0" not in node.backend.specs
    node.backend.is_slow = False
    node.steward.step()
    node.steward.step()
    assert set(node.backend.names()) == {"ptp4l@eth0"}


def test_a_changed_file_is_a_changed_spec_and_an_unchanged_one_is_not(node: Node) -> None:
    def digest() -> str:
        spec = node.backend.specs["chronyd"]
        assert spec is not None
        return spec.digest

    node.order(node.plan(NTP_CLIENT))
    before = digest()
    node.order(node.plan(NTP_CLIENT))
    assert digest() == before
    node.order(node.plan(OTHER_NTP))
    assert digest() != before


def test_a_job_with_a_lease_keeps_starts_from_stepping(node: Node) -> None:
    node.order(node.plan(NTP_CLIENT))
    assert node.backend.may_step == {"chronyd": True}
    node.may_step = False
    node.steward.step()
    assert node.backend.may_step == {"chronyd": False}


def test_only_who_answered_before_is_watched(node: Node) -> None:
    node.signs.on_line("chronyd", "a line")
    node.order(node.plan(NTP_CLIENT))
    spec = node.backend.specs["chronyd"]
    assert spec is not None
    assert spec.stale_after_ns is None
    node.signs.on_answer("chronyd")
    node.steward.step()
    spec = node.backend.specs["chronyd"]
    assert spec is not None
    assert spec.stale_after_ns is not None


def test_a_plan_that_cannot_be_written_is_told_and_tried_again(node: Node) -> None:
    node.order(node.plan(NTP_CLIENT))
    nobody = replace(HERE, chrony_user="no-such-user")
    told = node.order(node.plan(OTHER_NTP, nobody))
    assert codes(told) == [ReasonCode.TIME_DAEMON_DOWN]
    assert "no user no-such-user" in told.reasons[0].detail
    assert told.needs_plan
    assert [child.name for child in told.status.children] == ["chronyd"], "what ran goes on"
    told = node.order(node.plan(OTHER_NTP))
    assert (told.reasons, told.needs_plan) == ((), False)


def test_a_program_that_ended_or_is_gone_is_a_reason(node: Node) -> None:
    node.order(node.plan(NTP_CLIENT))
    node.backend.statuses["chronyd"] = ChildStatus("chronyd", exits=1, last_exit="exit status 1")
    found = codes(node.steward.step())
    # /usr/sbin/chronyd of the made-up host is seldom there.
    is_there = Path("/usr/sbin/chronyd").exists()
    assert found == [ReasonCode.TIME_DAEMON_DOWN if is_there else ReasonCode.TIME_DAEMON_MISSING]


def test_a_time_daemon_that_somebody_starts_beside_ours_is_named(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node.order(node.plan(NTP_CLIENT))
    node.rivals = (TimeDaemon("ntpd", 77, "ntp.service", may_steer=True),)
    assert node.steward.step().reasons == (), "looked for once a minute"
    monkeypatch.setattr("clockgated.steering.steward._RIVAL_LOOK_NS", 0)
    node.order(node.plan(NTP_CLIENT))
    told = node.steward.step()
    assert codes(told) == [ReasonCode.OTHER_TIME_DAEMON]
    assert "ntpd (pid 77, ntp.service)" in told.reasons[0].detail
    node.steward.step()
    assert sum("ntpd" in message for message in caplog.messages) == 1


def test_a_leftover_frequency_is_reset_with_the_right_to_and_told_without(node: Node) -> None:
    node.freq_ppm = 100_000
    told = node.order(node.plan(NTP_CLIENT, replace(HERE, has_clock_right=False)))
    assert (codes(told), node.resets) == ([ReasonCode.LEFTOVER_FREQUENCY], 0)
    told = node.order(node.plan(PTP_SOFTWARE))
    assert (codes(told), node.resets) == ([ReasonCode.LEFTOVER_FREQUENCY], 1)
    node.order(node.plan(PTP_SOFTWARE))
    assert node.resets == 1, "our own servo runs: what is in force is its business"


def test_adopted_daemons_are_no_change_of_mode(tmp_path: Path) -> None:
    node = Node(tmp_path, FakeBackend("chronyd"))
    node.freq_ppm = 100_000
    told = node.order(node.plan(NTP_CLIENT))
    assert (told.reasons, node.resets) == ((), 0)


def test_units_are_given_back_once_nothing_of_ours_runs(node: Node) -> None:
    node.handover.take((UNIT,))
    node.order(node.plan(NTP_CLIENT))
    node.commands.clear()
    node.backend.is_slow = True
    told = node.order(Prepared(OBSERVE, Facts(), gives_back=True))
    assert (node.commands, told.needs_plan) == ([], False)
    node.backend.is_slow = False
    node.steward.step()
    told = node.steward.step()
    assert node.commands == ["unmask ntp.service", "enable ntp.service", "start ntp.service"]
    assert told.needs_plan, "the host is another one now"
    assert node.handover.records() == ()


def test_units_that_cannot_be_given_back_are_told_and_kept_in_mind(node: Node) -> None:
    node.handover.take((UNIT,))
    node.refusal = "refused"
    told = node.order(Prepared(OBSERVE, Facts(), gives_back=True))
    assert codes(told) == [ReasonCode.OTHER_TIME_DAEMON]
    assert "cannot be given back: refused" in told.reasons[0].detail
    assert told.needs_plan
    assert node.handover.records() == (UNIT,)


def test_the_end_takes_children_along_in_their_order(node: Node) -> None:
    both = ManageSettings(Mode.PTP_NTP, ntp=NTP_CLIENT.ntp, ptp=PTP_SOFTWARE.ptp)
    facts = replace(HERE, ptp4l=replace(HERE.ptp4l, version=(4, 2)) if HERE.ptp4l else None)
    node.order(replace(node.plan(both, facts), plan=_without_readiness(node.plan(both, facts).plan)))
    node.steward.end()
    assert node.backend.stopped == ["ptp4l@eth0", "chronyd"]
    assert node.backend.is_closed


def test_the_end_leaves_units_alone(tmp_path: Path) -> None:
    node = Node(tmp_path, FakeBackend(), outlives_us=True)
    node.order(node.plan(NTP_CLIENT))
    node.steward.end()
    assert node.backend.stopped == []
    assert node.backend.names() == ("chronyd",)
    assert node.backend.is_closed


def _without_readiness(plan: Plan) -> Plan:
    ready = tuple(replace(one, ready_when=replace(one.ready_when, paths=(), within_s=0)) for one in plan.daemons)
    return replace(plan, daemons=ready)


def test_the_end_of_nothing_is_nothing(node: Node) -> None:
    node.steward.end()
    assert not node.backend.is_closed


def test_looking_for_rivals_knows_our_own(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clockgated.steering.steward._RIVAL_LOOK_NS", 0)
    asked: list[Collection[int]] = []

    def look(own: Collection[int]) -> tuple[TimeDaemon, ...]:
        asked.append(own)
        return ()

    hooks = HostHooks(node.open, look, node.kernel, node.reset)
    steward = Steward(node.folders, "boot", node.signs, may_step=lambda: True, handover=node.handover, hooks=hooks)
    steward.carry_out(node.plan(NTP_CLIENT))
    steward.step()
    steward.step()
    assert asked[-1] == {node.backend.statuses["chronyd"].pid}
