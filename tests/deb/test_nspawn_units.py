"""Time daemons as units of a real systemd: they outlive clockgated, which goes on where it was."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.nspawn import Machine, machine
from support.nspawn_clock import SERVER_PORT, configure, serve_time, status, usable_status

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(180)]

UNIT, CHRONYD = "clockgated.service", "clockgate-chronyd.service"
CONFIG = f"""[clock]
mode = "ntp"
[ntp]
servers = [{{ host = "127.0.0.1", port = {SERVER_PORT}, min_poll_log2 = 0, max_poll_log2 = 0 }}]
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Machine]:
    with machine() as booted:
        serve_time(booted)
        # The distribution's own chronyd would be another time daemon.
        booted.run("systemctl", "disable", "--now", "chrony.service")
        configure(booted, CONFIG)
        booted.run("systemctl", "enable", "--now", UNIT)
        yield booted


def followed(node: Machine, before: dict[str, Any]) -> dict[str, Any]:
    """The reading of a clockgated that was started after `before`: newer, and continuing it."""
    found: dict[str, Any] = {}

    def is_newer() -> bool:
        found.update(status(node))
        return bool(found.get("usable")) and found["as_of_boot_ns"] > before["as_of_boot_ns"]

    node.wait_for("reading after the restart", is_newer)
    return found


def chronyd_processes(node: Machine) -> int:
    """How many there are: those of the server that is followed, and ours."""
    return len(node.run("pgrep", "-x", "chronyd").stdout.split())


def test_chronyd_runs_as_our_unit_and_is_followed(node: Machine) -> None:
    reading = usable_status(node)
    assert reading["source_kind"] == "chrony"
    assert node.shown(CHRONYD, "ActiveState") == "active"
    argv = node.run("cat", f"/proc/{node.main_pid(CHRONYD)}/cmdline").stdout.split("\0")
    # Nothing in here may set the clock.
    assert "-x" in argv
    assert node.shown(CHRONYD, "Restart") == "always"


def test_our_chronyd_cannot_set_the_clock(node: Machine) -> None:
    usable_status(node)
    said = node.run("cat", f"/proc/{node.main_pid(CHRONYD)}/status").stdout
    masks = [line.split()[1] for line in said.splitlines() if line.startswith(("CapEff", "CapBnd", "CapPrm"))]
    assert len(masks) == 3
    assert all(int(mask, 16) >> 25 & 1 == 0 for mask in masks)


def test_restarting_clockgated_leaves_chronyd_running_and_the_epoch_as_it_was(node: Machine) -> None:
    before, chronyd = usable_status(node), node.main_pid(CHRONYD)
    node.run("systemctl", "restart", UNIT)
    after = followed(node, before)
    assert node.main_pid(CHRONYD) == chronyd
    assert after["epoch"] == before["epoch"]
    assert after["sequence"] > before["sequence"]
    assert int(node.shown(CHRONYD, "NRestarts")) == 0


def test_killing_clockgated_leaves_chronyd_running_and_the_epoch_as_it_was(node: Machine) -> None:
    before, chronyd, clockgated = usable_status(node), node.main_pid(CHRONYD), node.main_pid(UNIT)
    node.run("kill", "-KILL", str(clockgated))
    after = followed(node, before)
    assert node.main_pid(UNIT) not in (0, clockgated)
    assert node.main_pid(CHRONYD) == chronyd
    assert after["epoch"] == before["epoch"]
    assert after["sequence"] > before["sequence"]


def test_a_deleted_socket_is_served_again_beside_the_same_chronyd_in_the_same_epoch(node: Machine) -> None:
    before, chronyd, clockgated = usable_status(node), node.main_pid(CHRONYD), node.main_pid(UNIT)
    (node.root / "run/clockgate/clockgate.sock").unlink()
    after = followed(node, before)
    assert node.main_pid(UNIT) not in (0, clockgated)
    assert "clockgate.sock: the socket's file was deleted; stopping" in node.journal(UNIT)
    assert node.main_pid(CHRONYD) == chronyd
    assert after["epoch"] == before["epoch"]


def test_a_killed_chronyd_comes_back_once_and_is_believed_again(node: Machine) -> None:
    before, chronyd, processes = usable_status(node), node.main_pid(CHRONYD), chronyd_processes(node)
    node.run("kill", "-KILL", str(chronyd))
    node.wait_for("new chronyd", lambda: node.main_pid(CHRONYD) not in (0, chronyd), unit=CHRONYD)
    node.wait_for("word of the end", lambda: "clockgate-chronyd.service: ended" in node.journal(UNIT))
    node.wait_for("good reading", lambda: status(node).get("state") == "SYNCHRONIZED")
    assert usable_status(node)["epoch"] >= before["epoch"]
    assert chronyd_processes(node) == processes


def test_output_of_the_time_daemon_is_in_the_journal_under_its_unit(node: Machine) -> None:
    usable_status(node)
    assert "Selected source 127.0.0.1" in node.journal(CHRONYD)


def test_stopping_clockgated_does_not_stop_the_clocks_discipline(node: Machine) -> None:
    before, chronyd = usable_status(node), node.main_pid(CHRONYD)
    node.run("systemctl", "stop", UNIT)
    assert node.main_pid(CHRONYD) == chronyd
    node.run("systemctl", "start", UNIT)
    assert followed(node, before)["epoch"] == before["epoch"]


def test_observing_again_ends_our_unit(node: Machine) -> None:
    usable_status(node)
    configure(node, '[clock]\nmode = "observe"\n')
    node.run("systemctl", "reload", UNIT)
    node.wait_for("end of our chronyd", lambda: node.shown(CHRONYD, "ActiveState") == "inactive")
    drop_in = node.root / f"run/systemd/system/{CHRONYD}.d/10-clockgate.conf"
    node.wait_for("end of its drop-in", lambda: not drop_in.exists())
    configure(node, CONFIG)
    node.run("systemctl", "reload", UNIT)
    usable_status(node)
