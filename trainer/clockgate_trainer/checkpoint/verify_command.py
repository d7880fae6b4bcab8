"""`clockgate-train verify`: tells whether every byte of a checkpoint is as it was written."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.layout import MANIFEST_FILE, step_in_name
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.verify import Fault, Problem, misnamed, read_manifest, verify

_VERIFIED = 0
_NOT_VERIFIED = 1


@dataclass(frozen=True)
class Report:
    """One checkpoint that was looked at; `manifest` is None when it cannot be read."""

    path: Path
    manifest: Manifest | None
    problems: tuple[Problem, ...]


def main(argv: Sequence[str]) -> int:
    """Verify the paths in `argv`, which comes after the word verify; 0: all verified, 1: not. Usage errors exit 2."""
    parser = argparse.ArgumentParser(
        prog="clockgate-train verify",
        description="Reads checkpoints back and compares every file with the hash in the manifest.",
        epilog="exit codes: 0 all verified, 1 a checkpoint is broken or there is none, 2 usage",
    )
    parser.add_argument("paths", metavar="PATH", type=Path, nargs="+", help="a checkpoint, or a run folder with some")
    parser.add_argument("--json", action="store_true", help="print a JSON list, one object for each checkpoint")
    options = parser.parse_args(argv)
    reports = [report for path in options.paths for report in _reports(path)]
    if options.json:
        print(json.dumps([_plain(report) for report in reports], indent=2))
    else:
        print("\n".join(line for report in reports for line in _lines(report)))
    return _NOT_VERIFIED if any(report.problems for report in reports) else _VERIFIED


def _reports(path: Path) -> list[Report]:
    """A checkpoint's report, or one for each checkpoint of a run folder, oldest first."""
    try:
        if step_in_name(path) is not None or (path / MANIFEST_FILE).exists() or not path.is_dir():
            return [_report(path)]
        checkpoints = [folder for folder in path.iterdir() if step_in_name(folder) is not None]
    except OSError as error:
        unreadable = Problem(MANIFEST_FILE, Fault.UNREADABLE, f"cannot be read ({error.strerror})")
        return [Report(path, None, (unreadable,))]
    if not checkpoints:
        nothing = Problem(MANIFEST_FILE, Fault.MISSING, "neither a checkpoint nor a run folder that has some")
        return [Report(path, None, (nothing,))]
    return [_report(folder) for folder in sorted(checkpoints, key=lambda folder: step_in_name(folder) or 0)]


def _report(path: Path) -> Report:
    manifest = read_manifest(path, HOST)
    if isinstance(manifest, Problem):
        return Report(path, None, (manifest,))
    # "." has no name of its own.
    wrong_name = misnamed(path.absolute(), manifest)
    return Report(path, manifest, (*([wrong_name] if wrong_name else []), *verify(path)))


def _lines(report: Report) -> list[str]:
    if report.problems or report.manifest is None:
        return [
            f"{report.path}: NOT VERIFIED; resume from another checkpoint (--resume_from_checkpoint auto does)",
            *(f"  {problem}" for problem in report.problems),
        ]
    count = report.manifest.world_size
    ranks = "1 rank" if count == 1 else f"{count} ranks"
    size = sum(file.bytes for file in report.manifest.files.values())
    return [
        f"{report.path}: verified: step {report.manifest.step}, {ranks}, "
        f"{len(report.manifest.files)} files, {size:,} bytes"
    ]


def _plain(report: Report) -> dict[str, object]:
    return {
        "path": str(report.path),
        "verified": not report.problems,
        "step": None if report.manifest is None else report.manifest.step,
        "problems": [
            {"file": problem.file, "fault": problem.fault.name, "detail": problem.detail} for problem in report.problems
        ],
    }
