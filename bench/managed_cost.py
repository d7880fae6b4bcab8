"""What clockgated costs a node whose clock it manages: CPU and memory at one cycle a second, in mode ntp.

    bench/managed_cost.py [--units] [--seconds N]

Without --units its chronyd is a child, in network namespaces; with it a unit of a real systemd, in a booted Debian
container. The chronyc of each cycle, systemctl and whatever else it runs and waits for are counted, chronyd itself is
not: a node needs one anyway. Needs root; a clock is never touched.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon_cost import measure
from support.chrony import chronyd
from support.daemon import toml
from support.managed import SYNCHRONIZED, node
from support.nspawn import Machine, machine
from support.nspawn_clock import SERVER_PORT, configure, serve_time, usable_status
from support.veth import namespaces

_WARM_UP_S = 10
_UNIT = "clockgated.service"
_SERVER = '[ntp]\nservers = [{{ host = "{}", port = {}, min_poll_log2 = 0, max_poll_log2 = 0 }}]'


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU and memory of clockgated in mode ntp at one cycle a second")
    parser.add_argument("--units", action="store_true", help="chronyd as a systemd unit in a container, not as a child")
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    with with_units() if options.units else with_children() as pid:
        time.sleep(_WARM_UP_S)
        print(f"mode ntp, chronyd as a {'unit' if options.units else 'child'}: ", end="", flush=True)
        measure(pid, options.seconds)
    return 0


@contextmanager
def with_children() -> Iterator[int]:
    """The host's number of a clockgated with a chronyd of its own, synchronised to a server on the other end."""
    lines = ["local stratum 3", "allow 10.77.0.0/24", "bindaddress 10.77.0.1"]
    with (
        namespaces() as (there, place),
        tempfile.TemporaryDirectory(prefix="cg-") as folder,
        chronyd(Path(folder) / "server", tuple(there.command()), lines),
        node(place) as here,
    ):
        (here.folder / "clockgated.toml").write_text(
            toml(here.folder, mode="ntp", extra=_SERVER.format("10.77.0.1", 123)), encoding="utf-8"
        )
        here.start()
        here.wait_for_state(SYNCHRONIZED)
        assert here.program is not None
        yield here.program.pid
        here.stop()


@contextmanager
def with_units() -> Iterator[int]:
    """The same in a container with systemd, where chronyd is a unit."""
    with machine() as booted:
        serve_time(booted)
        booted.run("systemctl", "disable", "--now", "chrony.service")
        configure(booted, f'[clock]\nmode = "ntp"\n{_SERVER.format("127.0.0.1", SERVER_PORT)}\n')
        booted.run("systemctl", "restart", _UNIT)
        usable_status(booted)
        yield host_pid(booted, booted.main_pid(_UNIT))


def host_pid(inside: Machine, pid: int) -> int:
    """The host's number of a process of the container."""
    room = os.readlink(f"/proc/{inside.leader}/ns/pid")  # noqa: PTH115 - the target is a name, no path
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            numbers = status.read_text(encoding="utf-8").partition("NSpid:")[2].partition("\n")[0].split()
            is_inside = os.readlink(status.with_name("ns") / "pid") == room  # noqa: PTH115
        except OSError:
            continue
        if is_inside and numbers[-1] == str(pid):
            return int(status.parent.name)
    raise ValueError(f"no process of this machine is number {pid} of the container; wanted clockgated's")


if __name__ == "__main__":
    sys.exit(main())
