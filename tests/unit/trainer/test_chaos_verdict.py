"""What the chaos suite holds against a run: a hang, a wrong end, a broken, lost or wrongly resumed checkpoint."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.chaos.evidence import Attempt
from support.chaos.report import Conditions, Line, marks, names_in, rewrite
from support.chaos.scenario import STEPS, Deed, Scenario
from support.chaos.verdict import Record, Truth, problems

TRUTH = Truth("right", {step: 1.0 / step for step in range(1, STEPS + 1)})
KILL = Scenario("rank killed", (Deed("SIGKILL"),), ends=(79,))
GOOD = Attempt(
    codes=(79, -9),
    struck=1,
    seconds=1.0,
    outcome_code=79,
    events=frozenset(("start", "end")),
    saved=(3,),
    losses={step: TRUTH.losses[step] for step in (1, 2, 3, 4)},
    standing={3: ()},
    hidden=(),
    digests={3: "early"},
    leases=0,
)
RESUMED = replace(
    GOOD,
    codes=(0, 0),
    outcome_code=0,
    saved=(6, 9, 12),
    losses={step: TRUTH.losses[step] for step in range(4, STEPS + 1)},
    standing={9: (), 12: ()},
    digests={9: "later", 12: "right"},
)


def test_nothing_is_held_against_a_run_that_lost_a_rank_and_went_on() -> None:
    assert problems(Record(KILL, GOOD, RESUMED), TRUTH) == ()


@pytest.mark.parametrize(
    ("first", "word"),
    [
        (replace(GOOD, codes=(None, -9)), "HANG"),
        (replace(GOOD, codes=(1, -9)), "wanted one of [79]"),
        (replace(GOOD, struck=0), "0 of 1 faults struck"),
        (replace(GOOD, outcome_code=None), "outcome.json"),
        (replace(GOOD, standing={3: ("optimizer.pt: is not there",)}), "CORRUPT"),
        (replace(GOOD, saved=(3, 6)), "LOST"),
        (replace(GOOD, losses={1: 0.5}), "another loss"),
        (replace(GOOD, leases=1), "outlived"),
    ],
    ids=["hang", "end", "not struck", "outcome", "corrupt", "lost", "loss", "lease"],
)
def test_first_start_is_judged(first: Attempt, word: str) -> None:
    assert word in "\n".join(problems(Record(KILL, first, RESUMED), TRUTH))


@pytest.mark.parametrize(
    ("resumed", "word"),
    [
        (replace(RESUMED, codes=(0, 78)), "the resumed run ended"),
        (replace(RESUMED, losses={step: TRUTH.losses[step] for step in range(1, STEPS + 1)}), "UNVERIFIED OR LOST"),
        (replace(RESUMED, digests={12: "other"}), "wanted right"),
        (replace(RESUMED, hidden=(".staging-checkpoint-6-0123abcd",)), "half done"),
    ],
    ids=["end", "start", "weights", "leftover"],
)
def test_resumed_start_is_judged(resumed: Attempt, word: str) -> None:
    assert word in "\n".join(problems(Record(KILL, GOOD, resumed), TRUTH))


def test_resuming_from_a_checkpoint_that_was_damaged_is_found() -> None:
    """Of 3 and 6 the newer one was damaged after the run: going on from it is wrong, from 3 is right."""
    first = replace(GOOD, standing={3: (), 6: ()}, saved=(3, 6))
    from_six = replace(RESUMED, losses={step: TRUTH.losses[step] for step in range(7, STEPS + 1)})
    damaged = frozenset((6,))
    assert "UNVERIFIED" in "\n".join(problems(Record(KILL, first, from_six, damaged=damaged), TRUTH))
    assert problems(Record(KILL, first, RESUMED, damaged=damaged), TRUTH) == ()


def test_fault_without_its_effect_is_found() -> None:
    scenario = replace(KILL, seen="hold")
    assert "no hold" in "\n".join(problems(Record(scenario, GOOD, RESUMED), TRUTH))


def test_second_run_in_the_folder_must_be_refused() -> None:
    scenario = Scenario("two", (Deed("run", "same"),))
    first = replace(RESUMED, struck=1)
    truth = replace(TRUTH, losses=RESUMED.losses)
    refused, ran = replace(RESUMED, codes=(78, 79)), replace(RESUMED, codes=(0, 0))
    assert problems(Record(scenario, first, second=refused), truth) == ()
    assert "not refused" in "\n".join(problems(Record(scenario, first, second=ran), truth))


def test_page_gets_the_table_and_the_figures_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "\n".join(["head", *marks("named faults"), "middle", *marks("seeds"), "tail", ""]), encoding="utf-8"
    )
    lines = [
        Line(KILL, (79, -9), resumed=True, problems=()),
        Line(replace(KILL, name="seed 3"), (79, -9), resumed=True, problems=("HANG: ranks [0] did not end",)),
    ]
    for _ in range(2):
        rewrite(page, lines, Conditions("2026-01-02", 2, 61.4, "2.13.0"))
    text = page.read_text(encoding="utf-8")
    assert text.count("| rank killed | 79, killed | resumed: same weights |") == 1
    assert "1 hangs" in text.partition("middle")[2]
    assert text.startswith("head\n")
    assert text.endswith("tail\n")
    assert names_in(page) == ["rank killed"]


def test_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text", encoding="utf-8")
    with pytest.raises(ValueError, match="wanted the lines"):
        rewrite(page, [Line(KILL, (79, -9), resumed=True, problems=())], Conditions("2026-01-02", 2, 1.0, "2.13.0"))
