"""Two network namespaces joined by a veth pair, and programs run in them without the right to set the clock."""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from support.tools import lacking_for_namespaces, missing, require_tool

_COUNTER = itertools.count()
NO_CLOCK_RIGHT = ("setpriv", "--bounding-set=-sys_time", "--inh-caps=-sys_time")


@dataclass(frozen=True)
class Namespace:
    """One end: interface eth0, 10.77.0.1 or .2, and eth1, 10.78.0.1 or .2."""

    name: str

    def command(self, *argv: str) -> list[str]:
        """The command line that runs `argv` in here, unable to touch the host's clock."""
        return ["ip", "netns", "exec", self.name, *NO_CLOCK_RIGHT, *argv]

    def run(self, *argv: str, timeout_s: float = 20) -> subprocess.CompletedProcess[str]:
        """Run `argv` in here to its end."""
        return subprocess.run(self.command(*argv), capture_output=True, text=True, check=False, timeout=timeout_s)


@contextlib.contextmanager
def namespaces() -> Iterator[tuple[Namespace, Namespace]]:
    """A fresh pair, with a second link eth1 between them; everything in it goes when it is left.

    Where namespaces cannot be made the test skips, or fails in CI.
    """
    lacking = lacking_for_namespaces()
    if lacking is not None:
        missing(lacking)
    require_tool("setpriv")
    number = f"{os.getpid()}-{next(_COUNTER)}"
    pair = (Namespace(f"clockgate-a-{number}"), Namespace(f"clockgate-b-{number}"))
    try:
        for end in pair:
            _ip("netns", "add", end.name)
        for link, subnet in (("eth0", 77), ("eth1", 78)):
            peer = ("peer", "name", link, "netns", pair[1].name)
            _ip("-n", pair[0].name, "link", "add", link, "type", "veth", *peer)
            for place, end in enumerate(pair, start=1):
                _ip("-n", end.name, "addr", "add", f"10.{subnet}.0.{place}/24", "dev", link)
                _ip("-n", end.name, "link", "set", link, "up")
        for end in pair:
            _ip("-n", end.name, "link", "set", "lo", "up")
        yield pair
    finally:
        for end in pair:
            subprocess.run(["ip", "netns", "delete", end.name], capture_output=True, check=False, timeout=20)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)
