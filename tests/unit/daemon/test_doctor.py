"""What the doctor concludes from one look: pure, no daemon runs here."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clockgate.v1 import clock_pb2, gate_pb2
from clockgated.clock.model import ClockState, Reason, ReasonCode
from clockgated.ctl import doctor, doctor_command, node
from clockgated.ctl.advice import HARMLESS, NEXT_STEPS
from clockgated.ctl.doctor import Answers, Finding, Level
from clockgated.ctl.node import ConfigSeen, Disk, KernelClock, Node, Unit
from clockgated.manage.facts import Facts, Interface, TimeDaemon, Tool
from clockgated.service.convert import reading_message
from hypothesis import given
from hypothesis import strategies as st
from support.readings import GOOD, reading

CONFIG = ConfigSeen(Path("/etc/clockgate/clockgated.toml"), True, (), "observe", ("asked for",))
FACTS = Facts(
    chronyd=Tool("/usr/sbin/chronyd", (4, 3)),
    ptp4l=Tool("/usr/sbin/ptp4l", (3, 1, 1)),
    phc2sys=Tool("/usr/sbin/phc2sys", (3, 1, 1)),
    interfaces=(Interface("eth0", "up", has_hardware_stamps=True, phc_index=0),),
    time_daemons=(TimeDaemon("chronyd", 100, "chrony.service", True),),
)
KERNEL = KernelClock(False, 12.5, 10_000, 900, "tsc", ("tsc", "hpet"))
NODE = Node(
    boot_id=GOOD.boot_id,
    is_root=True,
    container=None,
    facts=FACTS,
    config=CONFIG,
    disks=(Disk("/run/clockgate", 1 << 30, 10_000),),
    kernel=KERNEL,
    rtc_is_local=False,
    unit=Unit("active", "enabled"),
)


def answers(**changes: Any) -> Answers:
    return Answers(reading_message(reading(**changes), GOOD.as_of_boot_ns), GOOD.as_of_boot_ns, leases=[])


def worse(node: Node, given: Answers | None = None) -> list[Finding]:
    return [one for one in doctor.examine(given or answers(), node) if one.level is not Level.OK]


def only(node: Node, given: Answers | None = None) -> Finding:
    (one,) = worse(node, given)
    return one


def facts(**changes: Any) -> Node:
    return replace(NODE, facts=replace(FACTS, **changes))


def test_a_healthy_node_has_nothing_but_passed_checks() -> None:
    assert worse(NODE) == []


def test_a_dead_daemon_is_a_fault_and_the_node_is_still_looked_at() -> None:
    given = Answers(None, 0, "/run/x.sock: no socket there")
    found = doctor.examine(given, NODE)
    assert found[0].level is Level.FAULT
    assert "systemd: active" in found[0].seen
    assert {"kernel clock", "time daemons", "chronyd"} <= {one.subject for one in found}
    assert doctor_command.exit_code(given, found) == 3


def test_exit_code_is_no_only_for_faults() -> None:
    assert doctor_command.exit_code(answers(), (Finding(Level.NOTE, "a", "b"),)) == 0
    assert doctor_command.exit_code(answers(), (Finding(Level.FAULT, "a", "b"),)) == 1


def test_every_reason_of_a_reading_has_a_next_step() -> None:
    assert set(NEXT_STEPS) == {code.name for code in ReasonCode}
    assert set(NEXT_STEPS) > HARMLESS


def test_a_reason_is_a_fault_when_the_clock_is_not_usable_and_a_note_when_it_is() -> None:
    reasons = (Reason(ReasonCode.NO_SELECTED_SOURCE, "none of 3 sources is selected"),)
    found = worse(NODE, answers(state=ClockState.FREE_RUNNING, reasons=reasons))
    assert [(one.level, one.subject) for one in found] == [
        (Level.FAULT, "clock"),
        (Level.FAULT, "NO_SELECTED_SOURCE"),
    ]
    assert found[1].next_step == NEXT_STEPS["NO_SELECTED_SOURCE"]
    assert only(NODE, answers(reasons=reasons)).level is Level.NOTE


def test_a_reason_of_a_newer_daemon_is_shown_by_its_number() -> None:
    given = answers()
    assert given.reading is not None
    given.reading.reasons.append(clock_pb2.Reason(detail="of another release"))
    given.reading.reasons[-1].code = 61  # type: ignore[assignment]
    assert only(NODE, given).subject == "61"


def test_an_expired_reading_is_a_daemon_that_measures_nothing() -> None:
    given = replace(answers(), now_boot_ns=GOOD.void_after_boot_ns + 1)
    assert [one.subject for one in worse(NODE, given)] == ["reading", "clock"]


def test_the_daemon_of_another_boot_is_told() -> None:
    found = only(replace(NODE, boot_id="another"))
    assert (found.level, found.subject) == (Level.FAULT, "boot id")


@pytest.mark.parametrize(
    ("daemons", "mode", "level"),
    [
        ((), "observe", Level.FAULT),
        ((), "ntp", None),
        ((TimeDaemon("chronyd", 1, None, False),), "ntp", None),
        ((TimeDaemon("chronyd", 1, None, True),), "observe", None),
        ((TimeDaemon("chronyd", 1, None, True),), "ntp", Level.NOTE),
        ((TimeDaemon("chronyd", 1, None, True), TimeDaemon("ntpd", 2, None, None)), "observe", Level.FAULT),
    ],
)
def test_one_program_should_steer(daemons: tuple[TimeDaemon, ...], mode: str, level: Level | None) -> None:
    seen = replace(facts(time_daemons=daemons), config=replace(CONFIG, mode=mode))
    assert [(one.level, one.subject) for one in worse(seen)] == ([(level, "time daemons")] if level else [])


@pytest.mark.parametrize(
    ("version", "level"), [((4, 1), Level.FAULT), ((4, 2), None), ((4, 9), None), ((4, 10), Level.NOTE)]
)
def test_versions_of_chrony_are_held_against_what_was_tried(version: tuple[int, ...], level: Level | None) -> None:
    found = [one.level for one in worse(facts(chronyd=Tool("/usr/sbin/chronyd", version)))]
    assert found == ([level] if level else [])


def test_tried_versions_are_those_of_the_recorded_plans() -> None:
    plans = Path(__file__).parents[2] / "support/golden/plans"
    for prefix, (oldest, newest) in (("chrony", doctor.KNOWN_CHRONY), ("linuxptp", doctor.KNOWN_LINUXPTP)):
        tried = sorted(
            tuple(map(int, path.stem.rpartition("_")[2].split(".")))[:2] for path in plans.glob(f"*_{prefix}_*.txt")
        )
        assert (tried[0], tried[-1]) == (oldest, newest)


def test_faults_of_the_configuration_name_the_command_that_shows_them() -> None:
    seen = replace(NODE, config=replace(CONFIG, problems=("a: unknown key", "b: wrong"), mode="", why=()))
    found = [one for one in worse(seen) if one.subject == "configuration"]
    assert [one.seen for one in found] == ["a: unknown key", "b: wrong"]
    assert all("clockgated --check --config" in one.next_step for one in found)


@pytest.mark.parametrize(
    ("kernel", "subject"),
    [
        (replace(KERNEL, clocksource="hpet"), "clocksource"),
        (replace(KERNEL, tick_us=9_000), "kernel clock"),
        (replace(KERNEL, freq_ppm=-450.0), "kernel clock"),
        (None, "kernel clock"),
    ],
)
def test_a_kernel_clock_that_is_odd_is_noted(kernel: KernelClock | None, subject: str) -> None:
    found = only(replace(NODE, kernel=kernel))
    assert (found.level, found.subject) == (Level.NOTE, subject)


@pytest.mark.parametrize("disk", [Disk("/var/lib/clockgate", 1 << 20, None), Disk("/var/lib/clockgate", 1 << 40, 3)])
def test_a_full_disk_is_a_fault(disk: Disk) -> None:
    found = only(replace(NODE, disks=(disk,)))
    assert (found.level, found.subject) == (Level.FAULT, "/var/lib/clockgate")


def test_software_stamps_are_noted_only_where_ptp_was_asked_for() -> None:
    software = facts(interfaces=(Interface("eth0", "up", has_software_stamps=True),), time_daemons=())
    assert only(replace(software, config=replace(CONFIG, mode="ptp"))).subject == "timestamps"
    assert worse(replace(software, config=replace(CONFIG, mode="ntp"))) == []


def test_a_container_without_the_right_is_sent_to_the_host() -> None:
    found = only(replace(facts(has_clock_right=False), container="kubernetes"))
    assert (found.level, found.next_step) == (Level.NOTE, "docs/containers.md")


def test_a_service_that_a_reboot_would_lose_and_local_time_in_the_hardware_are_noted() -> None:
    assert only(replace(NODE, unit=Unit("active", "disabled"))).subject == "clockgated.service"
    assert only(replace(NODE, rtc_is_local=True)).subject == "hardware clock"


def test_leases_that_may_not_be_asked_for_are_a_note() -> None:
    assert only(NODE, replace(answers(), leases=None, leases_problem="permission denied")).subject == "leases"
    open_ones = [gate_pb2.Lease(job="train\x1b[2J")]
    assert any("train\\x1b" in one.seen for one in doctor.examine(replace(answers(), leases=open_ones), NODE))


def test_view_has_what_was_seen_wanted_and_next_and_ends_with_a_count() -> None:
    text = doctor.render([Finding(Level.FAULT, "a", "seen\x1b", "wanted", "step")], in_colour=False)
    assert text.splitlines() == [
        "fault  a: seen\\x1b",
        "       wanted: wanted",
        "       next: step",
        "1 faults, 0 notes, 0 checks passed",
    ]
    assert "\x1b[31m" in doctor.render([Finding(Level.FAULT, "a", "b")], in_colour=True)


@given(st.text())
def test_what_a_plan_prints_is_read_without_an_error(shown: str) -> None:
    assert isinstance(node.parse_plan(shown), tuple)


def test_folders_come_from_the_configuration_where_it_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[folders]\nrun = "/r"\n')
    assert node.folders_of(file).run == "/r"
    assert node.folders_of(file).state == "/var/lib/clockgate"
    for broken in ("folders = 3", "[folders]\nrun = 3", "[", ""):
        file.write_text(broken)
        assert node.folders_of(file).run == "/run/clockgate"


def test_containers_are_known_by_what_their_managers_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert node.container(tmp_path) is None
    (tmp_path / ".dockerenv").touch()
    assert node.container(tmp_path) == "docker"
    (tmp_path / "run/systemd").mkdir(parents=True)
    (tmp_path / "run/systemd/container").write_text("lxc\n")
    assert node.container(tmp_path) == "lxc"


def test_a_program_that_cannot_run_hangs_or_fails_is_named() -> None:
    for command, said in (
        (("no-such-program-here",), "not installed"),
        (("sh", "-c", "sleep 30"), "no answer within 0.2 s"),
        (("sh", "-c", "echo broken >&2; exit 3"), "broken"),
        (("sh", "-c", "exit 3"), "ended with 3"),
    ):
        with pytest.raises(node.ProgramError, match=said):
            node.run_program(*command, timeout_s=0.2 if "sleep" in command[-1] else 10)
