"""Files of a judge's ratings, as qlora.py's repository has them: one JSON object a line, `score` in each.

The name tells who was judged: FIRST-vs-SECOND-REVIEWER-reviewer.jsonl, with -threeclass at its end for choices. In
files with points the two numbers are in the reverse order of the names (so SECOND was shown first): only so read do
the published files come to the published results. Choices follow the order of the names.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path

from clockgate_trainer.data.local import file_rows
from clockgate_trainer.data.record import Fault, Record
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.evaluation.ratings import FIRST, SECOND, TIE, Match

_NAME = re.compile(
    r"(?P<first>.+?)[-_]vs[-_](?P<second>.+?)[-_](?:gpt-?\d[\w.]*|[^-_]+)[-_]reviewer(?:[-_]threeclass)?"
)
_WANTED_NAME = "FIRST-vs-SECOND-REVIEWER-reviewer.jsonl"
# What the published judge wrote in place of a score that it could not find in a review.
_UNREAD = -1
_TOLD_FAULTS = 5

Score = tuple[float, float] | int | None


def read_match(path: Path, *, named_order: bool = False) -> Match:
    """The judgements of one file; with `named_order` points are in the order of the names.

    Raises ConfigError that names file and line.
    """
    first, second = _names(path)
    problems: list[str] = []
    scores: list[Score] = []
    seen: dict[object, int] = {}
    for found in file_rows(path):
        problem = found.at(str(path)) if isinstance(found, Fault) else _problem(found, seen, path)
        if problem is not None:
            problems.append(problem)
        elif isinstance(found, Record):
            scores.append(_score(found.row["score"]))
    points = [one for one in scores if isinstance(one, tuple)]
    choices = [one for one in scores if isinstance(one, int)]
    if points and choices:
        problems.append(f"{path}: {len(points)} scores are points and {len(choices)} are choices: wanted one kind")
    elif not points and not choices and not problems:
        problems.append(f"{path}: no line holds a score that can be read")
    if problems:
        more = f"\n  and {len(problems) - _TOLD_FAULTS} more" if len(problems) > _TOLD_FAULTS else ""
        listed = "\n  ".join(problems[:_TOLD_FAULTS])
        raise ConfigError(f"{path.name} cannot be counted. Repair or remove:\n  {listed}{more}")
    shown = (second, first) if points and not named_order else (first, second)
    return Match(*shown, second, tuple(points), tuple(choices), scores.count(None))


def _names(path: Path) -> tuple[str, str]:
    found = _NAME.fullmatch(path.name.removesuffix(".jsonl"))
    if found is None:
        raise ConfigError(f"{path}: the name does not tell who was judged: wanted {_WANTED_NAME}")
    if found["first"] == found["second"]:
        raise ConfigError(f"{path}: {found['first']} is judged against itself: wanted two names in {_WANTED_NAME}")
    return found["first"], found["second"]


def _problem(found: Record, seen: dict[object, int], path: Path) -> str | None:
    """What is wrong with a line; takes note of its question in `seen`."""
    at = f"{path}:{found.line}"
    if "score" not in found.row:
        return f"{at}: score is missing: the line has {', '.join(found.row) or 'nothing'}"
    question = found.row.get("question_id")
    if isinstance(question, (str, int)):
        if question in seen:
            return f"{at}: question {question} is judged in line {seen[question]} already"
        seen[question] = found.line
    try:
        _score(found.row["score"])
    except ValueError as err:
        return f"{at}: {err}"
    return None


def _score(value: object) -> Score:
    """Points, a choice, or None for a review without a score. Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value in (_UNREAD, FIRST, SECOND, TIE):
        return None if value == _UNREAD else int(value)
    numbers = list(_numbers(value)) if isinstance(value, list) else []
    if numbers == [_UNREAD, _UNREAD]:
        return None
    if len(numbers) == 2 and min(numbers) >= 0:
        return numbers[0], numbers[1]
    raise ValueError(f"score is {value!r}: wanted two numbers from 0, or 1, 2 or 3")


def _numbers(values: list[object]) -> Iterator[float]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"score is {values!r}: wanted two numbers from 0, or 1, 2 or 3")
        yield float(value)
