import threading
import time

from clockgated.lease_desk import Ending, LeaseDesk
from clockgated.leases import Lease, LeaseLimits, RefusalKind, Refused

LIMITS = LeaseLimits(max_leases=2, max_per_job=2, idle_ns=100, refuse_broken_ns=50)


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def opened(desk: LeaseDesk, job: str = "train", rank: int = 0) -> Lease:
    lease = desk.open(job, rank)
    assert isinstance(lease, Lease)
    return lease


class Waiting:
    """A thread that waits for the end of a lease."""

    def __init__(self, desk: LeaseDesk, lease: Lease) -> None:
        self.gone = threading.Event()
        self.ending: Ending | None = None
        self._thread = threading.Thread(target=self._wait, args=(desk, lease))
        self._thread.start()

    def _wait(self, desk: LeaseDesk, lease: Lease) -> None:
        self.ending = desk.wait_ended(lease, self.gone.is_set)

    def result(self, timeout_s: float = 10) -> Ending | None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive()
        return self.ending


def test_a_step_is_forbidden_while_a_lease_is_open() -> None:
    desk = LeaseDesk()
    assert desk.may_step_clock()
    assert desk.step_refusal() is None
    lease = opened(desk)
    assert not desk.may_step_clock()
    assert "1 (train, rank 0)" in (desk.step_refusal() or "")
    desk.close(lease.lease_id)
    assert desk.may_step_clock()


def test_an_overdue_lease_forbids_nothing_although_nobody_looked() -> None:
    clock = Clock()
    desk = LeaseDesk(LIMITS, now_boot_ns=clock)
    opened(desk)
    clock.now_ns = 100
    assert not desk.may_step_clock()
    clock.now_ns = 101
    assert desk.may_step_clock()
    assert desk.open_leases() == ()


def test_other_limits_hold_at_once_for_what_is_open_and_what_comes() -> None:
    clock = Clock()
    desk = LeaseDesk(LIMITS, now_boot_ns=clock)
    waiting = Waiting(desk, opened(desk))
    clock.now_ns = 60
    desk.limit(LeaseLimits(max_leases=1, max_per_job=1, idle_ns=50, refuse_broken_ns=50))
    assert desk.limits.idle_ns == 50
    assert waiting.result() is Ending.EXPIRED
    opened(desk)
    refused = desk.open("train", 1)
    assert isinstance(refused, Refused)
    assert refused.kind is RefusalKind.FULL


def test_a_check_of_its_job_and_rank_keeps_a_lease_alive_and_does_not_wake_a_dead_one() -> None:
    clock = Clock()
    desk = LeaseDesk(LIMITS, now_boot_ns=clock)
    opened(desk)
    clock.now_ns = 90
    desk.renew("train", 1)
    desk.renew("train", 0)
    clock.now_ns = 190
    assert not desk.may_step_clock()
    clock.now_ns = 191
    desk.renew("train", 0)
    assert desk.may_step_clock()


def test_refusals_say_of_what_kind_they_are() -> None:
    desk = LeaseDesk(LIMITS, now_boot_ns=Clock())
    for job, rank, kind in (("", 0, RefusalKind.UNFIT), ("train", -1, RefusalKind.UNFIT)):
        refused = desk.open(job, rank)
        assert isinstance(refused, Refused)
        assert refused.kind is kind
    lease = opened(desk)
    opened(desk, "other")
    refused = desk.open("train", 1)
    assert isinstance(refused, Refused)
    assert refused.kind is RefusalKind.FULL
    assert desk.break_lease(lease.lease_id) is not None
    refused = desk.open("train", 0)
    assert isinstance(refused, Refused)
    assert refused.kind is RefusalKind.BANNED


def test_waiting_ends_at_once_when_the_operator_breaks_the_lease() -> None:
    desk = LeaseDesk()
    lease = opened(desk)
    waiting = Waiting(desk, lease)
    time.sleep(0.05)
    began = time.monotonic()
    broken = desk.break_lease(lease.lease_id)
    assert broken is not None
    assert broken[0] == lease
    assert waiting.result() is Ending.BROKEN
    assert time.monotonic() - began < 0.9
    assert desk.break_lease(lease.lease_id) is None


def test_waiting_ends_when_no_check_came() -> None:
    clock = Clock()
    desk = LeaseDesk(LIMITS, now_boot_ns=clock)
    waiting = Waiting(desk, opened(desk))
    clock.now_ns = 101
    assert waiting.result() is Ending.EXPIRED


def test_waiting_ends_at_once_when_the_client_goes() -> None:
    desk = LeaseDesk()
    lease = opened(desk)
    waiting = Waiting(desk, lease)
    waiting.gone.set()
    desk.close(lease.lease_id)
    assert waiting.result() is Ending.GONE


def test_waiting_ends_at_once_when_the_daemon_stops() -> None:
    desk = LeaseDesk()
    first = Waiting(desk, opened(desk))
    desk.stop()
    assert first.result() is Ending.STOPPING
    assert Waiting(desk, opened(desk, "late")).result() is Ending.STOPPING
