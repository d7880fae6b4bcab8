"""TAI - UTC by the node's own table of leap seconds (leap-seconds.list of tzdata). Pure but for reading the file."""

import re
import time
from collections.abc import Callable
from pathlib import Path

# Stamps in the table count from 1900, CLOCK_REALTIME from 1970.
_NTP_TO_UNIX_S = 2_208_988_800
_ENTRY = re.compile(r"(\d{1,12})\s+(\d{1,4})(?:\s*#.*)?")
_EXPIRY = re.compile(r"#@\s*(\d{1,12})")
_LONGEST_LIST = 1 << 20


def tai_offset_s(table: str, unix_s: float) -> int | None:
    """TAI - UTC at `unix_s` by a leap-seconds.list; None when the table does not reach so far, or holds nothing."""
    ntp_s = unix_s + _NTP_TO_UNIX_S
    found: int | None = None
    for line in table.splitlines():
        if (expiry := _EXPIRY.match(line)) and ntp_s >= int(expiry[1]):
            return None
        if (entry := _ENTRY.fullmatch(line.strip())) and ntp_s >= int(entry[1]):
            found = int(entry[2])
    return found


class LeapTable:
    """The table of the file at `path`, read once; without one nothing is known."""

    def __init__(self, path: str | None, unix_s: Callable[[], float] = time.time) -> None:
        self._table = _read(path)
        self._unix_s = unix_s

    def utc_offset_s(self) -> int | None:
        """TAI - UTC just now. The wall clock picks the line: an entry holds for years."""
        return tai_offset_s(self._table, self._unix_s())


def _read(path: str | None) -> str:
    if path is None:
        return ""
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST_LIST).decode(errors="replace")
    except OSError:
        return ""
