"""The hardware clock of a network interface (/dev/ptpN), read without any help of linuxptp.

Whether it ticks, and how far CLOCK_REALTIME is from it, are the two facts with which ptp4l and phc2sys are checked.
Layouts and request numbers: linux/ptp_clock.h, the same since Linux 4.20 (PTP_SYS_OFFSET_EXTENDED) and 3.8.
"""

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from clockgated import host
from clockgated.clock.witness import phc_frozen
from clockgated.units import NS_PER_MS, NS_PER_S

_MAX_SAMPLES = 25
_HEAD = struct.Struct("=I12x")
_TIME = struct.Struct("=qI4x")
_BASIC_BYTES = _HEAD.size + (2 * _MAX_SAMPLES + 1) * _TIME.size
_EXTENDED_BYTES = _HEAD.size + 3 * _MAX_SAMPLES * _TIME.size
_WRITE, _READ_WRITE = 1, 3
# A PHC read crosses the PCI bus; the quickest of a few is rarely preempted.
_SAMPLES = 5
_PROBE_WAIT_NS = 20 * NS_PER_MS

Ioctl = Callable[[int, int, bytearray], int]
Gettime = Callable[[int], int]


def _request(direction: int, number: int, size: int) -> int:
    # _IOC of asm-generic/ioctl.h, magic '='.
    return direction << 30 | size << 16 | ord("=") << 8 | number


PTP_SYS_OFFSET = _request(_WRITE, 5, _BASIC_BYTES)
PTP_SYS_OFFSET_EXTENDED = _request(_READ_WRITE, 9, _EXTENDED_BYTES)
# The first is the tighter one: it stamps around the register read alone. Drivers without it answer EOPNOTSUPP.
_REQUESTS = ((PTP_SYS_OFFSET_EXTENDED, _EXTENDED_BYTES), (PTP_SYS_OFFSET, _BASIC_BYTES))
_NOT_OFFERED = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL)


@dataclass(frozen=True)
class PhcReading:
    """The hardware clock and CLOCK_REALTIME at one moment, known to within half of `read_delay_ns`."""

    phc_ns: int
    wall_ns: int
    read_delay_ns: int


@dataclass(frozen=True)
class PhcFailure:
    """Why the hardware clock could not be read, in one sentence for a person."""

    detail: str


def clock_id(file_descriptor: int) -> int:
    """The clockid_t of an open PHC: FD_TO_CLOCKID of the kernel's dynamic clocks (CLOCKFD is 3)."""
    return (~file_descriptor << 3) | 3


def decode_extended(buffer: bytes) -> PhcReading | None:
    """The quickest triple (system, PHC, system) of a ptp_sys_offset_extended; None when it holds none."""
    stamps = _stamps(buffer, per_sample=3, extra=0)
    return _quickest(stamps[i : i + 3] for i in range(0, len(stamps) - 2, 3))


def decode_basic(buffer: bytes) -> PhcReading | None:
    """The quickest of the overlapping triples (system, PHC, system) of a ptp_sys_offset; None when it holds none."""
    stamps = _stamps(buffer, per_sample=2, extra=1)
    return _quickest(stamps[i : i + 3] for i in range(0, len(stamps) - 2, 2))


def _stamps(buffer: bytes, per_sample: int, extra: int) -> list[int]:
    if len(buffer) < _HEAD.size:
        return []
    (samples,) = _HEAD.unpack_from(buffer)
    room = (len(buffer) - _HEAD.size) // _TIME.size
    count = min(samples * per_sample + extra, room) if samples else 0
    times = (_TIME.unpack_from(buffer, _HEAD.size + i * _TIME.size) for i in range(count))
    return [seconds * NS_PER_S + nanoseconds for seconds, nanoseconds in times]


def _quickest(triples: Iterable[list[int]]) -> PhcReading | None:
    readings = [
        PhcReading(phc_ns=phc, wall_ns=(before + after) // 2, read_delay_ns=after - before)
        for before, phc, after in triples
        # CLOCK_REALTIME set backward in between: no reading.
        if after >= before
    ]
    return min(readings, key=lambda reading: reading.read_delay_ns, default=None)


class Phc:
    """One open hardware clock. `read` is quick (some microseconds) and needs no privilege beyond opening the device.

    `ioctl` and `gettime_ns` stand for fcntl.ioctl and time.clock_gettime_ns.
    """

    def __init__(
        self,
        path: Path,
        file_descriptor: int,
        ioctl: Ioctl | None = None,
        gettime_ns: Gettime = time.clock_gettime_ns,
    ):
        self.path = path
        self._fd = file_descriptor
        self._ioctl: Ioctl = ioctl or fcntl.ioctl
        self._gettime_ns = gettime_ns
        self._requests: tuple[tuple[int, int], ...] = _REQUESTS

    @classmethod
    def open(cls, path: Path) -> "Phc | PhcFailure":
        """Open /dev/ptpN for reading."""
        try:
            return cls(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            return PhcFailure(f"cannot open {path}: {error.strerror}; wanted the /dev/ptpN that `ethtool -T` names")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the device; harmless when done twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def time_ns(self) -> int | PhcFailure:
        """What the hardware clock shows, ns."""
        try:
            return self._gettime_ns(clock_id(self._fd))
        except OSError as error:
            return PhcFailure(f"{self.path} cannot be read: {error.strerror}; is its interface still there?")

    def read(self) -> PhcReading | PhcFailure:
        """The hardware clock against CLOCK_REALTIME, by the best request that its driver offers."""
        for request, size in self._requests:
            buffer = bytearray(size)
            _HEAD.pack_into(buffer, 0, _SAMPLES)
            try:
                self._ioctl(self._fd, request, buffer)
            except OSError as error:
                if error.errno in _NOT_OFFERED:
                    continue
                return PhcFailure(f"{self.path} cannot be read: {error.strerror}; is its interface still there?")
            self._requests = ((request, size),)
            decode = decode_extended if request == PTP_SYS_OFFSET_EXTENDED else decode_basic
            reading = decode(bytes(buffer))
            return reading or PhcFailure(f"{self.path} answered without a usable pair of stamps")
        return PhcFailure(f"{self.path} offers neither PTP_SYS_OFFSET_EXTENDED nor PTP_SYS_OFFSET; is it a PTP clock?")


def probe_ticks(
    phc: Phc, wait_ns: int = _PROBE_WAIT_NS, sleep: Callable[[float], None] = time.sleep
) -> PhcFailure | None:
    """Read the clock twice, `wait_ns` apart: None when it advances as time does, else why it cannot be used.

    `ethtool -T` is no proof: emulated interfaces advertise a hardware clock that stands still.
    """
    started_mono_ns, first_ns = host.mono_ns(), phc.time_ns()
    sleep(wait_ns / NS_PER_S)
    ended_mono_ns, second_ns = host.mono_ns(), phc.time_ns()
    if isinstance(first_ns, PhcFailure):
        return first_ns
    if isinstance(second_ns, PhcFailure):
        return second_ns
    reason = phc_frozen(str(phc.path), second_ns - first_ns, ended_mono_ns - started_mono_ns)
    return PhcFailure(reason.detail) if reason else None
