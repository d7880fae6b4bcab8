"""The values that a plan is made of. They describe files and processes; nothing here starts or writes any."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from clockgated.manage.mode import PlanReason
from clockgated.manage.settings import Mode
from clockgated.manage.takeover import UnitRecord

_READY_WITHIN_S = 10.0


@dataclass(frozen=True)
class Folders:
    """Where generated files and what outlives a boot are kept; absolute paths without spaces."""

    run: str = "/run/clockgate"
    state: str = "/var/lib/clockgate"

    def problems(self) -> tuple[str, ...]:
        """Why these folders cannot be named in the generated files; empty when they can."""
        return tuple(
            f"the {name} folder is {path!r}: give an absolute path without spaces and '..'"
            for name, path in (("run", self.run), ("state", self.state))
            if not _is_plain(path)
        )


@dataclass(frozen=True)
class PlannedFolder:
    """A folder to exist before the daemons start. `owner` names the user and, by it, the group; None is root."""

    path: str
    mode: int
    owner: str | None = None


@dataclass(frozen=True)
class PlannedFile:
    """A file to exist with exactly this text before the daemons start; owned by root."""

    path: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True)
class ReadyWhen:
    """A daemon counts as started when all `paths` exist, or, where there are none, when it has lived `within_s`."""

    paths: tuple[str, ...] = ()
    within_s: float = _READY_WITHIN_S


@dataclass(frozen=True)
class PlannedDaemon:
    """One process to keep running.

    `argv` starts it for the first time in a boot; `restart_argv` starts it again without stepping the clock. It needs
    CAP_SYS_TIME only where `needs_clock_right`; elsewhere it must run without, which keeps it from the clock by force.
    Daemons stop in ascending `stop_order` and start in the plan's order. `leftovers` are files that a killed run leaves
    and that must be gone before the first start: a socket would look like readiness, and chronyd believes a pid file.
    """

    name: str
    argv: tuple[str, ...]
    restart_argv: tuple[str, ...]
    unit_name: str
    environment: tuple[tuple[str, str], ...]
    needs_clock_right: bool
    ready_when: ReadyWhen
    stop_order: int = 0
    leftovers: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedChrony:
    """How the planned chronyd is asked, and the drift that it is told to assume (its `maxclockerror`)."""

    socket: str
    max_clock_error_ppm: float


@dataclass(frozen=True)
class PlannedPtp:
    """How one planned ptp4l is asked; `name` is that of its group, as in the names of its daemons.

    `hardware_clock` is the device that stamps its packets, None with software stamps and with several devices. It
    steers CLOCK_REALTIME, alone or through phc2sys, where `steers`; it feeds chronyd's reference clock `refid` where
    that is set; it does neither where it only serves time. Where `runs_free` ptp4l itself only measures CLOCK_REALTIME,
    and its port stays UNCALIBRATED.
    """

    name: str
    socket: str
    domain: int
    hardware: bool
    hardware_clock: str | None
    refid: str | None
    steers: bool
    runs_free: bool = False


@dataclass(frozen=True)
class Plan:
    """What to run and why. In mode OBSERVE there is nothing to run.

    `take_over` are units to record, stop and disable first. `shm_segments` are System V segments (feed.SHM_KEY_BASE
    plus the number) to remove before the daemons start and after they stop: one that root made would lock chronyd out.
    `chrony` and `ptp` are what can be measured when it runs.
    """

    mode: Mode
    reasons: tuple[PlanReason, ...]
    folders: tuple[PlannedFolder, ...] = ()
    files: tuple[PlannedFile, ...] = ()
    daemons: tuple[PlannedDaemon, ...] = ()
    take_over: tuple[UnitRecord, ...] = ()
    shm_segments: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    chrony: PlannedChrony | None = None
    ptp: tuple[PlannedPtp, ...] = ()


def escape_instance(name: str) -> str:
    """An interface name as the instance part of a unit name: systemd's own escaping, by which %I is the name again."""
    escaped = "".join(char if char.isascii() and (char.isalnum() or char in ":_.") else _hex(char) for char in name)
    return _hex(name[0]) + escaped[1:] if name.startswith(".") else escaped


def _hex(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode())


def _is_plain(path: str) -> bool:
    pure = PurePosixPath(path)
    has_odd_sign = any(char.isspace() or char in "#%" for char in path)
    return pure.is_absolute() and str(pure) == path and ".." not in pure.parts and not has_odd_sign
