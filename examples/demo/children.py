"""The demo's child processes: a pair of real chronyd, one clockgated, and the command lines that start them.

Every chronyd runs with -x: it never touches the clock. Children are ended by the pid that was started here.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TOOL_FOLDERS = (ROOT / ".cache/tools/usr/sbin", ROOT / ".cache/tools/usr/bin", Path("/usr/sbin"), Path("/usr/bin"))
_STOP_S = 5.0


def find_tool(name: str) -> Path | None:
    """Path of a program on PATH, in the usual folders, or below .cache/tools; None when it is nowhere."""
    search = os.pathsep.join([os.environ.get("PATH", ""), *map(str, _TOOL_FOLDERS)])
    found = shutil.which(name, path=search)
    return Path(found) if found else None


@contextmanager
def child(argv: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program with its output in `log`; on leaving, terminate it, or kill it after five seconds."""
    with log.open("ab") as output, subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()


@contextmanager
def chrony_pair(folder: Path) -> Iterator[tuple[Path, Path] | None]:
    """A `local stratum` chronyd and a client synchronised to it.

    Yields the client's command socket and the chronyc to ask it with, or None when chronyd cannot be had.
    """
    chronyd, chronyc = find_tool("chronyd"), find_tool("chronyc")
    if chronyd is None or chronyc is None:
        yield None
        return
    port = _free_udp_port()
    server = ["local stratum 8", f"port {port}", "bindaddress 127.0.0.1", "allow 127.0.0.1"]
    client = [f"server 127.0.0.1 port {port} iburst minpoll -1 maxpoll 1", "port 0", "maxclockerror 50"]
    # Without root, chronyd needs -U. Under -x neither needs the right to set the clock.
    rights = [] if os.geteuid() == 0 else ["-U"]
    user = pwd.getpwuid(os.geteuid()).pw_name
    with (
        child(
            [str(chronyd), "-d", "-x", *rights, "-u", user, "-f", str(_config(folder / "s", server))], folder / "s.log"
        ),
        child(
            [str(chronyd), "-d", "-x", *rights, "-u", user, "-f", str(_config(folder / "c", client))], folder / "c.log"
        ),
    ):
        yield folder / "c" / "chronyd.sock", chronyc


@contextmanager
def daemon(config: Path, log: Path, socket_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A clockgated that serves `socket_path`; raises RuntimeError with its log when it does not within ten seconds."""
    with child([sys.executable, "-m", "clockgated.main", "--config", str(config)], log) as process:
        deadline = time.monotonic() + 10
        while not socket_path.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"clockgated does not serve {socket_path}:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)
        yield process


def _config(folder: Path, lines: list[str]) -> Path:
    # chronyd refuses a command socket whose folder is open to others.
    folder.mkdir(mode=0o750)
    extra = ["cmdport 0", f"bindcmdaddress {folder / 'chronyd.sock'}", f"pidfile {folder / 'chronyd.pid'}"]
    path = folder / "chrony.conf"
    path.write_text("\n".join([*lines, *extra, ""]), encoding="ascii")
    return path


def _free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port
