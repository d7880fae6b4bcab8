"""When the loop saves: its gate, network and saver are told what to say, so each turn can be had at will."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
import torch
from clockgate_trainer.checkpoint.best import Score
from clockgate_trainer.checkpoint.store import SaveResult
from clockgate_trainer.data.order import Cursor, Split, StepRows
from clockgate_trainer.gate.model import Decision, Flags, Kind, SaveVerdict, StepVerdict
from clockgate_trainer.train import rng
from clockgate_trainer.train.loop import Run, train
from clockgate_trainer.train.report import Standing
from clockgate_trainer.train.saving import Position
from support.checkpoints import make_decision, make_row

CPU = torch.device("cpu")
STEPS = 6
SKIP, UNTIMED = SaveVerdict.SKIP_SAVE, SaveVerdict.SAVE_UNTIMED


class Feed:
    """Rows without content."""

    def step(self, cursor: Cursor, split: Split, rank: int) -> StepRows:
        return StepRows((), (), Cursor(0, cursor.row + 1))

    def __getattr__(self, name: str) -> Any:
        return {"batches": lambda rows: [None], "digest": lambda cursor: 1}.get(name, lambda *unused: 1)


class Network:
    """Learns nothing."""

    device = CPU

    def __getattr__(self, name: str) -> Any:
        return lambda *unused: torch.tensor(1.0)


class Anything:
    """Takes whatever is said."""

    held_ns = 0

    def __init__(self) -> None:
        self.standing = Standing()

    def get_last_lr(self) -> list[float]:
        return [1.0]

    def __getattr__(self, name: str) -> Any:
        return lambda *unused, **named: None


@dataclass
class Gate:
    """Says of step N what `decisions` has under N, and that all is well of the others."""

    decisions: Mapping[int, Decision]
    step: int = 0
    agreed: list[Kind] = field(default_factory=list)

    def begin(self, step: int, **unused: object) -> None:
        self.step = step

    def settle(self) -> Decision:
        return self.decisions.get(self.step, make_decision(self.step, make_row(step=self.step)))

    def ask_ahead(self, step: int) -> None:
        assert step == self.step + 1

    def agree(self, kind: Kind, step: int) -> None:
        self.agreed.append(kind)


@dataclass
class Saver:
    """Notes every save: its step, the verdict on it, and whether it must be on disk at once."""

    diverges_at: int = 0
    saved_step: int = 0
    saves: list[tuple[int, SaveVerdict, bool]] = field(default_factory=list)
    drained_before: list[int] = field(default_factory=list)

    def after_step(self, decision: Decision, loss: float, label_tokens: int) -> None:
        pass

    def drain(self) -> None:
        self.drained_before.append(len(self.saves))

    def save(
        self, position: Position, decision: Decision, *, last: bool = False, score: Score | None = None
    ) -> SaveResult:
        self.saves.append((position.step, decision.save_verdict, last))
        if position.step == self.diverges_at:
            return SaveResult(None, saved=False, reason="the adapters differ", ranks=(1,), diverged=True)
        self.saved_step = position.step
        return SaveResult(None, saved=True, reason="")


def make_run(gate: Gate, saver: Saver, save_every: int | None = 2) -> Run:
    parts: dict[str, Any] = {name: Anything() for name in ("optimizer", "scheduler", "reporter")}
    return Run(
        rank=0,
        total_steps=STEPS,
        save_every=save_every,
        max_grad_norm=1.0,
        max_bad_steps=0,
        feed=cast(Any, Feed()),
        split=Split(1, 1, 1),
        network=cast(Any, Network()),
        gate=cast(Any, gate),
        saver=cast(Any, saver),
        **parts,
    )


def decided(step: int, **changes: int) -> dict[int, Decision]:
    return {step: make_decision(step, replace(make_row(step=step), **changes))}


def start() -> Position:
    return Position(0, Cursor(), rng.capture(CPU))


def test_a_periodic_save_that_is_skipped_is_made_at_the_next_step_that_may() -> None:
    saver = Saver()
    verdicts = {**decided(2, save_verdict=SKIP), **decided(3, save_verdict=SKIP)}
    assert train(make_run(Gate(verdicts), saver), start()).code == 0
    # Due at 2 and again at 4: one save makes up for both.
    assert [step for step, _, _ in saver.saves] == [4, 6]


def test_a_save_postponed_past_a_step_without_one_is_made_there() -> None:
    saver = Saver()
    train(make_run(Gate(decided(2, save_verdict=SKIP)), saver), start())
    assert [step for step, _, _ in saver.saves] == [3, 4, 6]


@pytest.mark.parametrize("save_every", [2, None])
def test_the_last_save_is_never_skipped_for_a_clock_and_is_on_disk_at_once(save_every: int | None) -> None:
    saver = Saver()
    assert train(make_run(Gate(decided(STEPS, save_verdict=SKIP)), saver, save_every), start()).code == 0
    assert saver.saves[-1] == (STEPS, UNTIMED, True)
    assert [last for *_, last in saver.saves[:-1]] == [False] * (len(saver.saves) - 1)


def test_the_save_at_a_stop_is_never_skipped_and_comes_after_what_is_being_written() -> None:
    saver = Saver()
    gate = Gate(decided(4, save_verdict=SKIP, step_verdict=StepVerdict.STOP))
    saver_run = make_run(gate, saver)
    saver_run.reporter.standing.checkpoint = cast(Any, "checkpoint-3")
    assert train(saver_run, start()).code == 75
    assert saver.saves == [(2, SaveVerdict.SAVE, False), (3, UNTIMED, True)]
    assert saver.drained_before == [1]
    assert gate.agreed == [Kind.EXIT]


def test_a_signal_asks_for_a_save_between_two() -> None:
    saver = Saver()
    train(make_run(Gate(decided(3, flags=Flags.SAVE_AND_GO_ON)), saver), start())
    assert [step for step, _, _ in saver.saves] == [2, 3, 4, 6]


def test_adapters_that_differ_end_the_run_at_once() -> None:
    saver, gate = Saver(diverges_at=4), Gate({})
    outcome = train(make_run(gate, saver), start())
    assert (outcome.code, outcome.step, outcome.ranks) == (76, 4, (1,))
    assert "the adapters differ" in outcome.reason
    assert [step for step, _, _ in saver.saves] == [2, 4]
    assert gate.agreed == [Kind.EXIT]
