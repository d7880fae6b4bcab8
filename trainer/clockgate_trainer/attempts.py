"""Starts of a run that get nowhere: what a supervisor that starts it again and again must not hide.

A file in the run folder counts the starts from one checkpoint. It is there while a run goes on, and after one that did
not end by agreement of its ranks.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from clockgate_trainer.durable import write_json

ATTEMPTS_FILE = ".attempts.json"
MOST_FRUITLESS = 2


@dataclass(frozen=True)
class Attempts:
    """Starts from the checkpoint of `from_step`: `furthest_step` is the last step that any of them, or the run before
    them, finished; `fruitless` of them in a row got no further.
    """

    from_step: int
    furthest_step: int
    fruitless: int = 0

    @property
    def may_start(self) -> bool:
        """Whether another start is worth it: not after two in a row that got no further."""
        return self.fruitless < MOST_FRUITLESS


def next_attempt(before: Attempts | None, from_step: int, reached_step: int) -> Attempts:
    """The count with one more start, from `from_step`; `reached_step` is the last step ever finished. Pure.

    A start from step 0 resumes nothing and is never fruitless.
    """
    if before is None or before.from_step != from_step or from_step == 0:
        return Attempts(from_step, max(from_step, reached_step))
    if reached_step > before.furthest_step:
        return Attempts(from_step, reached_step)
    return Attempts(from_step, before.furthest_step, before.fruitless + 1)


def read_attempts(folder: Path) -> Attempts | None:
    """The count in `folder`; None when there is none that can be read: a damaged one must not stop a run."""
    try:
        fields = json.loads((folder / ATTEMPTS_FILE).read_bytes())
        return Attempts(*(int(fields[name]) for name in ("from_step", "furthest_step", "fruitless")))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def write_attempts(folder: Path, attempts: Attempts) -> None:
    """Put the count into `folder`, atomically. Raises OSError."""
    write_json(folder / ATTEMPTS_FILE, asdict(attempts))


def clear_attempts(folder: Path) -> None:
    """Forget the count, if there is one. Raises OSError."""
    (folder / ATTEMPTS_FILE).unlink(missing_ok=True)
