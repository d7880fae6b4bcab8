"""What is not in order in a run folder, what to do about it, and doing it. Nothing that could be resumed from is lost.

The plan is made first, as data, from what was seen; `carry_out` does it one action after the other.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from clockgate_trainer.checkpoint.best import read_best
from clockgate_trainer.checkpoint.files import Files
from clockgate_trainer.checkpoint.layout import (
    BEST_FILE,
    is_passing_file,
    quarantine_path,
    read_hidden,
    step_in_name,
)
from clockgate_trainer.checkpoint.verify import verify

_LEFTOVERS = {"staging": "it was never committed", "removed": "it was on its way out"}


class Deed(Enum):
    """What is done to a path."""

    QUARANTINE = "quarantine"
    PUT_BACK = "put back"
    REMOVE_FOLDER = "remove folder"
    REMOVE_FILE = "remove file"


@dataclass(frozen=True)
class Action:
    """One deed and why; `target` is the new name, None when there is none."""

    deed: Deed
    path: Path
    why: str
    target: Path | None = None


@dataclass(frozen=True)
class Seen:
    """One folder that is a checkpoint or belongs to one; `problems` are empty when every byte is as it was written."""

    path: Path
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Inspection:
    """What is in a run folder: checkpoints and hidden folders, all verified, what only a crash leaves, best.json.

    `best` is the name of the checkpoint in best.json, None without one or when it cannot be understood; `best_file`
    tells whether there is a best.json at all.
    """

    folders: tuple[Seen, ...]
    passing: tuple[Path, ...] = ()
    best_file: Path | None = None
    best: str | None = None

    @property
    def verified(self) -> tuple[Path, ...]:
        """The verified checkpoints under their names."""
        return tuple(seen.path for seen in self.folders if _is_checkpoint(seen) and not seen.problems)


def inspect(files: Files, output_dir: Path) -> Inspection:
    """Look at everything in `output_dir`, reading every checkpoint in full. Raises OSError."""
    mine = (path for path in files.list_folders(output_dir) if step_in_name(path) is not None or read_hidden(path))
    loose = files.list_loose(output_dir)
    best = read_best(files, output_dir)
    return Inspection(
        folders=tuple(Seen(path, tuple(map(str, verify(path, files)))) for path in mine),
        passing=tuple(path for path in loose if is_passing_file(path)),
        best_file=next((path for path in loose if path.name == BEST_FILE), None),
        best=None if best is None else best.checkpoint,
    )


def plan_repair(inspection: Inspection) -> tuple[Action, ...]:
    """Everything to do, in the order in which to do it. Pure but for the names of quarantined folders.

    Checkpoints that are not as they were written leave their names first, then a verified one that was set aside
    under that name gets it back. What a crash left half written goes last.
    """
    broken = [seen for seen in inspection.folders if _is_checkpoint(seen) and seen.problems]
    actions = [Action(Deed.QUARANTINE, seen.path, _first(seen), quarantine_path(seen.path)) for seen in broken]
    standing = set(inspection.verified)
    for seen in inspection.folders:
        if not _is_checkpoint(seen):
            action = _hidden_action(seen, standing)
            actions.append(action)
            standing |= {action.target} if action.deed is Deed.PUT_BACK and action.target is not None else set()
    for path in inspection.passing:
        actions.append(Action(Deed.REMOVE_FILE, path, "a crash left it behind"))
    if inspection.best_file is not None and (
        inspection.best is None or inspection.best_file.with_name(inspection.best) not in standing
    ):
        named = "nothing that can be read" if inspection.best is None else f"{inspection.best}, which is not verified"
        actions.append(Action(Deed.REMOVE_FILE, inspection.best_file, f"it names {named}"))
    return tuple(actions)


def carry_out(files: Files, action: Action) -> None:
    """Do one action, durably. Raises OSError."""
    if action.deed is Deed.REMOVE_FOLDER:
        files.remove_tree(action.path)
    elif action.deed is Deed.REMOVE_FILE:
        files.remove_file(action.path)
    elif action.target is not None:
        files.rename(action.path, action.target)
    files.sync_folder(action.path.parent)


def left_verified(inspection: Inspection, actions: Sequence[Action]) -> tuple[Path, ...]:
    """The verified checkpoints once all `actions` are done. Pure."""
    back = (action.target for action in actions if action.deed is Deed.PUT_BACK)
    return (*inspection.verified, *(path for path in back if path is not None))


def _hidden_action(seen: Seen, standing: Collection[Path]) -> Action:
    purpose, target = read_hidden(seen.path) or ("", seen.path)
    if purpose != "replaced":
        return Action(Deed.REMOVE_FOLDER, seen.path, _LEFTOVERS[purpose])
    if target in standing:
        return Action(Deed.REMOVE_FOLDER, seen.path, f"{target.name} took its place")
    if seen.problems:
        return Action(Deed.QUARANTINE, seen.path, _first(seen), quarantine_path(target))
    return Action(Deed.PUT_BACK, seen.path, f"a crash left it set aside and there is no {target.name}", target)


def _is_checkpoint(seen: Seen) -> bool:
    return step_in_name(seen.path) is not None


def _first(seen: Seen) -> str:
    more = f" and {len(seen.problems) - 1} more" if len(seen.problems) > 1 else ""
    return f"{seen.problems[0]}{more}"
