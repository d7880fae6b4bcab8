"""Evaluation between two steps of a run: it changes nothing about the training that it looks at.

    1   vote EVAL     all ranks are here
    2                 a round: one batch on each rank
    3   vote EVAL     after some rounds: was a rank asked to leave, did it run out of memory? then all drop it
    4   exchange      what each rank marked goes to all
    5   vote EVAL     all have it; what ranks say of their clocks in it is what a save right after it rests on

No rank exchanges gradients meanwhile, so no clock holds it up: the next step waits for clocks. A signal ends it within
a few rounds, and is acted on in the next step's vote as any other.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from clockgate_trainer.checkpoint.best import Score
from clockgate_trainer.evaluation.rounds import meets_after, share
from clockgate_trainer.gate.clocks import mono_ns
from clockgate_trainer.gate.gate import ClockGate
from clockgate_trainer.gate.model import Decision, Flags, Kind
from clockgate_trainer.train import rng
from clockgate_trainer.train.distributed import Place
from clockgate_trainer.train.exam import Exam, Figures, Task
from clockgate_trainer.train.report import Reporter
from clockgate_trainer.train.saving import Position
from clockgate_trainer.train.scorer import Scorer
from clockgate_trainer.train.shortage import is_shortage

_NS_PER_S = 1_000_000_000
_TOLD_EVERY_NS = 10 * _NS_PER_S

Gather = Callable[[tuple[float, ...]], Sequence[tuple[float, ...]]]


@dataclass(frozen=True)
class Examined:
    """What is known after a step.

    `decision` is the newest one that ranks took together. `score` is that of the weights as they are; None when they
    were not evaluated, or the figure is of no use for it.
    """

    decision: Decision
    score: Score | None = None


class Examiner:
    """Evaluates on this rank; all ranks call it at the same steps. `gather` is a collective."""

    def __init__(
        self,
        exam: Exam,
        scorer: Scorer,
        gate: ClockGate,
        gather: Gather,
        reporter: Reporter,
        *,
        place: Place,
        device: torch.device,
    ) -> None:
        self._exam = exam
        self._scorer = scorer
        self._gate = gate
        self._gather = gather
        self._reporter = reporter
        self._place = place
        self._device = device
        self.latest: Mapping[str, float] | None = None

    def before_start(self, position: Position) -> None:
        """Evaluate before the first step, if that is wanted. A collective. Raises PeerLostError and DesyncError."""
        if self._exam.schedule.at_start:
            self._examine(position)

    def after_step(
        self,
        position: Position,
        decision: Decision,
        *,
        epochs_done: float,
        saves: bool,
        is_last: bool,
    ) -> Examined:
        """Evaluate at `position` if that is due; `saves` tells that it is about to be saved. A collective.

        Raises PeerLostError and DesyncError.
        """
        ends_epoch = position.cursor.row == 0
        due = self._exam.schedule.is_due(
            position.step, epochs_done, ends_epoch=ends_epoch, saves=saves, is_last=is_last
        )
        return self._examine(position) if due else Examined(decision)

    def _examine(self, position: Position) -> Examined:
        started_ns = mono_ns()
        step = position.step
        self._gate.agree(Kind.EVAL, step)
        with self._scorer.evaluating():
            figures = self._score(step)
        rng.restore(position.random, self._device)
        decision = self._gate.agree(Kind.EVAL, step)
        if figures is None:
            return Examined(decision)
        self.latest = figures
        self._reporter.evaluated(step, figures, mono_ns() - started_ns)
        value = figures.get(self._exam.metric)
        if value is None or not math.isfinite(value):
            return Examined(decision)
        return Examined(decision, Score(self._exam.metric, value, self._exam.greater_is_better))

    def _score(self, step: int) -> Figures | None:
        """What all tasks come to; None when all ranks drop the evaluation. A collective."""
        figures: Figures = {}
        for task in self._exam.tasks:
            marks = self._mark(task, step)
            if marks is None:
                return None
            everyone = self._gather(tuple(marks))
            figures |= task.sum_up([mark for one in everyone for mark in one])
        return figures

    def _mark(self, task: Task, step: int) -> list[float] | None:
        """The marks of this rank; None when all ranks drop the evaluation. A collective."""
        rounds = share(task.batches, self._place.world_size, self._place.rank)
        marks: list[float] = []
        told_ns, met_ns = mono_ns(), mono_ns()
        lacks_memory: str | None = None
        for done, rows in enumerate(rounds, start=1):
            if lacks_memory is None:
                try:
                    marks += task.mark(self._scorer, rows)
                except (RuntimeError, MemoryError) as err:
                    if not is_shortage(err):
                        raise
                    lacks_memory = next(iter(str(err).splitlines()), type(err).__name__)
            if not meets_after(done, len(rounds)):
                continue
            decision = self._meet(step, lacks_memory, busy_ns=mono_ns() - met_ns)
            met_ns = mono_ns()
            if decision.flags & (Flags.SAVE_AND_EXIT | Flags.OUT_OF_MEMORY):
                self._tell_dropped(step, decision, lacks_memory)
                return None
            if met_ns - told_ns > _TOLD_EVERY_NS:
                self._reporter.show(f"evaluation at step {step}: {task.name}: {done} of {len(rounds)} batches a rank")
                told_ns = met_ns
        return marks

    def _meet(self, step: int, lacks_memory: str | None, *, busy_ns: int) -> Decision:
        flags = Flags.NONE if lacks_memory is None else Flags.OUT_OF_MEMORY
        if self._gate.asked_to_leave:
            flags |= Flags.SAVE_AND_EXIT
        # Another rank may be half as fast as this one.
        return self._gate.agree(Kind.EVAL, step, flags=flags, extra_s=busy_ns / _NS_PER_S)

    def _tell_dropped(self, step: int, decision: Decision, lacks_memory: str | None) -> None:
        if decision.flags & Flags.OUT_OF_MEMORY:
            ranks = ", ".join(str(rank) for rank, row in enumerate(decision.rows) if row.flags & Flags.OUT_OF_MEMORY)
            cause = f": {lacks_memory}" if lacks_memory else ""
            why = f"rank {ranks} has no memory for it{cause}. Lower --per_device_eval_batch_size; training goes on"
        else:
            why = "a rank was asked to leave"
        self._reporter.say(f"the evaluation at step {step} is dropped: {why}", "evaluation_dropped")
