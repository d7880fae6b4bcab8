"""Time inside a booted container: a server to follow, and what clockgated there says."""

import json
import time
from typing import Any

from support.nspawn import Machine

SERVER_PORT = 11123
_SERVER = "island"
_SERVER_CONF = f"""local stratum 8
port {SERVER_PORT}
bindaddress 127.0.0.1
allow 127.0.0.1
cmdport 0
bindcmdaddress /run/island/chronyd.sock
pidfile /run/island/chronyd.pid
user root
"""
_USABLE_S = 40


def serve_time(machine: Machine) -> None:
    """Run a chronyd that is its own reference, on the loopback interface and a port of its own."""
    machine.write("/etc/island.conf", _SERVER_CONF)
    machine.run("mkdir", "-m", "0770", "/run/island")
    machine.run("systemd-run", f"--unit={_SERVER}", "/usr/sbin/chronyd", "-x", "-d", "-f", "/etc/island.conf")


def configure(machine: Machine, text: str, watchdog_s: int = 15) -> None:
    """Write clockgated's configuration, and how long it may hang."""
    machine.write("/etc/clockgate/clockgated.toml", text)
    machine.write(
        "/etc/systemd/system/clockgated.service.d/test.conf", f"[Service]\nWatchdogSec={watchdog_s}\nTimeoutStopSec=5\n"
    )
    machine.run("systemctl", "daemon-reload")


def status(machine: Machine) -> dict[str, Any]:
    """The reading, as clockgatectl prints it for scripts; {} while nobody answers."""
    said = machine.run("clockgatectl", "status", "--json", check=False).stdout
    found: dict[str, Any] = json.loads(said) if said.startswith("{") else {}
    return found


def usable_status(machine: Machine, timeout_s: float = _USABLE_S) -> dict[str, Any]:
    """The first reading that may be used."""
    due = time.monotonic() + timeout_s
    while True:
        found = status(machine)
        if found.get("usable"):
            return found
        assert time.monotonic() < due, f"no usable reading: {found}\n{machine.journal('clockgated')[-4000:]}"
        time.sleep(0.3)
