"""The host's clocks and boot identity: the only place where the gate reads a clock."""

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_ns() -> int:
    """CLOCK_BOOTTIME, ns: ages of readings; it counts suspend and is never set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def mono_ns() -> int:
    """CLOCK_MONOTONIC, ns: deadlines and durations."""
    return time.monotonic_ns()


def wall_ns() -> int:
    """CLOCK_REALTIME, ns: only ever a stamp in a row or a record."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def boot_id() -> str:
    """Identity of this boot; CLOCK_BOOTTIME of two processes compares only under the same one."""
    return _BOOT_ID.read_text(encoding="ascii").strip()
