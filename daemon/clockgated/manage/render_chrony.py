"""The configuration of chronyd, as text. Pure and deterministic: same input, same bytes."""

from dataclasses import dataclass

from clockgated.manage.facts import Facts, Tool
from clockgated.manage.feed import Feed, Group
from clockgated.manage.options import CHRONY, Lines, Rendered
from clockgated.manage.settings import LocalReference, ManageSettings, NtpSettings, TimePool, TimeServer

_SOFTWARE_REFERENCE_DELAY_US = 100.0
_HARDWARE_REFERENCE_DELAY_US = 20.0

# chronyd's estimate of its own frequency error must be below this before an update steers the clock; the gates on a
# reading use the same figure.
_MAX_SKEW_PPM = 100


@dataclass(frozen=True)
class ChronyPlaces:
    """Folders and files of one chronyd. `folder` belongs to chronyd's own user: it refuses its command socket else."""

    folder: str
    state: str

    @property
    def socket(self) -> str:
        """The command socket."""
        return f"{self.folder}/chronyd.sock"

    @property
    def pid_file(self) -> str:
        """The pid file, where chronyd can remove it without root."""
        return f"{self.folder}/chronyd.pid"

    @property
    def dump_folder(self) -> str:
        """Measurements that a restart reads back."""
        return f"{self.folder}/dump"


def render_chrony(
    settings: ManageSettings,
    facts: Facts,
    tool: Tool,
    places: ChronyPlaces,
    groups: tuple[Group, ...] = (),
) -> Rendered:
    """The configuration of chronyd.

    `groups` are the PTP ports beside it: their feeds become reference clocks, and the hardware stamps of their devices
    are left to ptp4l, which has set them up. Without the right to set the clock nothing is written that would set it.
    """
    lines = Lines(CHRONY, tool)
    lines.say("Written by clockgated from its own configuration; changes made here are lost.")
    ntp = settings.ntp
    ptp_devices = {port.device.name for group in groups for port in group.ports}
    stamped = sorted(
        interface.name
        for interface in facts.interfaces
        if interface.is_proven and interface.operstate == "up" and interface.name not in ptp_devices
    )
    for server in ntp.servers:
        _server(lines, server, bool(stamped))
    for pool in ntp.pools:
        _pool(lines, pool)
    for group in groups:
        if group.feed is not None:
            default_us = _HARDWARE_REFERENCE_DELAY_US if group.hardware else _SOFTWARE_REFERENCE_DELAY_US
            delay_us = settings.ptp.reference_delay_us
            poll_log2 = max(2, settings.ptp.log_sync_interval + 2)
            _reference_clock(lines, group.feed, default_us if delay_us is None else delay_us, poll_log2)
    if ntp.min_sources > 1:
        lines.set("minsources", ntp.min_sources)
    for name in stamped:
        lines.set("hwtimestamp", name)
    _steering(lines, settings, facts)
    _serving(lines, ntp)
    _authentication(lines, ntp, places)
    _housekeeping(lines, facts, places)
    return lines.rendered()


def _server(lines: Lines, server: TimeServer, has_hardware_stamps: bool) -> None:
    """One server. One that must be authenticated and cannot be is left out rather than believed."""
    if server.nts and not lines.knows("server.nts"):
        lines.lose("server.nts", f"the installed chronyd lacks NTS: the server {server.host} is left out")
        return
    xleave = has_hardware_stamps if server.xleave is None else server.xleave
    lines.directive(
        "server",
        server.host,
        options=(
            ("port", server.port),
            ("iburst", server.iburst),
            ("minpoll", server.min_poll_log2),
            ("maxpoll", server.max_poll_log2),
            ("xleave", xleave),
            ("nts", server.nts),
            ("ntsport", server.nts_port if server.nts else None),
            ("key", server.key),
            ("prefer", server.prefer),
            ("trust", server.trust),
        ),
    )


def _pool(lines: Lines, pool: TimePool) -> None:
    if pool.nts and not lines.knows("pool.nts"):
        lines.lose("pool.nts", f"the installed chronyd lacks NTS: the pool {pool.host} is left out")
        return
    lines.directive(
        "pool",
        pool.host,
        options=(
            ("iburst", pool.iburst),
            ("minpoll", pool.min_poll_log2),
            ("maxpoll", pool.max_poll_log2),
            ("maxsources", pool.max_sources),
            ("nts", pool.nts),
        ),
    )


def _reference_clock(lines: Lines, feed: Feed, delay_us: float, poll_log2: int) -> None:
    """PTP as a source of chronyd: preferred while it agrees with the others, one source among them when it does not."""
    driver = ("SOCK", feed.socket) if feed.socket is not None else ("SHM", feed.segment)
    lines.directive(
        "refclock",
        *driver,
        options=(
            ("refid", feed.refid),
            ("poll", poll_log2),
            ("dpoll", None if feed.socket is not None else 0),
            ("precision", "1e-9"),
            # Half of it enters the root distance: the share of the path that PTP cannot see.
            ("delay", decimal(delay_us / 1e6)),
            ("prefer", True),
        ),
    )


def _steering(lines: Lines, settings: ManageSettings, facts: Facts) -> None:
    ntp = settings.ntp
    lines.set("maxclockerror", decimal(settings.max_drift_ppm))
    lines.set("maxupdateskew", _MAX_SKEW_PPM)
    if ntp.step_updates > 0 and facts.has_clock_right:
        lines.set("makestep", decimal(ntp.step_at_start_ms / 1e3), ntp.step_updates)
    # -1: an offset beyond the limit is ignored for ever. After any other count chronyd exits, and a restart would step.
    lines.set("maxchange", decimal(ntp.max_change_s), ntp.step_updates, -1)
    if facts.has_clock_right:
        # Also clears the kernel's unsynchronised flag, by which other programs judge the clock.
        lines.set("rtcsync")
    if not ntp.smeared_leaps:
        _leap_seconds(lines, facts)


def _leap_seconds(lines: Lines, facts: Facts) -> None:
    """The newer list first: Debian 13 no longer installs the time zone right/UTC by default."""
    if facts.leap_list is not None and lines.knows("leapseclist"):
        lines.set("leapseclist", facts.leap_list)
    elif facts.has_leap_zone:
        lines.set("leapsectz", "right/UTC")
    else:
        lines.lose(
            "leapsectz", "no leap second table is installed: the kernel's TAI offset stays unset (package tzdata)"
        )


def _serving(lines: Lines, ntp: NtpSettings) -> None:
    if ntp.local is not None:
        _local(lines, ntp.local)
    for network in sorted(set(ntp.serve_networks)):
        lines.set("allow", network)
    lines.set("port", ntp.serve_port if ntp.serve_networks else 0)


def _local(lines: Lines, local: LocalReference) -> None:
    lines.say(
        "With the next line this node serves its own clock when it has lost every source. Its clients then look\n"
        "synchronised though nobody knows the true time; clockgated reports such time as not traceable."
    )
    lines.directive(
        "local",
        options=(
            ("stratum", local.stratum),
            ("orphan", local.orphan),
            ("distance", _decimal_or_none(local.distance_s)),
            ("activate", _decimal_or_none(local.activate_s)),
            ("waitsynced", _decimal_or_none(local.wait_synced_s)),
            ("waitunsynced", _decimal_or_none(local.wait_unsynced_s)),
        ),
    )


def _authentication(lines: Lines, ntp: NtpSettings, places: ChronyPlaces) -> None:
    if ntp.key_file is not None:
        lines.set("keyfile", ntp.key_file)
    if ntp.nts_trusted_certificates is not None:
        lines.set("ntstrustedcerts", ntp.nts_trusted_certificates)
    if ntp.nts_server_certificate is not None and ntp.nts_server_key is not None:
        lines.set("ntsservercert", ntp.nts_server_certificate)
        lines.set("ntsserverkey", ntp.nts_server_key)
    asks_nts = any(server.nts for server in ntp.servers) or any(pool.nts for pool in ntp.pools)
    if (asks_nts or ntp.nts_server_key is not None) and lines.knows("ntsdumpdir"):
        lines.set("ntsdumpdir", places.state)


def _housekeeping(lines: Lines, facts: Facts, places: ChronyPlaces) -> None:
    lines.set("driftfile", f"{places.state}/drift")
    lines.set("dumpdir", places.dump_folder)
    lines.set("pidfile", places.pid_file)
    lines.set("bindcmdaddress", places.socket)
    # The socket is enough, and a second chronyd (in a container) would fail on the shared port.
    lines.set("cmdport", 0)
    if lines.knows("user"):
        lines.set("user", facts.chrony_user or "root")


def decimal(value: float) -> str:
    """The number in plain decimals, since not every reader of these files takes exponents."""
    text = f"{value:.9f}".rstrip("0").rstrip(".")
    return text or "0"


def _decimal_or_none(value: float | None) -> str | None:
    return None if value is None else decimal(value)
