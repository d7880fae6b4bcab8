"""A real pair of chronyd: one that is its own reference, and one that is truly synchronised to it.

Both run with -x, so no clock is touched: as root in a network namespace of their own and without CAP_SYS_TIME, else on
the loopback interface with a port of their own.
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from support.tools import lacking_for_namespaces, require_tool
from support.veth import NO_CLOCK_RIGHT

SERVER_STRATUM = 8

_serial = count()


@dataclass(frozen=True)
class Chronyd:
    """One running chronyd and its command socket."""

    process: subprocess.Popen[bytes]
    socket: Path
    log: Path

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.process.wait(10)

    def report(self, *commands: str) -> str:
        """What chronyc -c prints for `commands`; "" when it could not be asked."""
        chronyc = require_tool("chronyc")
        asked = subprocess.run(
            [chronyc, "-h", self.socket, "-c", "-n", "-m", *commands],
            capture_output=True, text=True, check=False, timeout=10,
        )  # fmt: skip
        return asked.stdout if asked.returncode == 0 else ""

    def wait_for(self, what: str, text: str, *commands: str, timeout_s: float = 30) -> None:
        """Wait until the report of `commands` contains `text`; AssertionError that says `what` was awaited."""
        due = time.monotonic() + timeout_s
        while text not in self.report(*commands):
            assert self.process.poll() is None, f"chronyd ended: {self.log.read_text()}"
            assert time.monotonic() < due, f"no {what} within {timeout_s} s: {self.log.read_text()}"
            time.sleep(0.1)


@dataclass(frozen=True)
class ChronyPair:
    """`server` is an island (`local stratum`), `client` is synchronised to it."""

    server: Chronyd
    client: Chronyd


@contextmanager
def chrony_pair(folder: Path) -> Iterator[ChronyPair]:
    """Both daemons below `folder`, once the client is synchronised. Its path must leave room for a socket's."""
    with namespace() as prefix:
        port = _free_udp_port()
        with ExitStack() as stack:
            server = stack.enter_context(
                chronyd(
                    folder / "server", prefix,
                    [f"local stratum {SERVER_STRATUM}", f"port {port}", "allow 127.0.0.1", "bindaddress 127.0.0.1"],
                )
            )  # fmt: skip
            server.wait_for("local reference", "7F7F0101", "tracking")
            client = stack.enter_context(
                chronyd(
                    folder / "client", prefix,
                    [f"server 127.0.0.1 port {port} iburst minpoll -2 maxpoll -2", "port 0"],
                )
            )  # fmt: skip
            client.wait_for("synchronisation", "^,*", "tracking", "sources")
            yield ChronyPair(server, client)


@contextmanager
def namespace() -> Iterator[tuple[str, ...]]:
    """A network namespace with a loopback interface, as the words that run a program in it; none when not root."""
    if lacking_for_namespaces() is not None:
        yield ()
        return
    name = f"clockgate-{os.getpid()}-{next(_serial)}"
    ip = str(require_tool("ip"))
    subprocess.run([ip, "netns", "add", name], check=True, timeout=20)
    try:
        subprocess.run([ip, "-n", name, "link", "set", "lo", "up"], check=True, timeout=20)
        yield (ip, "netns", "exec", name, *NO_CLOCK_RIGHT)
    finally:
        subprocess.run([ip, "netns", "delete", name], check=True, timeout=20)


@contextmanager
def chronyd(folder: Path, prefix: tuple[str, ...], lines: list[str]) -> Iterator[Chronyd]:
    """One chronyd -x with configuration `lines`, run by the words of `prefix`, ended by its process id."""
    program = require_tool("chronyd")
    # chronyd refuses a folder for its command socket that is not its own or that others may enter.
    folder.mkdir(mode=0o750, parents=True)
    command_socket, log = folder / "chronyd.sock", folder / "chronyd.log"
    common = [f"bindcmdaddress {command_socket}", "cmdport 0", f"pidfile {folder / 'chronyd.pid'}"]
    config = folder / "chrony.conf"
    config.write_text("\n".join([*lines, *common, ""]))
    user = ["-u", "root"] if os.geteuid() == 0 else ["-U"]
    with log.open("wb") as output:
        # Every word before chronyd's own replaces itself by the next program, so that the process is chronyd's.
        process = subprocess.Popen([*prefix, program, "-x", "-d", *user, "-f", config], stdout=output, stderr=output)
    try:
        yield Chronyd(process, command_socket, log)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
