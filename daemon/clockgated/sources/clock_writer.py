"""Which processes write the kernel's clock: known time daemons that hold CAP_SYS_TIME."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CAP_SYS_TIME = 25
# As the kernel shows them in comm: 15 characters.
_KNOWN = ("chronyd", "ntpd", "phc2sys", "systemd-timesyn")
# Options of the two that write an honest maximum error. What follows a letter listed here is a value, not an option.
_OPTIONS_WITH_VALUE = {"chronyd": "fFlLPtu", "ntpd": "cDfiIkjlpPrstuUvVw"}


@dataclass(frozen=True)
class ClockWriter:
    """One process that may write the clock.

    `start_ticks` tells it from a later one with the same number. `keeps_maxerror`: it writes its root distance into
    the kernel's maximum error.
    """

    name: str
    pid: int
    start_ticks: int
    keeps_maxerror: bool

    @property
    def identity(self) -> str:
        """Name, number and start: another text for every process of this boot."""
        return f"{self.name}[{self.pid}]@{self.start_ticks}"


def find_writers(proc: Path) -> tuple[ClockWriter, ...]:
    """All of them, by process number. A process that hides or ends meanwhile is not counted."""
    return tuple(_writers(proc))


def is_running(proc: Path, writer: ClockWriter) -> bool:
    """Whether this very process still runs."""
    try:
        return _start_ticks(proc / str(writer.pid)) == writer.start_ticks
    except (OSError, ValueError, IndexError):
        return False


def _writers(proc: Path) -> Iterator[ClockWriter]:
    for pid in sorted(int(folder.name) for folder in proc.glob("[0-9]*") if folder.name.isdecimal()):
        try:
            writer = _writer(proc, pid)
        except (OSError, ValueError, KeyError, IndexError):
            continue
        if writer is not None:
            yield writer


def _writer(proc: Path, pid: int) -> ClockWriter | None:
    folder = proc / str(pid)
    name = _name(folder)
    if name not in _KNOWN:
        return None
    status = _status(folder)
    # chronyd keeps a child of its own name, which is no second daemon.
    is_child = _name(proc / status["PPid"]) == name
    if is_child or not int(status["CapEff"], 16) >> _CAP_SYS_TIME & 1:
        return None
    holds_back = name in _OPTIONS_WITH_VALUE and _has_flag_x(folder, _OPTIONS_WITH_VALUE[name])
    if holds_back and name == "chronyd":
        return None
    return ClockWriter(name, pid, _start_ticks(folder), name in _OPTIONS_WITH_VALUE and not holds_back)


def _has_flag_x(folder: Path, with_value: str) -> bool:
    """Whether -x is among the options, alone or in a group such as -nx.

    `chronyd -x` never touches the clock; `ntpd -x` steers from user space and leaves the kernel's error unattended.
    """
    is_value = False
    for word in (folder / "cmdline").read_text("utf-8", "replace").split("\0")[1:]:
        if is_value or not word.startswith("-") or word.startswith("--"):
            is_value = False
            continue
        for position, letter in enumerate(word[1:], 1):
            if letter == "x":
                return True
            if letter in with_value:
                is_value = position == len(word) - 1
                break
    return False


def _name(folder: Path) -> str:
    """Name of a process; empty when there is none, as above the first of a namespace."""
    try:
        return (folder / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _status(folder: Path) -> dict[str, str]:
    lines = (folder / "status").read_text("utf-8", "replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _start_ticks(folder: Path) -> int:
    # Field 22; the name in field 2 may hold blanks and brackets, so count from the last bracket.
    return int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
