"""What clockgated costs a node: CPU and memory at one cycle a second beside a real chronyd (-x, in its own namespace).

    bench/daemon_cost.py [--seconds N]

The chronyc that each cycle runs is counted: a child that was waited for is in its parent's account. Start-up is not.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from support.chrony import chrony_pair
from support.daemon import command, environment, toml
from support.tools import require_tool

_WARM_UP_S = 10
_TARGET_PERCENT, _TARGET_MIB = 1.5, 80
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Account:
    """CPU used so far, seconds: by the process itself, and by children that ended."""

    own_s: float
    children_s: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU and memory of clockgated at one cycle a second")
    parser.add_argument("--seconds", type=int, default=60)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="clockgate-cost-") as name:
        folder = Path(name)
        with chrony_pair(folder / "chrony") as pair:
            config = folder / "clockgated.toml"
            chronyc = require_tool("chronyc")
            config.write_text(toml(folder, chrony=f'socket = "{pair.client.socket}"\nchronyc = "{chronyc}"'))
            said = folder / "clockgated.log"
            with said.open("wb") as log:
                process = subprocess.Popen(command("--config", config), env=environment(), stdout=log, stderr=log)
            try:
                time.sleep(_WARM_UP_S)
                if process.poll() is not None:
                    print(f"clockgated ended: {said.read_text(encoding='utf-8')}", file=sys.stderr)
                    return 1
                measure(process.pid, seconds)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(10)
    return 0


def measure(pid: int, seconds: float) -> None:
    """Watch the daemon `pid`, which is warm, for `seconds`."""
    before, began_s = account(pid), time.monotonic()
    load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    time.sleep(seconds)
    after, took_s = account(pid), time.monotonic() - began_s
    own = 100 * (after.own_s - before.own_s) / took_s
    children = 100 * (after.children_s - before.children_s) / took_s
    print(
        f"clockgated at 1 cycle/s for {took_s:.0f} s: {own + children:.2f} % of a core ({own:.2f} % itself, "
        f"{children:.2f} % its chronyc; target below {_TARGET_PERCENT} %), RSS {memory_mib(pid, 'VmRSS'):.1f} MiB, "
        f"at most {memory_mib(pid, 'VmHWM'):.1f} MiB (target below {_TARGET_MIB} MiB); "
        f"load average {load} on {os.cpu_count()} cores"
    )


def account(pid: int) -> Account:
    """What the kernel has on the account of `pid`: proc(5), utime to cstime."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    user, system, of_user, of_system = map(int, fields[11:15])
    return Account((user + system) / _TICKS_PER_S, (of_user + of_system) / _TICKS_PER_S)


def memory_mib(pid: int, name: str) -> float:
    """One line of /proc/PID/status, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/{pid}/status has no {name}; wanted a living process")


if __name__ == "__main__":
    sys.exit(main())
