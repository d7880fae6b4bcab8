"""How PTP reaches chronyd in mode ptp+ntp: one reference clock for each group of ports. Pure.

linuxptp 4.0 and newer send samples to a socket of chronyd; older ones write an NTP shared-memory segment. Segments are
numbered per host, not per network namespace, so each instance takes its own and hands it back when it stops.
"""

import zlib
from dataclasses import dataclass

from clockgated.manage.facts import Tool
from clockgated.manage.options import LINUXPTP, legal
from clockgated.manage.ports import Port, Ports

SHM_KEY_BASE = 0x4E545030
"""System V key of segment 0, fixed by the NTP reference clock protocol; segment N has this key plus N."""

# Low numbers are what gpsd, ntpd and timemaster take; the planner stays above them.
_FIRST_SEGMENT = 64
_LAST_SEGMENT = 255


@dataclass(frozen=True)
class Feed:
    """One reference clock of chronyd: `segment` for shared memory, else `socket`. `refid` is chronyd's name for it."""

    refid: str
    segment: int | None = None
    socket: str | None = None


@dataclass(frozen=True)
class Group:
    """Ports served by one ptp4l, all stamped in hardware or none. Named after its first interface."""

    ports: tuple[Port, ...]
    hardware: bool
    feed: Feed | None = None

    @property
    def name(self) -> str:
        """Name of the group's files and unit instances."""
        return self.ports[0].interface

    @property
    def clocks(self) -> tuple[str, ...]:
        """The different hardware clocks below the ports, in order."""
        return tuple(dict.fromkeys(port.phc for port in self.ports if port.phc is not None))


def one_group(ports: Ports) -> tuple[Group, ...]:
    """All ports in one ptp4l, which steers by itself: one is followed and the others stand by."""
    return (Group(ports.ports, ports.hardware),)


def groups_by_clock(ports: Ports) -> tuple[Group, ...]:
    """One group a hardware clock, or a port in software: a sample must come from one clock to be one reference."""
    by_clock: dict[str, list[Port]] = {}
    for port in ports.ports:
        key = port.phc if ports.hardware and port.phc is not None else port.interface
        by_clock.setdefault(key, []).append(port)
    return tuple(Group(tuple(members), ports.hardware) for members in by_clock.values())


def with_feeds(
    groups: tuple[Group, ...], ptp4l: Tool, chrony_folder: str, first_segment: int | None, taken: tuple[int, ...]
) -> tuple[Group, ...]:
    """The groups with a feed each. `taken` are segments that others hold; `first_segment` overrides where to begin."""
    if legal(LINUXPTP, ptp4l.version, "clock_servo=refclock_sock"):
        return tuple(
            Group(group.ports, group.hardware, Feed(f"PTP{index}", socket=f"{chrony_folder}/ptp-{group.name}.sock"))
            for index, group in enumerate(groups)
        )
    segments = _segments(chrony_folder, len(groups), first_segment, taken)
    return tuple(
        Group(group.ports, group.hardware, Feed(f"PTP{index}", segment=segments[index]))
        for index, group in enumerate(groups)
    )


def _segments(instance: str, count: int, first: int | None, taken: tuple[int, ...]) -> list[int]:
    """Free segment numbers from a start that depends on the instance's folder alone, so that a new plan keeps them."""
    span = _LAST_SEGMENT - _FIRST_SEGMENT + 1
    start = first if first is not None else _FIRST_SEGMENT + zlib.crc32(instance.encode()) % span
    low = min(start, _FIRST_SEGMENT)
    width = _LAST_SEGMENT - low + 1
    candidates = (low + (start - low + step) % width for step in range(width))
    free = [number for number in candidates if number not in taken]
    return free[:count]
