"""What stamps prove: honest clocks are never accused, a lie beyond both bounds is found where it can be seen."""

from dataclasses import dataclass, replace

import pytest
from clockgate.v1 import clock_pb2
from clockgate_trainer.gate.audit import Receipt, audit
from clockgate_trainer.gate.model import (
    ABSENT,
    PROTOCOL_VERSION,
    Accusation,
    Kind,
    Limits,
    Row,
    SaveVerdict,
    StepVerdict,
)
from clockgate_trainer.gate.policy import LocalVerdict
from hypothesis import given
from hypothesis import strategies as st

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
MS = 1_000_000
NOW = 1_700_000_000_000 * MS


@dataclass(frozen=True)
class Clock:
    """A rank's clock: true error, and what its daemon says of it. `sent_ms` is when its row truly leaves."""

    error_ns: int = 0
    bound_ns: int = MS
    sent_ms: float = 0.0
    reference: int = 11
    utc_ns: int = ABSENT
    reasons: int = 0
    epoch: int = 1

    def row(self) -> Row:
        return Row(
            version=PROTOCOL_VERSION,
            kind=Kind.STEP,
            step=7,
            step_verdict=StepVerdict.PROCEED,
            save_verdict=SaveVerdict.SAVE,
            reasons=self.reasons,
            relative_bound_ns=self.bound_ns,
            utc_bound_ns=self.utc_ns,
            reference_hash=self.reference,
            epoch=self.epoch,
            sent_wall_ns=NOW + int(self.sent_ms * MS) + self.error_ns,
            step_duration_ns=1,
            flags=0,
            batch=1,
            cursor_digest=1,
            content_digest=ABSENT,
        )

    def receipt(self, complete_ms: float) -> Receipt:
        """The vote is complete at `complete_ms`, true time."""
        local = LocalVerdict(
            step=StepVerdict.PROCEED,
            save=SaveVerdict.SAVE,
            reasons=self.reasons,
            relative_bound_ns=None if self.bound_ns == ABSENT else self.bound_ns,
            utc_bound_ns=None if self.utc_ns == ABSENT else self.utc_ns,
            reference_hash=None if self.reference == ABSENT else self.reference,
            epoch=self.epoch,
            detail="",
        )
        return Receipt(
            int(self.sent_ms * MS), int(complete_ms * MS), NOW + int(complete_ms * MS) + self.error_ns, local
        )


def verdicts(*clocks: Clock) -> list[Accusation | None]:
    """What each rank holds against another; the vote is complete when the last row left."""
    complete_ms = max(clock.sent_ms for clock in clocks)
    rows = tuple(clock.row() for clock in clocks)
    return [audit(rows, rank, clock.receipt(complete_ms), LIMITS) for rank, clock in enumerate(clocks)]


HONEST = st.builds(
    lambda bound, share, sent, reference: Clock(int(share * bound), bound, sent, reference, int(1.5 * bound)),
    bound=st.integers(0, 200 * MS),
    share=st.floats(-1, 1),
    sent=st.floats(0, 5_000),
    reference=st.sampled_from([ABSENT, 1, 2]),
)


@given(st.lists(HONEST, min_size=1, max_size=8))
def test_clocks_within_their_bounds_are_never_accused(clocks: list[Clock]) -> None:
    assert set(verdicts(*clocks)) == {None}


def test_a_clock_ahead_by_more_than_both_bounds_is_accused_by_all_others() -> None:
    found = verdicts(Clock(), Clock(error_ns=10 * MS), Clock())
    assert found == [Accusation(1, over_hold=False, by_most=False), None, Accusation(1, over_hold=False, by_most=False)]


def test_a_clock_behind_accuses_the_others_and_says_that_they_are_most() -> None:
    found = verdicts(Clock(), Clock(), Clock(error_ns=-80 * MS))
    assert found == [None, None, Accusation(0, over_hold=True, by_most=True)]


def test_of_two_ranks_nobody_is_most() -> None:
    assert verdicts(Clock(error_ns=-80 * MS), Clock())[0] == Accusation(1, over_hold=True, by_most=False)


def test_a_lie_that_the_row_had_time_to_make_up_for_is_not_seen() -> None:
    assert verdicts(Clock(sent_ms=100), Clock(error_ns=80 * MS, sent_ms=0)) == [None, None]


@pytest.mark.parametrize(
    "other",
    [
        Clock(error_ns=10**12, bound_ns=ABSENT, epoch=ABSENT),  # free-running, disrupted, unknown, expired: no bound
        Clock(error_ns=10**12, reference=12),  # another reference, no UTC bound
        Clock(error_ns=10**12, reference=ABSENT),
        Clock(error_ns=900 * MS, reasons=1 << clock_pb2.REASON_CODE_LEAP_IN_PROGRESS),
        Clock(error_ns=900 * MS, reasons=1 << clock_pb2.REASON_CODE_LEAP_PENDING),
        Clock(error_ns=90 * MS, bound_ns=100 * MS),  # in holdover the bound has grown
    ],
)
def test_clocks_that_promise_nothing_are_not_accused(other: Clock) -> None:
    assert verdicts(Clock(), other) == [None, None]


def test_utc_bounds_compare_different_references() -> None:
    found = verdicts(Clock(reference=1, utc_ns=2 * MS), Clock(reference=2, utc_ns=2 * MS, error_ns=5 * MS))
    assert found[0] == Accusation(1, over_hold=False, by_most=False)


def test_a_rank_whose_own_clock_was_set_during_the_vote_accuses_nobody() -> None:
    rows = (Clock().row(), Clock(error_ns=-1).row())
    receipt = Clock().receipt(2_000)
    stepped_back = replace(receipt, received_wall_ns=receipt.received_wall_ns - 10_000 * MS)
    assert audit(rows, 0, stepped_back, LIMITS) is None
    set_before = replace(rows[0], sent_wall_ns=rows[0].sent_wall_ns - 10_000 * MS)
    assert audit((set_before, rows[1]), 0, stepped_back, LIMITS) is not None
    risen = replace(stepped_back, local=replace(receipt.local, epoch=2))
    assert audit((set_before, rows[1]), 0, risen, LIMITS) is None


def test_of_ones_own_two_bounds_the_larger_counts() -> None:
    rows = (Clock().row(), Clock(error_ns=3 * MS).row())
    receipt = Clock().receipt(0)
    assert audit(rows, 0, receipt, LIMITS) is not None
    grown = replace(receipt, local=replace(receipt.local, relative_bound_ns=3 * MS))
    assert audit(rows, 0, grown, LIMITS) is None
    lost = replace(receipt, local=replace(receipt.local, relative_bound_ns=None))
    assert audit(rows, 0, lost, LIMITS) is None


@given(rank=st.integers(0, 2**40), over_hold=st.booleans(), by_most=st.booleans())
def test_accusations_survive_the_wire(rank: int, over_hold: bool, by_most: bool) -> None:
    made = Accusation(rank, over_hold, by_most)
    assert Accusation.from_wire(made.to_wire()) == made
    assert Accusation.from_wire(ABSENT) is None
