"""Processes of this host, named by pid and start time: a pid alone is given to somebody else sooner or later."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessIdentity:
    """One process of one boot: pid, and field 22 of /proc/PID/stat (clock ticks after boot)."""

    pid: int
    start_ticks: int


def parse_stat(text: str) -> tuple[str, int] | None:
    """State letter and start time, in ticks, from /proc/PID/stat; None when it is something else."""
    # Field 2 is the program's name in parentheses; the name itself may hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or not fields[19].isascii() or not fields[19].isdigit() or len(fields[19]) > 20:
        return None
    return fields[0], int(fields[19])


def identity_of(pid: int) -> ProcessIdentity | None:
    """Identity of the process that has `pid` now, also of one that waits to be reaped; None: there is none."""
    stat = _read_stat(pid)
    return None if stat is None else ProcessIdentity(pid, stat[1])


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether that very process runs (or is stopped), and has not ended."""
    stat = _read_stat(identity.pid)
    return stat is not None and stat[1] == identity.start_ticks and stat[0] not in ("Z", "X")


def send(identity: ProcessIdentity, number: signal.Signals) -> str | None:
    """Signal that very process and no successor of its pid; the complaint when the kernel refuses.

    None also when it is already gone, which is what whoever ends a process wants to hear.
    """
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        return f"cannot open process {identity.pid}: {error.strerror}"
    try:
        # The descriptor pins whoever had the pid when it was opened; only then is the identity worth checking.
        if is_alive(identity):
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return None
    except OSError as error:
        return f"cannot send {number.name} to process {identity.pid}: {error.strerror}"
    finally:
        os.close(descriptor)
    return None


def holders(path: Path) -> tuple[ProcessIdentity, ...]:
    """Every other process that holds a flock on `path`.

    As far as this process may look: another user's descriptors need CAP_SYS_PTRACE.
    """
    wanted = str(path.resolve())
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _holds(entry, wanted):
            identity = identity_of(int(entry.name))
            if identity is not None:
                found.append(identity)
    return tuple(found)


def environment_of(pid: int) -> dict[str, str] | None:
    """Environment that `pid` was started with; None when it is gone, may not be looked at, or shows none.

    A process shows none in the first moments after its exec, before the kernel has laid it out.
    """
    try:
        data = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    pairs = (item.partition(b"=") for item in data.split(b"\0") if b"=" in item)
    return {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs} or None


def own_capabilities(which: str) -> int:
    """One of this process's capability sets ("CapEff", "CapPrm"), a bit a capability; none when /proc is not there."""
    try:
        status = (_PROC / "self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(status.partition(f"{which}:")[2].split()[0], 16)


def _read_stat(pid: int) -> tuple[str, int] | None:
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None


def _holds(process: Path, wanted: str) -> bool:
    try:
        # readlink and never stat: following a descriptor into a dead network mount would hang.
        opened = [entry.name for entry in (process / "fd").iterdir() if _link(entry) == wanted]
        return any("FLOCK" in (process / "fdinfo" / name).read_text(encoding="ascii") for name in opened)
    except OSError:
        return False


def _link(entry: Path) -> str | None:
    try:
        return str(entry.readlink())
    except OSError:
        return None
