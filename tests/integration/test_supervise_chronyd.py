"""A real chronyd as a supervised child. It runs with -x, without CAP_SYS_TIME, in a network namespace of its own."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clockgated import host
from clockgated.supervise.base import ChildSpec
from clockgated.supervise.children import ChildrenBackend
from clockgated.supervise.ledger import Ledger
from clockgated.supervise.process import ProcessIdentity, holders, is_alive
from clockgated.supervise.supervisor import SuperviseStatus, Supervisor
from clockgated.units import NS_PER_S
from support.programs import BOOT, FAST, pids_of, supervising
from support.tools import missing, require_tool

pytestmark = pytest.mark.integration

_STALE_AFTER_NS = 2 * NS_PER_S
_CAP_SYS_TIME = 25


class Node:
    """One chronyd's folder, the supervisors that come and go over it, and how to ask it."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            missing("needs root for a network namespace")
        # chronyd refuses a folder for its command socket that others may enter.
        folder.mkdir(mode=0o750)
        self.socket, self.pid_file, self.ledger = folder / "chronyd.sock", folder / "chronyd.pid", folder / "ledger"
        self.config = folder / "chrony.conf"
        lines = ["local stratum 8", "port 0", "cmdport 0", f"bindcmdaddress {self.socket}", f"pidfile {self.pid_file}"]
        self.config.write_text("\n".join([*lines, ""]))
        self.lines: list[str] = []
        self._backends: list[ChildrenBackend] = []

    def spec(self, files_digest: str = "") -> ChildSpec:
        in_namespace = (str(require_tool("unshare")), "--net", "--")
        chronyd = (str(require_tool("chronyd")), "-x", "-d", "-u", "root", "-f", str(self.config))
        return ChildSpec(
            "chronyd",
            (*in_namespace, *chronyd),
            drop_clock_right=True,
            files_digest=files_digest,
            stale_after_ns=_STALE_AFTER_NS,
        )

    def supervisor(self, files_digest: str = "") -> Supervisor:
        backend = ChildrenBackend(self.ledger, BOOT, FAST, lambda _name, line: self.lines.append(line))
        self._backends.append(backend)
        supervisor = Supervisor(backend)
        supervisor.want([self.spec(files_digest)])
        return supervisor

    def answers(self) -> bool:
        asked = [str(require_tool("chronyc")), "-h", str(self.socket), "-c", "tracking"]
        try:
            return subprocess.run(asked, capture_output=True, timeout=0.3, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def step_until(
        self, supervisor: Supervisor, is_reached: Callable[[SuperviseStatus], bool], timeout_s: float = 30
    ) -> SuperviseStatus:
        """Cycle with the evidence that a daemon would have: chronyd answered. Never two chronyd meanwhile."""
        due, evidence = time.monotonic() + timeout_s, dict[str, int]()
        while time.monotonic() < due:
            if self.answers():
                evidence["chronyd"] = host.mono_ns()
            status = supervisor.step(host.mono_ns(), evidence)
            assert len(self.chronyds()) <= 1
            if is_reached(status):
                return status
            time.sleep(0.1)
        raise AssertionError(f"not within {timeout_s} s: {status}; {self.lines}")

    def chronyds(self) -> list[int]:
        """Every chronyd on this node's configuration (`unshare` and `setpriv` have its words before they become it)."""
        return pids_of(str(self.config))

    def close(self) -> None:
        for backend in self._backends:
            for name in backend.names():
                backend.stop(name, NS_PER_S)
            backend.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "node")
    yield node
    node.close()


def _settled(status: SuperviseStatus) -> bool:
    return status.is_settled


def _up(node: Node, supervisor: Supervisor) -> int:
    """Pid of a chronyd that answers."""
    status = node.step_until(supervisor, lambda status: status.is_settled and node.answers())
    pid = status.children[0].pid
    assert pid is not None
    assert node.chronyds() == [pid]
    assert node.pid_file.read_text().strip() == str(pid)
    return pid


def test_a_killed_chronyd_comes_back_after_its_back_off(node: Node) -> None:
    supervisor = node.supervisor()
    first = _up(node, supervisor)
    rights = int(Path(f"/proc/{first}/status").read_text().partition("CapBnd:")[2].split()[0], 16)
    assert not rights & 1 << _CAP_SYS_TIME
    assert any("chronyd version" in line for line in node.lines)
    os.kill(first, signal.SIGKILL)
    status = node.step_until(supervisor, lambda status: status.children[0].exits == 1)
    assert status.children[0].last_exit == "killed by SIGKILL"
    assert _up(node, supervisor) != first


def test_a_stopped_chronyd_is_taken_for_hung_and_replaced(node: Node) -> None:
    supervisor = node.supervisor()
    first = _up(node, supervisor)
    os.kill(first, signal.SIGSTOP)
    status = node.step_until(supervisor, lambda status: status.children[0].exits == 1)
    assert status.hung_kills == (("chronyd", 1),)
    assert "taken for hung" in str(status.children[0].last_exit)
    assert _up(node, supervisor) != first


def test_a_quiet_chronyd_that_answers_is_left_alone(node: Node) -> None:
    supervisor = node.supervisor()
    first = _up(node, supervisor)
    until = time.monotonic() + 2 * _STALE_AFTER_NS / NS_PER_S
    node.step_until(supervisor, lambda _status: time.monotonic() > until)
    assert node.chronyds() == [first]


def _orphan(node: Node, die_at: str = "after record") -> ProcessIdentity:
    """A chronyd whose supervisor was killed with SIGKILL."""
    owner = supervising(node.ledger, node.spec(), die_at)
    assert owner.wait(30) == -signal.SIGKILL
    due = time.monotonic() + 10
    while not node.answers():
        assert time.monotonic() < due
        time.sleep(0.05)
    (orphan,) = holders(Ledger(node.ledger).lock_path("chronyd"))
    return orphan


def test_the_next_supervisor_adopts_the_chronyd_of_a_killed_one(node: Node) -> None:
    orphan = _orphan(node)
    supervisor = node.supervisor()
    assert _up(node, supervisor) == orphan.pid
    status = node.step_until(supervisor, _settled)
    assert status.children[0].adopted
    assert status.children[0].exits == 0


def test_the_next_supervisor_ends_a_chronyd_with_another_configuration(node: Node) -> None:
    orphan = _orphan(node)
    supervisor = node.supervisor("another configuration")
    assert _up(node, supervisor) != orphan.pid
    assert not is_alive(orphan)


def test_a_chronyd_that_was_never_recorded_is_ended_before_the_next(node: Node) -> None:
    orphan = _orphan(node, "after fork")
    assert Ledger(node.ledger).load() == ()
    supervisor = node.supervisor()
    assert _up(node, supervisor) != orphan.pid
    assert not is_alive(orphan)


def test_supervisors_killed_one_after_the_other_never_make_two(node: Node) -> None:
    for wait_s in (0.2, 0.3, 0.25, 0.4, 0.35):
        owner = supervising(node.ledger, node.spec())
        time.sleep(wait_s)
        owner.kill()
        owner.wait(30)
        assert len(node.chronyds()) <= 1
    _up(node, node.supervisor())
