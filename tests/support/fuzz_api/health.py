"""What a daemon has in use, and what of it may have grown."""

import time
from dataclasses import dataclass
from pathlib import Path

_TAIL = 2000
_MOST_MORE_DESCRIPTORS = 20
_MOST_MORE_MIB = 40.0
# Connections that were left open at the other end are closed by then: their calls have no message, or no frame came.
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class Usage:
    """Of one process."""

    threads: int
    descriptors: int
    resident_mib: float

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.descriptors} descriptors, {self.resident_mib:.0f} MiB"


def usage(pid: int) -> Usage:
    """Of the process `pid`, now."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    values = dict(line.split(":", 1) for line in lines)
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Usage(int(values["Threads"]), descriptors, int(values["VmRSS"].split()[0]) / 1024)


def growth(pid: int, before: Usage, most_threads: int, most_more_mib: float = _MOST_MORE_MIB) -> str | None:
    """What the process has not given back since `before`, after some patience; None when that is nothing."""
    due = time.monotonic() + _PATIENCE_S
    while True:
        now = usage(pid)
        problem = _problem(before, now, most_threads, most_more_mib)
        if problem is None or time.monotonic() > due:
            return problem
        time.sleep(0.5)


def _problem(before: Usage, now: Usage, most_threads: int, most_more_mib: float) -> str | None:
    if now.threads > most_threads:
        return f"{now.threads} threads; wanted at most {most_threads}"
    if now.descriptors > before.descriptors + _MOST_MORE_DESCRIPTORS:
        return f"{now.descriptors} descriptors, {before.descriptors} before; wanted no more"
    if now.resident_mib > before.resident_mib + most_more_mib:
        return f"{now.resident_mib:.0f} MiB, {before.resident_mib:.0f} before; wanted {most_more_mib:.0f} more at most"
    return None


def complaint(log: Path) -> str | None:
    """The end of a log that tells of an exception nobody caught; None when it tells of none."""
    text = log.read_text(encoding="utf-8", errors="replace")
    for sign in ("Traceback", "Fatal Python error", "this cycle failed"):
        if sign in text:
            return f'the log tells of a "{sign}":\n{text[max(0, text.index(sign) - 200) :][:_TAIL]}'
    return None
