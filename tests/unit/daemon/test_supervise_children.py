"""Real processes: small scripts that hang, die, flood, ignore signals, and a supervising process that is killed."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from clockgated import host
from clockgated.supervise.base import ChildSpec, ChildStatus
from clockgated.supervise.children import ChildrenBackend, command_line
from clockgated.supervise.ledger import Ledger, Record
from clockgated.supervise.process import identity_of, is_alive
from clockgated.units import NS_PER_MS, NS_PER_S
from support.programs import (
    BOOT,
    COUNTER,
    DIES_AT_ONCE,
    FAST,
    FLOODER,
    LEAVES_A_DESCENDANT,
    SLEEPER,
    STUBBORN,
    pids_of,
    program,
    pump,
    supervising,
    wait_for_one,
)

Open = Callable[[], ChildrenBackend]


@pytest.fixture
def lines() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def open_backend(tmp_path: Path, lines: list[tuple[str, str]]) -> Iterator[Open]:
    """Makes backends on one folder, as one clockgated after the other would; ends what is left."""
    opened: list[ChildrenBackend] = []

    def make() -> ChildrenBackend:
        opened.append(ChildrenBackend(tmp_path / "ledger", BOOT, FAST, lambda name, line: lines.append((name, line))))
        return opened[-1]

    yield make
    for backend in opened:
        for name in backend.names():
            backend.stop(name, 0)
        backend.close()


@pytest.fixture
def backend(open_backend: Open) -> ChildrenBackend:
    return open_backend()


def _spec(tmp_path: Path, body: str, files_digest: str = "") -> ChildSpec:
    return ChildSpec("child", (str(program(tmp_path, "program", body)),), files_digest=files_digest)


def _running(backend: ChildrenBackend) -> ChildStatus:
    pump(backend, lambda: backend.status("child").running)
    return backend.status("child")


def _pid(backend: ChildrenBackend) -> int:
    pid = _running(backend).pid
    assert pid is not None
    return pid


def _signals_ignored(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("SigIgn:")[2].split()[0], 16)


def test_a_child_has_its_own_session_and_nothing_of_our_environment(
    tmp_path: Path, backend: ChildrenBackend, monkeypatch: pytest.MonkeyPatch, lines: list[tuple[str, str]]
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    spec = ChildSpec("child", (str(program(tmp_path, "program", "env\nexec sleep 600")),), (("TZ", "UTC"),))
    backend.start(spec, may_step=True)
    pid = _pid(backend)
    assert os.getsid(pid) == pid
    pump(backend, lambda: ("child", "TZ=UTC") in lines)
    assert not any("NOTIFY_SOCKET" in line for _, line in lines)
    assert backend.status("child").start_time_ticks == getattr(identity_of(pid), "start_ticks", None)


def test_a_program_that_dies_at_once_backs_off_into_a_crash_loop_and_is_tried_again(
    tmp_path: Path, backend: ChildrenBackend, lines: list[tuple[str, str]]
) -> None:
    backend.start(_spec(tmp_path, DIES_AT_ONCE), may_step=True)
    pump(backend, lambda: backend.status("child").crash_loop)
    status = backend.status("child")
    assert status.exits == FAST.loop_exits
    assert status.last_exit == "exit status 255"
    assert status.next_start_mono_ns is not None
    assert status.next_start_mono_ns - host.mono_ns() <= FAST.max_delay_ns
    assert ("child", "Fatal error : bad option") in lines
    pump(backend, lambda: backend.status("child").exits > FAST.loop_exits)


def test_a_program_that_is_missing_backs_off_into_a_crash_loop_and_starts_once_it_is_there(
    tmp_path: Path, backend: ChildrenBackend
) -> None:
    spec = ChildSpec("child", (str(tmp_path / "absent"),))
    backend.start(spec, may_step=True)
    pump(backend, lambda: backend.status("child").crash_loop)
    last_exit = backend.status("child").last_exit
    assert last_exit is not None
    assert "cannot be started" in last_exit
    assert str(tmp_path / "absent") in last_exit
    program(tmp_path, "absent", SLEEPER)
    assert _running(backend).exits >= FAST.loop_exits


def test_a_killed_child_is_started_again_after_a_delay(tmp_path: Path, backend: ChildrenBackend) -> None:
    backend.start(_spec(tmp_path, SLEEPER), may_step=True)
    first = _pid(backend)
    os.kill(first, signal.SIGKILL)
    pump(backend, lambda: backend.status("child").exits == 1)
    assert backend.status("child").last_exit == "killed by SIGKILL"
    assert not backend.status("child").running
    assert _pid(backend) != first
    assert not backend.status("child").crash_loop


def test_a_restart_kills_also_a_stopped_child(tmp_path: Path, backend: ChildrenBackend) -> None:
    backend.start(_spec(tmp_path, SLEEPER), may_step=True)
    first = _pid(backend)
    os.kill(first, signal.SIGSTOP)
    backend.restart("child", "silent for 30 s")
    pump(backend, lambda: backend.status("child").exits == 1)
    assert backend.status("child").last_exit == "silent for 30 s"
    assert _pid(backend) != first


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(
    tmp_path: Path, backend: ChildrenBackend, lines: list[tuple[str, str]]
) -> None:
    backend.start(_spec(tmp_path, STUBBORN), may_step=True)
    pid = _pid(backend)
    pump(backend, lambda: ("child", "up") in lines)
    backend.stop("child", 500 * NS_PER_MS)
    begun = time.monotonic()
    pump(backend, lambda: not backend.names())
    assert time.monotonic() - begun >= 0.5
    assert identity_of(pid) is None


def test_a_stopped_child_gets_to_act_on_its_sigterm(
    tmp_path: Path, backend: ChildrenBackend, lines: list[tuple[str, str]]
) -> None:
    backend.start(_spec(tmp_path, "trap 'echo bye; exit 0' TERM\necho up\nwhile :; do sleep 0.05; done"), may_step=True)
    pump(backend, lambda: ("child", "up") in lines)
    os.kill(_pid(backend), signal.SIGSTOP)
    backend.stop("child", 60 * NS_PER_S)
    pump(backend, lambda: not backend.names())
    assert ("child", "bye") in lines


def test_a_flood_is_dropped_and_counted_while_others_are_heard(
    tmp_path: Path, backend: ChildrenBackend, lines: list[tuple[str, str]]
) -> None:
    backend.start(ChildSpec("flood", (str(program(tmp_path, "flooder", FLOODER)),)), may_step=True)
    backend.start(_spec(tmp_path, COUNTER), may_step=True)
    begun = time.monotonic()
    pump(backend, lambda: ("child", "20") in lines and time.monotonic() > begun + 1)
    dropped, took = backend.status("flood").dropped_lines, time.monotonic() - begun
    heard = sum(name == "flood" for name, _ in lines)
    assert 0 < heard <= 500 + 100 * (took + 1)
    # Ten reads a second of a full pipe each: the flood is held back and not read as fast as it can be written.
    assert 10_000 < dropped <= (10 * took + 3) * 65536 / len("a line of a flood\n")
    assert backend.status("flood").running


def test_an_unfinished_line_is_not_glued_to_the_next_run(
    tmp_path: Path, backend: ChildrenBackend, lines: list[tuple[str, str]]
) -> None:
    backend.start(_spec(tmp_path, "printf begun; exit 1"), may_step=True)
    pump(backend, lambda: len(lines) >= 3)
    assert {line for _, line in lines} == {"begun"}


def test_what_a_dead_child_leaves_behind_is_ended_before_the_next_start(
    tmp_path: Path, backend: ChildrenBackend
) -> None:
    backend.start(_spec(tmp_path, LEAVES_A_DESCENDANT), may_step=True)
    pump(backend, lambda: backend.status("child").exits >= 2, timeout_s=20)
    lock = Ledger(tmp_path / "ledger").lock_path("child").resolve()
    holding = [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _has_open(entry, lock)
    ]
    assert len(holding) <= 1
    backend.stop("child", 0)
    pump(backend, lambda: not backend.names())


def _has_open(process: Path, path: Path) -> bool:
    try:
        return any(entry.readlink() == path for entry in (process / "fd").iterdir())
    except OSError:
        return False


def test_a_changed_spec_replaces_the_run_and_the_two_never_overlap(tmp_path: Path, backend: ChildrenBackend) -> None:
    backend.start(_spec(tmp_path, SLEEPER, "one"), may_step=True)
    first = _pid(backend)
    backend.start(_spec(tmp_path, SLEEPER, "two"), may_step=True)
    backend.poll(host.mono_ns())
    assert backend.status("child").pid in (first, None)
    pump(backend, lambda: backend.status("child").pid not in (first, None))
    assert identity_of(first) is None
    assert backend.status("child").exits == 0


def test_a_child_may_step_only_until_a_run_has_lasted_and_no_lease_is_open(
    tmp_path: Path, lines: list[tuple[str, str]]
) -> None:
    path = str(program(tmp_path, "program", 'echo "run $*"\nexec sleep 600'))
    spec = ChildSpec("child", (path, "step"), restart_argv=(path, "slew"))
    policy = replace(FAST, healthy_after_ns=300 * NS_PER_MS)

    def runs() -> list[str]:
        return [line for _, line in lines]

    for boot, may_step, wanted in [("1", False, "slew"), ("1", True, "step"), ("1", True, "slew"), ("2", True, "step")]:
        lines.clear()
        backend = ChildrenBackend(tmp_path / "ledger", boot, policy, lambda name, line: lines.append((name, line)))
        try:
            backend.start(spec, may_step=may_step)
            pump(backend, lambda: bool(runs()))
            assert runs() == [f"run {wanted}"]
            if may_step:
                time.sleep(0.4)
                backend.poll(host.mono_ns())
        finally:
            backend.stop("child", 0)
            backend.close()


def test_the_right_to_set_the_clock_is_dropped_before_the_program_runs() -> None:
    shown_by = ("/bin/cat", "/proc/self/status")
    assert command_line(shown_by, drop_clock_right=False) == shown_by
    words = command_line(shown_by, drop_clock_right=True)
    assert words[0] == "setpriv"
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for name in ("CapEff:", "CapPrm:"):
        assert not int(shown.partition(name)[2].split()[0], 16) & 1 << 25


def test_closing_ends_every_child(tmp_path: Path, open_backend: Open) -> None:
    backend = open_backend()
    backend.start(_spec(tmp_path, STUBBORN), may_step=True)
    backend.stop("child", 200 * NS_PER_MS)
    backend.start(_spec(tmp_path, STUBBORN), may_step=True)
    pid = _pid(backend)
    backend.close()
    assert identity_of(pid) is None
    assert Ledger(tmp_path / "ledger").load() == ()


def _kill_owner(tmp_path: Path, spec: ChildSpec, die_at: str = "after record") -> None:
    owner = supervising(tmp_path / "ledger", spec, die_at)
    assert owner.wait(30) == -signal.SIGKILL


def test_a_child_outlives_its_killed_owner_and_is_adopted_with_its_output(
    tmp_path: Path, open_backend: Open, lines: list[tuple[str, str]]
) -> None:
    spec = _spec(tmp_path, COUNTER)
    _kill_owner(tmp_path, spec)
    orphan = wait_for_one(spec.argv[0])
    assert _signals_ignored(orphan) & 1 << (signal.SIGPIPE - 1)
    time.sleep(0.3)  # it writes into a pipe that nobody reads, a dozen times
    backend = open_backend()
    backend.start(spec, may_step=True)
    assert _pid(backend) == orphan
    assert backend.status("child").adopted
    pump(backend, lambda: len(lines) >= 3)
    os.kill(orphan, signal.SIGKILL)
    pump(backend, lambda: backend.status("child").exits == 1)
    assert _pid(backend) != orphan
    assert _pid(backend) == wait_for_one(spec.argv[0])


def test_a_leftover_with_another_spec_is_ended_before_the_new_one_starts(tmp_path: Path, open_backend: Open) -> None:
    _kill_owner(tmp_path, _spec(tmp_path, SLEEPER + "\n: old"))
    (record,) = Ledger(tmp_path / "ledger").load()
    backend = open_backend()
    assert backend.names() == ("child",)
    backend.start(_spec(tmp_path, SLEEPER, "new"), may_step=True)
    pump(backend, lambda: backend.status("child").pid not in (record.pid, None))
    assert not is_alive(record.identity)


def test_a_leftover_that_nobody_wants_is_ended(tmp_path: Path, open_backend: Open) -> None:
    _kill_owner(tmp_path, _spec(tmp_path, SLEEPER))
    (record,) = Ledger(tmp_path / "ledger").load()
    backend = open_backend()
    backend.stop("child", 5 * NS_PER_S)
    pump(backend, lambda: not backend.names())
    assert not is_alive(record.identity)


@pytest.mark.parametrize("die_at", ["before fork", "after fork", "after record"])
def test_there_is_one_child_wherever_its_owner_was_killed(tmp_path: Path, open_backend: Open, die_at: str) -> None:
    spec = _spec(tmp_path, COUNTER)
    _kill_owner(tmp_path, spec, die_at)
    if die_at == "before fork":
        assert pids_of(spec.argv[0]) == []
    else:
        wait_for_one(spec.argv[0])
    backend = open_backend()
    backend.start(spec, may_step=True)
    seen: list[int] = []

    def is_running() -> bool:
        seen.append(len(pids_of(spec.argv[0])))
        return backend.status("child").running

    pump(backend, is_running)
    assert max(seen) <= 1
    assert _pid(backend) == wait_for_one(spec.argv[0])
    assert backend.status("child").adopted is (die_at == "after record")


def test_an_owner_killed_again_and_again_at_any_time_leaves_one_child(tmp_path: Path, open_backend: Open) -> None:
    spec = _spec(tmp_path, COUNTER)
    for wait_s in (0.15, 0.2, 0.25, 0.3, 0.35, 0.4):
        owner = supervising(tmp_path / "ledger", spec)
        time.sleep(wait_s)
        owner.kill()
        owner.wait(30)
        assert len(pids_of(spec.argv[0])) <= 1
    backend = open_backend()
    backend.start(spec, may_step=True)
    assert _pid(backend) == wait_for_one(spec.argv[0])


@pytest.mark.parametrize("boot", [BOOT, "another boot"])
def test_a_process_that_got_the_pid_of_an_old_child_is_left_alone(
    tmp_path: Path, open_backend: Open, boot: str
) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as bystander:
        identity = identity_of(bystander.pid)
        assert identity is not None
        ticks = identity.start_ticks - (boot == BOOT)
        Ledger(tmp_path / "ledger").record(Record("child", boot, bystander.pid, ticks, "digest"))
        backend = open_backend()
        assert backend.names() == ()
        backend.start(_spec(tmp_path, SLEEPER), may_step=True)
        assert _pid(backend) != bystander.pid
        assert bystander.poll() is None
        bystander.kill()
