"""The kernel's own NTP variables, by adjtimex(2) without a change, and whether their bound can be trusted.

They are a source where no time daemon can be asked, and a witness (`read_look`) beside every source.

The kernel keeps whatever the time daemon wrote. chronyd and ntpd write root delay / 2 + root dispersion there, and
the kernel lets it grow; timesyncd and phc2sys write 0, only to clear the unsynchronised flag.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clockgated import host
from clockgated.clock.model import Evidence, Reason, ReasonCode, Reference, Silence, SourceKind
from clockgated.clock.witness import KernelLook, KernelState
from clockgated.sources.clock_writer import ClockWriter, find_writers, is_running
from clockgated.timex import read_timex
from clockgated.units import NS_PER_S, NS_PER_US, PPB_PER_PPM

_STA_NANO = 0x2000
# adjtimex counts the frequency in units of 2^-16 ppm.
_PPB_PER_FREQ_UNIT = PPB_PER_PPM / (1 << 16)
# The kernel stops counting here; nobody has vouched for the clock since.
_UNSYNCHRONISED_US = 16_000_000
# Reading clocks, and the two values that the daemon cut to whole microseconds.
_FLOOR_NS = 3_000
_RESCAN_NS = 10 * NS_PER_S
_ASSUMPTIONS = (
    "the time daemon's maximum error, as the kernel holds it, covers the correction still to be made",
    "the time daemon's chain of servers ends at UTC as it claims",
    "the time daemon computes with nothing that it measured before somebody else set the clock",
)


@dataclass(frozen=True)
class KernelTimes:
    """What the source uses of adjtimex's answer. `offset_ns` is the correction to be made, positive: clock behind."""

    time_state: int
    offset_ns: int
    maxerror_us: int
    esterror_us: int


def read_adjtimex() -> KernelTimes:
    """Ask the kernel, changing nothing; needs no privilege. OSError when a sandbox forbids the call."""
    time_state, timex = read_timex()
    scale = 1 if timex.status & _STA_NANO else NS_PER_US
    return KernelTimes(time_state, timex.offset * scale, timex.maxerror, timex.esterror)


def read_look() -> KernelLook | None:
    """How the kernel steers the clock just now, for the witnesses; None when a sandbox forbids the call."""
    boot_ns = host.boot_ns()
    try:
        time_state, timex = read_timex()
    except OSError:
        return None
    return KernelLook(
        boot_ns=boot_ns,
        freq_ppb=timex.freq * _PPB_PER_FREQ_UNIT,
        tick_us=timex.tick,
        status=timex.status,
        state=KernelState(time_state),
        tai_offset_s=timex.tai or None,
    )


def kernel_evidence(
    times: KernelTimes, writers: Sequence[ClockWriter], as_of_boot_ns: int, update_id: str | None
) -> Evidence:
    """Judge the kernel's answer under the processes that may write it."""
    distrust = _distrust(writers)
    faults: tuple[Reason, ...] = ()
    if distrust is not None:
        faults += (Reason(ReasonCode.KERNEL_BOUND_NOT_TRUSTED, distrust),)
    # The unsynchronised flag is no fault by itself: chronyd leaves it set unless told `rtcsync`.
    if times.maxerror_us >= _UNSYNCHRONISED_US:
        detail = "the kernel's maximum error is 16 s or more: nobody keeps this clock; start chronyd or ntpd"
        faults += (Reason(ReasonCode.KERNEL_UNSYNCHRONISED, detail),)
    bound_ns = None
    if not faults:
        bound_ns = (times.maxerror_us + times.esterror_us) * NS_PER_US + abs(times.offset_ns) + _FLOOR_NS
    is_leaping = times.time_state == KernelState.IN_PROGRESS
    leaping = (Reason(ReasonCode.LEAP_IN_PROGRESS, "the kernel is inside a leap second; the last bound is kept"),)
    return Evidence(
        kind=SourceKind.KERNEL,
        as_of_boot_ns=as_of_boot_ns,
        bound_ns=bound_ns,
        utc_bound_ns=bound_ns,
        # A correction of exactly 0 is what every daemon leaves that steers by frequency alone: not an estimate.
        offset_ns=-times.offset_ns or None,
        reference=Reference(),
        faults=faults,
        remarks=leaping if is_leaping else (),
        assumptions=() if faults else _ASSUMPTIONS,
        leap_in_progress=is_leaping,
        steering_id="+".join(sorted(writer.identity for writer in writers)) or None,
        update_id=update_id,
    )


class KernelSource:
    """Reads adjtimex and looks for the clock's writers. `read_times`, `proc` and `stamp` are replaced in tests."""

    kind = SourceKind.KERNEL

    def __init__(
        self,
        proc: Path = Path("/proc"),
        read_times: Callable[[], KernelTimes] = read_adjtimex,
        stamp: Callable[[], host.Stamp] = host.stamp,
    ) -> None:
        self._proc = proc
        self._read_times = read_times
        self._stamp = stamp
        self._writers: tuple[ClockWriter, ...] = ()
        self._next_scan_boot_ns = 0
        self._last_maxerror_us = 0
        self._updates = 0

    def read(self) -> Evidence | Silence:
        """Measure once; never blocks."""
        as_of_boot_ns = self._stamp().boot_ns
        try:
            times = self._read_times()
        except OSError as error:
            detail = f"the kernel refuses to show its clock: {error}; allow adjtimex in the sandbox"
            return Silence(self.kind, as_of_boot_ns, Reason(ReasonCode.SOURCE_UNREACHABLE, detail))
        # It only grows by itself, so a smaller value was written by the time daemon: an update.
        if times.maxerror_us < self._last_maxerror_us:
            self._updates += 1
        self._last_maxerror_us = times.maxerror_us
        return kernel_evidence(times, self._current_writers(as_of_boot_ns), as_of_boot_ns, str(self._updates))

    def _current_writers(self, now_boot_ns: int) -> tuple[ClockWriter, ...]:
        """Scanning all processes takes tens of ms on a large node, so it is done now and then, and when one ended."""
        if now_boot_ns >= self._next_scan_boot_ns or not all(is_running(self._proc, one) for one in self._writers):
            self._writers = find_writers(self._proc)
            self._next_scan_boot_ns = now_boot_ns + _RESCAN_NS
        return self._writers


def _distrust(writers: Sequence[ClockWriter]) -> str | None:
    wanted = "wanted exactly one chronyd or ntpd that may set the clock"
    if not writers:
        return f"no time daemon that may set the clock is visible here; {wanted}"
    if len(writers) > 1 or not writers[0].keeps_maxerror:
        return f"the clock is written by {', '.join(writer.identity for writer in writers)}; {wanted}"
    return None
