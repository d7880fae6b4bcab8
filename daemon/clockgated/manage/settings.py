"""What the operator asks of clock management: frozen settings with their defaults, and pure checks of them.

Names carry units as in the configuration file. `problems` returns one sentence a fault, each with key, value seen and
value wanted; the reader of the file turns them into its own errors.
"""

import ipaddress
import re
from dataclasses import dataclass, field
from enum import StrEnum

MAX_DRIFT_PPM = 50.0
"""What an uncompensated oscillator is trusted never to exceed, unless the configuration says otherwise."""

MAX_DRIFT_RANGE_PPM = (0.001, 1000.0)

MAX_SMALL_CLUSTER = 8
"""Nodes up to which NTP alone is taken to be enough; from there on PTP is chosen where it can work."""


class Mode(StrEnum):
    """Who steers the clock."""

    OBSERVE = "observe"
    NTP = "ntp"
    PTP = "ptp"
    PTP_NTP = "ptp+ntp"
    AUTO = "auto"


class Transport(StrEnum):
    """How PTP messages travel; the value is linuxptp's spelling."""

    L2 = "L2"
    UDPV4 = "UDPv4"
    UDPV6 = "UDPv6"


class DelayMechanism(StrEnum):
    """How PTP measures the path; the value is linuxptp's spelling."""

    E2E = "E2E"
    P2P = "P2P"


class Timestamping(StrEnum):
    """Where PTP packets are stamped; `auto` takes the hardware where trials proved it."""

    AUTO = "auto"
    HARDWARE = "hardware"
    SOFTWARE = "software"


class Role(StrEnum):
    """Whether this node may announce time. A grandmaster with several interfaces is a boundary clock."""

    CLIENT = "client"
    GRANDMASTER = "grandmaster"


@dataclass(frozen=True)
class TimeServer:
    """One NTP server. `xleave` None: on where a NIC stamps in hardware, since only then it gains anything.

    The longest default poll is 2^5 s: at 50 ppm a bound grows by 1.6 ms meanwhile, which stays below this node's half
    of the 5 ms at which training warns.
    """

    host: str
    port: int | None = None
    iburst: bool = True
    min_poll_log2: int = 4
    max_poll_log2: int = 5
    xleave: bool | None = None
    nts: bool = False
    nts_port: int | None = None
    key: int | None = None
    prefer: bool = False
    trust: bool = False


@dataclass(frozen=True)
class TimePool:
    """A name that stands for several servers of strangers, polled no faster than 2^6 s out of politeness."""

    host: str
    iburst: bool = True
    min_poll_log2: int = 6
    max_poll_log2: int = 6
    max_sources: int = 4
    nts: bool = False


@dataclass(frozen=True)
class LocalReference:
    """Serving this node's own clock when no source is left. It makes an island look synchronised."""

    stratum: int = 10
    orphan: bool = True
    distance_s: float | None = None
    activate_s: float | None = None
    wait_synced_s: float | None = None
    wait_unsynced_s: float | None = None


@dataclass(frozen=True)
class NtpSettings:
    """chronyd: where time comes from, whom it is served to, and how far corrections may go.

    Offsets above `step_at_start_ms` are stepped in the first `step_updates` updates of a boot, never later. After those
    an offset above `max_change_s` is ignored: the clock then runs on with a growing bound rather than follow a mad
    server. `smeared_leaps`: the servers smear leap seconds, so no leap table may be used.
    """

    servers: tuple[TimeServer, ...] = ()
    pools: tuple[TimePool, ...] = ()
    local: LocalReference | None = None
    serve_networks: tuple[str, ...] = ()
    serve_port: int = 123
    min_sources: int = 1
    step_at_start_ms: float = 100.0
    step_updates: int = 3
    max_change_s: float = 10.0
    smeared_leaps: bool = False
    key_file: str | None = None
    nts_trusted_certificates: str | None = None
    nts_server_certificate: str | None = None
    nts_server_key: str | None = None


@dataclass(frozen=True)
class PtpSettings:
    """ptp4l and phc2sys. No interface named: the best one is chosen. None: the planner or the tool decides.

    `max_frequency_ppm` is what linuxptp's servos may correct at most: a clock that stands still is then followed by no
    more than that, and a mad grandmaster too. `reference_delay_us` is the path asymmetry that chronyd adds to its root
    delay when PTP is its reference clock. `utc_offset_s` (seconds from UTC to TAI) is announced by a
    grandmaster; with `fixed_utc_offset` phc2sys uses it too, whatever the grandmaster says.
    """

    interfaces: tuple[str, ...] = ()
    domain: int = 0
    transport: Transport = Transport.UDPV4
    delay_mechanism: DelayMechanism = DelayMechanism.E2E
    hybrid: bool = False
    timestamping: Timestamping = Timestamping.AUTO
    role: Role = Role.CLIENT
    priority1: int = 128
    clock_class: int | None = None
    log_sync_interval: int = 0
    log_announce_interval: int = 1
    log_delay_request_interval: int = 0
    announce_timeout: int = 3
    tx_timestamp_timeout_ms: int | None = None
    minor_version: int | None = None
    utc_offset_s: int | None = None
    fixed_utc_offset: bool = False
    first_step_us: float = 20.0
    max_frequency_ppm: int = 500
    reference_delay_us: float | None = None
    shm_segment: int | None = None


@dataclass(frozen=True)
class ManageSettings:
    """All of clock management. `max_drift_ppm` is the promise about this node's oscillator that bounds grow by."""

    mode: Mode = Mode.AUTO
    take_over: bool = False
    max_drift_ppm: float = MAX_DRIFT_PPM
    ntp: NtpSettings = field(default_factory=NtpSettings)
    ptp: PtpSettings = field(default_factory=PtpSettings)


_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:%-]*[A-Za-z0-9_.])?|[0-9A-Fa-f:]*::[0-9A-Fa-f:.]*(?:%[\w.-]+)?")
_INTERFACE = re.compile(r"[^\s/\[\]#]{1,15}")
_PATH = re.compile(r"/[^\s#]*")


def problems(settings: ManageSettings) -> tuple[str, ...]:
    """Every fault of the settings, in a fixed order; empty when a plan can be made of them."""
    found = [
        *_in_range("max_drift_ppm", settings.max_drift_ppm, *MAX_DRIFT_RANGE_PPM),
        *_ntp_problems(settings.ntp),
        *_ptp_problems(settings.ptp),
    ]
    has_source = settings.ntp.servers or settings.ntp.pools or settings.ntp.local is not None
    if settings.mode is Mode.NTP and not has_source:
        found.append('mode is "ntp" but ntp.servers and ntp.pools are empty: name a server, or set ntp.local')
    if settings.mode is Mode.PTP_NTP and settings.ptp.role is Role.GRANDMASTER and not has_source:
        found.append(
            'mode is "ptp+ntp" and ptp.role is "grandmaster" but ntp.servers and ntp.pools are empty: '
            "name the server that the grandmaster follows"
        )
    return tuple(found)


def _ntp_problems(ntp: NtpSettings) -> list[str]:
    found: list[str] = []
    for index, server in enumerate(ntp.servers):
        where = f"ntp.servers[{index}]"
        found += _source_problems(where, server)
        if server.port is not None:
            found += _in_range(f"{where}.port", server.port, 1, 65535)
        if server.nts_port is not None:
            found += _in_range(f"{where}.nts_port", server.nts_port, 1, 65535)
        if server.key is not None:
            found += _in_range(f"{where}.key", server.key, 1, 2**32 - 2)
            if ntp.key_file is None:
                found.append(
                    f"{where}.key is {server.key} but ntp.key_file is not set: name the file that holds the key"
                )
            if server.nts:
                found.append(f"{where} has both key and nts: choose one way of authentication")
    for index, pool in enumerate(ntp.pools):
        found += _source_problems(f"ntp.pools[{index}]", pool)
        found += _in_range(f"ntp.pools[{index}].max_sources", pool.max_sources, 1, 16)
    if ntp.local is not None:
        found += _local_problems(ntp.local)
    found += [problem for network in ntp.serve_networks for problem in _network_problems(network)]
    for key, path in (
        ("key_file", ntp.key_file),
        ("nts_trusted_certificates", ntp.nts_trusted_certificates),
        ("nts_server_certificate", ntp.nts_server_certificate),
        ("nts_server_key", ntp.nts_server_key),
    ):
        if path is not None and not _PATH.fullmatch(path):
            found.append(f"ntp.{key} is {path!r}: give an absolute path without spaces")
    if (ntp.nts_server_certificate is None) != (ntp.nts_server_key is None):
        found.append("ntp.nts_server_certificate and ntp.nts_server_key belong together: set both or neither")
    return [
        *found,
        *_in_range("ntp.serve_port", ntp.serve_port, 1, 65535),
        *_in_range("ntp.min_sources", ntp.min_sources, 1, 64),
        *_in_range("ntp.step_at_start_ms", ntp.step_at_start_ms, 0.001, 1e9),
        *_in_range("ntp.step_updates", ntp.step_updates, 0, 100),
        *_in_range("ntp.max_change_s", ntp.max_change_s, 0.001, 1e9),
    ]


def _source_problems(where: str, source: TimeServer | TimePool) -> list[str]:
    found: list[str] = []
    if not _HOST.fullmatch(source.host):
        found.append(f"{where}.host is {source.host!r}: give a host name or an address")
    found += _in_range(f"{where}.min_poll_log2", source.min_poll_log2, -6, 17)
    found += _in_range(f"{where}.max_poll_log2", source.max_poll_log2, -6, 17)
    if source.min_poll_log2 > source.max_poll_log2:
        found.append(
            f"{where}: min_poll_log2 {source.min_poll_log2} is above max_poll_log2 {source.max_poll_log2}: swap them"
        )
    return found


def _local_problems(local: LocalReference) -> list[str]:
    found = _in_range("ntp.local.stratum", local.stratum, 1, 15)
    for key in ("distance_s", "activate_s", "wait_synced_s", "wait_unsynced_s"):
        value: float | None = getattr(local, key)
        if value is not None:
            found += _in_range(f"ntp.local.{key}", value, 0, 1e6)
    return found


def _network_problems(network: str) -> list[str]:
    try:
        ipaddress.ip_network(network)
    except ValueError as refusal:
        return [f"ntp.serve_networks has {network!r}: give a network such as 10.0.0.0/24 ({refusal})"]
    return []


def _ptp_problems(ptp: PtpSettings) -> list[str]:
    found: list[str] = []
    for name in ptp.interfaces:
        if not _INTERFACE.fullmatch(name):
            found.append(f"ptp.interfaces has {name!r}: give the name of a network interface")
    if len(set(ptp.interfaces)) != len(ptp.interfaces):
        found.append(f"ptp.interfaces is {list(ptp.interfaces)}: name each interface once")
    if ptp.hybrid and (ptp.transport is Transport.L2 or ptp.delay_mechanism is DelayMechanism.P2P):
        found.append(
            f"ptp.hybrid needs transport UDPv4 or UDPv6 and delay mechanism E2E; "
            f"{ptp.transport} and {ptp.delay_mechanism} are set"
        )
    if ptp.fixed_utc_offset and ptp.utc_offset_s is None:
        found.append("ptp.fixed_utc_offset is set but ptp.utc_offset_s is not: give the seconds from UTC to TAI")
    optional = (
        ("clock_class", ptp.clock_class, 0, 255),
        ("tx_timestamp_timeout_ms", ptp.tx_timestamp_timeout_ms, 1, 10_000),
        ("minor_version", ptp.minor_version, 0, 1),
        ("utc_offset_s", ptp.utc_offset_s, 0, 1000),
        ("reference_delay_us", ptp.reference_delay_us, 0.001, 1e6),
        ("shm_segment", ptp.shm_segment, 2, 255),
    )
    for key, value, low, high in optional:
        if value is not None:
            found += _in_range(f"ptp.{key}", value, low, high)
    return [
        *found,
        *_in_range("ptp.domain", ptp.domain, 0, 255),
        *_in_range("ptp.priority1", ptp.priority1, 0, 255),
        *_in_range("ptp.log_sync_interval", ptp.log_sync_interval, -7, 7),
        *_in_range("ptp.log_announce_interval", ptp.log_announce_interval, -7, 7),
        *_in_range("ptp.log_delay_request_interval", ptp.log_delay_request_interval, -7, 7),
        *_in_range("ptp.announce_timeout", ptp.announce_timeout, 2, 255),
        *_in_range("ptp.first_step_us", ptp.first_step_us, 0, 1e9),
        *_in_range("ptp.max_frequency_ppm", ptp.max_frequency_ppm, 1, 100_000),
    ]


def _in_range(key: str, value: float, low: float, high: float) -> list[str]:
    # Written so that NaN, of which every comparison is false, counts as out of range.
    if low <= value <= high:
        return []
    return [f"{key} is {value}: give a value from {low} to {high}"]
