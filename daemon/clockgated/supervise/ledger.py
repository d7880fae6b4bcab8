"""What this daemon's children are called on disk, so that the next process of it finds them again.

Never two of a name, at whatever instant the daemon is killed, rests on a lock and not on the record. Before a child is
forked its lock file is locked, and the child inherits the descriptor: the kernel keeps the lock for as long as the
child or a descendant of it lives. The record is written after the fork. Killed before the fork: the lock is free
again. Killed between fork and record: the lock is held by a process without a record, and it is ended. Killed after
the record: it is found by pid and start time, and adopted when its spec is the wanted one.
"""

import fcntl
import json
import logging
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from clockgated.durable import replace_file
from clockgated.supervise.process import ProcessIdentity

_log = logging.getLogger(__name__)
_FORMAT = 1
_MAX_RECORD_BYTES = 65536


@dataclass(frozen=True)
class Record:
    """One running child: its identity, the digest of its spec, and the boot that pid and start time belong to."""

    name: str
    boot_id: str
    pid: int
    start_ticks: int
    spec_digest: str

    @property
    def identity(self) -> ProcessIdentity:
        """The process that this record is about, if `boot_id` is the present boot."""
        return ProcessIdentity(self.pid, self.start_ticks)


def encode(record: Record) -> bytes:
    """The record as stored."""
    return json.dumps({"format": _FORMAT, **asdict(record)}).encode() + b"\n"


def parse(data: bytes) -> Record | str:
    """The stored record, or what is wrong with it. Never raises."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    if not isinstance(fields, dict) or fields.pop("format", None) != _FORMAT:
        return f"not a record of format {_FORMAT}"
    wanted = {"name": str, "boot_id": str, "pid": int, "start_ticks": int, "spec_digest": str}
    if set(fields) != set(wanted) or any(type(fields[key]) is not kind for key, kind in wanted.items()):
        return f"fields {sorted(fields)!r:.200}, wanted {sorted(wanted)} with their types"
    if not 0 < fields["pid"] < 1 << 31 or fields["start_ticks"] < 0:
        return f"pid {fields['pid']}, start_ticks {fields['start_ticks']}: out of range"
    return Record(**fields)


class Ledger:
    """Records, locks and output pipes of children, below one private folder. Raises OSError when that cannot be had."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder.resolve()

    def load(self) -> tuple[Record, ...]:
        """Every readable record. A damaged one is logged and removed: the lock still guards its child."""
        records = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                with path.open("rb") as file:
                    record = parse(file.read(_MAX_RECORD_BYTES))
            except OSError as error:
                record = f"cannot be read: {error.strerror}"
            if isinstance(record, Record) and path == self._path(record.name, "json"):
                records.append(record)
            else:
                why = record if isinstance(record, str) else f"is about {record.name}"
                _log.warning("record of a child %s discarded: %s", path, why)
                path.unlink(missing_ok=True)
        return tuple(records)

    def record(self, record: Record) -> None:
        """Store, durably; raises OSError."""
        replace_file(self._path(record.name, "json"), encode(record))

    def forget(self, name: str) -> None:
        """Remove the record of a child that is gone."""
        self._path(name, "json").unlink(missing_ok=True)

    def lock_path(self, name: str) -> Path:
        """The file that a living child of this name holds open and locked."""
        return self._path(name, "lock")

    def take_lock(self, name: str) -> int | None:
        """A descriptor for the next child to inherit; None while an earlier one, or a descendant of it, lives."""
        descriptor = os.open(self.lock_path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def pipe_path(self, name: str) -> Path:
        """The named pipe that takes the child's output; made when it is not there."""
        path = self._path(name, "out")
        if path.exists() and not stat.S_ISFIFO(path.stat().st_mode):
            path.unlink()
        if not path.exists():
            os.mkfifo(path, 0o600)
        return path

    def _path(self, name: str, suffix: str) -> Path:
        return self._folder / f"{name}.{suffix}"
