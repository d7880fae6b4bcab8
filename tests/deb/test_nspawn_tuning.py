"""Tuning beside a real systemd: the guard is a transient timer, and what was applied outlives stop and restart."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
from support.nspawn import Machine, machine

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(240)]

UNIT = "clockgated.service"
IDLE = "/proc/sys/net/ipv4/tcp_slow_start_after_idle"
CONFIG = """[clock]
mode = "observe"
[tuning]
profile = "site"
rtt_ms = 100
probe_hosts = ["10.77.0.2"]
confirm_s = 8
"""
PROFILE = 'extends = "tcp"\nsummary = "a test"\nlinks = ["eth0"]\nmtu_bytes = 1400\nchannels = false\n'
LINKS = """
ip netns add other
ip link add eth0 type veth peer name eth0 netns other
ip addr add 10.77.0.1/24 dev eth0; ip link set eth0 up
ip -n other addr add 10.77.0.2/24 dev eth0; ip -n other link set eth0 up
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Machine]:
    with machine() as booted:
        booted.run("sh", "-ec", LINKS)
        booted.write("/etc/clockgate/clockgated.toml", CONFIG)
        booted.write("/etc/clockgate/profiles/site.toml", PROFILE)
        booted.run("systemctl", "enable", "--now", UNIT)
        yield booted


def tune(node: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    return node.run("clockgatectl", "tune", *words, check=False)


def planned(node: Machine) -> str:
    plan_hash: str = json.loads(tune(node, "plan", "--json").stdout)["plan_hash"]
    return plan_hash


def mtu(node: Machine) -> str:
    return node.run("cat", "/sys/class/net/eth0/mtu").stdout.strip()


def timers(node: Machine) -> str:
    return node.run("systemctl", "list-timers", "--all", "--no-legend", "clockgate-tuning-undo-*").stdout


def test_a_confirmed_apply_disarms_its_timer_and_outlives_a_restart(node: Machine) -> None:
    applied = tune(node, "apply", planned(node))
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert timers(node) == ""
    node.run("systemctl", "restart", UNIT)
    assert tune(node, "verify").returncode == 0
    assert mtu(node) == "1400"
    node.run("systemctl", "stop", UNIT)
    assert mtu(node) == "1400"
    # As the package does when it is removed.
    node.run("clockgated", "--revert-tuning")
    assert mtu(node) == "1500"
    assert node.run("cat", IDLE).stdout == "1\n"
    node.run("systemctl", "start", UNIT)


def test_a_daemon_that_hangs_leaves_the_undoing_to_the_timer(node: Machine) -> None:
    asked = planned(node)
    # Nothing that fills the new MTU comes back, so the daemon waits for proof.
    node.run("ip", "-n", "other", "link", "set", "eth0", "mtu", "1200")
    asking = threading.Thread(target=tune, args=(node, "apply", asked))
    asking.start()
    node.wait_for("change", lambda: mtu(node) == "1400")
    assert "clockgate-tuning-undo-" in timers(node)
    hung = node.main_pid(UNIT)
    node.run("kill", "-STOP", str(hung))
    began = time.monotonic()
    node.wait_for("undoing", lambda: mtu(node) == "1500", timeout_s=30)
    assert time.monotonic() - began < 14, "not by the watchdog, which ends what hangs after 15 s"
    assert node.main_pid(UNIT) == hung
    assert node.run("cat", IDLE).stdout == "1\n"
    node.run("kill", "-CONT", str(hung))
    asking.join(60)
    assert tune(node, "verify").stdout.strip() == "nothing is applied"
