"""Real ptp4l in network namespaces on one bridge, with software time stamps and without the right to set a clock.

All nodes share the machine's clock, so true offsets are 0 but for what a test adds. CAP_SYS_TIME is dropped from every
ptp4l: it says `s2` and SLAVE all the same, while each adjustment fails.
"""

import itertools
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clockgated.sources.ptp_feed import LogFeed
from support.tools import lacking_for_namespaces, missing, require_tool
from support.veth import NO_CLOCK_RIGHT

_WIRE = "wire0"
_serial = itertools.count()

# Eight messages of each kind a second, elections within a second, and a servo that is engaged after two samples: with
# linuxptp's defaults it observes for 16 s first.
_FAST = (
    "--logSyncInterval=-3", "--logMinDelayReqInterval=-3", "--logAnnounceInterval=-2",
    "--pi_proportional_const=0.7", "--pi_integral_const=0.3",
)  # fmt: skip


@dataclass
class Ptp4l:
    """One running ptp4l. Its lines go to `feed` and to `lines`."""

    process: "subprocess.Popen[str]"
    socket: Path
    feed: LogFeed = field(default_factory=LogFeed)
    lines: list[str] = field(default_factory=list)

    def follow(self) -> threading.Thread:
        """Read its output until it ends."""
        thread = threading.Thread(target=self._follow, daemon=True)
        thread.start()
        return thread

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self.feed.feed(line)

    def stop(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(10)


@dataclass(frozen=True)
class Segment:
    """Network namespaces by role, joined by a bridge, and a folder whose path is short enough for sockets."""

    folder: Path
    namespaces: dict[str, str]
    stack: ExitStack

    def ptp4l(self, role: str, *options: str) -> Ptp4l:
        """Start one in the namespace of `role`; ended with the segment."""
        number = next(_serial)
        socket = self.folder / f"ptp4l{number}"
        # Its SHM segments are not isolated by network namespaces; -i is a private room for them.
        argv = [
            "ip", "netns", "exec", self.namespaces[role], "unshare", "-i", *NO_CLOCK_RIGHT, str(require_tool("ptp4l")),
            "-S", "-m", "-i", _WIRE, f"--uds_address={socket}", *_FAST, *options,
        ]  # fmt: skip
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "LC_ALL": "C"}
        )
        ptp4l = Ptp4l(process, socket)
        thread = ptp4l.follow()

        def end() -> None:
            ptp4l.stop()
            thread.join(10)
            assert process.stdout is not None
            process.stdout.close()

        self.stack.callback(end)
        return ptp4l

    def link(self, role: str, state: str) -> None:
        """Take the interface of `role` up or down."""
        _ip("-n", self.namespaces[role], "link", "set", _WIRE, state)


@contextmanager
def segment(*roles: str) -> Iterator[Segment]:
    """One Ethernet segment with a namespace per role. Skips where namespaces cannot be made."""
    require_tool("ptp4l")
    lacking = lacking_for_namespaces()
    if lacking is not None:
        missing(lacking)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clockgate-ptp-")))
        hub = _namespace(stack)
        # Without snooping, which would hold PTP's multicast back.
        _ip("-n", hub, "link", "add", "hub", "type", "bridge", "mcast_snooping", "0")
        _ip("-n", hub, "link", "set", "hub", "up")
        namespaces = {}
        for number, role in enumerate(roles, start=1):
            name = namespaces[role] = _namespace(stack)
            _ip("-n", hub, "link", "add", f"port{number}", "type", "veth", "peer", "name", _WIRE, "netns", name)
            _ip("-n", hub, "link", "set", f"port{number}", "master", "hub", "up")
            _ip("-n", name, "addr", "add", f"10.97.0.{number}/24", "dev", _WIRE)
            _ip("-n", name, "link", "set", _WIRE, "up")
        yield Segment(folder, namespaces, stack)


def _namespace(stack: ExitStack) -> str:
    name = f"clockgate-ptp-{os.getpid()}-{next(_serial)}"
    _ip("netns", "add", name)
    stack.callback(_ip, "netns", "delete", name)
    return name


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=20)


def wait_until(what: str, is_true: Callable[[], bool], timeout_s: float = 40) -> None:
    """Ask once every 0.2 s; AssertionError that says `what` was awaited."""
    due = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < due, f"no {what} within {timeout_s} s"
        time.sleep(0.2)
