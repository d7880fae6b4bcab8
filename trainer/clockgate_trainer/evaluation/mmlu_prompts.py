"""The text of a question of MMLU, from its parts, as the published evaluation lays it out. Pure.

The two spaces in "about  abstract algebra" are that evaluation's too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clockgate_trainer.data.record import BadRowError, Kind
from clockgate_trainer.evaluation.questions import LETTERS, Question

_HEAD = "The following are multiple choice questions (with answers) about  {subject}.\n\n"


@dataclass(frozen=True)
class Item:
    """One question with its four answers; `answer` is 0 for A to 3 for D."""

    subject: str
    question: str
    choices: tuple[str, ...]
    answer: int


def item_of(row: Mapping[str, object]) -> Item:
    """The item in a row of the hub's set. Raises BadRowError."""
    subject, question, choices, answer = (row.get(name) for name in ("subject", "question", "choices", "answer"))
    if not isinstance(subject, str) or not isinstance(question, str):
        raise BadRowError(Kind.WRONG_TYPE, "subject and question are wanted, both of them text")
    if not isinstance(choices, Sequence) or len(choices) != len(LETTERS):
        raise BadRowError(Kind.WRONG_TYPE, "choices are wanted, four texts")
    if not isinstance(answer, int) or not 0 <= answer < len(LETTERS):
        raise BadRowError(Kind.WRONG_TYPE, f"answer is {answer!r} where a number from 0 to 3 is wanted")
    return Item(subject, question, tuple(map(str, choices)), answer)


def question_with(item: Item, examples: Sequence[Item]) -> Question:
    """The question of `item` behind `examples`, which are answered."""
    head = _HEAD.format(subject=item.subject.replace("_", " "))
    shown = "".join(f"{_asked(one)} {LETTERS[one.answer]}\n\n" for one in examples)
    return Question(head + shown + _asked(item), item.answer, item.subject)


def _asked(item: Item) -> str:
    answers = "".join(f"\n{letter}. {choice}" for letter, choice in zip(LETTERS, item.choices, strict=True))
    return f"{item.question}{answers}\nAnswer:"
