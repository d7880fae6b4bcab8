"""A slow rank and a skewed clock, told apart."""

from collections.abc import Sequence
from dataclasses import replace

from clockgate_trainer.gate.decide import decide
from clockgate_trainer.gate.model import ABSENT, Accusation, Decision, Limits
from clockgate_trainer.gate.pace import Finding, Pace
from support.checkpoints import make_row

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
MS = 1_000_000


def decision(times_ms: Sequence[float | None], accused: int = ABSENT) -> Decision:
    rows = [make_row(step_duration_ns=ABSENT if ms is None else int(ms * MS)) for ms in times_ms]
    rows[0] = replace(rows[0], content_digest=accused)
    return decide(tuple(rows), LIMITS)


def events(pace: Pace, times_ms: Sequence[float | None], accused: int = ABSENT, steps: int = 1) -> list[Finding]:
    return [finding for _ in range(steps) for finding in pace.observe(decision(times_ms, accused))]


def test_a_rank_is_slow_after_five_steps_and_is_told_once_until_it_keeps_up() -> None:
    pace = Pace()
    assert events(pace, (100, 102, 180), steps=4) == []
    (slow,) = events(pace, (100, 102, 180), steps=3)
    assert (slow.event, slow.ranks, slow.step_ns, slow.others_ns) == ("slow_rank", (2,), 180 * MS, 101 * MS)
    assert "its clock is not to blame" in slow.detail
    (over,) = events(pace, (100, 102, 99), steps=3)
    assert (over.event, over.ranks) == ("slow_rank_over", (2,))


def test_a_hiccup_and_unequal_rows_make_nobody_slow() -> None:
    pace = Pace()
    for times in ((100, 100, 400), (100, 100, 100), (100, 140, 90), (1, 2, 1), (None, 100, 100)):
        assert events(pace, times) == []
    assert events(Pace(), (100,), steps=9) == events(Pace(), (None, 900), steps=9) == []


def test_a_skewed_clock_on_a_rank_that_keeps_up_is_not_called_slow() -> None:
    pace = Pace()
    accused = Accusation(2, over_hold=False, by_most=False).to_wire()
    (skewed,) = events(pace, (100, 102, 99), accused, steps=7)
    assert (skewed.event, skewed.ranks) == ("skewed_clock", (0, 2))
    assert "one of ranks 0, 2" in skewed.detail
    assert "it is not slow" in skewed.detail
    assert events(pace, (100, 102, 99), steps=19) == events(pace, (100, 102, 99), accused, steps=2) == []
    (over,) = events(pace, (100, 102, 99), steps=30)
    assert over.event == "skewed_clock_over"


def test_a_rank_that_is_both_is_said_to_be_both() -> None:
    pace = Pace()
    own = Accusation(1, over_hold=True, by_most=True).to_wire()
    found = events(pace, (200, 100, 100), own, steps=5)
    assert [(finding.event, finding.ranks) for finding in found] == [("skewed_clock", (0,)), ("slow_rank", (0,))]
    assert "slow as well" in found[0].detail
    assert "disproved too" in found[1].detail
