"""From the text of linuxptp's `pmc` (3.1.1 to 4.4) to data sets; pure, and never raises whatever the bytes are.

An answer is a header line, a tab and `<clock id>-<port> seq N RESPONSE MANAGEMENT <data set>`, then a line of two tabs,
key and value for each member. Lines that are neither (`sending:`, `bad command:`, log lines) belong to no answer.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from clockgated.clock.ptp_report import PortState, PtpReport
from clockgated.units import NS_PER_S

_HEADER = re.compile(
    r"\s*(?P<clock_id>[0-9a-f]{6}\.[0-9a-f]{4}\.[0-9a-f]{6})-(?P<port>[0-9]{1,5}) seq (?P<sequence>[0-9]{1,5})"
    r" (?P<action>[A-Z]+) (?P<kind>MANAGEMENT_ERROR_STATUS|MANAGEMENT|unknown-tlv)(?: (?P<name>[\w-]+))?\s*"
)
_IDENTITY = re.compile(r"[0-9a-f]{6}\.[0-9a-f]{4}\.[0-9a-f]{6}(?:-[0-9]{1,5})?")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,19}")
_FRACTION = re.compile(r"[+-]?[0-9]{1,19}(?:\.[0-9]{1,9})?")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,16}")
_BAD_COMMAND = "bad command:"
# IEEE 1588 stores the logarithm of an interval in 8 bits; nobody sends Syncs more rarely than once in 17 minutes.
_MAX_LOG_INTERVAL = 10
_SHOWN = 40

_Data = TypeVar("_Data")


@dataclass(frozen=True)
class Block:
    """One answer as it stands. `data_set` is empty when pmc names none; `is_error` marks a refusal."""

    clock_id: str
    port: int
    sequence: int
    data_set: str
    is_error: bool
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class TimeStatus:
    """TIME_STATUS_NP. `ingress_ns` is None after loss; the offset beside it is then that of better days."""

    offset_ns: int
    ingress_ns: int | None
    is_grandmaster_present: bool
    grandmaster_id: str


@dataclass(frozen=True)
class CurrentData:
    """CURRENT_DATA_SET. The delay is half the round trip, rounded away from zero, and may be negative."""

    steps_removed: int
    path_delay_ns: int


@dataclass(frozen=True)
class ParentData:
    """PARENT_DATA_SET."""

    parent_port_id: str
    grandmaster_id: str
    grandmaster_class: int
    grandmaster_accuracy: int


@dataclass(frozen=True)
class TimeProperties:
    """TIME_PROPERTIES_DATA_SET."""

    utc_offset_s: int
    is_utc_offset_valid: bool
    is_ptp_timescale: bool
    is_time_traceable: bool
    leap: int


@dataclass(frozen=True)
class PortData:
    """PORT_DATA_SET of one port."""

    port_id: str
    state: PortState
    sync_interval_ns: int


@dataclass(frozen=True)
class PmcAnswer:
    """What one clock answered in one round. A data set that did not come, or came malformed, is None.

    `clock_ids` are all clocks that answered, in order; with several and none of them asked for, nothing is taken.
    `problems` says in words what was refused, malformed or not understood.
    """

    clock_ids: tuple[str, ...] = ()
    time_status: TimeStatus | None = None
    current: CurrentData | None = None
    parent: ParentData | None = None
    time_properties: TimeProperties | None = None
    ports: tuple[PortData, ...] = ()
    problems: tuple[str, ...] = ()


class _MalformedError(ValueError):
    """A member is missing or not of its form; never leaves this module."""


def blocks(raw: bytes) -> tuple[Block, ...]:
    """Every answer in `raw`, in order, of whichever clock."""
    return tuple(_blocks(raw))


def parse(raw: bytes, own_clock_id: str | None = None) -> PmcAnswer:
    """The data sets of one clock: of `own_clock_id`, or without it of the only clock that answered.

    A data set answered twice counts as answered last: the earlier one is the late answer of an earlier round.
    """
    found = blocks(raw)
    clock_ids = tuple(dict.fromkeys(block.clock_id for block in found))
    problems = _bad_commands(raw)
    wanted = own_clock_id or (clock_ids[0] if len(clock_ids) == 1 else None)
    if wanted is None and clock_ids:
        problems.append(f"{len(clock_ids)} clocks answered ({', '.join(clock_ids)}); wanted one: ask with -b 0")
    elif wanted not in clock_ids and clock_ids:
        problems.append(f"{', '.join(clock_ids)} answered; wanted {wanted}")
    own = [block for block in found if block.clock_id == wanted]
    problems += [f"{block.data_set or 'a data set'} was refused by {wanted}" for block in own if block.is_error]
    return PmcAnswer(
        clock_ids=clock_ids,
        time_status=_last(own, "TIME_STATUS_NP", _time_status, problems),
        current=_last(own, "CURRENT_DATA_SET", _current, problems),
        parent=_last(own, "PARENT_DATA_SET", _parent, problems),
        time_properties=_last(own, "TIME_PROPERTIES_DATA_SET", _time_properties, problems),
        ports=_ports(own, problems),
        problems=tuple(problems),
    )


def ptp_report(answer: PmcAnswer) -> PtpReport | str:
    """Join the data sets of one round, or say in one sentence why they cannot be joined."""
    status, current, parent, properties = answer.time_status, answer.current, answer.parent, answer.time_properties
    if status is None or current is None or parent is None or properties is None or not answer.ports:
        return _why_incomplete(answer)
    if status.grandmaster_id != parent.grandmaster_id:
        return f"the grandmaster changed from {parent.grandmaster_id} to {status.grandmaster_id} while pmc was asked"
    port = _receiving(answer.ports)
    return PtpReport(
        own_clock_id=port.port_id.partition("-")[0],
        grandmaster_id=status.grandmaster_id,
        is_grandmaster_present=status.is_grandmaster_present,
        parent_port_id=parent.parent_port_id,
        port_state=port.state,
        offset_ns=status.offset_ns,
        ingress_ns=status.ingress_ns,
        path_delay_ns=current.path_delay_ns,
        steps_removed=current.steps_removed,
        grandmaster_class=parent.grandmaster_class,
        grandmaster_accuracy=parent.grandmaster_accuracy,
        sync_interval_ns=port.sync_interval_ns,
        utc_offset_s=properties.utc_offset_s,
        is_utc_offset_valid=properties.is_utc_offset_valid,
        is_ptp_timescale=properties.is_ptp_timescale,
        is_time_traceable=properties.is_time_traceable,
        leap=properties.leap,
    )


def _receiving(ports: tuple[PortData, ...]) -> PortData:
    """The port that receives time, or else the first: at most one port of a clock is SLAVE or UNCALIBRATED."""
    for state in (PortState.SLAVE, PortState.UNCALIBRATED):
        for port in ports:
            if port.state is state:
                return port
    return ports[0]


def _why_incomplete(answer: PmcAnswer) -> str:
    if answer.problems:
        return "; ".join(answer.problems)
    if not answer.clock_ids:
        return "pmc printed no answer"
    named = (
        ("TIME_STATUS_NP", answer.time_status),
        ("CURRENT_DATA_SET", answer.current),
        ("PARENT_DATA_SET", answer.parent),
        ("TIME_PROPERTIES_DATA_SET", answer.time_properties),
        ("PORT_DATA_SET", answer.ports or None),
    )
    return f"pmc's answer lacks {', '.join(name for name, value in named if value is None)}"


def _blocks(raw: bytes) -> Iterator[Block]:
    header: re.Match[str] | None = None
    members: list[tuple[str, str]] = []
    for line in _lines(raw):
        match = _HEADER.fullmatch(line)
        if match:
            if header:
                yield _block(header, members)
            header, members = match, []
        elif line.startswith("\t\t"):
            key, _, value = line.strip().partition(" ")
            members.append((key, value.strip()))
    if header:
        yield _block(header, members)


def _block(header: re.Match[str], members: list[tuple[str, str]]) -> Block:
    name = header["name"] or ""
    is_answer = header["action"] == "RESPONSE" and header["kind"] == "MANAGEMENT" and not name.endswith("-tlv")
    return Block(
        clock_id=header["clock_id"],
        port=int(header["port"]),
        sequence=int(header["sequence"]),
        data_set=name,
        is_error=not is_answer,
        members=tuple(members),
    )


def _lines(raw: bytes) -> Iterator[str]:
    # Split before decoding: text has many more line ends than the one that pmc writes.
    # What stands behind the last line end is half a line: half a number is another number.
    for line in raw.split(b"\n")[:-1]:
        yield line.decode("ascii", "replace").rstrip("\r")


def _bad_commands(raw: bytes) -> list[str]:
    return [line.strip()[:_SHOWN] for line in _lines(raw) if line.startswith(_BAD_COMMAND)]


def _last(
    own: list[Block], data_set: str, read: Callable[[Mapping[str, str]], _Data], problems: list[str]
) -> _Data | None:
    answers = [block for block in own if block.data_set == data_set and not block.is_error]
    return _read(answers[-1], read, problems) if answers else None


def _ports(own: list[Block], problems: list[str]) -> tuple[PortData, ...]:
    newest = {block.port: block for block in own if block.data_set == "PORT_DATA_SET" and not block.is_error}
    read = (_read(block, _port, problems) for block in newest.values())
    return tuple(port for port in read if port is not None)


def _read(block: Block, read: Callable[[Mapping[str, str]], _Data], problems: list[str]) -> _Data | None:
    try:
        return read(dict(block.members))
    except _MalformedError as error:
        problems.append(f"{block.data_set}: {error}")
        return None


def _time_status(members: Mapping[str, str]) -> TimeStatus:
    ingress_ns = _int(members, "ingress_time")
    return TimeStatus(
        offset_ns=_int(members, "master_offset"),
        ingress_ns=ingress_ns if ingress_ns > 0 else None,
        is_grandmaster_present=_bool(members, "gmPresent"),
        grandmaster_id=_identity(members, "gmIdentity"),
    )


def _current(members: Mapping[str, str]) -> CurrentData:
    delay_ns = float(_matched(members, "meanPathDelay", _FRACTION, "a number"))
    return CurrentData(
        steps_removed=_int(members, "stepsRemoved"),
        path_delay_ns=math.ceil(delay_ns) if delay_ns >= 0 else math.floor(delay_ns),
    )


def _parent(members: Mapping[str, str]) -> ParentData:
    return ParentData(
        parent_port_id=_identity(members, "parentPortIdentity"),
        grandmaster_id=_identity(members, "grandmasterIdentity"),
        grandmaster_class=_int(members, "gm.ClockClass"),
        grandmaster_accuracy=int(_matched(members, "gm.ClockAccuracy", _HEX, "a hexadecimal number"), 16),
    )


def _time_properties(members: Mapping[str, str]) -> TimeProperties:
    return TimeProperties(
        utc_offset_s=_int(members, "currentUtcOffset"),
        is_utc_offset_valid=_bool(members, "currentUtcOffsetValid"),
        is_ptp_timescale=_bool(members, "ptpTimescale"),
        is_time_traceable=_bool(members, "timeTraceable"),
        leap=int(_bool(members, "leap61")) - int(_bool(members, "leap59")),
    )


def _port(members: Mapping[str, str]) -> PortData:
    state, log_interval = _member(members, "portState"), _int(members, "logSyncInterval")
    if state not in PortState.__members__:
        raise _MalformedError(f"portState is {state[:_SHOWN]!r}; wanted one of {', '.join(PortState.__members__)}")
    if abs(log_interval) > _MAX_LOG_INTERVAL:
        raise _MalformedError(f"logSyncInterval is {log_interval}; wanted at most {_MAX_LOG_INTERVAL} either way")
    return PortData(
        port_id=_identity(members, "portIdentity"),
        state=PortState[state],
        sync_interval_ns=int(2.0**log_interval * NS_PER_S),
    )


def _member(members: Mapping[str, str], key: str) -> str:
    if key not in members:
        raise _MalformedError(f"{key} is missing")
    return members[key]


def _matched(members: Mapping[str, str], key: str, form: re.Pattern[str], wanted: str) -> str:
    value = _member(members, key)
    if not form.fullmatch(value):
        raise _MalformedError(f"{key} is {value[:_SHOWN]!r}; wanted {wanted}")
    return value


def _int(members: Mapping[str, str], key: str) -> int:
    return int(_matched(members, key, _DECIMAL, "an integer"))


def _identity(members: Mapping[str, str], key: str) -> str:
    return _matched(members, key, _IDENTITY, "an identity such as 0a1b2c.fffe.3d4e5f")


def _bool(members: Mapping[str, str], key: str) -> bool:
    value = _member(members, key)
    if value not in ("0", "1", "true", "false"):
        raise _MalformedError(f"{key} is {value[:_SHOWN]!r}; wanted 0, 1, true or false")
    return value in ("1", "true")
