"""The kernel's messages that tell of trouble: errors of GPU drivers (Xid), hung tasks, hardware, file systems.

/dev/kmsg is readable for root alone, and not at all under ProtectKernelLogs: then nothing is known, which is no error.
"""

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from clockgated import host
from clockgated.node.facts import KernelEvent

_LONGEST_RECORD = 8192
_MOST_RECORDS = 20_000
"""In one look; a flooded log is read on with the next."""
_MOST_EVENTS = 200

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d{1,4})\b")
_HUNG = re.compile(r"task (\S+) blocked for more than \d+ seconds")
_HARDWARE = re.compile(r"\[Hardware Error\]: |AER: .*Uncorrect")
_FILE_SYSTEM = re.compile(
    r"EXT4-fs error \(device (\S+?)\)|(?:XFS|BTRFS)[^(]*\((?:device )?(\S+?)\).*(?:error|corrupt|shutdown)",
    re.IGNORECASE,
)
_DISK = re.compile(r"(?:I/O|critical medium) error, dev (\S+?),")


class KernelLog:
    """Reads on from where the last look ended; the first one begins with what the ring of this boot still holds."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._events: tuple[KernelEvent, ...] = ()
        self._handle: int | None = None
        with contextlib.suppress(OSError):
            self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def look(self) -> tuple[KernelEvent, ...] | None:
        """Every event since boot, one for each kind and subject; None where the log cannot be read."""
        if self._handle is None:
            return None
        self._events = gathered((*self._events, *self._new_events()))
        return self._events

    def close(self) -> None:
        """Read no more."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _new_events(self) -> Iterable[KernelEvent]:
        now_boot_ns = host.boot_ns()
        offset_ns = now_boot_ns - host.mono_ns()
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(self._handle, _LONGEST_RECORD) if self._handle is not None else b""
            except BlockingIOError:
                return
            except OSError:
                # EPIPE: records were overwritten before they were read; the next read goes on after them.
                continue
            if not record:
                return
            event = parse_record(record, offset_ns)
            if event is not None:
                yield event


def gathered(events: Iterable[KernelEvent]) -> tuple[KernelEvent, ...]:
    """One event for each kind, subject and code: the newest text and time, counted; the newest ones if too many."""
    found: dict[tuple[str, str, int | None], KernelEvent] = {}
    for event in events:
        key = (event.kind, event.subject, event.code)
        before = found.pop(key, None)
        found[key] = event if before is None else replace(event, count=before.count + event.count)
    return tuple(found.values())[-_MOST_EVENTS:]


def parse_record(record: bytes, offset_ns: int) -> KernelEvent | None:
    """What a record of /dev/kmsg tells of trouble; None for all others. Only what the kernel itself wrote counts.

    Its stamp is CLOCK_MONOTONIC, microseconds; `offset_ns` turns it into CLOCK_BOOTTIME.
    """
    head, semicolon, text = record.decode(errors="replace").partition(";")
    fields = head.split(",")
    if not semicolon or len(fields) < 3 or not (fields[0].isdecimal() and fields[2].isdecimal()):
        return None
    # The facility stands above the level's three bits: 0 is the kernel, anything else a program that writes there.
    if len(fields[0]) > 6 or int(fields[0]) >> 3 or len(fields[2]) > 18:
        return None
    line = text.split("\n", 1)[0]
    return _event(line, int(fields[2]) * 1000 + offset_ns)


def _event(line: str, seen_boot_ns: int) -> KernelEvent | None:
    if found := _XID.search(line):
        return KernelEvent("xid", found[1], line, seen_boot_ns, code=int(found[2]))
    if found := _HUNG.search(line):
        return KernelEvent("hung_task", found[1].rpartition(":")[0] or found[1], line, seen_boot_ns)
    if found := _HARDWARE.search(line):
        return KernelEvent("hardware", "hardware", line, seen_boot_ns)
    if found := _DISK.search(line):
        return KernelEvent("file_system", found[1], line, seen_boot_ns)
    if found := _FILE_SYSTEM.search(line):
        return KernelEvent("file_system", found[1] or found[2], line, seen_boot_ns)
    return None
