"""The host's clocks and boot identity: the only place where the daemon reads a clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = "proc/sys/kernel/random/boot_id"
_OWN_VIEW, _INIT_VIEW = Path("/"), Path("/proc/1/root")
_LOOKS = 3


@dataclass(frozen=True)
class Stamp:
    """One look at the host's clocks, ns. `boot_ns` and `mono_ns` are read before `wall_ns`, by at most `error_ns`."""

    boot_ns: int
    mono_ns: int
    wall_ns: int
    error_ns: int = 0


@dataclass(frozen=True)
class RateStamp:
    """CLOCK_MONOTONIC beside CLOCK_MONOTONIC_RAW, ns, read at most `error_ns` apart."""

    raw_ns: int
    mono_ns: int
    error_ns: int


def boot_ns() -> int:
    """CLOCK_BOOTTIME, ns: counts suspend, never set, used for every published age and expiry."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def mono_ns() -> int:
    """CLOCK_MONOTONIC, ns: for durations inside the process."""
    return time.monotonic_ns()


def stamp() -> Stamp:
    """Read the three clocks, the steered one last, so that ages come out too long rather than too short."""
    began_ns, slewed_ns, wall_ns = boot_ns(), mono_ns(), time.clock_gettime_ns(time.CLOCK_REALTIME)
    return Stamp(boot_ns=began_ns, mono_ns=slewed_ns, wall_ns=wall_ns, error_ns=boot_ns() - began_ns)


def tightest(read: Callable[[], Stamp] = stamp) -> Stamp:
    """The best of a few looks: one preempted between two clocks would show a step that never was."""
    return min((read() for _ in range(_LOOKS)), key=lambda one: one.error_ns)


def rate_stamp() -> RateStamp:
    """Read the slewed clock between two reads of the raw one; the middle of these is the raw time of the reading."""
    before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    slewed_ns = mono_ns()
    spread_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - before_ns
    return RateStamp(before_ns + spread_ns // 2, slewed_ns, -(-spread_ns // 2))


def boot_id(init_view: Path = _INIT_VIEW, own_view: Path = _OWN_VIEW) -> str:
    """Identity of this boot, as the first process here sees it.

    A container may have one of its own, made up by who runs it. The sandbox of a unit in there can have a /proc that
    shows the machine's instead, and then the daemon and what an administrator runs would disagree. Who may not look
    where the first process does gets what is seen here.
    """
    try:
        return (init_view / _BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return (own_view / _BOOT_ID).read_text(encoding="ascii").strip()
