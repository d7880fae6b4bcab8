"""The journal on disk: appended durably, by one process at a time, and read by whoever recovers from a crash.

Two processes may append: the daemon, and the guard that undoes a change that cut the node off. The lock is held for a
record together with the write that it announces; who finds that the other one appended meanwhile stops.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path

from clockgated import host
from clockgated.durable import replace_file, sync_folder
from clockgated.tuning.journal import (
    JournalContent,
    JournalError,
    LinkStamps,
    Mark,
    Record,
    Transaction,
    encode,
    parse,
    transactions,
)
from clockgated.tuning.model import Change

_NAME = "journal"
_PREVIOUS = "journal.previous-boot"
_LOCK = "journal.lock"
_MAX_BYTES = 16 << 20
# A process that was stopped while it held the lock must not keep the guard from undoing. What that process still does
# when it goes on is undone by itself: it finds the guard's record.
_PATIENCE_S = 5.0
_RETRY_S = 0.02


class JournalMovedError(JournalError):
    """Another process appended since this one last read: it undoes what this one was doing."""


class JournalFile:
    """The journal in `folder`. Not thread-safe; everything but `read` only inside `locked`."""

    def __init__(self, folder: Path, boot_id: str, now_boot_ns: Callable[[], int] = host.boot_ns) -> None:
        self.path = folder / _NAME
        self._folder = folder
        self._boot_id = boot_id
        self._now_boot_ns = now_boot_ns
        self._intact_bytes = 0
        self._seen_bytes = 0

    @contextmanager
    def locked(self, patience_s: float = _PATIENCE_S) -> Iterator[bool]:
        """Keep other processes from appending meanwhile; False when one holds the lock for longer than `patience_s`.

        Raises JournalError when the folder cannot be written.
        """
        lock = self._opened_lock()
        try:
            yield _is_locked(lock, patience_s)
        finally:
            os.close(lock)

    def read(self) -> tuple[Transaction, ...]:
        """What the journal tells, the oldest apply first; none without a file. Raises JournalError."""
        content = self._content()
        return transactions(content.records, str(self.path))

    def boot_ids(self) -> frozenset[str]:
        """The boots that its records are of. Raises JournalError."""
        return frozenset(record.boot_id for record in self._content().records)

    def open(self, plan_hash: str, stamps: tuple[LinkStamps, ...] = ()) -> int:
        """Begin an apply; returns its id. Raises JournalError."""
        apply_id = max(self._now_boot_ns(), *(1 + one.apply_id for one in self.read()), 1)
        self._add(Record(Mark.OPEN, apply_id, self._boot_id, self._now_boot_ns(), detail=plan_hash, stamps=stamps))
        return apply_id

    def append(
        self,
        mark: Mark,
        apply_id: int,
        *,
        step: int | None = None,
        change: Change | None = None,
        value: str | None = None,
        detail: str = "",
    ) -> None:
        """Add a record; it is on disk when this returns. Raises JournalMovedError or JournalError."""
        self._add(Record(mark, apply_id, self._boot_id, self._now_boot_ns(), step, change, value, detail))

    def _add(self, record: Record) -> None:
        data = encode(record)
        try:
            is_new = not self.path.exists()
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                self._append(descriptor, data)
            finally:
                os.close(descriptor)
            if is_new:
                sync_folder(self._folder)
        except OSError as error:
            raise JournalError(
                f"{self.path}: cannot be written: {error.strerror}; nothing is changed without it: make room, or see "
                "that its folder is writable"
            ) from None

    def forget(self) -> None:
        """Remove a journal that tells of nothing in force. Raises JournalError."""
        self._move(None)

    def drop(self, apply_ids: AbstractSet[int]) -> None:
        """Remove every record of applies that are over; the file changes in one step. Raises JournalError."""
        kept = [record for record in self._content().records if record.apply_id not in apply_ids]
        data = b"".join(map(encode, kept))
        try:
            replace_file(self.path, data)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be shortened: {error.strerror}; make room") from None
        self._intact_bytes = self._seen_bytes = len(data)

    def set_aside(self) -> None:
        """Put away the journal of another boot, which the kernel forgot by itself. Raises JournalError."""
        self._move(self._folder / _PREVIOUS)

    def _append(self, descriptor: int, data: bytes) -> None:
        size = os.fstat(descriptor).st_size
        if size != self._seen_bytes:
            raise JournalMovedError(
                f"{self.path}: another process wrote to it meanwhile; look at `clockgatectl tune verify`"
            )
        if size > self._intact_bytes:
            os.ftruncate(descriptor, self._intact_bytes)
        written = os.write(descriptor, data)
        # A full disk takes a part: dropped by the next append, as after a crash.
        self._seen_bytes = self._intact_bytes + written
        os.fsync(descriptor)
        if written != len(data):
            raise OSError(28, f"only {written} of {len(data)} bytes were taken")
        self._intact_bytes = self._seen_bytes

    def _content(self) -> JournalContent:
        try:
            with self.path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be read: {error.strerror}; run as root") from None
        if len(data) > _MAX_BYTES:
            raise JournalError(f"{self.path}: more than {_MAX_BYTES} bytes; not a journal of ours: move it away")
        content = parse(data, str(self.path))
        self._intact_bytes, self._seen_bytes = content.intact_bytes, len(data)
        return content

    def _move(self, target: Path | None) -> None:
        try:
            if target is None:
                self.path.unlink(missing_ok=True)
            else:
                self.path.replace(target)
            sync_folder(self._folder)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be put away: {error.strerror}") from None
        self._intact_bytes = self._seen_bytes = 0

    def _opened_lock(self) -> int:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise JournalError(
                f"{self._folder}: cannot be written: {error.strerror}; nothing is changed without it: run as root"
            ) from None


def _is_locked(lock: int, patience_s: float) -> bool:
    due_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= due_s:
                return False
            time.sleep(_RETRY_S)
        else:
            return True
