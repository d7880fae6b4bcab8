"""Files that a crash leaves either as they were or as they should be, never in between."""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes, mode: int = 0o600, *, sync: bool = True) -> None:
    """Put `data` at `path` in one step; raises OSError and leaves the old file when that fails.

    With `sync` it also survives a power cut once this returns. Without, it survives the death of this process only,
    which is enough on a file system that a reboot empties. One writer per path at a time.
    """
    # One fixed name, so that a process killed in here leaves at most one draft behind, and the next call reuses it.
    draft = path.with_name(f".{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # the umask must not decide who may read
            file.write(data)
            file.flush()
            if sync:
                os.fsync(descriptor)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names that were added to or renamed in `folder` survive a power cut; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
