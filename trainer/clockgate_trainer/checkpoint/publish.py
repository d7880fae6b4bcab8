"""Rank 0 gives a staged checkpoint its name, and old checkpoints leave. No crash leaves the folder without a whole one.

Which checkpoints are old is told by the steps in their manifests, never by times of files: a clock that was set back
would make the newest look oldest.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from clockgate_trainer.checkpoint.best import read_best
from clockgate_trainer.checkpoint.files import Files
from clockgate_trainer.checkpoint.layout import hidden_path, is_passing_file, read_hidden, step_in_name
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.verify import read_manifest, verify, verify_sizes


@dataclass(frozen=True)
class Standing:
    """A checkpoint that looks whole, and the step in its manifest."""

    path: Path
    step: int


def publish(files: Files, staged: Path, target: Path) -> Path | None:
    """Rename `staged` to `target` and bring the name to disk.

    A folder that has the name already is set aside, and returned for the caller to remove once the new one stands. A
    crash between the two renames leaves both complete and neither under its name: `put_back` is for that. Raises
    OSError; `target` is then what it was before, or the new one when only the last sync failed.
    """
    aside = hidden_path(target, "replaced") if target in files.list_folders(target.parent) else None
    if aside is not None:
        files.rename(target, aside)
    try:
        files.rename(staged, target)
    except OSError:
        if aside is not None:
            files.rename(aside, target)
        raise
    files.sync_folder(target.parent)
    return aside


def put_back(files: Files, output_dir: Path) -> tuple[Path, ...]:
    """Give checkpoints that were set aside their names back where no newer one took them; returns these."""
    restored: list[Path] = []
    for folder in files.list_folders(output_dir):
        purpose, target = read_hidden(folder) or ("", folder)
        if purpose == "replaced" and target not in files.list_folders(output_dir):
            files.rename(folder, target)
            restored.append(target)
    if restored:
        files.sync_folder(output_dir)
    return tuple(restored)


def remove_leftovers(files: Files, output_dir: Path) -> tuple[Path, ...]:
    """Remove what a crash left half written or half removed, `put_back` first; returns what is gone."""
    put_back(files, output_dir)
    folders = tuple(folder for folder in files.list_folders(output_dir) if read_hidden(folder) is not None)
    for folder in folders:
        files.remove_tree(folder)
    loose = tuple(path for path in files.list_loose(output_dir) if is_passing_file(path))
    for path in loose:
        files.remove_file(path)
    return folders + loose


def same_checkpoint(files: Files, path: Path, step: int, world_size: int, adapter_sha256: str) -> Manifest | None:
    """The manifest of the verified checkpoint of this very state that is at `path` already; None without one."""
    manifest = read_manifest(path, files)
    if not isinstance(manifest, Manifest) or verify(path, files):
        return None
    found = (manifest.step, manifest.world_size, manifest.adapter_sha256)
    return manifest if found == (step, world_size, adapter_sha256) else None


def whole_manifest(files: Files, path: Path) -> Manifest | None:
    """The manifest of a checkpoint whose files are all there with their sizes; None when it does not look whole."""
    manifest = read_manifest(path, files)
    return manifest if isinstance(manifest, Manifest) and verify_sizes(path, manifest, files) else None


def rotate(files: Files, output_dir: Path, limit: int, just_saved: Path) -> tuple[Path, ...]:
    """Remove the checkpoints that `surplus` names; returns them. Raises OSError at the first that cannot be removed.

    One that does not look whole is neither counted nor removed: it is for a person to look at. The one that best.json
    names stays.
    """
    standing = []
    for path in files.list_folders(output_dir):
        manifest = whole_manifest(files, path) if step_in_name(path) is not None else None
        if manifest is not None:
            standing.append(Standing(path, manifest.step))
    best = read_best(files, output_dir)
    kept = {just_saved} if best is None else {just_saved, output_dir / best.checkpoint}
    doomed = surplus(standing, limit, kept)
    for path in doomed:
        # Out of sight at once: a crash halfway must not leave a broken checkpoint under a checkpoint's name.
        hidden = hidden_path(path, "removed")
        files.rename(path, hidden)
        files.remove_tree(hidden)
    return doomed


def earlier_manifests(files: Files, output_dir: Path, step: int) -> tuple[Manifest, ...]:
    """The readable manifests of checkpoints before `step`, newest first."""
    found = (read_manifest(path, files) for path in files.list_folders(output_dir) if step_in_name(path) is not None)
    earlier = (manifest for manifest in found if isinstance(manifest, Manifest) and manifest.step < step)
    return tuple(sorted(earlier, key=lambda manifest: manifest.step, reverse=True))


def surplus(standing: Sequence[Standing], limit: int, kept: Collection[Path]) -> tuple[Path, ...]:
    """What is beyond the `limit` newest by step, oldest first; a limit of 0 keeps all. Pure.

    Never the newest, and none of `kept`: the one just saved, the only one that is known to be verified (a run that was
    resumed from an older checkpoint saves steps below the newest), and the best one.
    """
    if limit == 0:
        return ()
    by_age = sorted(standing, key=lambda one: one.step)
    return tuple(one.path for one in by_age[:-limit] if one.path not in kept)
