"""One clockgated a run folder: its records, its memory and its time daemons must not have two owners."""

import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from clockgated.errors import ConfigError

_NAME = "clockgated.lock"


class FolderClaim:
    """The right to use a run folder, held until `close` or the end of the process.

    `is_held` is False where the folder cannot be written, as without root: nothing is kept there then. `owner` is the
    process that holds it already.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: BinaryIO | None = None
        self.owner: str | None = None
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            # O_NOFOLLOW: the name may be somebody's link to a file of ours.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.fdopen(os.open(folder / _NAME, flags, 0o600), "r+b", 0)
            # Whoever can open it can lock it, and keep clockgated from starting. It may be older than this rule.
            os.fchmod(lock.fileno(), 0o600)
        except OSError:
            return
        self._take(lock)

    @property
    def is_held(self) -> bool:
        """Whether the folder is ours."""
        return self._lock is not None

    def insist(self) -> None:
        """Raises ConfigError when another process has the folder."""
        if self.owner is not None:
            raise ConfigError(
                f"[folders] run = {self._folder}: another clockgated uses it (process {self.owner}); stop that one, or "
                "choose another folder"
            )

    def close(self) -> None:
        """Give it up, once or again."""
        if self._lock is not None:
            self._lock.close()

    def _take(self, lock: BinaryIO) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with lock:
                self.owner = lock.read(32).decode(errors="replace").strip() or "of unknown number"
            return
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n".encode())
        self._lock = lock
