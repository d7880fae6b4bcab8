import ctypes
import errno
from pathlib import Path

import pytest
from clockgated import host
from clockgated.clock.model import Evidence, ReasonCode, Silence, Traceability
from clockgated.sources.clock_writer import ClockWriter
from clockgated.sources.kernel import KernelSource, KernelTimes, kernel_evidence, read_adjtimex, read_look
from clockgated.timex import Timex
from support.evidence import SECOND
from support.fake_proc import add_process

CHRONYD = ClockWriter("chronyd", 10, 5, True)
NTPD = ClockWriter("ntpd", 11, 5, True)
PHC2SYS = ClockWriter("phc2sys", 12, 5, False)
TIMES = KernelTimes(time_state=0, offset_ns=0, maxerror_us=2_000, esterror_us=100)


def judged(times: KernelTimes = TIMES, *writers: ClockWriter) -> Evidence:
    return kernel_evidence(times, writers or (CHRONYD,), 7, "0")


def codes(evidence: Evidence) -> list[ReasonCode]:
    return [reason.code for reason in evidence.faults]


def test_bound_is_what_the_daemon_left_in_the_kernel() -> None:
    evidence = judged(KernelTimes(0, -40_000, 2_000, 100))
    assert evidence.bound_ns == 2_000_000 + 100_000 + 40_000 + 3_000
    assert evidence.utc_bound_ns == evidence.bound_ns
    assert evidence.reference.traceability is Traceability.UNKNOWN
    assert evidence.reference.identity is None
    assert codes(evidence) == []


def test_a_correction_still_to_be_made_is_an_offset_of_the_other_sign() -> None:
    assert judged(KernelTimes(0, -40_000, 2_000, 100)).offset_ns == 40_000
    assert judged().offset_ns is None


@pytest.mark.parametrize(
    "writers",
    [(), (PHC2SYS,), (CHRONYD, NTPD), (CHRONYD, PHC2SYS), (ClockWriter("ntpd", 3, 4, False),)],
    ids=["nobody", "phc2sys", "two daemons", "chronyd and phc2sys", "ntpd without the kernel"],
)
def test_a_bound_of_unproven_origin_is_not_trusted(writers: tuple[ClockWriter, ...]) -> None:
    evidence = kernel_evidence(TIMES, writers, 7, "0")
    assert codes(evidence) == [ReasonCode.KERNEL_BOUND_NOT_TRUSTED]
    assert (evidence.bound_ns, evidence.utc_bound_ns) == (None, None)


def test_maximum_error_of_16_s_means_that_nobody_keeps_the_clock() -> None:
    evidence = judged(KernelTimes(5, 0, 16_000_000, 16_000_000))
    assert codes(evidence) == [ReasonCode.KERNEL_UNSYNCHRONISED]
    assert evidence.bound_ns is None
    # The error state alone is no fault: chronyd leaves the flag set without `rtcsync`.
    assert codes(judged(KernelTimes(5, 0, 15_999_999, 0))) == []


def test_a_leap_second_in_progress_is_told() -> None:
    evidence = judged(KernelTimes(3, 0, 2_000, 100))
    assert evidence.leap_in_progress
    assert [remark.code for remark in evidence.remarks] == [ReasonCode.LEAP_IN_PROGRESS]
    assert not judged(KernelTimes(4, 0, 2_000, 100)).leap_in_progress


def test_writers_are_the_steering_identity() -> None:
    assert judged(TIMES, CHRONYD).steering_id == "chronyd[10]@5"
    assert judged(TIMES, NTPD, CHRONYD).steering_id == judged(TIMES, CHRONYD, NTPD).steering_id
    assert kernel_evidence(TIMES, (), 7, "0").steering_id is None


class Kernel:
    """A source over an invented kernel and an invented /proc."""

    def __init__(self, proc: Path) -> None:
        self.now_ns = 0
        self.times = TIMES
        self.error: OSError | None = None
        self.source = KernelSource(proc, self.read_times, lambda: host.Stamp(self.now_ns, self.now_ns, self.now_ns))

    def read_times(self) -> KernelTimes:
        if self.error is not None:
            raise self.error
        return self.times

    def evidence(self, after_ns: int = SECOND) -> Evidence:
        self.now_ns += after_ns
        result = self.source.read()
        assert isinstance(result, Evidence)
        return result


def test_a_second_writer_is_noticed_within_seconds(tmp_path: Path) -> None:
    add_process(tmp_path, 10, "chronyd")
    kernel = Kernel(tmp_path)
    assert codes(kernel.evidence()) == []
    add_process(tmp_path, 20, "phc2sys")
    assert codes(kernel.evidence(after_ns=11 * SECOND)) == [ReasonCode.KERNEL_BOUND_NOT_TRUSTED]


def test_a_writer_that_ended_is_noticed_at_once(tmp_path: Path) -> None:
    add_process(tmp_path, 10, "chronyd", start_ticks=5)
    add_process(tmp_path, 20, "phc2sys", start_ticks=5)
    kernel = Kernel(tmp_path)
    first = kernel.evidence()
    assert codes(first) == [ReasonCode.KERNEL_BOUND_NOT_TRUSTED]
    add_process(tmp_path, 20, "bash", start_ticks=6)
    second = kernel.evidence()
    assert codes(second) == []
    assert second.steering_id not in (None, first.steering_id)


def test_an_error_that_shrank_was_updated(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    first = kernel.evidence().update_id
    kernel.times = KernelTimes(0, 0, 2_500, 100)
    assert kernel.evidence().update_id == first
    kernel.times = KernelTimes(0, 0, 1_000, 100)
    assert kernel.evidence().update_id not in (None, first)


def test_a_forbidden_call_is_a_silence(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.error = PermissionError(errno.EPERM, "forbidden")
    result = kernel.source.read()
    assert isinstance(result, Silence)
    assert result.reason.code is ReasonCode.SOURCE_UNREACHABLE
    assert "forbidden" in result.reason.detail


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_long) != 8, reason="the size is that of a 64-bit struct timex")
def test_the_kernel_writes_no_further_than_our_structure() -> None:
    assert ctypes.sizeof(Timex) == 208


def test_the_real_kernel_shows_how_it_steers() -> None:
    before = host.boot_ns()
    look = read_look()
    assert look is not None
    assert before <= look.boot_ns <= host.boot_ns()
    assert abs(look.freq_ppb) <= 500_001
    assert 9_000 <= look.tick_us <= 11_000
    assert look.tai_offset_s is None or 30 < look.tai_offset_s < 50


def test_the_real_kernel_answers_without_a_change() -> None:
    times = read_adjtimex()
    assert 0 <= times.time_state <= 5
    assert 0 <= times.maxerror_us <= 16_000_000
    result = KernelSource().read()
    assert isinstance(result, Evidence)
    assert 0 <= host.boot_ns() - result.as_of_boot_ns < 60 * SECOND
