"""What this node looks like beside the daemon's API: for the doctor and the support bundle, also with the daemon dead.

Changes nothing. What cannot be read is None or empty.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from clockgated import timex
from clockgated.errors import ClockgateError
from clockgated.manage.facts import Facts
from clockgated.manage.hostfiles import ask, text_of
from clockgated.manage.planned import Folders
from clockgated.manage.probe import gather_facts
from clockgated.supervise.ledger import Record, parse
from clockgated.supervise.process import is_alive

DEFAULT_CONFIG = Path("/etc/clockgate/clockgated.toml")
_PLAN_TIMEOUT_S = 10.0
_CLOCKSOURCES = Path("/sys/devices/system/clocksource/clocksource0")
_PPM_PER_FREQ_UNIT = 1 / (1 << 16)
_STA_UNSYNC = 0x40


@dataclass(frozen=True)
class Disk:
    """Room on the file system below a folder of the daemon."""

    folder: str
    free_bytes: int
    free_files: int | None


@dataclass(frozen=True)
class KernelClock:
    """How the kernel keeps its clock. `maxerror_us` is whatever the time daemon wrote, grown since."""

    is_unsynchronised: bool
    freq_ppm: float
    tick_us: int
    maxerror_us: int
    clocksource: str
    clocksources: tuple[str, ...]


@dataclass(frozen=True)
class ConfigSeen:
    """The daemon's configuration as `clockgated --check` and `--print-plan` judge it.

    `mode` and `why` are what a start would do here, `plan` all of it as printed; empty when `problems` is not.
    """

    path: Path
    exists: bool
    problems: tuple[str, ...]
    mode: str
    why: tuple[str, ...]
    plan: str = ""


@dataclass(frozen=True)
class Unit:
    """clockgated as systemd sees it; None of it where systemd does not run."""

    active: str
    enabled: str


@dataclass(frozen=True)
class Node:
    """One look at the node."""

    boot_id: str
    is_root: bool
    container: str | None
    facts: Facts
    config: ConfigSeen
    disks: tuple[Disk, ...]
    kernel: KernelClock | None
    rtc_is_local: bool
    unit: Unit | None


class ProgramError(ClockgateError):
    """A program that was asked did not answer as it should; the message names it and the reason."""


def look(config: Path) -> Node:
    """Look at everything; takes a few seconds at most."""
    folders = folders_of(config)
    facts = gather_facts(own_pids=own_children(Path(folders.run)), trials=False)
    return Node(
        boot_id=text_of(Path("/proc/sys/kernel/random/boot_id")).strip(),
        is_root=facts.is_root,
        container=container(Path("/")),
        facts=facts,
        config=look_at_config(config),
        disks=tuple(disk for folder in (folders.run, folders.state) if (disk := look_at_disk(Path(folder)))),
        kernel=look_at_kernel(),
        rtc_is_local="LOCAL" in text_of(Path("/etc/adjtime")).split(),
        unit=look_at_unit() if facts.systemd_runs else None,
    )


def folders_of(config: Path) -> Folders:
    """The folders that the configuration names, else the usual ones."""
    usual = Folders()
    return Folders(
        text_setting(config, "folders", "run", usual.run), text_setting(config, "folders", "state", usual.state)
    )


def text_setting(config: Path, section: str, key: str, usual: str) -> str:
    """One text of the configuration; `usual` where it is not set, is no text, or the file cannot be read at all."""
    try:
        table = tomllib.loads(text_of(config)).get(section, {})
    except ValueError:
        return usual
    value = table.get(key, usual) if isinstance(table, dict) else usual
    return value if isinstance(value, str) else usual


def own_children(run: Path) -> frozenset[int]:
    """Living time daemons that clockgated started as its children, by their records."""
    records = (_record(path) for path in sorted((run / "children").glob("*.json")))
    return frozenset(one.pid for one in records if one is not None and is_alive(one.identity))


def _record(path: Path) -> Record | None:
    record = parse(text_of(path).encode())
    return record if isinstance(record, Record) else None


def container(root: Path) -> str | None:
    """What this runs in: the name that systemd or the container's manager left; None: nothing tells of a container."""
    named = text_of(root / "run/systemd/container").strip()
    if named:
        return named
    for file, name in ((".dockerenv", "docker"), ("run/.containerenv", "podman")):
        if (root / file).exists():
            return name
    if (root / "var/run/secrets/kubernetes.io").exists() or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    return None


def look_at_config(path: Path) -> ConfigSeen:
    """Judged by the daemon's own program, so that both always agree."""
    words = ["--config", str(path)] if path.exists() or path != DEFAULT_CONFIG else []
    try:
        run_program(*daemon_program(), "--check", *words, timeout_s=_PLAN_TIMEOUT_S)
        shown = run_program(*daemon_program(), "--print-plan", "--json", *words, timeout_s=_PLAN_TIMEOUT_S)
    except ProgramError as error:
        return ConfigSeen(path, path.exists(), tuple(str(error).splitlines()), "", ())
    mode, why = parse_plan(shown)
    return ConfigSeen(path, path.exists(), (), mode, why, shown)


def parse_plan(shown: str) -> tuple[str, tuple[str, ...]]:
    """Mode and reasons of what `clockgated --print-plan --json` printed; empty when it is something else."""
    try:
        plan = json.loads(shown)
    except ValueError:
        return "", ()
    if not isinstance(plan, dict) or not isinstance(plan.get("mode"), str):
        return "", ()
    reasons = plan.get("reasons")
    details = [one.get("detail") for one in reasons if isinstance(one, dict)] if isinstance(reasons, list) else []
    return plan["mode"], tuple(one for one in details if isinstance(one, str))


def daemon_program() -> tuple[str, ...]:
    """The command line that runs clockgated of the same installation. Nothing is looked for in the present folder."""
    return (sys.executable, "-P", "-m", "clockgated.main")


def run_program(*command: str, timeout_s: float) -> str:
    """Standard output of a program that ended with 0. Raises ProgramError, with what it said on standard error."""
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=timeout_s,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except FileNotFoundError:
        raise ProgramError(f"{command[0]} is not installed") from None
    except OSError as error:
        raise ProgramError(f"{command[0]} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ProgramError(f"{command[0]} gave no answer within {timeout_s:g} s") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip() or done.stdout.decode(errors="replace").strip()
        raise ProgramError(said or f"{command[0]} ended with {done.returncode}")
    return done.stdout.decode(errors="replace")


def look_at_disk(folder: Path) -> Disk | None:
    """Room below `folder`, or below the first folder above it that is there."""
    there = next((one for one in (folder, *folder.parents) if one.exists()), None)
    if there is None:
        return None
    try:
        room, files = shutil.disk_usage(there), os.statvfs(there)
    except OSError:
        return None
    # Some file systems make files as they go, and count none.
    return Disk(str(folder), room.free, files.f_favail if files.f_files else None)


def look_at_kernel() -> KernelClock | None:
    """The kernel's clock; None when a sandbox forbids to ask."""
    try:
        _, seen = timex.read_timex()
    except OSError:
        return None
    return KernelClock(
        is_unsynchronised=bool(seen.status & _STA_UNSYNC),
        freq_ppm=seen.freq * _PPM_PER_FREQ_UNIT,
        tick_us=seen.tick,
        maxerror_us=seen.maxerror,
        clocksource=text_of(_CLOCKSOURCES / "current_clocksource").strip(),
        clocksources=tuple(text_of(_CLOCKSOURCES / "available_clocksource").split()),
    )


def look_at_unit() -> Unit:
    """clockgated.service; systemctl's own words."""
    shown = ask("systemctl", "show", "--property=ActiveState,UnitFileState,LoadState", "clockgated.service")
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    if values.get("LoadState") != "loaded":
        return Unit(values.get("LoadState", "") or "unknown", "")
    return Unit(values.get("ActiveState", ""), values.get("UnitFileState", ""))
