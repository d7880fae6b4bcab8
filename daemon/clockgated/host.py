"""The host's clocks and boot identity: the only place where the daemon reads a clock."""

import time
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Stamp:
    """One look at the host's clocks, ns. `boot_ns` and `mono_ns` are read before `wall_ns`."""

    boot_ns: int
    mono_ns: int
    wall_ns: int


def boot_ns() -> int:
    """CLOCK_BOOTTIME, ns: counts suspend, never set, used for every published age and expiry."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def mono_ns() -> int:
    """CLOCK_MONOTONIC, ns: for durations inside the process."""
    return time.monotonic_ns()


def stamp() -> Stamp:
    """Read the three clocks, the steered one last, so that ages come out too long rather than too short."""
    return Stamp(boot_ns=boot_ns(), mono_ns=mono_ns(), wall_ns=time.clock_gettime_ns(time.CLOCK_REALTIME))


def boot_id() -> str:
    """Identity of this boot."""
    return _BOOT_ID.read_text(encoding="ascii").strip()
