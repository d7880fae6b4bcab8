"""The systemd backend against a fake systemctl that runs real processes."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from clockgated import host
from clockgated.supervise import units
from clockgated.supervise.base import ChildSpec
from clockgated.supervise.journal import JournalFollower
from clockgated.supervise.marks import StartMarks
from clockgated.supervise.policy import RestartPolicy
from clockgated.supervise.unit_text import drop_in
from clockgated.supervise.units import UnitsBackend
from support.programs import BOOT, FAST, SLEEPER, program, pump

UNIT = "clockgate-chronyd.service"
FAKE = Path(__file__).parents[2] / "support" / "fake_systemctl.py"
Open = Callable[[], UnitsBackend]


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Path]:
    """The fake's folder; what it started is ended."""
    (tmp_path / "system").mkdir()
    (tmp_path / "installed").write_text(UNIT)
    yield tmp_path
    for unit in _units(tmp_path).values():
        if unit["MainPID"]:
            try:
                os.kill(unit["MainPID"], signal.SIGKILL)
            except ProcessLookupError:
                continue


@pytest.fixture
def open_backend(systemd: Path) -> Open:
    return lambda: _backend(systemd)


def _backend(systemd: Path, policy: RestartPolicy = FAST, systemctl: Sequence[str] | None = None) -> UnitsBackend:
    fake = (sys.executable, "-S", str(FAKE), str(systemd))
    return UnitsBackend(policy, StartMarks(systemd / "marks", BOOT), systemctl or fake, systemd / "system")


def _units(systemd: Path) -> dict[str, dict[str, int]]:
    path = systemd / "state.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _calls(systemd: Path) -> list[str]:
    return [line for line in (systemd / "calls").read_text().splitlines() if not line.startswith("show")]


def _spec(systemd: Path, files_digest: str = "") -> ChildSpec:
    path = program(systemd, "chronyd", SLEEPER)
    return ChildSpec("chronyd", (str(path), "-d"), unit=UNIT, files_digest=files_digest)


def _run(backend: UnitsBackend, spec: ChildSpec) -> int:
    backend.start(spec, may_step=True)
    pump(backend, lambda: backend.status(spec.name).running)
    pid = backend.status(spec.name).pid
    assert pid is not None
    return pid


def test_a_unit_gets_its_drop_in_before_it_starts(systemd: Path, open_backend: Open) -> None:
    backend = open_backend()
    pid = _run(backend, _spec(systemd))
    assert _calls(systemd) == ["daemon-reload", f"start {UNIT}"]
    assert _units(systemd)[UNIT]["MainPID"] == pid
    since_ns = backend.status("chronyd").since_mono_ns
    assert since_ns is not None
    assert abs(host.mono_ns() - since_ns) < 10**10


def test_another_clockgated_touches_nothing_that_runs_as_wanted(systemd: Path, open_backend: Open) -> None:
    pid = _run(open_backend(), _spec(systemd))
    before = _calls(systemd)
    again = open_backend()
    assert again.names() == ("chronyd",)
    assert _run(again, _spec(systemd)) == pid
    assert _calls(systemd) == before
    assert again.status("chronyd").adopted


def test_a_changed_configuration_restarts_the_unit_once(systemd: Path, open_backend: Open) -> None:
    pid = _run(open_backend(), _spec(systemd, "one"))
    backend = open_backend()
    backend.start(_spec(systemd, "two"), may_step=True)
    pump(backend, lambda: backend.status("chronyd").pid not in (pid, None))
    for _ in range(3):
        backend.poll(host.mono_ns())
    assert _calls(systemd).count(f"restart {UNIT}") == 1


def test_a_restart_that_was_prepared_and_not_done_is_done_by_the_next_clockgated(
    systemd: Path, open_backend: Open
) -> None:
    pid = _run(open_backend(), _spec(systemd, "one"))
    spec = _spec(systemd, "two")
    path = systemd / "system" / f"{UNIT}.d" / "10-clockgate.conf"
    path.write_text(drop_in(spec, spec.argv, 1, 5))  # and then kill -9, before the reload and the restart
    backend = open_backend()
    backend.start(spec, may_step=True)
    pump(backend, lambda: backend.status("chronyd").pid not in (pid, None))
    assert _calls(systemd)[-2:] == ["daemon-reload", f"restart {UNIT}"]


def _command(systemd: Path) -> str:
    text = (systemd / "system" / f"{UNIT}.d" / "10-clockgate.conf").read_text()
    return text.partition("ExecStart=\nExecStart=")[2].partition("\n")[0]


def test_systemd_may_let_a_unit_step_only_until_a_run_has_lasted_and_no_lease_is_open(systemd: Path) -> None:
    plain = _spec(systemd)
    spec = replace(plain, restart_argv=(*plain.argv, "-R"))
    policy = replace(FAST, healthy_after_ns=2 * 10**9)
    backend = _backend(systemd, policy)
    pid = _run(backend, spec)
    assert '"-R"' not in _command(systemd)
    for may_step in (False, True):
        backend.start(spec, may_step=may_step)
        backend.poll(host.mono_ns())
        assert ('"-R"' in _command(systemd)) is not may_step
    backend.poll(host.mono_ns() + 60 * 10**9)
    assert '"-R"' in _command(systemd)
    assert backend.status("chronyd").pid == pid
    assert StartMarks(systemd / "marks", BOOT).has("chronyd")
    assert not StartMarks(systemd / "marks", "another boot").has("chronyd")


def test_a_unit_that_is_not_wanted_is_stopped_and_its_drop_in_removed(systemd: Path, open_backend: Open) -> None:
    _run(open_backend(), _spec(systemd))
    backend = open_backend()
    backend.stop("chronyd", 10**9)
    pump(backend, lambda: not backend.names())
    assert _calls(systemd)[-2:] == [f"stop {UNIT}", "daemon-reload"]
    assert list((systemd / "system").iterdir()) == []
    assert open_backend().names() == ()


def test_a_hung_unit_is_killed_and_comes_back_counted(systemd: Path, open_backend: Open) -> None:
    backend = open_backend()
    pid = _run(backend, _spec(systemd))
    os.kill(pid, signal.SIGSTOP)
    backend.restart("chronyd", "silent for 30 s")
    pump(backend, lambda: backend.status("chronyd").pid not in (pid, None))
    assert backend.status("chronyd").exits == 1
    assert backend.status("chronyd").last_exit == "silent for 30 s"


def test_a_unit_that_keeps_ending_is_in_crash_loop_and_slowed_down(systemd: Path, open_backend: Open) -> None:
    policy = replace(FAST, max_delay_ns=7 * 10**9, loop_window_ns=60 * 10**9)
    backend = _backend(systemd, policy)
    _run(backend, _spec(systemd))
    for _ in range(policy.loop_exits):
        exits = backend.status("chronyd").exits
        os.kill(_units(systemd)[UNIT]["MainPID"], signal.SIGKILL)
        pump(backend, lambda seen=exits: backend.status("chronyd").exits > seen)  # type: ignore[misc]
    assert backend.status("chronyd").crash_loop
    text = (systemd / "system" / f"{UNIT}.d" / "10-clockgate.conf").read_text()
    assert "RestartSec=7\n" in text


def test_a_unit_that_is_not_installed_ends_in_crash_loop_with_the_next_step(systemd: Path, open_backend: Open) -> None:
    (systemd / "installed").write_text("")
    backend = open_backend()
    backend.start(_spec(systemd), may_step=True)
    pump(backend, lambda: backend.status("chronyd").crash_loop)
    assert backend.status("chronyd").last_exit == f"unit {UNIT} is not installed; install clockgate's units"


def test_a_living_unit_costs_no_systemctl(systemd: Path, open_backend: Open) -> None:
    backend = open_backend()
    _run(backend, _spec(systemd))
    backend.poll(host.mono_ns())
    before = (systemd / "calls").read_text()
    for _ in range(20):
        backend.poll(host.mono_ns())
    assert (systemd / "calls").read_text() == before


@pytest.mark.parametrize("trouble", ["hang", "broken", "absent"])
def test_a_systemctl_in_trouble_is_told_and_never_raises(
    systemd: Path, open_backend: Open, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "_TIMEOUT_S", 0.5)
    (systemd / trouble).touch()
    backend = open_backend()
    if trouble == "absent":
        backend = _backend(systemd, systemctl=(str(systemd / "no-such-systemctl"),))
    backend.start(_spec(systemd), may_step=True)
    for _ in range(2):
        backend.poll(host.mono_ns())
    backend.restart("chronyd", "silent")
    assert not backend.status("chronyd").running
    last_exit = backend.status("chronyd").last_exit
    assert last_exit is not None
    assert "systemctl" in last_exit
    (systemd / trouble).unlink()
    monkeypatch.setattr(units, "_TIMEOUT_S", 20)
    if trouble != "absent":
        _run(backend, _spec(systemd))


def test_a_spec_without_a_unit_is_refused(open_backend: Open) -> None:
    with pytest.raises(ValueError, match="no unit"):
        open_backend().start(ChildSpec("chronyd", ("/usr/sbin/chronyd",)), may_step=True)


def test_lines_of_the_journal_come_back_under_the_childs_name(tmp_path: Path) -> None:
    line = json.dumps({"_SYSTEMD_UNIT": UNIT, "MESSAGE": "offset 12 s2"})
    body = f"echo garbage\necho '{line}'\necho '{line.replace('chronyd', 'other')}'\nexec sleep 600"
    lines: list[tuple[str, str]] = []
    journalctl = str(program(tmp_path, "journalctl", body))
    follower = JournalFollower(tmp_path / "ledger", BOOT, FAST, lambda *one: lines.append(one), journalctl)
    due = time.monotonic() + 10
    while not lines and time.monotonic() < due:
        follower.poll({UNIT: "chronyd"}, host.mono_ns())
        time.sleep(0.01)
    follower.close()
    assert lines == [("chronyd", "offset 12 s2")]
