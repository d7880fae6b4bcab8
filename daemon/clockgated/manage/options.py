"""Every option that we write for chrony and linuxptp, with the release that introduced it.

An option that the installed release does not know makes chronyd, ptp4l and phc2sys exit at once, so nothing is written
but through `Lines`, which leaves such an option out and records what is lost. The releases were read off the option
parsers of each tagged release.
"""

from dataclasses import dataclass, field

from clockgated.manage.facts import Tool, Version, spell_version

CHRONY = "chrony"
LINUXPTP = "linuxptp"

# Releases between which every plan was accepted by the real programs.
OLDEST: dict[str, Version] = {CHRONY: (4, 2), LINUXPTP: (3, 1, 1)}
NEWEST: dict[str, Version] = {CHRONY: (4, 9), LINUXPTP: (4, 4)}


@dataclass(frozen=True)
class Option:
    """One option: first release that knows it, first release that no longer does, and what is lost without it.

    `feature` names a compile-time feature that it needs, as `chronyd -v` lists it.
    """

    since: Version
    lost: str
    until: Version | None = None
    feature: str | None = None


@dataclass(frozen=True)
class Loss:
    """An option that was wanted and could not be written."""

    option: str
    detail: str


# Options of a directive are named DIRECTIVE.OPTION.
_CHRONY: dict[str, Option] = {
    "server": Option((1, 20), "the time server"),
    "server.iburst": Option((1, 25), "the fast first measurements"),
    "server.key": Option((1, 20), "authentication by a symmetric key"),
    "server.maxpoll": Option((1, 20), "the ceiling of the polling interval"),
    "server.minpoll": Option((1, 20), "the floor of the polling interval"),
    "server.nts": Option((4, 0), "authentication by NTS", feature="NTS"),
    "server.ntsport": Option((4, 0), "the port of NTS key establishment", feature="NTS"),
    "server.port": Option((1, 20), "a server port other than 123"),
    "server.prefer": Option((1, 25), "the preference of this server"),
    "server.trust": Option((2, 3), "the trust in this server"),
    "server.xleave": Option((3, 0), "interleaved mode, which makes transmit timestamps as good as receive ones"),
    "pool": Option((2, 0), "the pool of time servers"),
    "pool.iburst": Option((2, 0), "the fast first measurements"),
    "pool.maxpoll": Option((2, 0), "the ceiling of the polling interval"),
    "pool.maxsources": Option((2, 0), "the number of servers taken from the pool"),
    "pool.minpoll": Option((2, 0), "the floor of the polling interval"),
    "pool.nts": Option((4, 0), "authentication by NTS", feature="NTS"),
    "refclock": Option((1, 24), "the reference clock", feature="REFCLOCK"),
    "refclock.delay": Option((1, 24), "the allowance for path asymmetry"),
    "refclock.dpoll": Option((1, 24), "the interval of reading the reference clock"),
    "refclock.poll": Option((1, 24), "the interval of updates from the reference clock"),
    "refclock.precision": Option((1, 25), "the precision of the reference clock"),
    "refclock.prefer": Option((1, 25), "the preference of the reference clock over NTP"),
    "refclock.refid": Option((1, 24), "the name of the reference clock"),
    "hwtimestamp": Option((3, 0), "hardware timestamps of NTP packets"),
    "local": Option((1, 20), "the local reference for an island"),
    "local.activate": Option((4, 6), "the demand that the local reference was synchronised once before it serves"),
    "local.distance": Option((2, 4), "the root distance from which the local reference serves"),
    "local.orphan": Option((2, 4), "agreement of several servers with a local reference"),
    "local.stratum": Option((1, 20), "the stratum of the local reference"),
    "local.waitsynced": Option((4, 7), "the wait before the local reference takes over from a lost source"),
    "local.waitunsynced": Option((4, 7), "the wait before the local reference serves at start"),
    "allow": Option((1, 20), "serving time to other nodes"),
    "port": Option((1, 20), "the choice of the server port"),
    "bindcmdaddress": Option((1, 20), "the command socket"),
    "cmdport": Option((1, 20), "the choice of the command port"),
    "pidfile": Option((1, 20), "the place of the pid file"),
    "user": Option((1, 28), "running without root", feature="PRIVDROP"),
    "driftfile": Option((1, 20), "the memory of the clock's frequency"),
    "dumpdir": Option((1, 20), "the memory of past measurements over a restart"),
    "keyfile": Option((1, 20), "symmetric keys"),
    "makestep": Option((1, 24), "the step at start"),
    "maxchange": Option((1, 27), "the limit on what a bad server can do"),
    "maxclockerror": Option((1, 25), "the promised drift in chronyd's own dispersion"),
    "maxupdateskew": Option((1, 20), "the limit on unsettled frequency estimates"),
    "minsources": Option((2, 0), "the number of sources that must agree"),
    "leapseclist": Option((4, 6), "the TAI offset from a leap second list"),
    "leapsectz": Option((1, 27), "the TAI offset from the time zone right/UTC"),
    "rtcsync": Option((1, 25), "the copy of the time to the hardware clock"),
    "ntsdumpdir": Option((4, 0), "the memory of NTS cookies over a restart", feature="NTS"),
    "ntsservercert": Option((4, 0), "serving NTS", feature="NTS"),
    "ntsserverkey": Option((4, 0), "serving NTS", feature="NTS"),
    "ntstrustedcerts": Option((4, 0), "own certificates of NTS servers", feature="NTS"),
}

# ptp4l and phc2sys read the same table of options. A value that came later than its option is named OPTION=VALUE.
_LINUXPTP: dict[str, Option] = {
    "announceReceiptTimeout": Option((1, 0), "the patience with a silent grandmaster"),
    "boundary_clock_jbod": Option((1, 5), "ports with clocks of their own"),
    "clientOnly": Option((4, 0), "the client role (slaveOnly before 4.0)"),
    "clockClass": Option((1, 0), "the announced clock class"),
    "clock_servo": Option((1, 0), "the choice of servo"),
    "clock_servo=ntpshm": Option((1, 5), "feeding chronyd through shared memory"),
    "clock_servo=refclock_sock": Option((4, 0), "feeding chronyd through a socket"),
    "delay_mechanism": Option((1, 0), "the delay mechanism"),
    "domainNumber": Option((1, 0), "the domain"),
    "domainNumber=128": Option((4, 0), "a domain above 127"),
    "fault_reset_interval": Option((1, 1), "the quick return from a fault"),
    "free_running": Option((1, 0), "measuring a clock that nobody may adjust"),
    "first_step_threshold": Option((1, 5), "the step at start"),
    "hybrid_e2e": Option((1, 6), "unicast delay requests"),
    "kernel_leap": Option((1, 2), "leaving leap seconds to the steering daemon"),
    "logAnnounceInterval": Option((1, 0), "the announce interval"),
    "logMinDelayReqInterval": Option((1, 0), "the delay request interval"),
    "logMinPdelayReqInterval": Option((1, 0), "the peer delay request interval"),
    "logSyncInterval": Option((1, 0), "the sync interval"),
    "logging_level": Option((1, 0), "the log level"),
    "masterOnly": Option((2, 0), "the fixed grandmaster role", until=(4, 0)),
    "max_frequency": Option((1, 5), "the ceiling of frequency corrections"),
    "network_transport": Option((1, 0), "the transport"),
    "ntpshm_segment": Option((1, 5), "the choice of the shared-memory segment"),
    "priority1": Option((1, 0), "the rank among grandmasters"),
    "ptp_minor_version": Option((4, 2), "announcing PTP version 2.0, which this NIC needs to stamp packets"),
    "refclock_sock_address": Option((4, 0), "the socket towards chronyd"),
    "sanity_freq_limit": Option((1, 4), "the check of the clock's frequency"),
    "serverOnly": Option((4, 0), "the fixed grandmaster role (masterOnly before 4.0)"),
    "slaveOnly": Option((1, 0), "the client role", until=(4, 0)),
    "step_threshold": Option((1, 5), "the later step"),
    "summary_interval": Option((1, 1), "a log line for each sample"),
    "time_stamping": Option((1, 0), "the choice of timestamps"),
    "tx_timestamp_timeout": Option((1, 2), "the patience with slow transmit timestamps"),
    "uds_address": Option((1, 4), "the management socket"),
    "uds_ro_address": Option((4, 0), "the read-only management socket"),
    "uds_ro_file_mode": Option((4, 0), "the mode of the read-only management socket"),
    "use_syslog": Option((1, 0), "the choice of log"),
    "utc_offset": Option((1, 9, 2), "the announced UTC offset"),
    "verbose": Option((1, 0), "log lines on standard output"),
}

TABLES: dict[str, dict[str, Option]] = {CHRONY: _CHRONY, LINUXPTP: _LINUXPTP}


def legal(suite: str, version: Version, option: str, features: frozenset[str] | None = None) -> bool:
    """Whether that release knows the option (and, when `features` are given, was built for it).

    A spelling that a release replaced counts as unknown from then on, though the programs may still take it. Raises
    KeyError for an option that the table lacks: only options of the table may be written.
    """
    entry = TABLES[suite][option]
    if version < entry.since or (entry.until is not None and version >= entry.until):
        return False
    return features is None or entry.feature is None or entry.feature in features


def is_supported(suite: str, version: Version) -> bool:
    """Whether the release is not older than the oldest one that plans are made for."""
    return version >= OLDEST[suite]


def loss(suite: str, tool: Tool, option: str) -> Loss:
    """What it means that `tool` does not know `option`."""
    entry = TABLES[suite][option]
    have = spell_version(tool.version)
    if tool.version < entry.since:
        return Loss(option, f"{suite} {have} lacks {option} (since {spell_version(entry.since)}): without {entry.lost}")
    if entry.until is not None and tool.version >= entry.until:
        return Loss(
            option, f"{suite} {have} lacks {option} (replaced in {spell_version(entry.until)}): without {entry.lost}"
        )
    return Loss(option, f"{suite} {have} was built without {entry.feature}: {option} is left out, without {entry.lost}")


@dataclass
class Lines:
    """A configuration file in the making, for one installed tool. Only legal options get in."""

    suite: str
    tool: Tool
    comment: str = "#"
    _lines: list[str] = field(default_factory=list)
    _losses: list[Loss] = field(default_factory=list)

    def knows(self, option: str) -> bool:
        """Whether the installed tool would accept the option."""
        features = self.tool.features if self.suite == CHRONY else None
        return legal(self.suite, self.tool.version, option, features)

    def set(self, option: str, *values: object) -> bool:
        """Write one option on a line of its own; False, and a loss, when the tool does not know it."""
        if not self.knows(option):
            self._losses.append(loss(self.suite, self.tool, option))
            return False
        self._lines.append(" ".join((option, *(str(value) for value in values))))
        return True

    def directive(self, name: str, *arguments: object, options: tuple[tuple[str, object], ...] = ()) -> bool:
        """Write one chrony directive with those of its options that the tool knows.

        An option's value is True for a bare word, False or None to leave it out.
        """
        words = [str(argument) for argument in arguments]
        for option, value in options:
            if value is None or value is False:
                continue
            if not self.knows(f"{name}.{option}"):
                self._losses.append(loss(self.suite, self.tool, f"{name}.{option}"))
                continue
            words.append(option if value is True else f"{option} {value}")
        return self.set(name, *words)

    def say(self, text: str) -> None:
        """Write comment lines."""
        self._lines.extend(f"{self.comment} {line}" for line in text.splitlines())

    def section(self, name: str) -> None:
        """Open a section, as linuxptp's files have them."""
        self._lines.append(f"[{name}]")

    def lose(self, option: str, detail: str) -> None:
        """Record something that was left out for another reason than the release."""
        self._losses.append(Loss(option, detail))

    def rendered(self) -> "Rendered":
        """The text so far and what is lost in it."""
        return Rendered("\n".join(self._lines) + "\n", tuple(dict.fromkeys(self._losses)))


@dataclass(frozen=True)
class Rendered:
    """A finished file and what could not be written into it."""

    text: str
    losses: tuple[Loss, ...] = ()
