"""The one book of leases of this daemon, for threads: the API writes in it, the measuring one asks whether to step."""

import threading
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from clockgated import host, leases
from clockgated.leases import Ban, Lease, LeaseBook, LeaseLimits, Refused

# Leases end by CLOCK_BOOTTIME, which no condition waits for: after sleep a lease is found overdue this much later.
_RECHECK_S = 1.0
_USUAL_LIMITS = LeaseLimits()


class Ending(Enum):
    """Why a lease is over."""

    GONE = "its job went away"
    EXPIRED = "no Check came for too long"
    BROKEN = "the operator broke it"
    STOPPING = "clockgated is stopping"


class LeaseDesk:
    """Every method may be called from any thread, and sees the book without what is overdue.

    `is_enforced` tells those who register whether this daemon manages the clock, so that their leases have force; the
    owner sets it when that changes.
    """

    def __init__(
        self,
        limits: LeaseLimits = _USUAL_LIMITS,
        *,
        is_enforced: bool = False,
        now_boot_ns: Callable[[], int] = host.boot_ns,
    ) -> None:
        self.is_enforced = is_enforced
        self._changed = threading.Condition()
        self._book = LeaseBook(limits)
        self._is_stopping = False
        self._now_boot_ns = now_boot_ns

    @property
    def limits(self) -> LeaseLimits:
        """The limits in force."""
        with self._changed:
            return self._book.limits

    def limit(self, limits: LeaseLimits) -> None:
        """Put other limits in force. Leases above a lower number stay; those that a shorter time ends are over."""
        with self._changed:
            self._book = replace(self._book, limits=limits)
            self._changed.notify_all()

    def open(self, job: str, rank: int) -> Lease | Refused:
        """Open a lease for one rank of a job."""
        with self._changed:
            self._book, lease = leases.open_lease(self._book, job, rank, self._now_boot_ns())
            return lease

    def close(self, lease_id: str) -> None:
        """End a lease whose connection is over; nothing when it ended before."""
        with self._changed:
            self._book = leases.close_lease(self._book, lease_id)
            self._changed.notify_all()

    def renew(self, job: str, rank: int) -> None:
        """Note a Check of one rank of a job."""
        with self._changed:
            self._book = leases.renew(self._swept(), job, rank, self._now_boot_ns())

    def break_lease(self, lease_id: str) -> tuple[Lease, Ban] | None:
        """End a lease against its job's will, and what the job has to wait for then; None when it is not open."""
        with self._changed:
            self._book, broken = leases.break_lease(self._swept(), lease_id, self._now_boot_ns())
            self._changed.notify_all()
            return None if broken is None else (broken, self._book.bans[-1])

    def open_leases(self) -> tuple[Lease, ...]:
        """Every open lease, the oldest first."""
        with self._changed:
            return self._swept().leases

    def step_refusal(self) -> str | None:
        """Who forbids a step of the clock and what to do about it; None when nobody does."""
        return leases.step_refusal(self.open_leases())

    def may_step_clock(self) -> bool:
        """Whether the clock may be stepped and links be reset."""
        return leases.may_step_clock(self.open_leases())

    def wait_ended(self, lease: Lease, is_gone: Callable[[], bool]) -> Ending:
        """Block until `lease` is over. `is_gone` says whether its client is; call `close` when that changes."""
        with self._changed:
            while True:
                if is_gone():
                    return Ending.GONE
                if self._is_stopping:
                    return Ending.STOPPING
                book = self._swept()
                if all(other.lease_id != lease.lease_id for other in book.leases):
                    is_banned = any(ban.job == lease.job for ban in book.bans)
                    return Ending.BROKEN if is_banned else Ending.EXPIRED
                self._changed.wait(_RECHECK_S)

    def stop(self) -> None:
        """End every wait, now and later."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def _swept(self) -> LeaseBook:
        self._book, _ = leases.expire(self._book, self._now_boot_ns())
        return self._book
