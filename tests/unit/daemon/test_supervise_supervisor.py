from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from clockgated.supervise.base import ChildSpec, ChildStatus, digest_of
from clockgated.supervise.supervisor import Supervisor
from clockgated.units import NS_PER_S

CHRONYD = ChildSpec("chronyd", ("/usr/sbin/chronyd", "-d"), stale_after_ns=10 * NS_PER_S)
PHC2SYS = ChildSpec("phc2sys@eth0", ("/usr/sbin/phc2sys",), stale_after_ns=10 * NS_PER_S)


@dataclass
class Memory:
    """A backend at the process edge: what was asked of it, and processes that end only when a test says so."""

    running: dict[str, ChildStatus] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    targets: dict[str, ChildSpec] = field(default_factory=dict)
    restarted: list[tuple[str, str]] = field(default_factory=list)
    may_step: bool | None = None
    closed: bool = False

    def start(self, spec: ChildSpec, *, may_step: bool) -> None:
        self.targets[spec.name] = spec
        self.may_step = may_step

    def stop(self, name: str, grace_ns: int) -> None:
        self.targets.pop(name, None)
        self.leaving.add(name)

    def restart(self, name: str, why: str) -> None:
        self.restarted.append((name, why))

    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.targets, *self.running)))

    def status(self, name: str) -> ChildStatus:
        return self.running.get(name, ChildStatus(name))

    def poll(self, now_mono_ns: int) -> None:
        for name in self.targets:
            pid = len(self.running) + 1
            started = ChildStatus(name, pid=pid, start_time_ticks=7, running=True, since_mono_ns=now_mono_ns)
            self.running.setdefault(name, started)

    def close(self) -> None:
        self.closed = True


def test_wanted_programs_run_and_the_status_says_so() -> None:
    backend = Memory()
    supervisor = Supervisor(backend)
    supervisor.want([CHRONYD])
    status = supervisor.step(0, {})
    assert status.is_settled
    assert [child.name for child in status.children] == ["chronyd"]


def test_nothing_new_starts_before_the_unwanted_are_gone() -> None:
    backend = Memory()
    supervisor = Supervisor(backend)
    supervisor.want([PHC2SYS])
    supervisor.step(0, {})
    supervisor.want([CHRONYD])
    for second in range(3):
        status = supervisor.step(second, {})
        assert set(backend.running) == {"phc2sys@eth0"}
        assert status.leaving == ("phc2sys@eth0",)
        assert not status.is_settled
    del backend.running["phc2sys@eth0"]
    assert supervisor.step(4, {}).is_settled
    assert set(backend.running) == {"chronyd"}


def test_a_program_starts_when_the_one_before_it_is_ready(tmp_path: Path) -> None:
    backend, socket = Memory(), tmp_path / "chronyd.sock"
    supervisor = Supervisor(backend)
    first = replace(CHRONYD, ready_paths=(str(socket),))
    second = ChildSpec("ptp4l@eth0", ("/usr/sbin/ptp4l",), ready_after_ns=2 * NS_PER_S)
    supervisor.want([first, second, PHC2SYS])
    for second_s in range(3):
        assert not supervisor.step(second_s * NS_PER_S, {}).is_settled
        assert set(backend.running) == {"chronyd"}
    socket.touch()
    supervisor.step(3 * NS_PER_S, {})
    supervisor.step(4 * NS_PER_S, {})
    assert set(backend.running) == {"chronyd", "ptp4l@eth0"}
    assert supervisor.step(5 * NS_PER_S, {}).is_settled
    socket.unlink()
    assert supervisor.step(6 * NS_PER_S, {}).is_settled


def test_programs_end_by_their_stop_order() -> None:
    backend = Memory()
    supervisor = Supervisor(backend)
    supervisor.want([replace(CHRONYD, stop_order=1), replace(PHC2SYS, stop_order=0)])
    supervisor.step(0, {})
    supervisor.step(1, {})
    supervisor.want([])
    supervisor.step(2, {})
    assert backend.leaving == {"phc2sys@eth0"}
    del backend.running["phc2sys@eth0"]
    supervisor.step(3, {})
    assert backend.leaving == {"phc2sys@eth0", "chronyd"}


@pytest.mark.parametrize("may_step", [True, False])
def test_a_lease_reaches_whoever_starts_programs(may_step: bool) -> None:
    backend = Memory()
    supervisor = Supervisor(backend)
    supervisor.want([CHRONYD])
    supervisor.step(0, {}, may_step_clock=may_step)
    assert backend.may_step is may_step


def test_what_goes_on_is_watched_while_another_leaves() -> None:
    backend = Memory()
    supervisor = Supervisor(backend)
    supervisor.want([CHRONYD, PHC2SYS])
    supervisor.step(0, {})
    supervisor.want([CHRONYD])
    supervisor.step(1, {})
    assert backend.targets == {"chronyd": CHRONYD}


def test_a_silent_program_is_killed_once_and_counted() -> None:
    backend = Memory()
    supervisor = Supervisor(backend)
    supervisor.want([CHRONYD, PHC2SYS])
    for second in range(14):
        now = second * NS_PER_S
        status = supervisor.step(now, {"phc2sys@eth0": now})
    assert [name for name, _ in backend.restarted] == ["chronyd"]
    assert "taken for hung" in backend.restarted[0][1]
    assert status.hung_kills == (("chronyd", 1),)


def test_a_program_without_a_limit_is_never_taken_for_hung() -> None:
    backend = Memory()
    supervisor = Supervisor(backend)
    supervisor.want([replace(CHRONYD, stale_after_ns=None)])
    for second in range(100):
        supervisor.step(second * NS_PER_S, {})
    assert backend.restarted == []


def test_two_programs_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="each may appear once"):
        Supervisor(Memory()).want([CHRONYD, CHRONYD])


def test_a_changed_configuration_is_another_spec_and_a_changed_watch_is_not() -> None:
    assert CHRONYD.digest == replace(CHRONYD, stale_after_ns=None, unit="x.service").digest
    changed = [
        replace(CHRONYD, files_digest=digest_of(["server a"])),
        replace(CHRONYD, files_digest=digest_of(["server", " a"])),
        replace(CHRONYD, argv=("/usr/sbin/chronyd", "-d", "")),
        replace(CHRONYD, environment=(("TZ", "UTC"),)),
        replace(CHRONYD, drop_clock_right=True),
        replace(CHRONYD, restart_argv=("/usr/sbin/chronyd", "-R")),
    ]
    assert len({CHRONYD.digest, *(spec.digest for spec in changed)}) == len(changed) + 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "../x"},
        {"name": "a/b"},
        {"name": "a b"},
        {"name": "a\x1b"},
        {"restart_argv": ("chronyd", "-R")},
        {"name": ".x"},
        {"name": ""},
        {"argv": ()},
        {"argv": ("chronyd",)},
        {"argv": ("/a", "b\0")},
        {"environment": (("A=B", "c"),)},
    ],
)
def test_a_spec_that_cannot_be_started_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="child"):
        replace(CHRONYD, **wrong)  # type: ignore[arg-type]


def test_closing_is_left_to_the_backend(tmp_path: Path) -> None:
    backend = Memory()
    Supervisor(backend).close()
    assert backend.closed
