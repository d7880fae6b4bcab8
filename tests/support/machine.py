"""A machine of its own for a daemon that manages time: network, processes, IPC and mounts, without CAP_SYS_TIME.

The clock is the host's, and nothing in here can touch it: the right to set it is dropped from everything that starts.
Other time daemons of the host are not seen, nor are NTP's shared-memory segments shared with them.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.veth import NO_CLOCK_RIGHT, Namespace

_INIT = ("unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "infinity")


@dataclass(frozen=True)
class Program:
    """A program that runs in the machine; `pid` is its number as the host sees it."""

    process: "subprocess.Popen[bytes]"
    pid: int

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signal the program itself, not what holds it."""
        if self.is_alive():
            os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Its exit code, once it ended."""
        return self.process.wait(timeout_s)


@dataclass(frozen=True)
class Machine:
    """`init` is the host's number of the first process in it; with that one everything in the machine ends."""

    init: int
    programs: list[Program] = field(default_factory=list)

    def start(self, *argv: str | Path, env: Mapping[str, str], log: Path) -> Program:
        """Start a program in here, its output at the end of `log`."""
        with log.open("ab") as output:
            process = subprocess.Popen(self.command(*argv), env=dict(env), stdout=output, stderr=output)
        program = Program(process, _only_child(process))
        self.programs.append(program)
        return program

    def command(self, *argv: str | Path) -> list[str]:
        """The command line that runs `argv` in here."""
        enter = ["nsenter", "--target", str(self.init), "--mount", "--net", "--ipc", "--pid", "--"]
        return [*enter, *NO_CLOCK_RIGHT, *map(str, argv)]

    def read(self, path: str) -> str:
        """A file as it looks from in here."""
        return subprocess.run(self.command("cat", path), capture_output=True, text=True, check=True, timeout=20).stdout

    def pids(self, program: str) -> list[int]:
        """Host's numbers of the living processes of that name in here that lead a session, as supervised ones do."""
        here = _pid_namespace(self.init)
        return [pid for pid in _all_pids() if _leads_as(pid, program) and _pid_namespace(pid) == here]


@contextmanager
def machine(network: Namespace) -> Iterator[Machine]:
    """A machine on one end of a network, until the block is left; it takes everything in it along."""
    process = subprocess.Popen(network.command(*_INIT))
    made = Machine(_only_child(process))
    try:
        yield made
    finally:
        # The first process dies with unshare, by --kill-child, and everything else in the machine with that one.
        process.kill()
        process.wait(10)
        for program in made.programs:
            program.wait(10)


def _only_child(process: "subprocess.Popen[bytes]", timeout_s: float = 10) -> int:
    """The child of a program that forks once and waits."""
    due = time.monotonic() + timeout_s
    while time.monotonic() < due:
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/comm").read_text() not in ("nsenter\n", "unshare\n", "setpriv\n"):
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError(f"{process.args!r} has no child after {timeout_s} s")


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _leads_as(pid: int, program: str) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.partition("(")[2].startswith(f"{program})") and " Z " not in stat and os.getsid(pid) == pid
    except OSError:
        return False


def _pid_namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - the target is a name, no path
    except OSError:
        return None
