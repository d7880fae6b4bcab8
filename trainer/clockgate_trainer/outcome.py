"""`outcome.json`: how the newest run ended, for people and for scripts whose launcher hides exit codes.

It is absent while a run goes on. Any rank may write it, the last one wins; the launcher completes it.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from clockgate_trainer.durable import write_json

OUTCOME_FILE = "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """The end of a run.

    `code` is the exit code of the ranks, `reason` one sentence, `step` the last finished optimizer step, `checkpoint`
    the newest verified checkpoint's path, `ranks` the ranks at fault. None where there is none.
    """

    code: int
    reason: str
    step: int | None
    checkpoint: str | None
    ranks: tuple[int, ...]


def write_outcome(folder: Path, outcome: Outcome) -> Path:
    """Write outcome.json into `folder`, atomically and durably; returns its path. Raises OSError."""
    path = folder / OUTCOME_FILE
    write_json(path, asdict(outcome), indent=2)
    return path


def read_outcome(folder: Path) -> Outcome | None:
    """The outcome in `folder`; None when there is none. Raises ValueError naming the file when it is damaged."""
    path = folder / OUTCOME_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(content)
        return Outcome(
            code=int(fields["code"]),
            reason=str(fields["reason"]),
            step=None if fields["step"] is None else int(fields["step"]),
            checkpoint=None if fields["checkpoint"] is None else str(fields["checkpoint"]),
            ranks=tuple(int(rank) for rank in fields["ranks"]),
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is not an outcome of clockgate-train ({error}); delete it") from error


def clear_outcome(folder: Path) -> None:
    """Remove the outcome of an earlier run, if there is one."""
    (folder / OUTCOME_FILE).unlink(missing_ok=True)
