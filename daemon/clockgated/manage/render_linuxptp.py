"""The configurations of ptp4l and phc2sys, as text, and phc2sys's arguments. Pure and deterministic."""

from dataclasses import dataclass

from clockgated.manage.facts import Tool
from clockgated.manage.feed import Feed, Group
from clockgated.manage.options import LINUXPTP, Lines, Rendered, legal
from clockgated.manage.settings import DelayMechanism, PtpSettings, Role
from clockgated.units import PPB_PER_PPM

# Milliseconds that a driver may take to hand over a transmit timestamp. linuxptp's own default rose from 1 to 10 with
# release 4.0, because drivers that fetch it in a kernel worker miss 1 ms on a busy host; Intel's E810 needs more still.
_TX_TIMEOUT_MS = 10
_TX_TIMEOUT_MS_BY_DRIVER = {"ice": 50}

# Ethernet drivers above a Broadcom PHY that stamps packets of PTP 2.0 only; linuxptp announces 2.1 from release 4.0 on.
_DRIVERS_OF_MINOR_VERSION_0 = frozenset({"bcmgenet", "macb"})
_MINOR_VERSION_1_SINCE = (4, 0)

# The hardware clock may be put right at any time, unlike the system clock: a link that goes down can reset it, and
# 37 s would otherwise be slewed for hours.
_HARDWARE_STEP_S = 0.1

# From this release on a servo starts anew whenever the kernel refuses an adjustment: it never locks, phc2sys hides
# every other sample, and the log fills with refusals. Earlier ones go on as if nothing had happened.
_REFUSED_SERVO_RESETS_SINCE = (4, 0)

# 2^2 s until a faulty port tries again, rather than 2^4.
_FAULT_RESET_LOG2 = 2


@dataclass(frozen=True)
class PtpPlaces:
    """Files and sockets of one group in the run folder."""

    run: str
    name: str

    @property
    def ptp4l_file(self) -> str:
        """ptp4l's configuration."""
        return f"{self.run}/ptp4l-{self.name}.conf"

    @property
    def phc2sys_file(self) -> str:
        """phc2sys's configuration."""
        return f"{self.run}/phc2sys-{self.name}.conf"

    @property
    def socket(self) -> str:
        """Management socket of ptp4l."""
        return f"{self.run}/ptp4l-{self.name}.sock"

    @property
    def read_only_socket(self) -> str:
        """The socket that takes no SET, from release 4.0 on. Its default path would be shared by all instances."""
        return f"{self.run}/ptp4l-{self.name}-ro.sock"


def runs_free(tool: Tool, group: Group, *, has_clock_right: bool, fixed: bool) -> bool:
    """Whether the program of this group that would steer CLOCK_REALTIME has to be told to only measure it.

    That is ptp4l with software stamps and phc2sys with hardware ones, in releases that cannot measure on when the
    kernel refuses them. `fixed` as for `render_ptp4l`.
    """
    would_steer = group.feed is None and not fixed
    return would_steer and not has_clock_right and tool.version >= _REFUSED_SERVO_RESETS_SINCE


def render_ptp4l(
    ptp: PtpSettings, tool: Tool, group: Group, places: PtpPlaces, *, fixed: bool, free: bool = False
) -> Rendered:
    """The configuration of ptp4l for one group of ports.

    `fixed`: a grandmaster must never follow another, because NTP steers the clock that it announces. `free`: it only
    measures CLOCK_REALTIME; its port then stays UNCALIBRATED. With hardware stamps that is phc2sys's affair.
    """
    lines = Lines(LINUXPTP, tool)
    lines.say("Written by clockgated from its own configuration; changes made here are lost.")
    lines.section("global")
    _role(lines, ptp, tool, fixed)
    lines.set("domainNumber", ptp.domain)
    lines.set("network_transport", ptp.transport)
    lines.set("delay_mechanism", ptp.delay_mechanism)
    if ptp.hybrid:
        lines.set("hybrid_e2e", 1)
    lines.set("time_stamping", "hardware" if group.hardware else "software")
    lines.set("tx_timestamp_timeout", _tx_timeout_ms(ptp, group))
    _minor_version(lines, ptp, tool, group)
    if len(group.clocks) > 1 and group.hardware:
        lines.set("boundary_clock_jbod", 1)
    lines.set("logAnnounceInterval", ptp.log_announce_interval)
    lines.set("announceReceiptTimeout", ptp.announce_timeout)
    lines.set("logSyncInterval", ptp.log_sync_interval)
    peer = ptp.delay_mechanism is DelayMechanism.P2P
    lines.set("logMinPdelayReqInterval" if peer else "logMinDelayReqInterval", ptp.log_delay_request_interval)
    lines.set("fault_reset_interval", _FAULT_RESET_LOG2)
    if ptp.utc_offset_s is not None:
        lines.set("utc_offset", ptp.utc_offset_s)
    # With hardware stamps this servo steers the hardware clock; the feed is then filled by phc2sys.
    _servo(lines, ptp, None if group.hardware else group.feed, _HARDWARE_STEP_S if group.hardware else 0)
    if free and not group.hardware:
        lines.set("free_running", 1)
    lines.set("uds_address", places.socket)
    if lines.knows("uds_ro_address"):
        lines.set("uds_ro_address", places.read_only_socket)
        lines.set("uds_ro_file_mode", "0660")
    _logging(lines)
    # Only equal intervals give a log line a sample.
    lines.set("summary_interval", ptp.log_sync_interval)
    for port in group.ports:
        lines.section(port.interface)
    return lines.rendered()


def render_phc2sys(
    ptp: PtpSettings, tool: Tool, group: Group, places: PtpPlaces, *, fixed: bool, free: bool = False
) -> Rendered:
    """The configuration of phc2sys for one group of ports with hardware stamps. `fixed` and `free` as for ptp4l."""
    lines = Lines(LINUXPTP, tool)
    lines.say("Written by clockgated from its own configuration; changes made here are lost.")
    lines.section("global")
    lines.set("domainNumber", ptp.domain)
    lines.set("uds_address", places.socket)
    # Where NTP steers the system clock, the clock served here is the hardware one.
    _servo(lines, ptp, group.feed, _HARDWARE_STEP_S if fixed else 0)
    if free:
        lines.set("free_running", 1)
    _logging(lines)
    return lines.rendered()


def phc2sys_arguments(ptp: PtpSettings, clock: str | None, *, ntp_steers: bool) -> tuple[str, ...]:
    """Which clocks phc2sys compares. `clock` is the hardware clock to serve; None follows ptp4l's choice among several.

    Towards the system clock it waits for ptp4l and takes the UTC offset from it, or the fixed one.
    """
    if ptp.role is Role.GRANDMASTER:
        # NTP steers: the way is always from the system clock. Else it turns with ptp4l's role.
        return ("-s", "CLOCK_REALTIME", "-c", clock, "-w") if ntp_steers and clock is not None else ("-a", "-r", "-r")
    if clock is None:
        return ("-a", "-r")
    offset = ("-O", str(-ptp.utc_offset_s)) if ptp.fixed_utc_offset and ptp.utc_offset_s is not None else ()
    return ("-s", clock, "-c", "CLOCK_REALTIME", "-w", *offset)


def _role(lines: Lines, ptp: PtpSettings, tool: Tool, fixed: bool) -> None:
    is_new = legal(LINUXPTP, tool.version, "clientOnly")
    if ptp.role is Role.CLIENT:
        lines.set("clientOnly" if is_new else "slaveOnly", 1)
        return
    if fixed:
        lines.set("serverOnly" if is_new else "masterOnly", 1)
    lines.set("priority1", ptp.priority1)
    if ptp.clock_class is not None:
        lines.set("clockClass", ptp.clock_class)


def _tx_timeout_ms(ptp: PtpSettings, group: Group) -> int:
    if ptp.tx_timestamp_timeout_ms is not None:
        return ptp.tx_timestamp_timeout_ms
    drivers = [port.device.driver or "" for port in group.ports] if group.hardware else []
    return max([_TX_TIMEOUT_MS, *(_TX_TIMEOUT_MS_BY_DRIVER.get(driver, _TX_TIMEOUT_MS) for driver in drivers)])


def _minor_version(lines: Lines, ptp: PtpSettings, tool: Tool, group: Group) -> None:
    wanted = ptp.minor_version
    if (
        wanted is None
        and group.hardware
        and any(port.device.driver in _DRIVERS_OF_MINOR_VERSION_0 for port in group.ports)
    ):
        wanted = 0
    if wanted is None or (wanted == 0 and tool.version < _MINOR_VERSION_1_SINCE):
        return
    lines.set("ptp_minor_version", wanted)


def _servo(lines: Lines, ptp: PtpSettings, feed: Feed | None, step_s: float) -> None:
    if feed is None:
        lines.set("clock_servo", "pi")
        lines.set("first_step_threshold", _fixed_point(ptp.first_step_us / 1e6))
        lines.set("step_threshold", _fixed_point(step_s))
        lines.set("max_frequency", ptp.max_frequency_ppm * PPB_PER_PPM)
        return
    if feed.socket is not None:
        lines.set("clock_servo", "refclock_sock")
        lines.set("refclock_sock_address", feed.socket)
    else:
        lines.set("clock_servo", "ntpshm")
        lines.set("ntpshm_segment", feed.segment)
    # chronyd alone steers: neither leap seconds nor a changing frequency are this program's business.
    lines.set("kernel_leap", 0)
    lines.set("sanity_freq_limit", 0)


def _logging(lines: Lines) -> None:
    lines.set("use_syslog", 0)
    lines.set("verbose", 1)
    lines.set("logging_level", 6)


def _fixed_point(value_s: float) -> str:
    return f"{value_s:.9f}"
