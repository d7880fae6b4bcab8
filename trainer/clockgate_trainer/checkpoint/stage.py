"""Rank 0 writes a whole checkpoint into a folder of its own, on disk to the last byte, before anybody can see it."""

import errno
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from clockgate_trainer.checkpoint.files import FileDigest, Files
from clockgate_trainer.checkpoint.layout import (
    MANIFEST_FILE,
    OPTIMIZER_FILE,
    RANKS_FILE,
    SCHEDULER_FILE,
    TRAINER_STATE_FILE,
)
from clockgate_trainer.checkpoint.manifest import Manifest, to_json
from clockgate_trainer.checkpoint.state import TrainState

WriteAdapter = Callable[[Path], None]


@dataclass(frozen=True)
class Staged:
    """A complete checkpoint under a hidden name; `manifest_sha256` is that of its manifest.json."""

    folder: Path
    manifest_sha256: str


def stage(
    files: Files,
    folder: Path,
    state: TrainState,
    rank_states: Sequence[Mapping[str, object]],
    *,
    write_adapter: WriteAdapter,
    describe: Callable[[Mapping[str, FileDigest]], Manifest],
) -> Staged:
    """Write a checkpoint into the new `folder`.

    `write_adapter` puts the adapter's files there, `describe` makes the manifest from what was read back. Raises
    OSError, and what `write_adapter` raises; the folder is then of no worth and left to the caller.
    """
    files.make_folder(folder)
    write_adapter(folder)
    foreign = files.list_files(folder)
    for name in foreign:
        files.sync_file(folder / name)
    digests = {name: files.digest(folder / name) for name in foreign}
    digests |= {
        OPTIMIZER_FILE: _write(files, folder / OPTIMIZER_FILE, _packed(dict(state.optimizer_state))),
        SCHEDULER_FILE: _write(files, folder / SCHEDULER_FILE, _packed(dict(state.scheduler_state))),
        RANKS_FILE: _write(files, folder / RANKS_FILE, _packed({"ranks": [dict(own) for own in rank_states]})),
        TRAINER_STATE_FILE: _write(files, folder / TRAINER_STATE_FILE, _trainer_state(state)),
    }
    # The manifest comes last: a folder with one has everything else.
    manifest = _write(files, folder / MANIFEST_FILE, memoryview(to_json(describe(digests))))
    for inner in sorted({(folder / name).parent for name in digests} | {folder}, reverse=True):
        files.sync_folder(inner)
    return Staged(folder, manifest.sha256)


def _write(files: Files, path: Path, content: memoryview) -> FileDigest:
    """Write and read back; a disk that returns something else counts as one that cannot be written."""
    files.write(path, content)
    found = files.digest(path)
    if found.sha256 != hashlib.sha256(content).hexdigest():
        raise OSError(errno.EIO, "the disk returned something else than was written", str(path))
    return found


def _packed(content: object) -> memoryview:
    # Into memory first: torch turns a full disk into a RuntimeError without errno.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getbuffer()


def _trainer_state(state: TrainState) -> memoryview:
    content = {
        "step": state.step,
        "cursor": dict(state.cursor),
        "world_size": state.world_size,
        "settings": dict(state.settings),
    }
    return memoryview(json.dumps(content, indent=2, sort_keys=True).encode() + b"\n")
