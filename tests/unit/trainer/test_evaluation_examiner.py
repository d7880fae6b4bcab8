"""One rank's evaluation with a gate that says what it is told, so that each turn can be had at will."""

import math
import random
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from clockgate_trainer.checkpoint.best import Score
from clockgate_trainer.data.order import Cursor
from clockgate_trainer.evaluation.rounds import Rows
from clockgate_trainer.evaluation.schedule import Schedule
from clockgate_trainer.gate.model import Decision, Flags, Kind, SaveVerdict, StepVerdict
from clockgate_trainer.train import rng
from clockgate_trainer.train.distributed import Place
from clockgate_trainer.train.evaluating import Examiner
from clockgate_trainer.train.exam import Exam, Figures
from clockgate_trainer.train.saving import Position
from clockgate_trainer.train.scorer import Scorer
from support.checkpoints import make_decision, make_row

CPU = torch.device("cpu")
STEP = 4


@dataclass
class Gate:
    """Notes the votes of this rank; another rank's row says what `other` is."""

    other: dict[str, Any] = field(default_factory=dict)
    asked_to_leave: bool = False
    votes: list[tuple[Kind, int, Flags]] = field(default_factory=list)

    def agree(self, kind: Kind, step: int, *, flags: Flags = Flags.NONE, extra_s: float = 0.0) -> Decision:
        self.votes.append((kind, step, flags))
        assert extra_s >= 0
        return make_decision(step, *(replace(make_row(step=step), **one) for one in ({"flags": flags}, self.other)))


@dataclass
class Task:
    """Four batches; marks are ones, unless the mark of a batch is told to be something else."""

    marks: dict[int, float | Exception] = field(default_factory=dict)
    name: str = "rows"
    fingerprint: str = ""
    batches: Sequence[Rows] = ((None,),) * 4
    done: int = 0

    def mark(self, scorer: Scorer, rows: Rows) -> Sequence[float]:
        self.done += 1
        torch.rand(1)
        random.random()
        given = self.marks.get(self.done, 1.0)
        if isinstance(given, Exception):
            raise given
        return (given,)

    def sum_up(self, marks: Sequence[float]) -> Figures:
        return {"eval_loss": sum(marks)}


@dataclass
class Told:
    """What the reporter is told."""

    sentences: list[str] = field(default_factory=list)
    figures: list[dict[str, float]] = field(default_factory=list)

    def say(self, text: str, event: str) -> None:
        self.sentences.append(f"{event}: {text}")

    def evaluated(self, step: int, figures: dict[str, float], duration_ns: int) -> None:
        assert duration_ns > 0
        self.figures.append({"step": step, **figures})

    def show(self, text: str) -> None:
        self.sentences.append(text)


def make(gate: Gate, task: Task, told: Told, *, at_start: bool = False, ranks: int = 1) -> Examiner:
    exam = Exam(
        (cast(Any, task),),
        Schedule(2, False, 0, at_saves=False, at_start=at_start),
        "eval_loss",
        greater_is_better=False,
    )
    scorer = SimpleNamespace(evaluating=nullcontext)
    everyone: Any = lambda mine: (mine,) * ranks  # noqa: E731
    place = Place(0, ranks, 0, ranks)
    return Examiner(exam, cast(Any, scorer), cast(Any, gate), everyone, cast(Any, told), place=place, device=CPU)


def position() -> Position:
    return Position(STEP, Cursor(0, 8), rng.capture(CPU))


def after_step(examiner: Examiner, decision: Decision | None = None) -> tuple[Decision, Score | None]:
    found = examiner.after_step(
        position(), decision or make_decision(STEP, make_row(step=STEP)), epochs_done=0.5, saves=False, is_last=False
    )
    return found.decision, found.score


def test_votes_stand_before_between_and_behind_the_rounds() -> None:
    gate, told = Gate(), Told()
    _, score = after_step(make(gate, Task(), told))
    # One before, one after each of four rounds, one behind.
    assert gate.votes == [(Kind.EVAL, STEP, Flags.NONE)] * 6
    assert score == Score("eval_loss", 4.0)
    assert told.figures == [{"step": STEP, "eval_loss": 4.0}]


def test_a_rank_of_two_scores_its_half_and_sums_up_all_marks() -> None:
    task, told = Task(), Told()
    after_step(make(Gate(), task, told, ranks=2))
    assert task.done == 2
    assert told.figures == [{"step": STEP, "eval_loss": 4.0}]


def test_random_numbers_that_an_evaluation_draws_are_drawn_again() -> None:
    examiner = make(Gate(), Task(), Told())
    before = torch.get_rng_state(), random.getstate()
    after_step(examiner)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


@pytest.mark.parametrize("mine", [True, False])
def test_a_signal_on_any_rank_drops_the_evaluation_at_the_next_meeting(mine: bool) -> None:
    gate = Gate(asked_to_leave=True) if mine else Gate(other={"flags": Flags.SAVE_AND_EXIT})
    task, told = Task(), Told()
    _, score = after_step(make(gate, task, told))
    assert score is None
    assert task.done == 1
    assert told.figures == []
    assert told.sentences == [
        f"evaluation_dropped: the evaluation at step {STEP} is dropped: a rank was asked to leave"
    ]


def test_a_rank_without_memory_has_all_ranks_drop_the_evaluation_and_train_on() -> None:
    gate, task, told = Gate(), Task(marks={1: torch.OutOfMemoryError("CUDA out of memory. Tried\nmore")}), Told()
    _, score = after_step(make(gate, task, told))
    assert score is None
    assert gate.votes[1] == (Kind.EVAL, STEP, Flags.OUT_OF_MEMORY)
    (sentence,) = told.sentences
    assert "rank 0 has no memory for it: CUDA out of memory. Tried. Lower --per_device_eval_batch_size" in sentence


def test_a_clock_that_would_hold_a_step_holds_no_evaluation_up_and_its_verdict_reaches_the_save() -> None:
    gate = Gate(other={"step_verdict": StepVerdict.HOLD, "save_verdict": SaveVerdict.SKIP_SAVE})
    decision, score = after_step(make(gate, Task(), Told()))
    assert score is not None
    assert decision.save_verdict is SaveVerdict.SKIP_SAVE


def test_a_loss_that_is_no_number_is_told_and_is_no_score() -> None:
    told = Told()
    _, score = after_step(make(Gate(), Task(marks={2: math.nan}), told))
    assert score is None
    assert math.isnan(told.figures[0]["eval_loss"])


def test_nothing_happens_at_a_step_without_an_evaluation() -> None:
    gate = Gate()
    given = make_decision(STEP + 1, make_row(step=STEP + 1))
    found = make(gate, Task(), Told()).after_step(
        replace(position(), step=STEP + 1), given, epochs_done=0.5, saves=False, is_last=False
    )
    assert found.decision is given
    assert gate.votes == []


@pytest.mark.parametrize("at_start", [True, False])
def test_an_evaluation_before_the_first_step_is_made_when_it_is_wanted(at_start: bool) -> None:
    told = Told()
    make(Gate(), Task(), told, at_start=at_start).before_start(position())
    assert len(told.figures) == at_start
