"""`clockgated --print-plan` on a real Debian, each mode, and its own chronyd and ptp4l on what the plan holds."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.nspawn import Machine, machine

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(180)]

# Taken for one of ours by its name, not for another time daemon.
CHRONYD = "clockgate-planned"
NTP = '[ntp]\nservers = ["192.0.2.1", "192.0.2.2"]\n'
PTP = '[ptp]\ninterfaces = ["ptp0"]\ntimestamping = "software"\n'
MODES = {
    "observe": ("", "observe", set()),
    "ntp": (NTP, "ntp", {"chronyd"}),
    "ptp": (PTP, "ptp", {"ptp4l@ptp0"}),
    "ptp+ntp": (NTP + PTP, "ptp+ntp", {"chronyd", "ptp4l@ptp0"}),
    "auto": (NTP, "ntp", {"chronyd"}),
}


@pytest.fixture(scope="module")
def node() -> Iterator[Machine]:
    with machine() as booted:
        booted.run("systemctl", "disable", "--now", "chrony.service")
        booted.run("ip", "link", "add", "ptp0", "type", "veth", "peer", "name", "wire0")
        for end in ("ptp0", "wire0"):
            booted.run("ip", "link", "set", end, "up")
        booted.run("ip", "addr", "add", "10.79.0.1/24", "dev", "ptp0")
        yield booted


@pytest.mark.parametrize("mode", MODES)
def test_the_plan_of_each_mode_is_accepted_by_the_programs_it_is_for(node: Machine, mode: str) -> None:
    sections, planned, daemons = MODES[mode]
    node.write("/etc/clockgate/clockgated.toml", f'[clock]\nmode = "{mode}"\n{sections}')
    plan: dict[str, Any] = json.loads(node.run("clockgated", "--print-plan", "--json").stdout)
    assert plan["mode"] == planned
    assert {daemon["name"] for daemon in plan["daemons"]} == daemons
    assert not [*(node.root / "run/clockgate").glob("*")], "looking at a plan writes nothing"
    try:
        for folder in plan["folders"]:
            owner = folder["owner"] or "root"
            node.run("install", "-d", "-m", folder["mode"], "-o", owner, "-g", owner, folder["path"])
        for file in plan["files"]:
            node.write(file["path"], file["text"])
        for daemon in plan["daemons"]:
            accepts(node, daemon)
    finally:
        node.run("systemctl", "stop", CHRONYD, check=False)
        node.run("rm", "-rf", "/run/clockgate", "/var/lib/clockgate")


def test_the_plan_for_people_names_the_mode_first(node: Machine) -> None:
    node.write("/etc/clockgate/clockgated.toml", f'[clock]\nmode = "ptp+ntp"\n{NTP}{PTP}')
    shown = node.run("clockgated", "--print-plan").stdout
    print(shown)
    assert shown.startswith("mode: ptp+ntp\nwhy:\n")
    assert "file /run/clockgate/chronyd.conf (0644):" in shown


def accepts(node: Machine, daemon: dict[str, Any]) -> None:
    """Have the daemon's own program read its configuration, and start it: ptp4l for a while, chronyd until the end."""
    if daemon["name"] == "chronyd":
        node.run("chronyd", "-p", "-f", daemon["argv"][-1])
        # ptp4l ends when the socket of the reference clock that it feeds is not there.
        node.run("systemd-run", f"--unit={CHRONYD}", *daemon["argv"])
        paths = [node.root / path.lstrip("/") for path in daemon["ready_when"]["paths"]]
        node.wait_for("chronyd's sockets", lambda: all(path.exists() for path in paths), unit=CHRONYD)
        return
    for argv in (daemon["argv"], daemon["restart_argv"]):
        ran = node.run("timeout", "2", *argv, check=False)
        assert ran.returncode == 124, ran.stdout + ran.stderr
        assert "INITIALIZING to LISTENING on INIT_COMPLETE" in ran.stdout
