"""What is scored when a run is evaluated: the loss over held-out rows, and answers to multiple-choice questions.

A task deals its work to ranks, marks one batch at a time with nothing left over but a few numbers, and sums up what
all ranks marked. Logits do not outlive their batch, so the memory that it takes does not grow with rows.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from clockgate_trainer.data.feed import Arrangement, Feed
from clockgate_trainer.data.packing import pack
from clockgate_trainer.data.tokens import token_data
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.evaluation.questions import Questions, accuracies
from clockgate_trainer.evaluation.rounds import Rows, form_batches
from clockgate_trainer.evaluation.schedule import Schedule, make_schedule
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.distributed import Meeting, SharedError
from clockgate_trainer.train.parts import Corpus, Unseen
from clockgate_trainer.train.scorer import Scorer

Figures = dict[str, float]


class Task(Protocol):
    """One thing to score. `marks` of a batch are small numbers; all ranks' are brought together in `sum_up`."""

    @property
    def name(self) -> str:
        """What a person calls it."""

    @property
    def batches(self) -> Sequence[Rows]:
        """All batches, equal on all ranks."""

    @property
    def fingerprint(self) -> str:
        """Equal exactly when the same is scored."""

    def mark(self, scorer: Scorer, rows: Rows) -> Sequence[float]:
        """Score one batch on this rank."""

    def sum_up(self, marks: Sequence[float]) -> Figures:
        """The figures that the marks of all batches, in any order, come to."""


@dataclass(frozen=True)
class HeldOut:
    """The mean loss over all label tokens of rows that are not trained on."""

    feed: Feed
    batches: Sequence[Rows]
    name: str = "held-out rows"

    @property
    def fingerprint(self) -> str:
        """Of the tokens and their arrangement."""
        return f"{self.feed.data.fingerprint}:{self.feed.arrangement}"

    def mark(self, scorer: Scorer, rows: Rows) -> Sequence[float]:
        """The sum of the loss over the label tokens of these rows."""
        return (scorer.loss_of(self.feed.batch(rows)),)

    def sum_up(self, marks: Sequence[float]) -> Figures:
        """Loss per label token; fsum is exact, so the order of marks changes nothing."""
        tokens = int(self.feed.data.label_counts.sum())
        return {
            "eval_loss": math.fsum(marks) / tokens if all(map(math.isfinite, marks)) else math.nan,
            "eval_tokens": tokens,
            "eval_rows": len(self.feed.data),
        }


@dataclass(frozen=True)
class MultipleChoice:
    """The share of questions that the model answers as it should."""

    questions: Questions
    feed: Feed
    batches: Sequence[Rows]
    name: str = "questions"

    @property
    def fingerprint(self) -> str:
        """Of the questions."""
        return self.questions.fingerprint

    def mark(self, scorer: Scorer, rows: Rows) -> Sequence[float]:
        """The number of each question in these rows followed by the answer, 0 to 3."""
        asked = [row[0] for row in rows if row is not None]
        places = [len(self.questions.rows[number].input_ids) - 1 for number in asked]
        if not asked:
            return ()
        scores = scorer.scores_at(self.feed.batch(rows), places, self.questions.letters)
        return [value for pair in zip(asked, scores.argmax(dim=-1).tolist(), strict=True) for value in pair]

    def sum_up(self, marks: Sequence[float]) -> Figures:
        """Accuracy by subject and its mean."""
        chosen = {int(number): int(answer) for number, answer in zip(marks[::2], marks[1::2], strict=True)}
        in_order = [chosen[number] for number in range(len(self.questions.rows))]
        return {**accuracies(self.questions, in_order), "mmlu_questions": len(in_order)}


@dataclass(frozen=True)
class Exam:
    """All tasks of a run, when they are due, and the figure that tells which checkpoint is the best one."""

    tasks: tuple[Task, ...]
    schedule: Schedule
    metric: str
    greater_is_better: bool

    @property
    def fingerprint(self) -> str:
        """Equal on two ranks exactly when they score the same."""
        return hashlib.sha256("|".join(task.fingerprint for task in self.tasks).encode()).hexdigest()


def make_exam(settings: Settings, corpus: Corpus, total_steps: int) -> Exam | None:
    """The exam of these flags; None without one. Raises ConfigError when a sample is longer than a packed row."""
    if not settings.evaluates:
        return None
    return Exam(
        make_tasks(settings, corpus.unseen),
        make_schedule(settings, total_steps),
        settings.best_metric,
        settings.best_is_greatest,
    )


def demand_same_exam(meeting: Meeting, exam: Exam) -> None:
    """Raise SharedError on all ranks when they would score different things. A collective."""
    told = meeting.gather(exam.fingerprint)
    odd = tuple(rank for rank, one in enumerate(told) if one != told[0])
    if odd:
        raise SharedError(
            f"rank {odd[0]} would be evaluated on other data than rank 0: wanted the same --eval_dataset and "
            "--mmlu_dataset on all nodes",
            ranks=odd,
        )


def make_tasks(settings: Settings, unseen: Unseen) -> tuple[Task, ...]:
    """What these flags want to be scored. Raises ConfigError when there is nothing to score it on."""
    tasks: list[Task] = []
    size, pad_id = settings.per_device_eval_batch_size, unseen.pad_id
    if settings.scores_rows:
        if unseen.held is None:
            raise ConfigError("there are no rows to evaluate on: give --eval_dataset, or a smaller --eval_dataset_size")
        feed = Feed(unseen.held, pad_id, Arrangement(seed=0, pack_length=settings.packed_tokens))
        lengths = unseen.held.lengths.tolist()
        width, samples = settings.packed_tokens, range(len(lengths))
        rows = [(sample,) for sample in samples] if width is None else pack(samples, lengths, width)
        tasks.append(HeldOut(feed, form_batches(rows, lengths, size)))
    if unseen.questions is not None:
        data = token_data(unseen.questions.rows)
        feed = Feed(data, pad_id, Arrangement(seed=0))
        rows = [(number,) for number in range(len(data))]
        tasks.append(MultipleChoice(unseen.questions, feed, form_batches(rows, data.lengths.tolist(), size)))
    return tuple(tasks)
