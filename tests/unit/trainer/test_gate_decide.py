"""All rows to one decision."""

from dataclasses import replace

import pytest
from clockgate.v1 import clock_pb2
from clockgate_trainer.errors import DesyncError
from clockgate_trainer.gate.decide import decide
from clockgate_trainer.gate.model import (
    ABSENT,
    PROTOCOL_VERSION,
    Accusation,
    Decision,
    Flags,
    Kind,
    Limits,
    Row,
    SaveVerdict,
    StepVerdict,
)
from hypothesis import given
from hypothesis import strategies as st

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
GOOD = Row(
    version=PROTOCOL_VERSION,
    kind=Kind.STEP,
    step=7,
    step_verdict=StepVerdict.PROCEED,
    save_verdict=SaveVerdict.SAVE,
    reasons=0,
    relative_bound_ns=1_000_000,
    utc_bound_ns=ABSENT,
    reference_hash=11,
    epoch=1,
    sent_wall_ns=1,
    step_duration_ns=1,
    flags=0,
    batch=1,
    cursor_digest=1,
    content_digest=ABSENT,
)
BLIND = replace(GOOD, relative_bound_ns=ABSENT, reference_hash=ABSENT, epoch=ABSENT)


def decided(*rows: Row) -> Decision:
    return decide(rows, LIMITS)


def has(decision: Decision, code: "clock_pb2.ReasonCode.ValueType") -> bool:
    return bool(decision.reasons >> code & 1)


def test_the_strictest_rank_decides_and_is_blamed() -> None:
    held = replace(GOOD, step_verdict=StepVerdict.HOLD, save_verdict=SaveVerdict.SAVE_UNTIMED, reasons=1 << 35)
    decision = decided(GOOD, held, replace(GOOD, step_verdict=StepVerdict.WARN, reasons=1 << 36), held)
    assert (decision.step_verdict, decision.save_verdict) == (StepVerdict.HOLD, SaveVerdict.SAVE_UNTIMED)
    assert decision.blamed_ranks == (1, 3)
    assert decision.reasons == 1 << 35 | 1 << 36


def test_nobody_is_blamed_when_all_proceed() -> None:
    decision = decided(GOOD, GOOD)
    assert (decision.step_verdict, decision.blamed_ranks, decision.reasons) == (StepVerdict.PROCEED, (), 0)


def test_the_pairwise_bound_is_the_sum_of_the_two_largest() -> None:
    bounds = (1_000_000, 30_000_000, 2_000_000, 19_000_000)
    decision = decided(*(replace(GOOD, relative_bound_ns=bound) for bound in bounds))
    assert (decision.cluster_bound_ns, decision.bound_basis) == (49_000_000, "relative")
    assert decision.step_verdict is StepVerdict.WARN
    assert decision.blamed_ranks == (1, 3)
    assert has(decision, clock_pb2.REASON_CODE_WARN_LIMIT)


def test_a_pairwise_bound_above_the_hold_limit_holds_although_every_rank_proceeds() -> None:
    decision = decided(*(replace(GOOD, reference_hash=rank, utc_bound_ns=26_000_000) for rank in (1, 2)))
    assert (decision.cluster_bound_ns, decision.bound_basis) == (52_000_000, "utc")
    assert decision.step_verdict is StepVerdict.HOLD
    assert has(decision, clock_pb2.REASON_CODE_HOLD_LIMIT)


def test_limits_are_still_allowed_when_reached_exactly() -> None:
    assert decided(*[replace(GOOD, relative_bound_ns=2_500_000)] * 2).step_verdict is StepVerdict.PROCEED
    assert decided(*[replace(GOOD, relative_bound_ns=25_000_000)] * 2).step_verdict is StepVerdict.WARN


def test_different_references_without_a_common_utc_bound_hold() -> None:
    other = replace(GOOD, reference_hash=12, utc_bound_ns=2_000_000)
    decision = decided(GOOD, other)
    assert (decision.step_verdict, decision.cluster_bound_ns) == (StepVerdict.HOLD, None)
    assert decision.bound_basis == "none"
    assert has(decision, clock_pb2.REASON_CODE_REFERENCES_DIFFER)


def test_a_reference_without_a_name_is_told_and_not_held() -> None:
    nameless = replace(GOOD, reference_hash=ABSENT)
    decision = decided(nameless, nameless)
    assert (decision.step_verdict, decision.cluster_bound_ns) == (StepVerdict.PROCEED, None)
    assert has(decision, clock_pb2.REASON_CODE_REFERENCES_DIFFER)


def test_a_missing_bound_makes_the_clusters_bound_unknown_and_changes_no_verdict() -> None:
    for blind in (BLIND, replace(BLIND, step_verdict=StepVerdict.WARN)):
        decision = decided(GOOD, blind)
        assert (decision.cluster_bound_ns, decision.bound_basis) == (None, "none")
        assert decision.step_verdict == blind.step_verdict
        assert decision.reasons == 0


def test_a_blind_rank_does_not_hide_what_the_others_know() -> None:
    pair = [replace(GOOD, reference_hash=rank, utc_bound_ns=40_000_000) for rank in (1, 2)]
    assert decided(*pair).step_verdict is StepVerdict.HOLD
    assert decided(*pair, BLIND).step_verdict is StepVerdict.HOLD


def test_a_single_clock_stands_with_its_own_bound() -> None:
    decision = decided(replace(GOOD, reference_hash=ABSENT, relative_bound_ns=4_000_000))
    assert (decision.cluster_bound_ns, decision.bound_basis) == (4_000_000, "relative")
    assert decision.step_verdict is StepVerdict.PROCEED


def accusing(rank: int, *, over_hold: bool = False, by_most: bool = False) -> Row:
    return replace(GOOD, content_digest=Accusation(rank, over_hold, by_most).to_wire())


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ((accusing(1), GOOD), (0, 1)),  # of two, either may be wrong
        ((accusing(1), GOOD, GOOD, GOOD), (0, 1)),  # the others saw nothing
        ((accusing(2), accusing(2), GOOD), (2,)),
        ((accusing(2), accusing(2), GOOD, GOOD, GOOD), (0, 1, 2)),  # two of four are no majority
        ((accusing(1, by_most=True), GOOD, GOOD), (0,)),  # one against most
    ],
)
def test_a_disproved_clock_warns_is_named_and_leaves_a_save_without_a_time(
    rows: tuple[Row, ...], named: tuple[int, ...]
) -> None:
    decision = decided(*rows)
    assert decision.disproved_ranks == decision.blamed_ranks == named
    assert (decision.step_verdict, decision.save_verdict) == (StepVerdict.WARN, SaveVerdict.SAVE_UNTIMED)
    assert has(decision, clock_pb2.REASON_CODE_CAUSALITY_VIOLATED)
    assert decision.untimed_reasons == 1 << clock_pb2.REASON_CODE_CAUSALITY_VIOLATED


def test_a_clock_off_by_more_than_the_hold_limit_holds() -> None:
    assert decided(accusing(1, over_hold=True), GOOD).step_verdict is StepVerdict.HOLD


@pytest.mark.parametrize("accused", [0, 2, 9])
def test_accusing_oneself_or_a_rank_that_is_not_there_is_desync(accused: int) -> None:
    with pytest.raises(DesyncError, match=f"rank 0 accuses rank {accused}"):
        decided(accusing(accused), GOOD)
    with pytest.raises(DesyncError, match="content_digest -2"):
        decided(replace(GOOD, content_digest=-2), GOOD)


def test_digests_of_saves_accuse_nobody() -> None:
    save = replace(GOOD, kind=Kind.SAVE, content_digest=2**62)
    assert decided(save, save).disproved_ranks == ()


def test_a_save_without_a_bound_that_compares_all_clocks_has_no_agreed_time() -> None:
    assert (decided(GOOD, GOOD).save_verdict, decided(GOOD, GOOD).untimed_reasons) == (SaveVerdict.SAVE, 0)
    differ = decided(GOOD, replace(GOOD, reference_hash=12))
    assert differ.save_verdict is SaveVerdict.SAVE_UNTIMED
    assert differ.untimed_reasons == 1 << clock_pb2.REASON_CODE_REFERENCES_DIFFER
    blind = decided(GOOD, BLIND)
    assert blind.save_verdict is SaveVerdict.SAVE_UNTIMED
    assert blind.untimed_reasons == 1 << clock_pb2.REASON_CODE_NO_USABLE_BOUND
    told = decided(GOOD, replace(BLIND, save_verdict=SaveVerdict.SAVE_UNTIMED, reasons=1 << 33))
    assert told.untimed_reasons == 1 << clock_pb2.REASON_CODE_DAEMON_UNREACHABLE


def test_the_last_save_is_never_skipped_for_a_clock() -> None:
    skipped = decided(replace(GOOD, save_verdict=SaveVerdict.SKIP_SAVE), GOOD)
    assert skipped.save_verdict is SaveVerdict.SKIP_SAVE
    assert skipped.for_last_save().save_verdict is SaveVerdict.SAVE_UNTIMED
    assert decided(GOOD, GOOD).for_last_save().save_verdict is SaveVerdict.SAVE


def test_only_rank_zero_spends_the_budget() -> None:
    held = replace(GOOD, kind=Kind.HOLD_POLL, step_verdict=StepVerdict.HOLD)
    polled = replace(GOOD, kind=Kind.HOLD_POLL)
    spent = decided(replace(polled, flags=Flags.BUDGET_SPENT), held)
    assert spent.step_verdict is StepVerdict.STOP
    assert has(spent, clock_pb2.REASON_CODE_HOLD_BUDGET_SPENT)
    assert spent.blamed_ranks == (1,)
    assert decided(polled, replace(held, flags=Flags.BUDGET_SPENT)).step_verdict is StepVerdict.HOLD


def test_a_signal_on_any_rank_stops_all() -> None:
    decision = decided(GOOD, replace(GOOD, flags=Flags.SAVE_AND_EXIT | Flags.OUT_OF_MEMORY))
    assert decision.step_verdict is StepVerdict.STOP
    assert has(decision, clock_pb2.REASON_CODE_SIGNAL)
    assert decision.flags == Flags.SAVE_AND_EXIT | Flags.OUT_OF_MEMORY
    assert decision.blamed_ranks == (1,)


@pytest.mark.parametrize(("field", "odd"), [("version", 99), ("kind", Kind.SAVE), ("step", 8), ("kind", 99)])
def test_another_version_kind_or_step_is_desync_with_the_rank_named(field: str, odd: int) -> None:
    with pytest.raises(DesyncError) as caught:
        decided(GOOD, GOOD, replace(GOOD, **{field: odd}))
    assert caught.value.ranks == (2,)
    assert "rank 2" in str(caught.value)
    assert Kind(odd).name if field == "kind" and odd in set(Kind) else str(odd) in str(caught.value)


def test_without_a_majority_every_rank_is_named() -> None:
    with pytest.raises(DesyncError) as caught:
        decided(GOOD, replace(GOOD, step=8))
    assert caught.value.ranks == (0, 1)
    assert "rank 0: 7, rank 1: 8" in str(caught.value)


@pytest.mark.parametrize(("field", "value"), [("step_verdict", 5), ("save_verdict", 0), ("flags", -1), ("reasons", -1)])
def test_a_number_without_a_meaning_is_desync(field: str, value: int) -> None:
    with pytest.raises(DesyncError, match=f"rank 1 voted {field} {value}"):
        decided(GOOD, replace(GOOD, **{field: value}))


def _row(
    *, step: StepVerdict, save: SaveVerdict, reasons: int, relative: int, beyond: int, reference: int, flags: int
) -> Row:
    """A row that a rank can send: its own bound has been judged, and a UTC bound is a relative one and more."""
    by_limit = StepVerdict.PROCEED
    if 2 * relative > LIMITS.warn_ns:
        by_limit = StepVerdict.HOLD if 2 * relative > LIMITS.hold_ns else StepVerdict.WARN
    return replace(
        GOOD,
        step_verdict=max(step, by_limit),
        save_verdict=save,
        reasons=reasons,
        relative_bound_ns=relative,
        utc_bound_ns=ABSENT if ABSENT in (relative, beyond) else min(relative + beyond, 2**63 - 1),
        reference_hash=reference,
        flags=flags,
    )


BOUND = st.just(ABSENT) | st.integers(0, 2**63 - 1) | st.integers(0, 60_000_000)
ROW = st.builds(
    _row,
    step=st.sampled_from(list(StepVerdict)),
    save=st.sampled_from(list(SaveVerdict)),
    reasons=st.integers(0, 2**62 - 1),
    relative=BOUND,
    beyond=BOUND,
    reference=st.sampled_from([ABSENT, 1, 2]),
    flags=st.integers(0, 31),
)
ROWS = st.lists(ROW, min_size=1, max_size=6).map(tuple)


@given(ROWS)
def test_the_decision_is_no_laxer_than_any_rank(rows: tuple[Row, ...]) -> None:
    decision = decide(rows, LIMITS)
    assert decision.step_verdict == max(decision.step_verdict, *(row.step_verdict for row in rows))
    assert decision.save_verdict >= max(row.save_verdict for row in rows)
    assert (decision.save_verdict is SaveVerdict.SAVE) == (decision.untimed_reasons == 0) or any(
        row.save_verdict != SaveVerdict.SAVE for row in rows
    )
    assert all(decision.reasons & row.reasons == row.reasons for row in rows)
    assert all(decision.flags & row.flags == row.flags for row in rows)
    assert (decision.blamed_ranks == ()) == (decision.step_verdict is StepVerdict.PROCEED) or (
        decision.flags & Flags.BUDGET_SPENT
    )


@given(rows=ROWS, data=st.data())
def test_the_order_of_ranks_does_not_matter_to_the_verdict(rows: tuple[Row, ...], data: st.DataObject) -> None:
    calm = tuple(replace(row, flags=row.flags & ~Flags.BUDGET_SPENT) for row in rows)
    order = data.draw(st.permutations(range(len(calm))))
    one, other = decide(calm, LIMITS), decide(tuple(calm[rank] for rank in order), LIMITS)
    fields = ("step_verdict", "save_verdict", "reasons", "untimed_reasons", "cluster_bound_ns", "bound_basis", "flags")
    assert [getattr(one, field) for field in fields] == [getattr(other, field) for field in fields]


@given(rows=ROWS, row=ROW)
def test_one_more_rank_never_makes_the_verdict_laxer(rows: tuple[Row, ...], row: Row) -> None:
    assert decide((*rows, row), LIMITS).step_verdict >= decide(rows, LIMITS).step_verdict


@given(ROWS)
def test_wider_limits_never_make_the_verdict_stricter(rows: tuple[Row, ...]) -> None:
    wider = Limits(warn_ns=2 * LIMITS.warn_ns, hold_ns=2 * LIMITS.hold_ns)
    assert decide(rows, wider).step_verdict <= decide(rows, LIMITS).step_verdict


@given(ROWS)
def test_rows_survive_the_wire(rows: tuple[Row, ...]) -> None:
    assert tuple(Row.from_wire(row.to_wire()) for row in rows) == rows
