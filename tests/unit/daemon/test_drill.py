import pytest
from clockgated.clock.continuity import UNBROKEN, Continuity
from clockgated.clock.model import Evidence, Reason, ReasonCode, Silence, SourceKind
from clockgated.drill import DrillBoard, Fault, Freeze, Offset, Step, describe, distort
from hypothesis import given
from hypothesis import strategies as st
from support.evidence import SECOND, evidence, silence

SUSPENDED = Continuity((Reason(ReasonCode.SUSPENDED, "slept"),))


def test_a_fault_ends_by_itself() -> None:
    board = DrillBoard()
    assert board.active(0) is None
    board.start(Freeze(), ends_boot_ns=5 * SECOND)
    active = board.active(5 * SECOND - 1)
    assert active is not None
    assert (active.fault, active.ends_boot_ns) == (Freeze(), 5 * SECOND)
    assert board.take(5 * SECOND - 1) == active
    assert board.active(5 * SECOND) is None


def test_a_second_fault_replaces_the_first_and_clear_ends_it() -> None:
    board = DrillBoard()
    board.start(Freeze(), 5 * SECOND)
    board.start(Offset(7), 9 * SECOND)
    active = board.active(6 * SECOND)
    assert active is not None
    assert active.fault == Offset(7)
    board.clear()
    assert board.active(6 * SECOND) is None


def test_a_step_waits_for_the_next_cycle_and_is_seen_once() -> None:
    board = DrillBoard()
    board.start(Step(SECOND), ends_boot_ns=0)
    assert board.active(10 * SECOND) is not None
    taken = board.take(10 * SECOND)
    assert taken is not None
    assert taken.fault == Step(SECOND)
    assert board.take(10 * SECOND) is None
    assert board.active(10 * SECOND) is None


def test_a_frozen_source_is_silent() -> None:
    seen, continuity = distort(evidence(7), SUSPENDED, Freeze())
    assert isinstance(seen, Silence)
    assert (seen.kind, seen.as_of_boot_ns) == (SourceKind.CHRONY, 7)
    assert seen.reason.code is ReasonCode.SOURCE_UNREACHABLE
    assert continuity == SUSPENDED


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_an_offset_moves_the_estimate_and_widens_the_bounds(offset_ns: int, added_ns: int) -> None:
    measured = evidence(7, offset_ns=offset_ns, estimate_95_ns=5)
    seen, continuity = distort(measured, UNBROKEN, Offset(added_ns))
    assert isinstance(seen, Evidence)
    assert (seen.offset_ns, seen.estimate_95_ns) == (offset_ns + added_ns, 5 + abs(added_ns))
    assert (seen.bound_ns, seen.utc_bound_ns) == (1_000_000 + abs(added_ns), 1_000_000 + abs(added_ns))
    assert continuity == UNBROKEN


def test_an_offset_invents_nothing_that_is_unknown() -> None:
    unknown = evidence(7, offset_ns=None, bound_ns=None, utc_bound_ns=None)
    assert distort(unknown, UNBROKEN, Offset(5)) == (unknown, UNBROKEN)
    assert distort(silence(7), UNBROKEN, Offset(5)) == (silence(7), UNBROKEN)


def test_a_step_breaks_continuity_beside_real_breaks() -> None:
    seen, continuity = distort(evidence(7), SUSPENDED, Step(-SECOND))
    assert seen == evidence(7)
    assert [reason.code for reason in continuity.breaks] == [ReasonCode.SUSPENDED, ReasonCode.CLOCK_STEPPED]
    assert "-1000 ms" in continuity.breaks[1].detail
    assert not continuity.is_known_to_source


def test_a_pretended_step_alone_spoils_no_measurement() -> None:
    _, continuity = distort(evidence(7), UNBROKEN, Step(-SECOND))
    assert (continuity.is_known_to_source, continuity.set_back_ns) == (True, 0)


def test_without_a_fault_nothing_changes() -> None:
    assert distort(evidence(7), SUSPENDED, None) == (evidence(7), SUSPENDED)


@pytest.mark.parametrize("fault", [Freeze(), Offset(5_000_000), Step(-5)])
def test_every_fault_is_said_to_be_a_drill(fault: Fault) -> None:
    assert describe(fault).startswith("drill: ")
