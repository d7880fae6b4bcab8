"""Hosts and settings to plan for: facts of made-up machines, one full set of settings for each mode."""

from dataclasses import replace

from clockgated.manage.facts import Facts, Interface, Tool, Version
from clockgated.manage.planned import Folders
from clockgated.manage.settings import (
    LocalReference,
    ManageSettings,
    Mode,
    NtpSettings,
    PtpSettings,
    Role,
    TimePool,
    TimeServer,
    Timestamping,
)

FOLDERS = Folders("/run/clockgate", "/var/lib/clockgate")

CHRONY_VERSIONS: tuple[Version, ...] = ((4, 2), (4, 3), (4, 5), (4, 6, 1), (4, 9))
LINUXPTP_VERSIONS: tuple[Version, ...] = ((3, 1, 1), (4, 0), (4, 2), (4, 4))
CHRONY_FEATURES = frozenset({"CMDMON", "REFCLOCK", "RTC", "PRIVDROP", "SCFILTER", "NTS", "IPV6"})


def nic(name: str, *, phc: int | None = None, proven: bool | None = None, driver: str = "mlx5_core") -> Interface:
    """A physical interface that is up, with a hardware clock when `phc` is given. `proven` is how both trials ended."""
    return Interface(
        name=name,
        operstate="up",
        speed_mbps=100_000,
        driver=driver,
        phc_index=phc,
        has_hardware_stamps=phc is not None,
        has_software_stamps=True,
        phc_ticks=proven,
        tx_stamp_arrives=proven,
    )


def host(chrony: Version | None = (4, 3), linuxptp: Version | None = (3, 1, 1), *interfaces: Interface) -> Facts:
    """A host with those releases installed, one plain interface when none is given, and nobody else at the clock."""
    return Facts(
        chronyd=None if chrony is None else Tool("/usr/sbin/chronyd", chrony, CHRONY_FEATURES),
        ptp4l=None if linuxptp is None else Tool("/usr/sbin/ptp4l", linuxptp),
        phc2sys=None if linuxptp is None else Tool("/usr/sbin/phc2sys", linuxptp),
        interfaces=interfaces or (nic("eth0"),),
        chrony_user="_chrony",
        has_leap_zone=True,
        leap_list="/usr/share/zoneinfo/leap-seconds.list",
    )


SERVERS = (TimeServer("10.0.0.1"), TimeServer("ntp.example.net", prefer=True, max_poll_log2=4))

NTP_CLIENT = ManageSettings(Mode.NTP, ntp=NtpSettings(servers=SERVERS))

NTP_SERVER_OF_A_CLUSTER = ManageSettings(
    Mode.NTP,
    ntp=NtpSettings(
        servers=(
            TimeServer("2001:db8::7", key=5, xleave=True),
            TimeServer("time.example.net", nts=True, nts_port=4461),
        ),
        pools=(TimePool("pool.example.org", max_sources=3),),
        local=LocalReference(distance_s=0.5, activate_s=0.1, wait_synced_s=7200, wait_unsynced_s=300),
        serve_networks=("10.0.0.0/24", "2001:db8::/32"),
        min_sources=2,
        key_file="/etc/clockgate/ntp.keys",
        nts_trusted_certificates="/etc/clockgate/ca.pem",
        nts_server_certificate="/etc/clockgate/server.pem",
        nts_server_key="/etc/clockgate/server.key",
    ),
)

PTP_SOFTWARE = ManageSettings(Mode.PTP, ptp=PtpSettings(interfaces=("eth0",), timestamping=Timestamping.SOFTWARE))
PTP_HARDWARE = replace(PTP_SOFTWARE, ptp=PtpSettings(interfaces=("eth0",), timestamping=Timestamping.HARDWARE))
PTP_AND_NTP = ManageSettings(Mode.PTP_NTP, ntp=NtpSettings(servers=SERVERS), ptp=PtpSettings(interfaces=("eth0",)))
GRANDMASTER = ManageSettings(
    Mode.PTP_NTP,
    ntp=NtpSettings(servers=SERVERS),
    ptp=PtpSettings(interfaces=("eth0",), role=Role.GRANDMASTER, priority1=100, clock_class=13, utc_offset_s=37),
)
