"""What the log lines of ptp4l and phc2sys say lately: a queue that any thread feeds, and a memory that is a value."""

from collections import deque
from dataclasses import dataclass, replace

from clockgated import host
from clockgated.clock.ptp_report import SystemOffset
from clockgated.sources.ptp_log import (
    LogEvent,
    Notice,
    NoticeKind,
    ServoSample,
    ServoSummary,
    parse_line,
)

# At 16 samples a second from both programs this is half a minute.
_MAX_QUEUED = 1024
_MAX_FREQUENCIES = 64
_SYSTEM_CLOCK = "CLOCK_REALTIME"


@dataclass(frozen=True)
class SeenEvent:
    """An event and the CLOCK_BOOTTIME, ns, at which its line arrived."""

    seen_boot_ns: int
    event: LogEvent


class LogFeed:
    """Lines go in from whoever follows the programs' output, events come out once a cycle. The oldest are dropped."""

    def __init__(self) -> None:
        # Appending to and popping from a deque is atomic: no lock is needed.
        self._seen: deque[SeenEvent] = deque(maxlen=_MAX_QUEUED)

    def feed(self, line: str) -> None:
        """Take one line as it stands, with or without the programs' prefix."""
        event = parse_line(line)
        if event is not None:
            self._seen.append(SeenEvent(host.boot_ns(), event))

    def take(self) -> tuple[SeenEvent, ...]:
        """Everything fed since the last call."""
        taken = []
        while self._seen:
            taken.append(self._seen.popleft())
        return tuple(taken)


@dataclass(frozen=True)
class SystemClaim:
    """What the servo of CLOCK_REALTIME last said about it. `offset_ns` is the worst that its line tells."""

    offset_ns: int
    delay_ns: int
    seen_boot_ns: int

    def at(self, boot_ns: int) -> SystemOffset:
        """The claim as a measurement of age."""
        return SystemOffset(self.offset_ns, -(-abs(self.delay_ns) // 2), max(0, boot_ns - self.seen_boot_ns))


@dataclass(frozen=True)
class ServoMemory:
    """The last of each kind. Stamps are CLOCK_BOOTTIME, ns; None: never.

    `port_freq_ppb` is the frequency of the clock that ptp4l steers, `system_freqs_ppb` are those that phc2sys or, with
    software stamps, ptp4l set on CLOCK_REALTIME, each with its stamp, oldest first.
    """

    claim: SystemClaim | None = None
    port_freq_ppb: int | None = None
    system_freqs_ppb: tuple[tuple[int, int], ...] = ()
    denied_boot_ns: int | None = None
    denied_text: str = ""
    leap_suspended_boot_ns: int | None = None


def remembered(memory: ServoMemory, seen: SeenEvent, *, is_port_system: bool) -> ServoMemory:
    """The memory after one event. `is_port_system`: ptp4l disciplines CLOCK_REALTIME itself (software stamps)."""
    body, boot_ns = seen.event.body, seen.seen_boot_ns
    if isinstance(body, Notice):
        return _noticed(memory, body, boot_ns)
    if isinstance(body, ServoSample):
        memory = _with_freq(memory, body.clock, body.freq_ppb, boot_ns, is_port_system)
        if body.clock == _SYSTEM_CLOCK:
            return replace(memory, claim=SystemClaim(body.offset_ns, body.delay_ns or 0, boot_ns))
    if isinstance(body, ServoSummary):
        if body.clock == _SYSTEM_CLOCK:
            return replace(memory, claim=SystemClaim(body.max_ns, body.delay_ns or 0, boot_ns))
        if body.clock is None:
            return replace(memory, port_freq_ppb=body.freq_ppb)
    return memory


def _noticed(memory: ServoMemory, notice: Notice, boot_ns: int) -> ServoMemory:
    if notice.kind is NoticeKind.STEERING_DENIED:
        return replace(memory, denied_boot_ns=boot_ns, denied_text=notice.text)
    if notice.kind is NoticeKind.LEAP_SUSPENDED:
        return replace(memory, leap_suspended_boot_ns=boot_ns)
    return memory


def _with_freq(
    memory: ServoMemory, clock: str | None, freq_ppb: int, boot_ns: int, is_port_system: bool
) -> ServoMemory:
    if clock is None:
        memory = replace(memory, port_freq_ppb=freq_ppb)
    if clock == _SYSTEM_CLOCK or (clock is None and is_port_system):
        freqs_ppb = (*memory.system_freqs_ppb, (boot_ns, freq_ppb))[-_MAX_FREQUENCIES:]
        memory = replace(memory, system_freqs_ppb=freqs_ppb)
    return memory
