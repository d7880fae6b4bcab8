"""Finding the programs that may write a clock beside us: running processes and systemd units. Changes nothing."""

import re
from collections.abc import Collection
from pathlib import Path

from clockgated.manage.facts import TimeDaemon, UnitState
from clockgated.manage.hostfiles import ask, effective_capabilities, link_name, text_of

CAP_SYS_TIME = 25
OWN_UNIT_PREFIX = "clockgate-"

# Programs that may write a clock. The kernel cuts a process's short name after 15 characters.
_PROGRAMS = (
    "chronyd",
    "ntpd",
    "openntpd",
    "phc2sys",
    "ptp4l",
    "sfptpd",
    "systemd-timesyncd",
    "timemaster",
    "ts2phc",
)
_BY_SHORT_NAME = {program[:15]: program for program in _PROGRAMS}
_UNITS = (
    "chrony.service",
    "chronyd.service",
    "ntp.service",
    "ntpd.service",
    "ntpsec.service",
    "openntpd.service",
    "sfptpd.service",
    "systemd-timesyncd.service",
    "timemaster.service",
)
_NO_CLOCK_CONTROL = re.compile(r"-[46dmnpqQrRsUvx]*x[46dmnpqQrRsUvx]*")


def find_time_daemons(proc: Path, own_pids: Collection[int] = ()) -> tuple[TimeDaemon, ...]:
    """Every running program that may write a clock and is not ours, by its first process.

    Known by its executable or, where that cannot be read, by its short name.
    """
    programs = {int(folder.name): _program(folder) for folder in proc.iterdir() if folder.name.isdecimal()}
    found: list[TimeDaemon] = []
    for pid, program in sorted(programs.items()):
        folder = proc / str(pid)
        parent = _parent(folder)
        # chronyd keeps further processes of its own, which come and go with the first.
        if program is None or pid in own_pids or parent in own_pids or programs.get(parent) == program:
            continue
        unit = parse_unit(text_of(folder / "cgroup"))
        if not (unit or "").startswith(OWN_UNIT_PREFIX):
            found.append(TimeDaemon(program, pid, unit, _may_steer(proc, folder, program)))
    return tuple(found)


def parse_unit(cgroup: str) -> str | None:
    """The system service that a process belongs to, from its /proc/PID/cgroup; None for sessions and containers."""
    for line in cgroup.splitlines():
        parts = line.rpartition(":")[2].strip("/").split("/")
        if parts[0] == "system.slice" and parts[-1].endswith(".service"):
            return parts[-1]
    return None


def read_units(daemons: tuple[TimeDaemon, ...] = ()) -> tuple[UnitState, ...]:
    """State of the known time units, and of those that the running daemons belong to, as far as they are installed."""
    names = sorted({*_UNITS, *(one.unit for one in daemons if one.unit is not None)})
    return parse_units(ask("systemctl", "show", "--property=Id,LoadState,UnitFileState,ActiveState", "--", *names))


def parse_units(shown: str) -> tuple[UnitState, ...]:
    """Blocks of `systemctl show`; units that are not installed are left out, aliases come once."""
    found: dict[str, UnitState] = {}
    for block in shown.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        unit = values.get("Id", "")
        if not unit or values.get("LoadState") not in ("loaded", "masked"):
            continue
        is_active = values.get("ActiveState") in ("active", "activating", "reloading")
        found[unit] = UnitState(unit, values.get("UnitFileState", ""), is_active)
    return tuple(found[unit] for unit in sorted(found))


def _program(folder: Path) -> str | None:
    executable = link_name(folder / "exe")
    if executable is not None and executable.removesuffix(" (deleted)") in _PROGRAMS:
        return executable.removesuffix(" (deleted)")
    return _BY_SHORT_NAME.get(text_of(folder / "comm").strip())


def _parent(folder: Path) -> int:
    found = re.search(r"^PPid:\s*(\d+)$", text_of(folder / "status"), re.MULTILINE)
    return int(found[1]) if found else 0


def _may_steer(proc: Path, folder: Path, program: str) -> bool | None:
    """Whether the process could set the system clock: the right, in our user namespace, and no wish to do without."""
    arguments = text_of(folder / "cmdline").split("\0")[1:]
    if program == "chronyd" and any(_NO_CLOCK_CONTROL.fullmatch(argument) for argument in arguments):
        return False
    status = text_of(folder / "status")
    if "CapEff:" not in status:
        return None
    ours, theirs = link_name(proc / "self/ns/user"), link_name(folder / "ns/user")
    if ours is not None and theirs is not None and ours != theirs:
        return False
    return bool(effective_capabilities(folder / "status") >> CAP_SYS_TIME & 1)
