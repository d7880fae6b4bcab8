"""ptp4l as a unit of a real systemd, with software stamps: it too outlives clockgated."""

from collections.abc import Iterator

import pytest
from support.nspawn import Machine, machine
from support.nspawn_clock import configure, status

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(180)]

UNIT, PTP4L = "clockgated.service", "clockgate-ptp4l@ptp0.service"
CONFIG = """[clock]
mode = "ptp"
[ptp]
interfaces = ["ptp0"]
timestamping = "software"
transport = "L2"
"""
MASTER = ("/usr/sbin/ptp4l", "-S", "-2", "-m", "-i", "wire0", "--uds_address=/run/master", "--masterOnly=1")


@pytest.fixture(scope="module")
def node() -> Iterator[Machine]:
    with machine() as booted:
        booted.run("systemctl", "disable", "--now", "chrony.service")
        booted.run("ip", "netns", "add", "master")
        booted.run("ip", "link", "add", "ptp0", "type", "veth", "peer", "name", "wire0", "netns", "master")
        booted.run("ip", "link", "set", "ptp0", "up")
        booted.run("ip", "-n", "master", "link", "set", "wire0", "up")
        # By this name it is taken for one of ours; any other ptp4l in here would be a rival, and only be observed.
        booted.run("systemd-run", "--unit=clockgate-master", "ip", "netns", "exec", "master", *MASTER)
        configure(booted, CONFIG)
        booted.run("systemctl", "enable", "--now", UNIT)
        yield booted


def test_ptp4l_runs_as_our_unit_and_follows_the_grandmaster(node: Machine) -> None:
    node.wait_for("ptp4l", lambda: node.main_pid(PTP4L) != 0, unit=PTP4L)
    node.wait_for("election", lambda: "LISTENING to UNCALIBRATED" in node.journal(PTP4L), unit=PTP4L)
    node.wait_for("grandmaster", lambda: reference(node).startswith("ptp:"))
    # Nothing in here may set the clock. Before 4.0 ptp4l watches for 16 s, and its first correction is refused; later
    # ones are told to measure only.
    if node.run("ptp4l", "-v").stdout.startswith("3."):
        node.wait_for("refusal", lambda: "Operation not permitted" in node.journal(PTP4L), timeout_s=60, unit=PTP4L)
    node.wait_for("word of it", lambda: {"STEERING_DENIED", "NOT_STEERED"} <= reasons(node))
    node.wait_for("bound", lambda: status(node).get("state") == "SYNCHRONIZED", timeout_s=60)


def test_killing_clockgated_leaves_ptp4l_running(node: Machine) -> None:
    node.wait_for("ptp4l", lambda: node.main_pid(PTP4L) != 0, unit=PTP4L)
    ptp4l, clockgated = node.main_pid(PTP4L), node.main_pid(UNIT)
    node.run("kill", "-KILL", str(clockgated))
    node.wait_for("new clockgated", lambda: node.main_pid(UNIT) not in (0, clockgated))
    node.wait_for("grandmaster", lambda: reference(node).startswith("ptp:"))
    assert node.main_pid(PTP4L) == ptp4l
    node.run("systemctl", "restart", UNIT)
    node.wait_for("grandmaster", lambda: reference(node).startswith("ptp:"))
    assert node.main_pid(PTP4L) == ptp4l
    assert int(node.shown(PTP4L, "NRestarts")) == 0


def test_a_killed_ptp4l_is_brought_back_by_systemd(node: Machine) -> None:
    node.wait_for("ptp4l", lambda: node.main_pid(PTP4L) != 0, unit=PTP4L)
    ptp4l = node.main_pid(PTP4L)
    node.run("kill", "-KILL", str(ptp4l))
    node.wait_for("new ptp4l", lambda: node.main_pid(PTP4L) not in (0, ptp4l), unit=PTP4L)
    node.wait_for("word of the end", lambda: f"{PTP4L}: ended" in node.journal(UNIT))


def test_removing_the_package_ends_ptp4l_too(node: Machine) -> None:
    node.wait_for("ptp4l", lambda: node.main_pid(PTP4L) != 0, unit=PTP4L)
    node.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "remove", "-y", "clockgate", timeout_s=120)
    assert node.main_pid(PTP4L) == 0
    assert not [*(node.root / "run/systemd/system").glob("clockgate-*")]
    assert node.run("pgrep", "-f", "ptp4l -f /run/clockgate", check=False).stdout == ""


def reasons(node: Machine) -> set[str]:
    return {reason["code"] for reason in status(node).get("reasons", ())}


def reference(node: Machine) -> str:
    return (status(node).get("reference") or {}).get("identity") or ""
