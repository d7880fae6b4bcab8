"""A small Debian with a real systemd, booted in a container: for units, their supervision and the package.

The container shares the host's clock, so neither it nor what is run in it has the right to set clocks, and its network
is its own. Everything it writes is gone when it ends: it runs on an overlay of a root that is made once
(debian_root.py).
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.debian_root import RootError, debian_root, root_with_package
from support.package import built_package
from support.tools import find_tool, missing

_BOOT_S, _HALT_S = 60.0, 15.0
_POWER_OFF = signal.SIGRTMIN + 4
# Whoever enters a container from outside brings the host's rights along.
_WITHOUT_CLOCK_RIGHT = ("setpriv", "--bounding-set=-sys_time", "--inh-caps=-sys_time", "--")


@dataclass(frozen=True)
class Machine:
    """One booted container. `leader` is the host's number of its first process."""

    leader: int
    console: Path

    @property
    def root(self) -> Path:
        """Its file system, as seen from outside."""
        return Path(f"/proc/{self.leader}/root")

    def run(self, *argv: str, check: bool = True, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command in it. AssertionError with what it said when it fails and `check` is set."""
        line = ["nsenter", "-t", str(self.leader), "-a", *_WITHOUT_CLOCK_RIGHT, *argv]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=timeout_s)
        assert not check or done.returncode == 0, f"{' '.join(argv)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def write(self, path: str, text: str) -> None:
        """Make a file in it, and the folders above."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def shown(self, unit: str, name: str) -> str:
        """One property of a unit, as systemctl shows it."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).stdout.strip()

    def main_pid(self, unit: str) -> int:
        """Process number of a unit's program inside the container; 0 when there is none."""
        return int(self.shown(unit, "MainPID"))

    def journal(self, unit: str) -> str:
        """The journal of a unit, and what systemd says about it."""
        return self.run("journalctl", "--no-pager", "--output=short-monotonic", "--unit", unit).stdout

    def wait_for(self, what: str, is_so: Callable[[], bool], timeout_s: float = 30, unit: str = "clockgated") -> None:
        """Wait until `is_so`; AssertionError with the journals of `unit` and of clockgated when it never is."""
        due = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > due:
                journals = "".join(self.journal(name)[-4000:] for name in dict.fromkeys((unit, "clockgated")))
                raise AssertionError(f"no {what} within {timeout_s:g} s:\n{journals}")
            time.sleep(0.2)

    def put(self, file: Path, path: str) -> None:
        """Copy a file of this machine to `path` in it, with its mode."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)


@contextmanager
def machine(*, with_package: bool = True) -> Iterator[Machine]:
    """A container of Debian 12, or of the release that CLOCKGATE_DEBIAN names, once it is up.

    The package of dist/ is installed in it, with its unit disabled, unless `with_package` is False. The test skips
    where no such container can be had.
    """
    root = a_root(with_package=with_package)
    with tempfile.TemporaryDirectory(prefix="clockgate-nspawn-") as folder:
        console = Path(folder) / "console.log"
        with console.open("wb") as output:
            line = [
                "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe",
                "--private-network", "--volatile=overlay", "--drop-capability=CAP_SYS_TIME",
                # Without the right, these two still read the clock's variables; newer ptp4l ends when it cannot.
                "--system-call-filter=adjtimex clock_adjtime",
                f"--machine=clockgate-{os.getpid()}-{time.monotonic_ns() % 1_000_000}", f"--directory={root}",
            ]  # fmt: skip
            process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            yield _booted(process, console)
        finally:
            _halt(process)


def _booted(process: subprocess.Popen[bytes], console: Path) -> Machine:
    due = time.monotonic() + _BOOT_S
    while True:
        assert process.poll() is None, f"systemd-nspawn ended with {process.returncode}: {console.read_text()}"
        assert time.monotonic() < due, f"the container is not up after {_BOOT_S:g} s: {console.read_text()}"
        leader = _leader(process)
        if leader is not None:
            found = Machine(leader, console)
            state = found.run("systemctl", "is-system-running", check=False).stdout.strip()
            if state in ("running", "degraded"):
                return found
        time.sleep(0.2)


def _leader(process: subprocess.Popen[bytes]) -> int | None:
    """The container's first process: nspawn's only child."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _halt(process: subprocess.Popen[bytes]) -> None:
    leader = _leader(process)
    if leader is not None:
        os.kill(leader, _POWER_OFF)
    try:
        process.wait(_HALT_S)
    except subprocess.TimeoutExpired:
        # nspawn takes its container with it.
        process.kill()
        process.wait(_HALT_S)


def a_root(*, with_package: bool) -> Path:
    """The root that `machine` boots. The test skips where none can be had."""
    suite = os.environ.get("CLOCKGATE_DEBIAN", "bookworm")
    lacking = _lacking()
    if lacking is not None:
        missing(f"a container with systemd {lacking}")
    try:
        return root_with_package(suite, the_package()) if with_package else debian_root(suite)
    except RootError as error:
        missing(f"a root of Debian {suite}: {error}")


def the_package() -> Path:
    """The package of dist/. The test skips where none was built."""
    return built_package() or missing("no package in dist/: `make nspawn` or packaging/build-deb.sh builds it")


def _lacking() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    for program, package in (
        ("systemd-nspawn", "systemd-container"), ("nsenter", "util-linux"), ("setpriv", "util-linux"),
    ):  # fmt: skip
        if find_tool(program) is None:
            return f"needs {program}: apt-get install {package}"
    return None
