"""The run's logs: one JSON object a line, appended, each stamped with both clocks and the number of this start.

`events.jsonl` (rank 0) and `events-rankN.jsonl` tell what happened, `metrics.jsonl` has one line for each optimizer
step. A log never ends a run: a line that cannot be written is counted and training goes on.
"""

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from clockgate_trainer.errors import ConfigError
from clockgate_trainer.tell import tell

METRICS_FILE = "metrics.jsonl"
_FIRST_TAIL_BYTES = 64 * 1024


class _LineFile:
    """One file of JSON lines. Lines of several threads do not mix: each goes out in one append.

    `attempt` is 1 on the first start in a folder and one more than the last line's on every later one. `dropped` counts
    the lines of this start that could not be written. Opening raises ConfigError when the file cannot be made; nothing
    raises after that.
    """

    def __init__(self, path: Path, stamp: Mapping[str, object]) -> None:
        self.path = path
        self.dropped = 0
        self._dropped_in_a_row = 0
        self._stamp = stamp
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.attempt, self._torn = _last_attempt(path)
            self._handle: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(
                f"the log {path} cannot be written ({error.strerror}): give another --output_dir or make room there"
            ) from error
        self.attempt += 1

    def _append(self, head: Mapping[str, object], fields: Mapping[str, object]) -> None:
        """Write one line: `head`, the stamps, then `fields`, none of which can replace a stamp."""
        fixed: dict[str, object] = {
            **head,
            "wall_ns": time.clock_gettime_ns(time.CLOCK_REALTIME),
            "mono_ns": time.monotonic_ns(),
            **self._stamp,
            "attempt": self.attempt,
        }
        if self._dropped_in_a_row:
            fixed["lines_lost_before"] = self._dropped_in_a_row
        rest = {name: value for name, value in fields.items() if name not in fixed}
        line = json.dumps(_plain({**fixed, **rest}), allow_nan=False).encode() + b"\n"
        if self._handle is None:
            self._lose("it is closed")
            return
        try:
            # After a torn line the newline ends it, so that it spoils no line but itself.
            whole = b"\n" + line if self._torn else line
            self._torn = os.write(self._handle, whole) < len(whole)
        except OSError as error:
            self._lose(error.strerror or str(error))
            return
        if self._torn:
            self._lose("the disk is full")
        else:
            self._dropped_in_a_row = 0

    def flush(self) -> None:
        """Bring every line to disk (fsync)."""
        if self._handle is None:
            return
        try:
            os.fsync(self._handle)
        except OSError as error:
            self._complain(error.strerror or str(error))

    def close(self) -> None:
        """Flush and let go of the file. May be called twice."""
        self.flush()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _lose(self, cause: str) -> None:
        if self.dropped == 0:
            self._complain(cause)
        self.dropped += 1
        self._dropped_in_a_row += 1

    def _complain(self, cause: str) -> None:
        tell(f"clockgate-train: {self.path} is not complete: {cause}; training goes on, lost lines are counted")


class EventLog(_LineFile):
    """What happened on one rank: events.jsonl on rank 0, events-rankN.jsonl on the others."""

    def __init__(self, folder: Path, rank: int) -> None:
        name = "events.jsonl" if rank == 0 else f"events-rank{rank}.jsonl"
        super().__init__(folder / name, {"rank": rank})

    def write(self, event: str, /, **fields: object) -> None:
        """Append one event. Never raises for the disk's sake; see `dropped`."""
        self._append({"event": event}, fields)


class MetricLog(_LineFile):
    """Figures of each optimizer step, in metrics.jsonl; one rank writes it.

    Floats are written so that they read back bit for bit. After a resume a step can be there twice: the line of the
    higher attempt counts.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / METRICS_FILE, {})

    def write(self, **fields: object) -> None:
        """Append one step's figures. Never raises for the disk's sake; see `dropped`."""
        self._append({}, fields)


def _plain(value: object) -> object:
    """`value` as JSON can say it: NaN and infinities as the strings that float() reads, unknown types by str()."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return str(value)


def last_value(path: Path, name: str) -> int | None:
    """The whole number `name` of the last readable line of a log that has one; None without one or without a log.

    Raises OSError.
    """
    return _last_values(path, name)[0]


def _last_attempt(path: Path) -> tuple[int, bool]:
    """The attempt of the last readable line (0 without one), and whether the file ends inside a line."""
    attempt, torn = _last_values(path, "attempt")
    return attempt or 0, torn


def _last_values(path: Path, name: str) -> tuple[int | None, bool]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            tail_bytes = _FIRST_TAIL_BYTES
            while True:
                start = max(0, size - tail_bytes)
                file.seek(start)
                tail = file.read(size - start)
                # The first piece of a tail is the rest of a line that began before it.
                lines = tail.split(b"\n")[0 if start == 0 else 1 :]
                values = (_value_of(line, name) for line in reversed(lines))
                found = next((value for value in values if value is not None), None)
                if found is not None or start == 0:
                    return found, bool(tail) and not tail.endswith(b"\n")
                tail_bytes *= 8
    except FileNotFoundError:
        return None, False


def _value_of(line: bytes, name: str) -> int | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    value = record.get(name) if isinstance(record, dict) else None
    return value if isinstance(value, int) else None
