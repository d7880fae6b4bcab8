"""Making changes and giving them back: all or none, in reverse order, and never over somebody else's value."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from clockgated.tuning.journal import LinkStamps, Mark
from clockgated.tuning.journal_file import JournalFile, JournalMovedError
from clockgated.tuning.model import Change, Knob, LinkId
from clockgated.tuning.outcome import Outcome, OutcomeCode, Trouble, TroubleCode
from clockgated.tuning.transaction import forget_ended, give_all_back, give_back, in_force, make, recover
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tuning import BOOT, MemoryHand, NoStamps, change, quick_folder, sysctl

STAMPS = NoStamps()
PLAN = (change("a.one", "1", "10"), change("b.two", "2", "20"), change("c.three", "3", "30"))


def hand_for(changes: Sequence[Change]) -> MemoryHand:
    return MemoryHand({one.knob: one.found for one in changes})


def applied(journal: JournalFile, hand: MemoryHand, changes: Sequence[Change]) -> str | None:
    """Apply as the daemon does; None, or why it was given back."""
    with journal.locked():
        journal.read()
        apply_id = journal.open("hash")
    failure = make(journal, hand, apply_id, changes, lambda _: None)
    if failure is not None:
        give_back(journal, hand, STAMPS, apply_id, failure)
        return failure
    journal.append(Mark.COMMIT, apply_id)
    return None


def codes(outcomes: Sequence[Outcome]) -> list[OutcomeCode]:
    return [one.code for one in outcomes]


VALUES = st.text(alphabet="0123456789 abc", min_size=1, max_size=12).map(lambda text: " ".join(text.split()) or "0")
PLANS = st.dictionaries(st.sampled_from([f"k.{n}" for n in range(8)]), st.tuples(VALUES, VALUES), max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(PLANS, max_size=3))
def test_apply_then_revert_is_the_identity_on_any_plans(plans: list[dict[str, tuple[str, str]]]) -> None:
    original = {sysctl(key): old for plan in reversed(plans) for key, (old, _) in plan.items()}
    hand = MemoryHand(dict(original))
    with quick_folder() as folder:
        journal = JournalFile(Path(folder), BOOT)
        for plan in plans:
            changes = [change(key, hand.values[sysctl(key)], new) for key, (_, new) in plan.items()]
            assert applied(journal, hand, changes) is None
            assert all(hand.values[one.knob] == one.wanted for one in changes)
        outcomes = give_all_back(journal, hand, STAMPS, "asked")

        assert hand.values == original
        assert set(codes(outcomes)) <= {OutcomeCode.REVERTED}
        assert not journal.path.exists()


@settings(max_examples=60, deadline=None)
@given(PLANS, st.integers(0, 7), st.sampled_from(["refused", "clamped", "gone"]))
def test_a_failing_change_leaves_everything_as_it_was(plan: dict[str, tuple[str, str]], place: int, how: str) -> None:
    changes = [change(key, old, new) for key, (old, new) in plan.items() if old != new]
    bad = changes[place % len(changes)].knob if changes else sysctl("none")

    def on_write(knob: Knob, value: str) -> str | Trouble:
        is_first = knob == bad and value != original.get(knob)
        if is_first and how == "clamped":
            return "clamped"
        return Trouble(TroubleCode.FAILED, "Invalid argument") if is_first and how == "refused" else value

    original = {one.knob: one.found for one in changes}
    if how == "gone" and changes:
        del original[bad]
    hand = MemoryHand(dict(original), on_write)
    with quick_folder() as folder:
        failure = applied(JournalFile(Path(folder), BOOT), hand, changes)

    assert (failure is None) == (not changes)
    assert hand.values == original


def test_changes_are_given_back_in_reverse_order(tmp_path: Path) -> None:
    hand = hand_for(PLAN)
    journal = JournalFile(tmp_path, BOOT)
    applied(journal, hand, PLAN)
    hand.writes.clear()

    give_all_back(journal, hand, STAMPS, "asked")

    assert [knob.key for knob, _ in hand.writes] == ["c.three", "b.two", "a.one"]


def test_what_somebody_else_has_changed_since_is_left_to_them(tmp_path: Path) -> None:
    hand = hand_for(PLAN)
    journal = JournalFile(tmp_path, BOOT)
    applied(journal, hand, PLAN)
    hand.values[PLAN[1].knob] = "99"

    outcomes = give_all_back(journal, hand, STAMPS, "asked")

    assert codes(outcomes) == [OutcomeCode.REVERTED, OutcomeCode.LEFT, OutcomeCode.REVERTED]
    assert [hand.values[one.knob] for one in PLAN] == ["1", "99", "3"]
    assert '"99"' in outcomes[1].detail


def test_a_plan_that_touches_one_key_leaves_all_others_alone(tmp_path: Path) -> None:
    # A runtime value that differs from a file must survive: redhat-performance/tuned 816.
    hand = MemoryHand({sysctl("net.ipv4.ip_forward"): "1", PLAN[0].knob: "1"})
    journal = JournalFile(tmp_path, BOOT)
    applied(journal, hand, PLAN[:1])
    give_all_back(journal, hand, STAMPS, "asked")

    assert hand.values[sysctl("net.ipv4.ip_forward")] == "1"
    assert {knob for knob, _ in hand.writes} == {PLAN[0].knob}


def test_a_value_that_moved_since_the_plan_stops_the_apply(tmp_path: Path) -> None:
    hand = hand_for(PLAN)
    hand.values[PLAN[2].knob] = "7"

    failure = applied(JournalFile(tmp_path, BOOT), hand, PLAN)

    assert failure is not None
    assert "somebody else changed it" in failure
    assert [hand.values[one.knob] for one in PLAN] == ["1", "2", "7"]


def test_a_value_that_is_taken_and_not_kept_is_a_failure(tmp_path: Path) -> None:
    hand = MemoryHand({PLAN[0].knob: "1"}, lambda _, value: "8" if value == "10" else value)

    failure = applied(JournalFile(tmp_path, BOOT), hand, PLAN[:1])

    assert failure is not None
    assert 'it reads "8"' in failure
    assert hand.values[PLAN[0].knob] == "1"


def test_a_link_that_is_gone_does_not_keep_the_rest_from_being_given_back(tmp_path: Path) -> None:
    hand = hand_for(PLAN)
    journal = JournalFile(tmp_path, BOOT)
    applied(journal, hand, PLAN)
    del hand.values[PLAN[1].knob]

    outcomes = give_all_back(journal, hand, STAMPS, "asked")

    assert codes(outcomes) == [OutcomeCode.REVERTED, OutcomeCode.GONE, OutcomeCode.REVERTED]
    assert not journal.path.exists()


def test_what_could_not_be_given_back_is_tried_again(tmp_path: Path) -> None:
    is_busy = True

    def on_write(knob: Knob, value: str) -> str | Trouble:
        return Trouble(TroubleCode.FAILED, "Device or resource busy") if is_busy and value == "1" else value

    hand = MemoryHand({one.knob: one.found for one in PLAN}, on_write)
    journal = JournalFile(tmp_path, BOOT)
    applied(journal, hand, PLAN)
    assert OutcomeCode.FAILED in codes(give_all_back(journal, hand, STAMPS, "asked"))
    is_busy = False

    outcomes = recover(JournalFile(tmp_path, BOOT), hand, STAMPS, BOOT)

    assert set(codes(outcomes)) == {OutcomeCode.REVERTED}
    assert [hand.values[one.knob] for one in PLAN] == ["1", "2", "3"]
    assert not journal.path.exists()


def test_applies_that_were_given_back_do_not_make_the_journal_grow(tmp_path: Path) -> None:
    hand = hand_for(PLAN)
    journal = JournalFile(tmp_path, BOOT)
    applied(journal, hand, PLAN[:1])
    size = journal.path.stat().st_size
    for _ in range(3):
        assert applied(journal, hand, [change("b.two", "not what it is", "20")]) is not None
        forget_ended(journal)

    assert journal.path.stat().st_size == size
    assert len(in_force(journal.read())) == 1


def test_a_confirmed_apply_survives_a_restart(tmp_path: Path) -> None:
    hand = hand_for(PLAN)
    applied(JournalFile(tmp_path, BOOT), hand, PLAN)

    assert recover(JournalFile(tmp_path, BOOT), hand, STAMPS, BOOT) == ()
    assert [hand.values[one.knob] for one in PLAN] == ["10", "20", "30"]
    assert len(in_force(JournalFile(tmp_path, BOOT).read())) == 3


def test_the_journal_of_another_boot_is_put_away_and_touches_nothing(tmp_path: Path) -> None:
    hand = hand_for(PLAN)
    applied(JournalFile(tmp_path, BOOT), hand, PLAN)
    hand.writes.clear()

    recover(JournalFile(tmp_path, "another"), hand, STAMPS, "another")

    assert hand.writes == []
    assert not (tmp_path / "journal").exists()
    assert (tmp_path / "journal.previous-boot").exists()


def test_a_guard_that_takes_over_stops_the_apply(tmp_path: Path) -> None:
    hand = hand_for(PLAN)
    journal = JournalFile(tmp_path, BOOT)
    with journal.locked():
        apply_id = journal.open("hash")

    def before(one: Change) -> str | None:
        if one is PLAN[1]:
            # As when this process was stopped between two changes, and the guard lost its patience.
            guards = JournalFile(tmp_path, BOOT)
            guards.read()
            guards.append(Mark.UNDO, apply_id, detail="too late")
            hand.values[PLAN[0].knob] = "1"
        return None

    with pytest.raises(JournalMovedError):
        make(journal, hand, apply_id, PLAN, before)
    give_back(journal, hand, STAMPS, apply_id, "the guard took over")

    assert [hand.values[one.knob] for one in PLAN] == ["1", "2", "3"]


def test_a_confirmed_apply_is_never_given_back_by_a_late_guard(tmp_path: Path) -> None:
    hand = hand_for(PLAN)
    journal = JournalFile(tmp_path, BOOT)
    applied(journal, hand, PLAN)
    apply_id = journal.read()[0].apply_id

    assert give_back(JournalFile(tmp_path, BOOT), hand, STAMPS, apply_id, "too late") == ()
    assert hand.values[PLAN[0].knob] == "10"


def test_a_knob_that_was_set_twice_is_judged_by_the_last_apply(tmp_path: Path) -> None:
    hand = hand_for(PLAN)
    journal = JournalFile(tmp_path, BOOT)
    applied(journal, hand, PLAN)
    applied(journal, hand, [change("b.two", "20", "25")])

    wanted = {step.change.knob.key: step.change.wanted for _, step in in_force(journal.read())}

    assert wanted == {"a.one": "10", "b.two": "25", "c.three": "30"}


def test_how_links_stamp_is_restored_when_an_apply_is_given_back(tmp_path: Path) -> None:
    class Noted(NoStamps):
        def __init__(self) -> None:
            self.restored: list[LinkStamps] = []

        def restore(self, before: Sequence[LinkStamps]) -> None:
            self.restored += before

    hand, noted = hand_for(PLAN), Noted()
    journal = JournalFile(tmp_path, BOOT)
    from_before = LinkStamps(LinkId("eth0", 2), 1, 12)
    with journal.locked():
        apply_id = journal.open("hash", (from_before,))
    make(journal, hand, apply_id, PLAN, lambda _: None)

    recover(JournalFile(tmp_path, BOOT), hand, noted, BOOT)

    assert noted.restored == [from_before]
