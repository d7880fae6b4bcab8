"""`clockgate-train repair`: puts a run folder in order after crashes and damage, and says what it did."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clockgate_trainer.checkpoint.claim import claimed
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.layout import MANIFEST_FILE, step_in_name
from clockgate_trainer.checkpoint.repair import Action, carry_out, inspect, left_verified, plan_repair
from clockgate_trainer.errors import ConfigError, ExitCode

_IN_ORDER = 0
_NOT_IN_ORDER = 1


@dataclass(frozen=True)
class _Done:
    """An action and what came of it: `problem` is None when it was done, or would be."""

    action: Action
    problem: str | None


def main(argv: Sequence[str]) -> int:
    """Repair the run folder in `argv`, which comes after the word repair; see the exit codes in its help."""
    parser = argparse.ArgumentParser(
        prog="clockgate-train repair",
        description="Quarantines checkpoints that are not as they were written, gives back their names to those that a "
        "crash left set aside, and removes what a crash left half written. It never deletes a checkpoint.",
        epilog="exit codes: 0 in order, with a verified checkpoint or with none and nothing quarantined; 1 something "
        "is left to do (--dry-run), could not be done, or no verified checkpoint is left; 2 usage; 78 the folder is "
        "not there or a run holds it",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a run folder (--output_dir)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done and change nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    folder: Path = options.folder
    try:
        if not folder.is_dir():
            raise ConfigError(f"{folder} is no folder: name a run folder (--output_dir of the run)")
        if (folder / MANIFEST_FILE).exists() or step_in_name(folder.resolve()) is not None:
            raise ConfigError(
                f"{folder} is one checkpoint: name the run folder that it is in ({folder.resolve().parent})"
            )
        with claimed(folder):
            return _repair(folder, dry_run=options.dry_run, as_json=options.json)
    except (ConfigError, OSError) as error:
        print(f"clockgate-train repair: {error}", file=sys.stderr)
        return ExitCode.CONFIG


def _repair(folder: Path, *, dry_run: bool, as_json: bool) -> int:
    if sys.stderr.isatty():
        print(f"reading every checkpoint in {folder} ...", file=sys.stderr)
    inspection = inspect(HOST, folder)
    actions = plan_repair(inspection)
    done = [_Done(action, None if dry_run else _attempt(action)) for action in actions]
    failed = any(one.problem for one in done)
    verified = inspection.verified if failed or dry_run else left_verified(inspection, actions)
    if as_json:
        plain = {"folder": str(folder), "dry_run": dry_run, "actions": [_plain(one) for one in done]}
        print(json.dumps({**plain, "verified": [str(path) for path in verified]}, indent=2))
    else:
        print(
            "\n".join([*(_line(one, dry_run=dry_run) for one in done), _summary(folder, len(actions), len(verified))])
        )
    lost = bool(inspection.folders) and not verified
    return _NOT_IN_ORDER if failed or lost or (dry_run and actions) else _IN_ORDER


def _attempt(action: Action) -> str | None:
    try:
        carry_out(HOST, action)
    except OSError as error:
        if error.strerror is None:
            return str(error)
        return f"{error.strerror} (errno {error.errno}) at {error.filename}"
    return None


def _line(one: _Done, *, dry_run: bool) -> str:
    action = one.action
    to = "" if action.target is None else f" to {action.target.name}"
    head = f"{'would ' if dry_run else ''}{action.deed.value} {action.path.name}{to}: {action.why}"
    return head if one.problem is None else f"{head}; FAILED: {one.problem}"


def _summary(folder: Path, actions: int, verified: int) -> str:
    if not verified:
        return f"{folder}: no verified checkpoint: the next start begins anew"
    found = "1 verified checkpoint" if verified == 1 else f"{verified} verified checkpoints"
    return f"{folder}: {found}" + ("" if actions else ", nothing to do")


def _plain(one: _Done) -> dict[str, object]:
    action = one.action
    return {
        "deed": action.deed.name,
        "path": str(action.path),
        "target": None if action.target is None else str(action.target),
        "why": action.why,
        "problem": one.problem,
    }
