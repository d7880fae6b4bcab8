"""The book of no-step leases: while a job holds one, its node's clock is slewed only and its links are not reset.

Pure and frozen: every function returns the next book, and time (CLOCK_BOOTTIME, ns) is an argument. Anyone on the node
may open a lease, so their number is capped, a lease whose job asks nothing ends by itself, and root can break one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from clockgated.units import NS_PER_S

_MAX_JOB_CHARACTERS = 200


@dataclass(frozen=True)
class LeaseLimits:
    """At most `max_leases`, of them `max_per_job` of one job; each ends `idle_ns` after its last Check.

    After a lease was broken its job is refused for `refuse_broken_ns`: its client reconnects within a second, and the
    break would change nothing.
    """

    max_leases: int = 64
    max_per_job: int = 16
    idle_ns: int = 600 * NS_PER_S
    refuse_broken_ns: int = 600 * NS_PER_S


@dataclass(frozen=True)
class Lease:
    """One open lease. `checked_boot_ns` is the last sign of life of its job: the opening or a Check."""

    lease_id: str
    job: str
    rank: int
    opened_boot_ns: int
    checked_boot_ns: int


@dataclass(frozen=True)
class Ban:
    """A job whose lease was broken, and until when it gets no other."""

    job: str
    until_boot_ns: int


@dataclass(frozen=True)
class LeaseBook:
    """Every open lease, oldest first. `opened` counts all that ever were; ids are made from it and never reused."""

    limits: LeaseLimits = LeaseLimits()
    leases: tuple[Lease, ...] = ()
    bans: tuple[Ban, ...] = ()
    opened: int = 0


class RefusalKind(Enum):
    """Why there is no lease: the request is wrong, there are too many, or the operator broke one of this job."""

    UNFIT = auto()
    FULL = auto()
    BANNED = auto()


@dataclass(frozen=True)
class Refused:
    """No lease, and why: what was asked, the limit, the next step."""

    kind: RefusalKind
    why: str


def open_lease(book: LeaseBook, job: str, rank: int, now_boot_ns: int) -> tuple[LeaseBook, Lease | Refused]:
    """Open a lease for one rank of a job. A rank that has one keeps it, and gets a second one: two connections."""
    book, _ = expire(book, now_boot_ns)
    refusal = _unfit(job, rank) or _banned(book, job, now_boot_ns) or _full(book, job)
    if refusal is not None:
        return book, refusal
    lease = Lease(str(book.opened + 1), job, rank, now_boot_ns, now_boot_ns)
    return replace(book, leases=(*book.leases, lease), opened=book.opened + 1), lease


def renew(book: LeaseBook, job: str, rank: int, now_boot_ns: int) -> LeaseBook:
    """Note a Check of one rank of a job."""
    renewed = (
        replace(lease, checked_boot_ns=now_boot_ns) if (lease.job, lease.rank) == (job, rank) else lease
        for lease in book.leases
    )
    return replace(book, leases=tuple(renewed))


def close_lease(book: LeaseBook, lease_id: str) -> LeaseBook:
    """End a lease whose connection is over; nothing when it ended before."""
    return replace(book, leases=tuple(lease for lease in book.leases if lease.lease_id != lease_id))


def break_lease(book: LeaseBook, lease_id: str, now_boot_ns: int) -> tuple[LeaseBook, Lease | None]:
    """End a lease against its job's will and refuse the job another for a while; None when there is no such lease."""
    broken = next((lease for lease in book.leases if lease.lease_id == lease_id), None)
    if broken is None:
        return book, None
    others = tuple(ban for ban in book.bans if ban.job != broken.job)
    ban = Ban(broken.job, now_boot_ns + book.limits.refuse_broken_ns)
    return replace(close_lease(book, lease_id), bans=(*others, ban)), broken


def expire(book: LeaseBook, now_boot_ns: int) -> tuple[LeaseBook, tuple[Lease, ...]]:
    """End what is overdue: leases without a Check for too long, which are returned, and bans."""
    ended = tuple(lease for lease in book.leases if now_boot_ns - lease.checked_boot_ns > book.limits.idle_ns)
    left = tuple(lease for lease in book.leases if lease not in ended)
    bans = tuple(ban for ban in book.bans if ban.until_boot_ns > now_boot_ns)
    return replace(book, leases=left, bans=bans), ended


def may_step_clock(leases: Sequence[Lease]) -> bool:
    """Whether the clock may be stepped and links be reset: only while nobody holds a lease."""
    return not leases


def step_refusal(leases: Sequence[Lease]) -> str | None:
    """Who forbids a step and what to do about it, for the reason and the alert; None when nobody does."""
    if may_step_clock(leases):
        return None
    holders = ", ".join(f"{lease.lease_id} ({lease.job}, rank {lease.rank})" for lease in leases[:3])
    more = f" and {len(leases) - 3} more" if len(leases) > 3 else ""
    return f"leases {holders}{more} forbid a step; wait for the jobs to end, or `clockgatectl lease break ID`"


def _unfit(job: str, rank: int) -> Refused | None:
    if not job or len(job) > _MAX_JOB_CHARACTERS or not job.isprintable():
        why = f"job name of {len(job)} characters: wanted 1 to {_MAX_JOB_CHARACTERS} printable ones"
        return Refused(RefusalKind.UNFIT, why)
    return Refused(RefusalKind.UNFIT, f"rank = {rank}: wanted 0 or more") if rank < 0 else None


def _banned(book: LeaseBook, job: str, now_boot_ns: int) -> Refused | None:
    for ban in book.bans:
        if ban.job == job:
            left_s = (ban.until_boot_ns - now_boot_ns) / NS_PER_S
            why = f"a lease of job {job} was broken by the operator; ask again in {left_s:.0f} s"
            return Refused(RefusalKind.BANNED, why)
    return None


def _full(book: LeaseBook, job: str) -> Refused | None:
    limits = book.limits
    if len(book.leases) >= limits.max_leases:
        why = f"{len(book.leases)} leases are open, the limit is {limits.max_leases}; see `clockgatectl leases`"
    elif sum(lease.job == job for lease in book.leases) >= limits.max_per_job:
        why = f"job {job} has {limits.max_per_job} leases on this node, which is the limit; close one first"
    else:
        return None
    return Refused(RefusalKind.FULL, why)
