"""A checkpoint from the rank that has it to the folders of ranks that have not, over the ranks' own connection.

What arrives is written under a hidden name, on disk, compared with its manifest, and only then given its name.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from clockgate_trainer.checkpoint.files import Files
from clockgate_trainer.checkpoint.layout import MANIFEST_FILE, hidden_path, quarantine_path
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.publish import publish
from clockgate_trainer.checkpoint.verify import read_manifest, verify


class Spread(Protocol):
    """A collective: the content that rank `source` gives, on every rank that wants to `keep` it."""

    def __call__(self, content: bytes | None, source: int, *, keep: bool = True) -> bytes | None:
        """None when the source gives nothing, and where it is not kept."""


def give(files: Files, checkpoint: Path, spread: Spread, source: int) -> str | None:
    """Send the verified `checkpoint` of this rank, which is `source`. A collective with `receive` and `stand_by`.

    Returns None, or the sentence that says why it could not be read: the receivers then hear that nothing comes.
    """
    manifest = read_manifest(checkpoint, files)
    if not isinstance(manifest, Manifest):
        spread(None, source)
        return f"{checkpoint} changed while it was read: {manifest}"
    names = _names(manifest)
    spread(json.dumps(names).encode(), source)
    problem = None
    for name in names:
        content = None
        if problem is None:
            try:
                content = files.read(checkpoint / name)
            except OSError as error:
                problem = f"{checkpoint / name} cannot be read ({error.strerror})"
        spread(content, source)
    return problem


def stand_by(spread: Spread, source: int) -> None:
    """Take part in a transfer without keeping anything."""
    names = spread(None, source)
    for _ in json.loads(names) if names is not None else ():
        spread(None, source, keep=False)


def receive(files: Files, target: Path, spread: Spread, source: int) -> str | None:
    """Put the checkpoint that `source` gives at `target`; the sentence that says why it is not there, or None.

    A folder that has the name already is quarantined: it is not the checkpoint that all ranks go on from.
    """
    folder = hidden_path(target, "staging")
    names = spread(None, source)
    if names is None:
        return f"rank {source} could not send {target.name}"
    problem: str | None = None
    for name in json.loads(names):
        content = spread(None, source)
        if content is None:
            problem = problem or f"rank {source} could not send {name}"
        elif problem is None:
            problem = _write(files, folder / name, content)
    return problem or _establish(files, folder, target)


def _names(manifest: Manifest) -> list[str]:
    """Every file of a checkpoint, the manifest last: a folder with one has everything else."""
    return [*sorted(manifest.files), MANIFEST_FILE]


def _write(files: Files, path: Path, content: bytes) -> str | None:
    try:
        if path.parent not in files.list_folders(path.parent.parent):
            files.make_folder(path.parent)
        files.write(path, content)
    except OSError as error:
        return f"{path} cannot be written ({error.strerror})"
    return None


def _establish(files: Files, folder: Path, target: Path) -> str | None:
    problems = verify(folder, files)
    if problems:
        return f"{target.name} did not arrive as it was sent: {problems[0]}"
    try:
        for inner in _folders(folder, read_manifest(folder, files)):
            files.sync_folder(inner)
        if target in files.list_folders(target.parent):
            files.rename(target, quarantine_path(target))
        publish(files, folder, target)
    except OSError as error:
        return f"{target} cannot be written ({error.strerror})"
    return None


def _folders(folder: Path, manifest: object) -> list[Path]:
    names: Mapping[str, object] = manifest.files if isinstance(manifest, Manifest) else {}
    return sorted({(folder / name).parent for name in names} | {folder}, reverse=True)
