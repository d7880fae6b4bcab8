from clockgated.leases import (
    Lease,
    LeaseBook,
    LeaseLimits,
    Refused,
    break_lease,
    close_lease,
    expire,
    may_step_clock,
    open_lease,
    renew,
    step_refusal,
)
from hypothesis import given
from hypothesis import strategies as st

LIMITS = LeaseLimits(max_leases=4, max_per_job=2, idle_ns=100, refuse_broken_ns=50)
EMPTY = LeaseBook(LIMITS)


def _opened(book: LeaseBook, job: str, rank: int = 0, now: int = 0) -> tuple[LeaseBook, Lease]:
    book, lease = open_lease(book, job, rank, now)
    assert isinstance(lease, Lease)
    return book, lease


def _refused(book: LeaseBook, job: str, now: int = 0) -> str:
    after, refusal = open_lease(book, job, 0, now)
    assert isinstance(refusal, Refused)
    assert after.leases == book.leases
    return refusal.why


def test_the_clock_may_be_stepped_only_while_nobody_holds_a_lease() -> None:
    assert may_step_clock(EMPTY.leases)
    assert step_refusal(EMPTY.leases) is None
    book, lease = _opened(EMPTY, "train")
    assert not may_step_clock(book.leases)
    refusal = step_refusal(book.leases)
    assert refusal is not None
    assert "1 (train, rank 0)" in refusal
    assert "lease break" in refusal
    assert may_step_clock(close_lease(book, lease.lease_id).leases)


def test_a_refusal_of_a_step_names_a_few_holders() -> None:
    book = LeaseBook(LeaseLimits())
    for rank in range(10):
        book, _ = _opened(book, "train", rank)
    refusal = step_refusal(book.leases)
    assert refusal is not None
    assert "and 7 more" in refusal


def test_leases_are_capped_per_job_and_in_all() -> None:
    book, _ = _opened(EMPTY, "a")
    book, _ = _opened(book, "a", 1)
    assert "job a has 2 leases" in _refused(book, "a")
    book, _ = _opened(book, "b")
    book, last = _opened(book, "c")
    assert "4 leases are open, the limit is 4" in _refused(book, "d")
    book, _ = _opened(close_lease(book, last.lease_id), "d")


def test_a_lease_without_a_check_ends_and_one_with_a_check_stays() -> None:
    book, first = _opened(EMPTY, "a")
    book, second = _opened(book, "b")
    book = renew(book, "b", 0, 80)
    book, ended = expire(book, 101)
    assert ended == (first,)
    assert [lease.lease_id for lease in book.leases] == [second.lease_id]
    assert expire(book, 180)[1] == ()
    assert len(expire(book, 181)[1]) == 1


def test_a_check_of_another_rank_or_job_renews_nothing() -> None:
    book, _ = _opened(EMPTY, "a", 0)
    assert renew(renew(book, "a", 1, 50), "b", 0, 50) == book


def test_overdue_leases_make_room_for_new_ones() -> None:
    book = EMPTY
    for job in "abcd":
        book, _ = _opened(book, job)
    book, lease = _opened(book, "e", now=101)
    assert book.leases == (lease,)


def test_a_broken_lease_does_not_come_back_at_once() -> None:
    book, lease = _opened(EMPTY, "a")
    book, broken = break_lease(book, lease.lease_id, 10)
    assert broken == lease
    assert may_step_clock(book.leases)
    assert "broken by the operator" in _refused(book, "a", 59)
    book, other = _opened(book, "b", now=59)
    book, again = _opened(book, "a", now=60)
    assert {one.lease_id for one in book.leases} == {other.lease_id, again.lease_id}
    assert again.lease_id != lease.lease_id


def test_breaking_what_is_not_there_changes_nothing() -> None:
    assert break_lease(EMPTY, "1", 0) == (EMPTY, None)


def test_a_job_without_a_readable_name_is_refused() -> None:
    for job in ("", "x" * 201, "a\nb", "\x1b[2J"):
        assert "wanted 1 to 200 printable" in _refused(EMPTY, job)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["open", "close", "renew", "break", "expire"]),
        st.sampled_from("ab"),
        st.integers(0, 3),
        st.integers(0, 60),
    ),
    max_size=60,
)


@given(ACTIONS)
def test_caps_hold_and_ids_are_never_reused_whatever_happens(actions: list[tuple[str, str, int, int]]) -> None:
    book, now, ids = EMPTY, 0, set[str]()
    for action, job, number, later in actions:
        now += later
        if action == "open":
            book, lease = open_lease(book, job, number, now)
            if isinstance(lease, Lease):
                assert lease.lease_id not in ids
                ids.add(lease.lease_id)
        elif action == "close":
            book = close_lease(book, str(number))
        elif action == "renew":
            book = renew(book, job, number, now)
        elif action == "break":
            book, _ = break_lease(book, str(number), now)
        else:
            book, _ = expire(book, now)
            assert all(now - lease.checked_boot_ns <= LIMITS.idle_ns for lease in book.leases)
        assert len(book.leases) <= LIMITS.max_leases
        assert all(sum(lease.job == name for lease in book.leases) <= LIMITS.max_per_job for name in "ab")
        assert len(book.bans) <= 2
