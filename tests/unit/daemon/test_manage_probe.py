import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clockgated.manage.facts import TimeDaemon, UnitState, parse_features, parse_version
from clockgated.manage.feed import SHM_KEY_BASE
from clockgated.manage.probe import Roots, find_tool, gather_facts, look_at_interface, parse_segments
from clockgated.manage.rivals import find_time_daemons, parse_unit, parse_units
from clockgated.manage.stamping import parse_stamp, parse_stamp_info, phc_ticks, probe_frame
from hypothesis import given
from hypothesis import strategies as st

CHRONYD_4_3 = (
    "chronyd (chrony) version 4.3 (+CMDMON +NTP +REFCLOCK +RTC +PRIVDROP +SCFILTER +SIGND +ASYNCDNS +NTS +SECHASH "
    "+IPV6 -DEBUG)\n"
)
WITH_RIGHT = "CapEff:\t000001ffffffffff\n"
WITHOUT_RIGHT = "CapEff:\t000001fffdffffff\n"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (CHRONYD_4_3, (4, 3)),
        ("chronyd (chrony) version 4.6.1 (+CMDMON)", (4, 6, 1)),
        ("chronyd (chrony) version 4.7-pre1 (+CMDMON)", (4, 7)),
        ("3.1.1\n", (3, 1, 1)),
        ("v4.2-12-gabcdef0\n", (4, 2)),
        ("", None),
        ("unknown", None),
    ],
)
def test_version_is_read_from_what_programs_print(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


def test_features_that_are_off_do_not_count() -> None:
    assert parse_features(CHRONYD_4_3) >= {"NTS", "SCFILTER", "PRIVDROP"}
    assert "DEBUG" not in parse_features(CHRONYD_4_3)


@given(text=st.text(max_size=60))
def test_no_text_makes_the_parsers_raise(text: str) -> None:
    parse_version(text)
    parse_features(text)
    parse_unit(text)
    parse_units(text)
    parse_segments(text)


@given(data=st.binary(max_size=64))
def test_no_answer_of_the_kernel_makes_the_parsers_raise(data: bytes) -> None:
    parse_stamp_info(data)
    parse_stamp([(1, 37, data)], 2)


def test_tool_is_found_with_an_absolute_path_and_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "chronyd"
    program.write_text(f"#!/bin/sh\necho '{CHRONYD_4_3.strip()}'\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    tool = find_tool("chronyd", "./chronyd")
    assert tool is not None
    assert (tool.path, tool.version) == (str(program), (4, 3))
    assert "NTS" in tool.features


@pytest.mark.parametrize("body", ["exit 1", "echo no version here", "echo 4.3 >&2; exit 127"])
def test_program_that_tells_no_version_is_no_tool(tmp_path: Path, body: str) -> None:
    program = tmp_path / "ptp4l"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    assert find_tool("ptp4l", str(program)) is None


def test_missing_program_is_no_tool(tmp_path: Path) -> None:
    assert find_tool("ptp4l", str(tmp_path / "ptp4l")) is None
    assert find_tool("no-such-program-anywhere") is None


Process = Callable[..., None]


@pytest.fixture(name="process")
def fixture_process(tmp_path: Path) -> Process:
    """Makes a process in a made-up /proc."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/user").symlink_to("user:[4026531837]")

    def make(pid: int, comm: str, **more: str) -> None:
        folder = tmp_path / str(pid)
        (folder / "ns").mkdir(parents=True)
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "cmdline").write_text(more.get("cmdline", comm).replace(" ", "\0"))
        (folder / "cgroup").write_text(f"0::{more.get('cgroup', '/system.slice/x.service')}\n")
        (folder / "status").write_text(f"PPid:\t{more.get('parent', '1')}\n{more.get('caps', WITH_RIGHT)}")
        (folder / "ns/user").symlink_to(f"user:[{more.get('user', '4026531837')}]")
        if "exe" in more:
            (folder / "exe").symlink_to(more["exe"])

    return make


def test_time_daemons_are_found_by_executable_or_short_name(process: Process, tmp_path: Path) -> None:
    process(10, "systemd-timesyn", cgroup="/system.slice/systemd-timesyncd.service")
    process(11, "anything", exe="/usr/sbin/chronyd", cgroup="/system.slice/chrony.service")
    process(12, "bash", exe="/usr/bin/bash")
    process(13, "ptp4l", exe="/opt/sbin/ptp4l (deleted)", cgroup="/user.slice/user-0.slice/session-1.scope")
    assert find_time_daemons(tmp_path) == (
        TimeDaemon("systemd-timesyncd", 10, "systemd-timesyncd.service", may_steer=True),
        TimeDaemon("chronyd", 11, "chrony.service", may_steer=True),
        TimeDaemon("ptp4l", 13, None, may_steer=True),
    )


def test_own_daemons_are_no_rivals(process: Process, tmp_path: Path) -> None:
    process(20, "chronyd", cgroup="/system.slice/clockgate-chronyd.service")
    process(21, "ptp4l", cgroup="/system.slice/clockgated.service")
    process(22, "chronyd", parent="21")
    assert find_time_daemons(tmp_path, own_pids={21}) == ()


def test_further_processes_of_one_daemon_are_not_counted(process: Process, tmp_path: Path) -> None:
    process(30, "chronyd")
    process(31, "chronyd", parent="30")
    assert [one.pid for one in find_time_daemons(tmp_path)] == [30]


@pytest.mark.parametrize(
    ("more", "may_steer"),
    [
        ({}, True),
        ({"caps": WITHOUT_RIGHT}, False),
        ({"user": "4026532999"}, False),
        ({"cmdline": "/usr/sbin/chronyd -x -d"}, False),
        ({"cmdline": "/usr/sbin/chronyd -dx"}, False),
        ({"cmdline": "/usr/sbin/chronyd -f /etc/x.conf -d"}, True),
        ({"caps": ""}, None),
    ],
    ids=["root", "no-capability", "user-namespace", "-x", "-dx", "plain", "unreadable"],
)
def test_process_that_cannot_steer_is_told_apart(
    process: Process, tmp_path: Path, more: dict[str, str], may_steer: bool | None
) -> None:
    process(40, "chronyd", **more)
    assert find_time_daemons(tmp_path)[0].may_steer is may_steer


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/chrony.service\n", "chrony.service"),
        ("0::/system.slice/system-ptp4l.slice/ptp4l@eth0.service\n", "ptp4l@eth0.service"),
        ("12:pids:/x\n1:name=systemd:/system.slice/ntp.service\n", "ntp.service"),
        ("0::/system.slice/docker-0123abcd.scope\n", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.service\n", None),
        ("0::/\n", None),
    ],
)
def test_unit_of_a_process_is_its_system_service(cgroup: str, unit: str | None) -> None:
    assert parse_unit(cgroup) == unit


def test_units_are_read_once_each_and_only_when_installed() -> None:
    shown = (
        "Id=chrony.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\n"
        "Id=chrony.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\n"
        "Id=ntp.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n\n"
        "Id=systemd-timesyncd.service\nLoadState=masked\nActiveState=inactive\nUnitFileState=masked\n"
    )
    assert parse_units(shown) == (
        UnitState("chrony.service", "enabled", is_active=True),
        UnitState("systemd-timesyncd.service", "masked", is_active=False),
    )


def test_segments_of_the_ntp_protocol_are_told_from_others() -> None:
    table = (
        "       key      shmid perms       size  cpid  lpid nattch\n"
        f"{SHM_KEY_BASE + 2:10d}          0   600         96   100   100      2\n"
        f"{SHM_KEY_BASE + 205:10d}          1   600         96   100   100      2\n"
        "         0          2   600       4096   100   100      2\n"
        "-123456789          3   600       4096   100   100      2\n"
    )
    assert parse_segments(table) == (2, 205)


def test_interface_is_read_from_sysfs(tmp_path: Path) -> None:
    net = tmp_path / "class/net"
    card = net / "no-such-card"
    (card / "device").mkdir(parents=True)
    (card / "device/driver").symlink_to("../../../bus/pci/drivers/ice")
    (card / "operstate").write_text("up\n")
    (card / "speed").write_text("25000\n")
    (card / "master").symlink_to("../bond9")
    bond = net / "bond9"
    (bond / "bonding").mkdir(parents=True)
    (bond / "bonding/active_slave").write_text("no-such-card\n")
    (bond / "speed").write_text("-1\n")
    vlan = net / "bond9.7"
    vlan.mkdir()
    (vlan / "uevent").write_text("DEVTYPE=vlan\nINTERFACE=bond9.7\n")
    (vlan / "lower_bond9").symlink_to("../bond9")

    seen = [look_at_interface(folder.name, tmp_path, trials=False) for folder in (card, bond, vlan)]

    assert [one.driver for one in seen] == ["ice", None, None]
    assert [one.operstate for one in seen] == ["up", "unknown", "unknown"]
    assert [one.speed_mbps for one in seen] == [25000, None, None]
    assert [(one.master, one.is_bond, one.active_port, one.lower) for one in seen] == [
        ("bond9", False, None, None),
        (None, True, "no-such-card", None),
        (None, False, None, "bond9"),
    ]
    assert not any(one.has_hardware_stamps or one.has_software_stamps for one in seen)


def test_facts_of_an_empty_host_are_unknown_rather_than_wrong(tmp_path: Path) -> None:
    for folder in ("proc", "sys", "run"):
        (tmp_path / folder).mkdir()
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path / "run", tmp_path / "zoneinfo")
    paths = dict.fromkeys(("chronyd", "ptp4l", "phc2sys"), str(tmp_path / "none"))
    facts = gather_facts(tool_paths=paths, trials=False, roots=roots, node_count=3)
    assert (facts.chronyd, facts.ptp4l, facts.phc2sys, facts.time_daemons) == (None, None, None, ())
    assert (facts.has_clock_right, facts.systemd_runs, facts.leap_list, facts.node_count) == (False, False, None, 3)


@pytest.mark.parametrize(
    ("line", "confined"),
    [("/usr/sbin/chronyd (enforce)", True), ("chronyd (enforce)", True), ("/usr/sbin/chronyd (complain)", False)],
)
def test_apparmor_confines_only_what_it_enforces(tmp_path: Path, line: str, confined: bool) -> None:
    folder = tmp_path / "sys/kernel/security/apparmor"
    folder.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (folder / "profiles").write_text(f"/usr/bin/man (enforce)\n{line}\n")
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path / "run", tmp_path / "zoneinfo")
    assert gather_facts(trials=False, roots=roots).chronyd_is_confined is confined


def test_this_host_can_be_looked_at() -> None:
    facts = gather_facts(trials=False, own_pids={os.getpid()})
    assert all(interface.name != "lo" for interface in facts.interfaces)


def info(flags: int, index: int, tx_types: int, rx_filters: int) -> bytes:
    return struct.pack("=IIiIIIIIIII", 0x41, flags, index, tx_types, 0, 0, 0, rx_filters, 0, 0, 0)


@pytest.mark.parametrize(
    ("answer", "hardware", "software", "index"),
    [
        (info(0x5F, 2, 0b11, 0b11), True, True, 2),
        (info(0x1A, -1, 0, 0), False, True, None),
        (info(0x5F, 0, 0b01, 0b11), False, True, 0),
        (info(0x5F, 0, 0b11, 0b01), False, True, 0),
        (info(0x10, -1, 0, 0), False, False, None),
    ],
    ids=["everything", "software", "no-transmit-type", "no-receive-filter", "nothing"],
)
def test_claims_of_a_driver_are_read(answer: bytes, hardware: bool, software: bool, index: int | None) -> None:
    found = parse_stamp_info(answer)
    assert found is not None
    assert (found.has_hardware, found.has_software, found.phc_index) == (hardware, software, index)


@pytest.mark.parametrize(
    ("rate", "ticks"), [(0.0, False), (1.0, True), (0.1, False), (10.0, False), (-1.0, False)], ids=str
)
def test_hardware_clock_must_advance_like_any_clock(monkeypatch: pytest.MonkeyPatch, rate: float, ticks: bool) -> None:
    real_open = os.open
    monkeypatch.setattr(os, "open", lambda path, flags: real_open(os.devnull, flags))
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: round(time.monotonic_ns() * rate))
    assert phc_ticks(0) is ticks


def test_clock_that_cannot_be_opened_is_unknown() -> None:
    assert phc_ticks(987654) is None


def test_stamp_counts_only_in_its_own_place() -> None:
    software = struct.pack("=6q", 1700000000, 5, 0, 0, 0, 0)
    hardware = struct.pack("=6q", 0, 0, 0, 0, 1700000000, 5)
    assert parse_stamp([(1, 37, software)], 0)
    assert not parse_stamp([(1, 37, software)], 2)
    assert parse_stamp([(0, 1, b"x"), (1, 37, hardware)], 2)
    assert not parse_stamp([(1, 37, hardware)], 0)


def test_probe_packet_stays_on_the_link_and_says_what_it_is() -> None:
    frame = probe_frame(bytes.fromhex("020000000001"))
    assert len(frame) == 14 + 54
    assert frame[:6] == bytes.fromhex("0180c200000e")
    assert frame[6:12] == bytes.fromhex("020000000001")
    assert frame[12:14] == b"\x88\xf7"
    # Peer-delay request, PTP 2.0, its length, a domain of its own, the station's clock identity.
    assert frame[14:19] == bytes((2, 2, 0, 54, 127))
    assert frame[34:42] == bytes.fromhex("020000fffe000001")
