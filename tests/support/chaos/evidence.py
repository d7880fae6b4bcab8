"""What a run left behind: exit codes, logs, checkpoints, read back from disk."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clockgate_trainer.checkpoint.layout import MANIFEST_FILE, read_hidden, step_in_name
from clockgate_trainer.checkpoint.manifest import from_json
from clockgate_trainer.checkpoint.verify import verify
from clockgate_trainer.outcome import read_outcome


@dataclass(frozen=True)
class Attempt:
    """One start of the ranks. `codes` are by rank, None for one that had not ended in time.

    `struck` counts the faults that struck. `events` are the names in rank 0's log of this start, `saved` the steps that
    it said were saved, `losses` what it told of each step. `standing` holds the problems of every folder that is named
    as a checkpoint, by step; `hidden` the names of what is half done. `leases` were still open when
    all ranks were gone.
    """

    codes: tuple[int | None, ...]
    struck: int
    seconds: float
    outcome_code: int | None
    events: frozenset[str]
    saved: tuple[int, ...]
    losses: Mapping[int, float]
    standing: Mapping[int, tuple[str, ...]]
    hidden: tuple[str, ...]
    digests: Mapping[int, str]
    leases: int

    @property
    def newest_verified(self) -> int:
        """The step that a start would go on from; 0 when there is no whole checkpoint."""
        return max((step for step, problems in self.standing.items() if not problems), default=0)


_LOGS = ("events.jsonl", "metrics.jsonl")


def lengths(run: Path) -> tuple[int, ...]:
    """Bytes in the run's logs: what a start adds comes after them."""
    return tuple(path.stat().st_size if path.exists() else 0 for path in (run / name for name in _LOGS))


def collect(
    run: Path,
    before: tuple[int, ...],
    *,
    codes: tuple[int | None, ...],
    struck: int,
    seconds: float,
    others: Sequence[Path] = (),
    leases: int = 0,
) -> Attempt:
    """Read what a start left in the run folder, whose logs had the `lengths` `before`.

    `others` are the folders of ranks that do not share it: a checkpoint stands when it is whole in any, and all that is
    wrong in any of them is told.
    """
    events, metrics = (_lines(run / name, length) for name, length in zip(_LOGS, before, strict=True))
    folders = [path for home in (run, *others) for path in _folders(home)]
    checkpoints = [(step, path, tuple(map(str, verify(path)))) for path in folders if (step := step_in_name(path))]
    standing: dict[int, tuple[str, ...]] = {}
    for step, _, told in checkpoints:
        standing[step] = standing.get(step, ()) + told
    return Attempt(
        codes=codes,
        struck=struck,
        seconds=seconds,
        outcome_code=_outcome_code(run),
        events=frozenset(str(line["event"]) for line in events),
        saved=tuple(int(line["step"]) for line in events if line["event"] == "checkpoint_saved"),
        losses={int(line["step"]): float(line["loss"]) for line in metrics},
        standing=standing,
        hidden=tuple(path.name for path in folders if read_hidden(path) is not None),
        digests={
            step: from_json((path / MANIFEST_FILE).read_bytes()).adapter_sha256
            for step, path, told in checkpoints
            if not told
        },
        leases=leases,
    )


def _folders(run: Path) -> list[Path]:
    return [path for path in run.iterdir() if path.is_dir()] if run.exists() else []


def _outcome_code(run: Path) -> int | None:
    try:
        found = read_outcome(run)
    except ValueError:
        return None
    return None if found is None else found.code


def _lines(path: Path, after: int) -> list[dict[str, Any]]:
    """Whole lines after so many bytes; what a crash tore is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_bytes()[after:].splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            lines.append(line)
    return lines
