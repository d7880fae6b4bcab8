"""Names in a run folder and in a checkpoint, and what a name says. Pure.

checkpoint-N                      a checkpoint after N optimizer steps; whole, since it is put in place by a rename
.staging-checkpoint-N-NONCE       being written; a leftover of a crash, of no worth
.replaced-checkpoint-N-NONCE      an older checkpoint-N on its way out; put back when no checkpoint-N is there
.removed-checkpoint-N-NONCE       being deleted; of no worth
quarantined-checkpoint-N-NONCE    not as it was written; kept for a person to look at, never resumed from
best.json                         which checkpoint is the best one
.draft-NAME-NONCE                 a file being written; a leftover of a crash, of no worth
.mark-NONCE                       there while ranks find out whether they share the folder
"""

import re
import secrets
from pathlib import Path

MANIFEST_FILE = "manifest.json"
BEST_FILE = "best.json"
OPTIMIZER_FILE = "optimizer.pt"
SCHEDULER_FILE = "scheduler.pt"
RANKS_FILE = "ranks.pt"
TRAINER_STATE_FILE = "trainer_state.json"
STATE_FILES = (OPTIMIZER_FILE, SCHEDULER_FILE, RANKS_FILE, TRAINER_STATE_FILE)

_CHECKPOINT = re.compile(r"checkpoint-(0|[1-9][0-9]{0,18})", re.ASCII)
_HIDDEN = re.compile(r"\.(staging|replaced|removed)-(checkpoint-(?:0|[1-9][0-9]{0,18}))-[0-9a-f]{8}", re.ASCII)
_PASSING_FILE = re.compile(r"\.draft-best\.json-[0-9a-f]{8}|\.mark-[0-9a-f]{32}", re.ASCII)


def checkpoint_path(output_dir: Path, step: int) -> Path:
    """Where the checkpoint after `step` optimizer steps is."""
    return output_dir / f"checkpoint-{step}"


def step_in_name(path: Path) -> int | None:
    """The step that the folder's name claims; None when it is no checkpoint's name."""
    match = _CHECKPOINT.fullmatch(path.name)
    return int(match[1]) if match else None


def hidden_path(checkpoint: Path, purpose: str) -> Path:
    """A new name beside `checkpoint` for the purpose staging, replaced or removed."""
    return checkpoint.with_name(f".{purpose}-{checkpoint.name}-{secrets.token_hex(4)}")


def read_hidden(path: Path) -> tuple[str, Path] | None:
    """Purpose of a hidden folder and the checkpoint it belongs to; None for a folder that is not ours."""
    match = _HIDDEN.fullmatch(path.name)
    return (match[1], path.with_name(match[2])) if match else None


def quarantine_path(checkpoint: Path) -> Path:
    """A new name beside `checkpoint` under which nothing looks at it."""
    return checkpoint.with_name(f"quarantined-{checkpoint.name}-{secrets.token_hex(4)}")


def draft_path(file: Path) -> Path:
    """A new name beside `file` to write its next content under."""
    return file.with_name(f".draft-{file.name}-{secrets.token_hex(4)}")


def mark_path(output_dir: Path, nonce: str) -> Path:
    """The mark that one rank leaves in its run folder for the others to look for; `nonce` is 32 hex digits."""
    return output_dir / f".mark-{nonce}"


def is_passing_file(path: Path) -> bool:
    """Whether the file is one of ours that only a crash leaves behind."""
    return _PASSING_FILE.fullmatch(path.name) is not None
