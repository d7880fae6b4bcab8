"""From a line of ptp4l's or phc2sys' log (linuxptp 3.1.1 to 4.4) to an event; pure, and never raises.

Lines come from stdout, from stderr or out of the journal: the program's name, the journal's prefix and a message tag
may or may not be there. Offsets have our sign already (positive: the disciplined clock is ahead). A frequency is that
of the clock's own error, positive when it runs fast: the correction that the servo writes to the kernel has the
opposite sign.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto

from clockgated.units import NS_PER_MS, NS_PER_S

# linuxptp formats a line into 1024 bytes; the rest is the journal's prefix. What is longer is not one of its lines.
_MAX_LINE = 2048
_INT = r"[+-]?[0-9]{1,19}"
_IDENTITY = r"[0-9a-f]{6}\.[0-9a-f]{4}\.[0-9a-f]{6}(?:-[0-9]{1,5})?"
# A word in brackets before `rms` is a message tag.
_CLOCK = r"[^\s\[]\S*"

# `ptp4l[12.345]: `, and in the journal `... ptp4l: [12.345] ` or `... ptp4l[77]: [12.345] `.
_STAMP = re.compile(r"\[(?P<seconds>[0-9]{1,12})\.(?P<millis>[0-9]{3})\](?:: | )")
_PROGRAM = re.compile(r"(?:^|\s)(?P<program>[\w.-]{1,32})(?:\[[0-9]{1,10}\])?(?:: )?$")
_PTP4L_SAMPLE = re.compile(
    rf"master offset +(?P<offset>{_INT}) s(?P<servo>[0-9]) freq +(?P<freq>{_INT}) path delay +(?P<delay>{_INT})"
)
_PHC2SYS_SAMPLE = re.compile(
    rf"(?P<clock>{_CLOCK}) (?:phc|sys|pps) offset +(?P<offset>{_INT}) s(?P<servo>[0-9])"
    rf" freq +(?P<freq>{_INT})(?: delay +(?P<delay>{_INT}))?"
)
_SUMMARY = re.compile(
    rf"(?:(?P<clock>{_CLOCK}) )?rms +(?P<rms>{_INT}) max +(?P<max>{_INT})"
    rf" freq +(?P<freq>{_INT}) \+/- +(?P<spread>{_INT})(?: delay +(?P<delay>{_INT}) \+/- +(?P<delay_spread>{_INT}))?"
)
_PORT_CHANGE = re.compile(
    r"port (?P<port>[0-9]{1,5})(?: \((?P<interface>[^)]+)\))?: (?P<before>[A-Z_]+) to (?P<after>[A-Z_]+)"
    r" on (?P<event>[A-Z_]+)(?: \((?P<fault>\w+)\))?"
)
_MASTER = re.compile(rf"selected best master clock (?P<identity>{_IDENTITY})")


class ServoState(Enum):
    """State of a servo. LOCKED says that it is engaged, not that it converged, nor that the kernel obeys it."""

    UNLOCKED = 0
    STEP = 1
    LOCKED = 2
    STABLE = 3


class NoticeKind(Enum):
    """A line without figures that changes what the clock may be trusted with."""

    STEERING_DENIED = auto()
    TX_TIMESTAMP_TIMEOUT = auto()
    CLOCK_JUMPED = auto()
    FREQUENCY_CHANGED = auto()
    LEAP_SUSPENDED = auto()
    NOT_PTP_TIMESCALE = auto()
    LOCAL_CLOCK_SELECTED = auto()
    WAITING_FOR_PTP4L = auto()
    LOST_PTP4L = auto()
    LINK_UP = auto()
    LINK_DOWN = auto()


@dataclass(frozen=True)
class ServoSample:
    """One sample of a servo: `clock` against what it follows.

    `clock` is None in ptp4l's lines (the clock of its port), else CLOCK_REALTIME, an interface or a /dev path.
    `delay_ns` is the path delay (ptp4l) or the time that reading both clocks took (phc2sys), which may be negative in
    a broken set-up and is None with PPS.
    """

    clock: str | None
    offset_ns: int
    servo_state: ServoState
    freq_ppb: int
    delay_ns: int | None


@dataclass(frozen=True)
class ServoSummary:
    """Several samples in one line, which is all that is printed when Syncs come faster than lines."""

    clock: str | None
    rms_ns: int
    max_ns: int
    freq_ppb: int
    freq_spread_ppb: int
    delay_ns: int | None


@dataclass(frozen=True)
class PortChange:
    """A port went from one state to another. States and event are linuxptp's words; `interface` comes from 4.0 on."""

    port: int
    interface: str | None
    before: str
    after: str
    event: str
    fault: str | None


@dataclass(frozen=True)
class MasterSelected:
    """Another clock was elected as grandmaster."""

    clock_id: str


@dataclass(frozen=True)
class Notice:
    """A line that is known by its words."""

    kind: NoticeKind
    text: str


Body = ServoSample | ServoSummary | PortChange | MasterSelected | Notice


@dataclass(frozen=True)
class LogEvent:
    """A line that was understood. `program` and the stamp, CLOCK_MONOTONIC in ns, are None where the line has none."""

    program: str | None
    stamp_mono_ns: int | None
    body: Body


# "Operation not permitted" is strerror(EPERM) in the C locale, which our units set.
_NOTICES: tuple[tuple[NoticeKind, re.Pattern[str]], ...] = (
    (NoticeKind.STEERING_DENIED, re.compile(r"failed to (?:adjust|step|set) .*: Operation not permitted")),
    (NoticeKind.TX_TIMESTAMP_TIMEOUT, re.compile(r"timed out while polling for tx timestamp")),
    (NoticeKind.CLOCK_JUMPED, re.compile(r"clockcheck: clock jumped (?:forward|backward)")),
    (NoticeKind.FREQUENCY_CHANGED, re.compile(r"clockcheck: clock frequency changed unexpectedly")),
    (NoticeKind.LEAP_SUSPENDED, re.compile(r"clock update suspended due to leap second")),
    (NoticeKind.NOT_PTP_TIMESCALE, re.compile(r"foreign master not using PTP timescale")),
    (NoticeKind.LOCAL_CLOCK_SELECTED, re.compile(rf"selected local clock {_IDENTITY} as best master")),
    (NoticeKind.WAITING_FOR_PTP4L, re.compile(r"Waiting for ptp4l\.\.\.")),
    (NoticeKind.LOST_PTP4L, re.compile(r"Lost connection to ptp4l #[0-9]+")),
    (NoticeKind.LINK_UP, re.compile(r"(?:.*: )?link up\b")),
    (NoticeKind.LINK_DOWN, re.compile(r"(?:.*: )?link down\b")),
)


def parse_line(line: str) -> LogEvent | None:
    """The event in `line`, or None for a line that says nothing we use."""
    if len(line) > _MAX_LINE:
        return None
    program, stamp_mono_ns, text = _opened(line.strip("\r\n"))
    body = _untagged(text)
    return None if body is None else LogEvent(program, stamp_mono_ns, body)


def _opened(line: str) -> tuple[str | None, int | None, str]:
    """Program, stamp and text of a line."""
    stamp = _STAMP.search(line)
    if not stamp:
        return None, None, line
    program = _PROGRAM.search(line[: stamp.start()])
    stamp_mono_ns = int(stamp["seconds"]) * NS_PER_S + int(stamp["millis"]) * NS_PER_MS
    return program["program"] if program else None, stamp_mono_ns, line[stamp.end() :]


def _untagged(text: str) -> Body | None:
    """The event of `text`, read once more behind its first word, a message tag, when the whole says nothing."""
    return _body(text) or _body(text.partition(" ")[2])


def _body(text: str) -> Body | None:
    return _sample(text) or _summary(text) or _port_change(text) or _master(text) or _notice(text)


def _sample(text: str) -> ServoSample | None:
    match = _PTP4L_SAMPLE.fullmatch(text) or _PHC2SYS_SAMPLE.fullmatch(text)
    if not match or int(match["servo"]) not in (state.value for state in ServoState):
        return None
    return ServoSample(
        clock=match.groupdict().get("clock"),
        offset_ns=int(match["offset"]),
        servo_state=ServoState(int(match["servo"])),
        freq_ppb=int(match["freq"]),
        delay_ns=_int_or_none(match["delay"]),
    )


def _summary(text: str) -> ServoSummary | None:
    match = _SUMMARY.fullmatch(text)
    if not match:
        return None
    return ServoSummary(
        clock=match["clock"],
        rms_ns=int(match["rms"]),
        max_ns=int(match["max"]),
        freq_ppb=int(match["freq"]),
        freq_spread_ppb=int(match["spread"]),
        delay_ns=_int_or_none(match["delay"]),
    )


def _port_change(text: str) -> PortChange | None:
    match = _PORT_CHANGE.fullmatch(text)
    if not match:
        return None
    return PortChange(
        int(match["port"]), match["interface"], match["before"], match["after"], match["event"], match["fault"]
    )


def _master(text: str) -> MasterSelected | None:
    match = _MASTER.fullmatch(text)
    return MasterSelected(match["identity"]) if match else None


def _notice(text: str) -> Notice | None:
    for kind, form in _NOTICES:
        if form.match(text):
            return Notice(kind, text)
    return None


def _int_or_none(text: str | None) -> int | None:
    return None if text is None else int(text)
