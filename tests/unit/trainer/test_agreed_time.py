import pytest
from clockgate_trainer.checkpoint.agreed_time import LARGEST_BOUND_WAITED_OUT_NS, agree_on_time, disruptions
from clockgate_trainer.checkpoint.manifest import AgreedTime, Disruption
from clockgate_trainer.gate.model import ABSENT, Decision, Kind, SaveVerdict
from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints import make_decision, make_row

WALL_NS = make_row().sent_wall_ns


def vote(**first: int) -> Decision:
    """A SAVE vote of three ranks of which the first is as told."""
    return make_decision(1, make_row(Kind.SAVE, **first), make_row(Kind.SAVE), make_row(Kind.SAVE))


def test_the_utc_bound_of_rank_0_comes_first() -> None:
    timing = agree_on_time(vote(), vote(utc_bound_ns=3_000_000))
    assert timing.agreed == AgreedTime(WALL_NS + 3_000_000, 3_000_000, "utc", True)
    assert (timing.absent_because, timing.wall_ns, timing.wait_ns) == (None, WALL_NS, 6_000_000)


def test_the_relative_bound_counts_where_all_ranks_name_one_reference() -> None:
    timing = agree_on_time(vote(), vote(relative_bound_ns=2_000_000))
    assert timing.agreed == AgreedTime(WALL_NS + 2_000_000, 2_000_000, "relative", True)


@pytest.mark.parametrize("first", [{"reference_hash": 8}, {"reference_hash": ABSENT}, {"relative_bound_ns": ABSENT}])
def test_without_a_bound_that_holds_for_all_there_is_no_time(first: dict[str, int]) -> None:
    timing = agree_on_time(vote(), vote(**first))
    assert timing.agreed is None
    assert timing.absent_because is not None
    assert "unverified_wall_ns is rank 0's own clock" in timing.absent_because
    assert (timing.wall_ns, timing.wait_ns) == (WALL_NS, 0)


def test_a_wide_bound_is_told_and_not_waited_out() -> None:
    narrow, wide = LARGEST_BOUND_WAITED_OUT_NS, LARGEST_BOUND_WAITED_OUT_NS + 1
    assert agree_on_time(vote(), vote(utc_bound_ns=narrow)).wait_ns == 2 * narrow
    timing = agree_on_time(vote(), vote(utc_bound_ns=wide))
    assert timing.agreed == AgreedTime(WALL_NS + wide, wide, "utc", False)
    assert timing.wait_ns == 0


@pytest.mark.parametrize("verdict", [SaveVerdict.SAVE_UNTIMED, SaveVerdict.SKIP_SAVE])
def test_no_time_is_agreed_on_against_any_ranks_vote(verdict: SaveVerdict) -> None:
    refusing = make_decision(1, make_row(), make_row(save_verdict=verdict, reasons=1 << 2))
    for step, save in ((refusing, vote()), (vote(), refusing)):
        timing = agree_on_time(step, save)
        assert timing.agreed is None
        assert f"{verdict.name} (SOURCE_UNREACHABLE)" in (timing.absent_because or "")


@given(st.integers(0, LARGEST_BOUND_WAITED_OUT_NS), st.floats(-1, 1))
def test_the_agreed_time_is_never_before_the_save_nor_after_the_checkpoint_is_there(
    bound_ns: int, place: float
) -> None:
    timing = agree_on_time(vote(), vote(utc_bound_ns=bound_ns))
    assert timing.agreed is not None
    saved_at_ns = WALL_NS + round(place * bound_ns)  # by the reference, anywhere within the bound
    assert saved_at_ns <= timing.agreed.wall_ns <= saved_at_ns + timing.wait_ns


def test_only_a_known_epoch_that_changed_is_a_disruption() -> None:
    rows = tuple(make_row(epoch=epoch) for epoch in (3, 4, ABSENT, 9))
    assert disruptions({0: 3, 1: 3, 2: 3}, rows) == (Disruption(1, 3, 4),)
    assert disruptions({}, rows) == ()
