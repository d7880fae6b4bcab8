"""Questions with four answers, as tokens, and what the answers of a model are worth. Pure.

The answer of a model is the likeliest of four tokens at the place behind the question: those of A, B, C and D. What
it finds likeliest of all its tokens does not count.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clockgate_trainer.data.formats import Pair, example_of
from clockgate_trainer.data.record import BadRowError, Kind
from clockgate_trainer.data.tokens import Encode, Marks, TokenRow
from clockgate_trainer.errors import ConfigError

LETTERS = "ABCD"


@dataclass(frozen=True)
class Question:
    """One question with its examples before it and its four answers in it; `answer` is 0 for A to 3 for D."""

    prompt: str
    answer: int
    subject: str


@dataclass(frozen=True)
class Questions:
    """Coded questions. `letters` are the tokens of A, B, C and D; of `cut` prompts the beginning is left out."""

    split: str
    rows: tuple[TokenRow, ...]
    answers: tuple[int, ...]
    subjects: tuple[str, ...]
    letters: tuple[int, ...]
    cut: int

    @property
    def fingerprint(self) -> str:
        """Equal exactly when the same is asked."""
        digest = hashlib.sha256(repr((self.split, self.answers, self.subjects, self.letters)).encode())
        for row in self.rows:
            digest.update(row.input_ids.tobytes() + b"|")
        return digest.hexdigest()


def question_of(row: Mapping[str, object], line: int) -> Question:
    """The question in a row with input, output and, if there are several, subject. Raises BadRowError."""
    pair = example_of("input-output", row, line)
    subject = row.get("subject", "")
    if not isinstance(subject, str):
        raise BadRowError(Kind.WRONG_TYPE, f"subject is {subject!r} where text is wanted")
    answer = pair.answer.strip() if isinstance(pair, Pair) else ""
    if len(answer) != 1 or answer not in LETTERS:
        raise BadRowError(Kind.WRONG_TYPE, f"output is {answer[:40]!r} where A, B, C or D is wanted")
    return Question(pair.prompt if isinstance(pair, Pair) else "", LETTERS.index(answer), subject)


def code_questions(
    questions: Sequence[Question], encode: Encode, marks: Marks, *, longest: int, split: str
) -> Questions:
    """The tokens of `questions`, each at most `longest` with its begin mark.

    What is too long loses its beginning: examples, of which it has several, and not the question behind them. Raises
    ConfigError when the tokenizer does not tell the four letters apart.
    """
    letters = tuple(ids[0] if ids else -1 for ids in encode(list(LETTERS)))
    if len(set(letters)) < len(LETTERS) or -1 in letters:
        raise ConfigError(
            f"the tokenizer gives A, B, C and D the tokens {', '.join(map(str, letters))}: multiple choice needs four "
            "different ones. Leave --do_mmlu_eval out"
        )
    begin = [] if marks.begin is None else [marks.begin]
    coded = encode([question.prompt for question in questions])
    room = longest - len(begin)
    rows = tuple(_prompt_row([*begin, *ids[-room:]]) for ids in coded)
    return Questions(
        split=split,
        rows=rows,
        answers=tuple(question.answer for question in questions),
        subjects=tuple(question.subject for question in questions),
        letters=letters,
        cut=sum(len(ids) > room for ids in coded),
    )


def accuracies(questions: Questions, chosen: Sequence[int]) -> dict[str, float]:
    """The share of right answers by subject, and the mean over subjects, under qlora.py's names.

    `chosen` holds one answer, 0 to 3, for each question. Every subject counts the same, however many questions it has.
    """
    right: dict[str, list[bool]] = defaultdict(list)
    for subject, wanted, given in zip(questions.subjects, questions.answers, chosen, strict=True):
        right[subject].append(wanted == given)
    shares = {subject: sum(marks) / len(marks) for subject, marks in sorted(right.items())}
    name = f"mmlu_{questions.split}_accuracy"
    by_subject = {f"{name}_{subject}": value for subject, value in shares.items() if subject}
    return {name: sum(shares.values()) / len(shares), **by_subject}


def _prompt_row(ids: Sequence[int]) -> TokenRow:
    return TokenRow.after(ids, masked=len(ids))
