import errno
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clockgated.sources.phc import (
    PTP_SYS_OFFSET,
    PTP_SYS_OFFSET_EXTENDED,
    Phc,
    PhcFailure,
    PhcReading,
    clock_id,
    decode_basic,
    decode_extended,
    probe_ticks,
)
from hypothesis import given, settings
from hypothesis import strategies as st

SECOND = 1_000_000_000
DEVICE = Path("/dev/ptp0")
NOT_OFFERED = OSError(errno.EOPNOTSUPP, "Operation not supported")
UNPLUGGED = OSError(errno.ENODEV, "No such device")


def filled(samples: int, *times_ns: int, size: int = 0) -> bytes:
    head = struct.pack("=I12x", samples)
    body = b"".join(struct.pack("=qI4x", ns // SECOND, ns % SECOND) for ns in times_ns)
    return (head + body).ljust(size, b"\0")


def answering(answers: dict[int, bytes | OSError]) -> tuple[Phc, list[int]]:
    """A clock whose ioctl answers each request as told, and the requests made."""
    asked: list[int] = []

    def ioctl(_fd: int, request: int, buffer: bytearray) -> int:
        asked.append(request)
        answer = answers[request]
        if isinstance(answer, OSError):
            raise answer
        (samples,) = struct.unpack_from("=I", buffer)
        assert 1 <= samples <= 25
        buffer[: len(answer)] = answer
        return 0

    return Phc(DEVICE, -1, ioctl=ioctl), asked


def ticking_at(*times_ns: int | OSError) -> Phc:
    left = list(times_ns)

    def gettime_ns(_clock_id: int) -> int:
        now = left.pop(0)
        if isinstance(now, OSError):
            raise now
        return now

    return Phc(DEVICE, -1, gettime_ns=gettime_ns)


def test_request_numbers_are_those_of_the_kernel() -> None:
    # Printed by a C program that includes linux/ptp_clock.h.
    assert PTP_SYS_OFFSET == 0x43403D05
    assert PTP_SYS_OFFSET_EXTENDED == 0xC4C03D09


def test_clock_id_of_a_descriptor_is_the_kernels_dynamic_clock() -> None:
    # FD_TO_CLOCKID(3) of linux/posix-timers.h.
    assert clock_id(3) == -29


def test_the_quickest_extended_sample_is_taken() -> None:
    slow = (100 * SECOND, 137 * SECOND + 500, 100 * SECOND + 9_000)
    quick = (101 * SECOND, 138 * SECOND + 250, 101 * SECOND + 600)
    assert decode_extended(filled(2, *slow, *quick)) == PhcReading(138 * SECOND + 250, 101 * SECOND + 300, 600)


def test_basic_samples_share_the_system_stamps_between_them() -> None:
    times = (100 * SECOND, 137 * SECOND, 100 * SECOND + 900, 137 * SECOND + 1_000, 100 * SECOND + 1_300)
    assert decode_basic(filled(2, *times)) == PhcReading(137 * SECOND + 1_000, 100 * SECOND + 1_100, 400)


def test_a_clock_set_back_while_it_was_read_gives_no_reading() -> None:
    assert decode_extended(filled(1, 100 * SECOND, 137 * SECOND, 99 * SECOND)) is None


@settings(deadline=None)
@given(st.binary(max_size=1300))
def test_decoding_never_raises_on_any_buffer(buffer: bytes) -> None:
    for decode in (decode_basic, decode_extended):
        reading = decode(buffer)
        assert reading is None or reading.read_delay_ns >= 0


def test_a_driver_without_the_extended_request_is_read_by_the_basic_one_from_then_on() -> None:
    basic = filled(1, 100 * SECOND, 137 * SECOND, 100 * SECOND + 800)
    phc, asked = answering({PTP_SYS_OFFSET_EXTENDED: NOT_OFFERED, PTP_SYS_OFFSET: basic})
    for _ in range(2):
        assert phc.read() == PhcReading(137 * SECOND, 100 * SECOND + 400, 800)
    assert asked == [PTP_SYS_OFFSET_EXTENDED, PTP_SYS_OFFSET, PTP_SYS_OFFSET]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({PTP_SYS_OFFSET_EXTENDED: UNPLUGGED}, "/dev/ptp0 cannot be read: No such device"),
        ({PTP_SYS_OFFSET_EXTENDED: NOT_OFFERED, PTP_SYS_OFFSET: NOT_OFFERED}, "is it a PTP clock?"),
        ({PTP_SYS_OFFSET_EXTENDED: filled(0)}, "without a usable pair"),
    ],
)
def test_a_clock_that_cannot_be_read_says_why(answers: dict[int, bytes | OSError], said: str) -> None:
    failure = answering(answers)[0].read()
    assert isinstance(failure, PhcFailure)
    assert said in failure.detail


def test_a_missing_device_is_a_failure_with_the_next_step(tmp_path: Path) -> None:
    failure = Phc.open(tmp_path / "ptp0")
    assert isinstance(failure, PhcFailure)
    assert "ptp0: No such file or directory" in failure.detail
    assert "ethtool -T" in failure.detail


def test_a_file_that_is_no_clock_is_a_failure() -> None:
    phc = Phc.open(Path(os.devnull))
    assert isinstance(phc, Phc)
    with phc:
        assert isinstance(phc.read(), PhcFailure)
        assert isinstance(phc.time_ns(), PhcFailure)
    phc.close()


def waited(seconds: list[float]) -> Callable[[float], None]:
    return seconds.append


@pytest.mark.parametrize(
    ("second_ns", "is_good"),
    [(100 * SECOND, False), (100 * SECOND - 5, False), (None, True)],
    ids=["stands still", "runs backward", "ticks"],
)
def test_only_a_clock_that_advances_as_time_does_passes_the_probe(second_ns: int | None, is_good: bool) -> None:
    if second_ns is None:
        # The system's own clock stands for one that ticks.
        phc = Phc(DEVICE, -1, gettime_ns=lambda _clock_id: time.monotonic_ns())
        failure = probe_ticks(phc)
    else:
        failure = probe_ticks(ticking_at(100 * SECOND, second_ns))
    assert (failure is None) is is_good
    if failure:
        assert "/dev/ptp0 advanced by" in failure.detail


def test_a_probe_that_cannot_read_says_why() -> None:
    waits: list[float] = []
    failure = probe_ticks(ticking_at(100 * SECOND, UNPLUGGED), sleep=waited(waits))
    assert isinstance(failure, PhcFailure)
    assert "No such device" in failure.detail
    assert waits == [0.02]
