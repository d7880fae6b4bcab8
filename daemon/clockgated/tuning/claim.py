"""One apply at a time, among all processes that share a journal."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clockgated.tuning.journal import JournalError

_NAME = "apply.lock"
_RETRY_S = 0.05


@contextmanager
def sole_apply(folder: Path, patience_s: float = 0.0) -> Iterator[str | None]:
    """Hold the right to change things; yields None, or who has it for longer than `patience_s`.

    Raises JournalError when the folder cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise JournalError(f"{folder / _NAME}: {error.strerror}; nothing is changed without a journal") from None
    try:
        yield _holder(lock, patience_s)
    finally:
        os.close(lock)


def _holder(lock: int, patience_s: float) -> str | None:
    due_s = time.monotonic() + patience_s
    while not _is_taken(lock):
        if time.monotonic() < due_s:
            time.sleep(_RETRY_S)
            continue
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
        return f"process {holder}" if holder else "a process that is just starting"
    # Only for people to read: a full disk must not keep anybody from giving back.
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return None


def _is_taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
