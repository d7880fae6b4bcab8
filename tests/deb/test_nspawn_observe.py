"""clockgated as a unit of a real systemd, beside the time daemon that the distribution runs."""

import json
from collections.abc import Iterator

import pytest
from support.nspawn import Machine, machine
from support.nspawn_clock import SERVER_PORT, configure, serve_time, status, usable_status

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(180)]

UNIT = "clockgated.service"
# Debian's unit wants the right to set the clock, which nothing in here has: chronyd runs with -x.
CONTAINED = "[Unit]\nConditionCapability=\n"
CHRONY_CONF = f"server 127.0.0.1 port {SERVER_PORT} iburst minpoll 0 maxpoll 0\npidfile /run/chrony/chronyd.pid\n"


@pytest.fixture(scope="module")
def node() -> Iterator[Machine]:
    with machine() as booted:
        serve_time(booted)
        booted.write("/etc/systemd/system/chrony.service.d/contained.conf", CONTAINED)
        booted.write("/etc/default/chrony", 'DAEMON_OPTS="-x -F 1"\n')
        booted.write("/etc/chrony/chrony.conf", CHRONY_CONF)
        configure(booted, '[clock]\nmode = "observe"\n', watchdog_s=3)
        booted.run("systemctl", "restart", "chrony.service")
        booted.run("systemctl", "enable", "--now", UNIT)
        yield booted


def test_the_distributions_chronyd_is_read_and_left_alone(node: Machine) -> None:
    chronyd = node.main_pid("chrony.service")
    reading = usable_status(node)
    assert reading["source_kind"] == "chrony"
    assert reading["reference"]["source_name"] == "127.0.0.1"
    assert reading["relative_bound_ns"] < 50_000_000
    assert node.main_pid("chrony.service") == chronyd != 0
    assert node.shown("clockgate-chronyd.service", "ActiveState") == "inactive"


def test_systemd_hears_that_the_daemon_is_ready_and_how_it_fares(node: Machine) -> None:
    usable_status(node)
    assert node.shown(UNIT, "ActiveState") == "active"
    assert node.shown(UNIT, "Type") == "notify"
    node.wait_for("status line", lambda: "SYNCHRONIZED" in node.shown(UNIT, "StatusText"))
    assert int(node.shown(UNIT, "WatchdogTimestampMonotonic")) > 0


def test_the_log_reaches_the_journal_under_our_name_with_its_levels(node: Machine) -> None:
    usable_status(node)
    said = node.run("journalctl", "--output=json", "SYSLOG_IDENTIFIER=clockgated").stdout
    lines = [json.loads(line) for line in said.splitlines()]
    serving = [line for line in lines if "clockgate.sock" in str(line["MESSAGE"])]
    assert serving
    assert serving[0]["PRIORITY"] == "6"
    assert serving[0]["_SYSTEMD_UNIT"] == UNIT


def test_lines_in_the_journal_do_not_repeat_what_its_fields_say(node: Machine) -> None:
    usable_status(node)
    said = node.run("journalctl", "--output=cat", "SYSLOG_IDENTIFIER=clockgated").stdout
    assert not [line for line in said.splitlines() if line.startswith(("INFO", "WARNING"))]


def test_a_frozen_daemon_is_restarted_by_the_watchdog(node: Machine) -> None:
    usable_status(node)
    frozen, restarts = node.main_pid(UNIT), int(node.shown(UNIT, "NRestarts"))
    node.run("kill", "-STOP", str(frozen))
    node.wait_for("restart", lambda: int(node.shown(UNIT, "NRestarts")) > restarts)
    node.wait_for("new process", lambda: node.main_pid(UNIT) not in (0, frozen))
    assert "Watchdog timeout" in node.journal(UNIT)
    usable_status(node)


def test_a_reload_keeps_the_process(node: Machine) -> None:
    usable_status(node)
    pid = node.main_pid(UNIT)
    node.run("systemctl", "reload", UNIT)
    node.wait_for("word of the reload", lambda: "reload: done" in node.journal(UNIT))
    assert node.main_pid(UNIT) == pid
    assert usable_status(node)


def test_a_stop_is_clean_and_leaves_the_folder_of_the_sockets(node: Machine) -> None:
    usable_status(node)
    node.run("systemctl", "stop", UNIT)
    assert node.shown(UNIT, "Result") == "success"
    assert node.shown(UNIT, "ExecMainStatus") == "0"
    assert (node.root / "run/clockgate").is_dir()
    assert status(node) == {}
    node.run("systemctl", "start", UNIT)
    usable_status(node)


def test_a_wrong_configuration_ends_in_one_failure_not_in_a_loop(node: Machine) -> None:
    node.run("systemctl", "stop", UNIT)
    configure(node, "[clock]\nmax_bound_ms = -1\n", watchdog_s=3)
    try:
        started = node.run("systemctl", "start", UNIT, check=False)
        assert started.returncode != 0
        assert node.shown(UNIT, "ActiveState") == "failed"
        assert node.shown(UNIT, "ExecMainStatus") == "78"
        assert "max_bound_ms" in node.journal(UNIT)
    finally:
        configure(node, '[clock]\nmode = "observe"\n', watchdog_s=3)
        node.run("systemctl", "reset-failed", UNIT)
        node.run("systemctl", "start", UNIT)
