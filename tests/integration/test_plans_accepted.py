"""What the planner writes is what the real chronyd, ptp4l and phc2sys of each supported release accept.

Nothing here can set a clock: every program runs in a network namespace without CAP_SYS_TIME, chronyd with -x as well.
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from clockgated.manage.facts import Facts
from clockgated.manage.options import CHRONY, LINUXPTP, TABLES, legal
from clockgated.manage.plan import make_plan
from clockgated.manage.planned import Folders, PlannedDaemon
from clockgated.manage.settings import DelayMechanism, ManageSettings, Mode, NtpSettings, PtpSettings, Role, Transport
from support.plan_hosts import (
    GRANDMASTER,
    NTP_CLIENT,
    NTP_SERVER_OF_A_CLUSTER,
    PTP_AND_NTP,
    PTP_HARDWARE,
    PTP_SOFTWARE,
    host,
    nic,
)
from support.releases import FETCH, Release, releases
from support.running_plan import Running, run, running, wait_for, write
from support.tools import ROOT, missing, require_tool
from support.veth import namespaces

pytestmark = pytest.mark.integration

RELEASES = releases()
EACH_RELEASE = pytest.mark.parametrize("release", [pytest.param(one, id=one.label) for one in RELEASES])
PROVEN = host((4, 3), (3, 1, 1), nic("eth0", phc=0, proven=True), nic("eth1", phc=1, proven=True))
PLAIN = host()
TWO_PLAIN = host((4, 3), (3, 1, 1), nic("eth0"), nic("eth1"))

# One line for each option of the tables, with a value that every release which knows the option takes.
CHRONY_LINES = {
    "server": "server 10.0.0.1",
    "server.key": "server 10.0.0.1 key 1",
    "server.maxpoll": "server 10.0.0.1 maxpoll 5",
    "server.minpoll": "server 10.0.0.1 minpoll 4",
    "server.ntsport": "server 10.0.0.1 nts ntsport 4461",
    "server.port": "server 10.0.0.1 port 1123",
    "pool": "pool pool.example.net",
    "pool.maxpoll": "pool pool.example.net maxpoll 6",
    "pool.maxsources": "pool pool.example.net maxsources 3",
    "pool.minpoll": "pool pool.example.net minpoll 6",
    "refclock": "refclock SHM 64",
    "refclock.delay": "refclock SHM 64 delay 0.0001",
    "refclock.dpoll": "refclock SHM 64 dpoll 0",
    "refclock.poll": "refclock SHM 64 poll 2",
    "refclock.precision": "refclock SHM 64 precision 1e-9",
    "refclock.prefer": "refclock SHM 64 prefer",
    "refclock.refid": "refclock SHM 64 refid PTP0",
    "hwtimestamp": "hwtimestamp eth0",
    "local": "local",
    "local.activate": "local activate 0.1",
    "local.distance": "local distance 0.5",
    "local.stratum": "local stratum 10",
    "local.waitsynced": "local waitsynced 7200",
    "local.waitunsynced": "local waitunsynced 300",
    "allow": "allow 10.0.0.0/24",
    "port": "port 0",
    "bindcmdaddress": "bindcmdaddress /run/x/chronyd.sock",
    "cmdport": "cmdport 0",
    "pidfile": "pidfile /run/x/pid",
    "user": "user root",
    "driftfile": "driftfile /run/x/drift",
    "dumpdir": "dumpdir /run/x/dump",
    "keyfile": "keyfile /run/x/keys",
    "makestep": "makestep 0.1 3",
    "maxchange": "maxchange 10 3 -1",
    "maxclockerror": "maxclockerror 50",
    "maxupdateskew": "maxupdateskew 100",
    "minsources": "minsources 2",
    "leapseclist": "leapseclist /usr/share/zoneinfo/leap-seconds.list",
    "leapsectz": "leapsectz right/UTC",
    "rtcsync": "rtcsync",
    "ntsdumpdir": "ntsdumpdir /run/x",
    "ntsservercert": "ntsservercert /run/x/cert",
    "ntsserverkey": "ntsserverkey /run/x/key",
    "ntstrustedcerts": "ntstrustedcerts /run/x/ca",
}
LINUXPTP_VALUES = {
    "clock_servo": "pi",
    "delay_mechanism": "E2E",
    "first_step_threshold": "0.00002",
    "network_transport": "L2",
    "refclock_sock_address": "/run/x/sock",
    "step_threshold": "0.0",
    "time_stamping": "software",
    "uds_address": "/run/x/uds",
    "uds_ro_address": "/run/x/uds-ro",
    "announceReceiptTimeout": "3",
    "max_frequency": "500000",
    "ntpshm_segment": "64",
    "tx_timestamp_timeout": "10",
    "utc_offset": "37",
}


def test_releases_to_try_are_there() -> None:
    """The other tests try what was fetched; without this one they would pass by trying nothing."""
    suites = {release.suite for release in RELEASES}
    lacking = {"host", "trixie"} - suites
    if lacking:
        missing(f"no time daemons of {', '.join(sorted(lacking))}; run 'make tools' and '{FETCH}'")
    assert {release.chronyd.version[:2] for release in RELEASES} >= {(4, 3), (4, 6)}


@EACH_RELEASE
@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        pytest.param(NTP_CLIENT, PROVEN, id="client-with-hardware-stamps"),
        pytest.param(NTP_SERVER_OF_A_CLUSTER, PLAIN, id="server-of-a-cluster-with-nts"),
        pytest.param(NTP_CLIENT, replace(PLAIN, has_clock_right=False), id="container"),
        pytest.param(PTP_AND_NTP, PLAIN, id="ptp-in-software-as-reference"),
        pytest.param(PTP_AND_NTP, PROVEN, id="ptp-in-hardware-as-reference"),
        pytest.param(GRANDMASTER, PROVEN, id="grandmaster"),
        pytest.param(replace(NTP_CLIENT, ntp=replace(NTP_CLIENT.ntp, smeared_leaps=True)), PLAIN, id="smeared-leaps"),
    ],
)
def test_chronyd_accepts_its_configuration(
    release: Release, settings: ManageSettings, facts: Facts, tmp_path: Path
) -> None:
    plan = make_plan(settings, release.onto(facts), Folders(f"{tmp_path}/run", f"{tmp_path}/state"))
    write(plan)
    (text,) = (file.text for file in plan.files if file.path.endswith("chronyd.conf"))

    checked = run(release.chronyd.path, "-p", "-f", f"{tmp_path}/run/chronyd.conf")

    assert checked.returncode == 0, checked.stderr + checked.stdout
    assert checked.stdout.split() == " ".join(line for line in text.splitlines() if not line.startswith("#")).split()


@EACH_RELEASE
def test_chrony_options_are_known_exactly_where_the_table_says(release: Release, tmp_path: Path) -> None:
    for option in TABLES[CHRONY]:
        directive, _, word = option.partition(".")
        line = CHRONY_LINES.get(option, f"{CHRONY_LINES[directive]} {word}")
        file = tmp_path / "one.conf"
        file.write_text(f"{line}\n")
        checked = run(release.chronyd.path, "-p", "-f", str(file))
        expected = legal(CHRONY, release.chronyd.version, option, release.chronyd.features)
        assert (checked.returncode == 0) is expected, f"{line}: {checked.stdout}{checked.stderr}"


@EACH_RELEASE
@pytest.mark.parametrize("program", ["ptp4l", "phc2sys"])
def test_linuxptp_options_are_known_where_the_table_says(release: Release, program: str, tmp_path: Path) -> None:
    path = release.ptp4l.path if program == "ptp4l" else release.phc2sys.path
    for option, entry in TABLES[LINUXPTP].items():
        name, _, value = option.partition("=")
        file = tmp_path / "one.conf"
        file.write_text(f"[global]\n{name} {value or LINUXPTP_VALUES.get(name, '1')}\n")
        told = run(path, "-f", str(file)).stderr
        # Without an interface or a clock to work on, a program that takes its file stops at the next thing it lacks.
        is_taken = "no interface specified" in told or "valid source clock must be selected" in told
        # A spelling that was replaced is never written, though the programs go on taking it.
        assert is_taken is (release.ptp4l.version >= entry.since), f"{option}: {told}"


@EACH_RELEASE
@pytest.mark.parametrize("settings", [PTP_HARDWARE, PTP_AND_NTP, GRANDMASTER], ids=["ptp", "ptp+ntp", "grandmaster"])
def test_phc2sys_accepts_its_configuration(release: Release, settings: ManageSettings, tmp_path: Path) -> None:
    plan = make_plan(settings, release.onto(PROVEN), Folders(f"{tmp_path}/run", f"{tmp_path}/state"))
    write(plan)

    told = run(release.phc2sys.path, "-f", f"{tmp_path}/run/phc2sys-eth0.conf").stderr

    assert "valid source clock must be selected" in told, told
    daemon = next(daemon for daemon in plan.daemons if daemon.name == "phc2sys@eth0")
    for argv in (daemon.argv, daemon.restart_argv):
        # This machine lacks the hardware clock, so it stops there, and at nothing before.
        told = run(*argv).stderr
        assert "clock must be selected" in told, told
        assert "option" not in told.split("usage")[0], told
        assert "offset must be specified" not in told, told


UDP6 = PtpSettings(interfaces=("eth0",), transport=Transport.UDPV6, domain=24)
PEER = PtpSettings(interfaces=("eth0",), transport=Transport.L2, delay_mechanism=DelayMechanism.P2P)
HYBRID = PtpSettings(interfaces=("eth0",), hybrid=True, minor_version=0, utc_offset_s=37)
TWO = PtpSettings(interfaces=("eth0", "eth1"))
BOUNDARY = PtpSettings(interfaces=("eth0", "eth1"), role=Role.GRANDMASTER)
MASTER = PtpSettings(interfaces=("eth0",), role=Role.GRANDMASTER, clock_class=248, log_sync_interval=-3)


@EACH_RELEASE
@pytest.mark.parametrize(
    "ptp",
    [UDP6, PEER, HYBRID, TWO, BOUNDARY, MASTER],
    ids=["udp6", "peer-delay-l2", "hybrid", "two-ports", "boundary", "grandmaster"],
)
def test_ptp4l_starts_with_its_configuration(release: Release, ptp: PtpSettings, tmp_path: Path) -> None:
    settings = replace(PTP_SOFTWARE, ptp=ptp)
    plan = make_plan(settings, release.onto(TWO_PLAIN), Folders(f"{tmp_path}/run", f"{tmp_path}/state"))
    (first,) = plan.daemons
    again = replace(first, argv=first.restart_argv)

    with namespaces() as (here, _):
        for daemon in (first, again):
            with running(replace(plan, daemons=(daemon,)), here, tmp_path) as started:
                wait_for(partial(_listens_everywhere, started, daemon, len(ptp.interfaces)))
                assert started.is_alive(daemon)


def _listens_everywhere(started: Running, daemon: PlannedDaemon, ports: int) -> bool:
    # The management socket is a port of its own, and from 4.0 on the read-only one too.
    return started.log(daemon).count("to LISTENING on INIT_COMPLETE") > ports


@EACH_RELEASE
def test_ptp_reaches_chronyd_as_a_reference_clock(release: Release, tmp_path: Path) -> None:
    """The whole plan of ptp+ntp: a grandmaster in one namespace, ptp4l feeding chronyd -x in the other."""
    quick = PtpSettings(interfaces=("eth0",), log_announce_interval=-2, log_sync_interval=-1)
    host_of_both = replace(release.onto(PLAIN), chrony_user=None, has_clock_right=False)
    master = make_plan(
        ManageSettings(Mode.PTP, ptp=replace(quick, role=Role.GRANDMASTER)),
        host_of_both,
        Folders(f"{tmp_path}/master", f"{tmp_path}/master"),
    )
    client = make_plan(
        ManageSettings(Mode.PTP_NTP, ntp=NtpSettings(), ptp=quick),
        host_of_both,
        Folders(f"{tmp_path}/client", f"{tmp_path}/state"),
    )
    socket = f"{tmp_path}/client/chrony/chronyd.sock"

    def reach() -> int:
        told = run(str(require_tool("chronyc")), "-c", "-h", socket, "sources").stdout.split(",")
        return int(told[5], 8) if told[0] == "#" and told[2] == "PTP0" else 0

    with namespaces() as (one, other), running(master, one, tmp_path), running(client, other, tmp_path):
        wait_for(lambda: reach() > 0, within_s=40)


def test_probe_packet_is_stamped_in_software_on_a_veth() -> None:
    """The trial that proves a NIC, on the one kind of stamp that a machine without such a NIC can give."""
    code = (
        "from clockgated.manage.stamping import stamp_info, tx_stamp_arrives as arrives\n"
        "print(stamp_info('eth0'), arrives('eth0', hardware=False), arrives('eth0'), arrives('eth7', hardware=False))"
    )
    with namespaces() as (here, _):
        told = here.run("env", f"PYTHONPATH={ROOT}/daemon", sys.executable, "-c", code)
    assert told.stdout.strip() == ("StampInfo(has_hardware=False, has_software=True, phc_index=None) True None None"), (
        told.stderr
    )
