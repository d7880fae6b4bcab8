"""Who runs the planned programs here: systemd, or this process; and which processes of an earlier one are ours."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from clockgated.manage.planned import Folders, Plan
from clockgated.supervise.base import Backend
from clockgated.supervise.children import ChildrenBackend
from clockgated.supervise.journal import JournalFollower
from clockgated.supervise.ledger import Record, parse
from clockgated.supervise.marks import StartMarks
from clockgated.supervise.output import LineCallback
from clockgated.supervise.policy import RestartPolicy
from clockgated.supervise.process import holders, is_alive
from clockgated.supervise.units import UnitsBackend

_UNIT_FOLDERS = tuple(
    Path(folder) / "systemd/system" for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
)
_DROP_INS = Path("/run/systemd/system")
_LARGEST_RECORD = 65536


@dataclass(frozen=True)
class Runner:
    """What runs the programs. `outlives_us`: they go on when this process ends."""

    backend: Backend
    outlives_us: bool


OpenRunner = Callable[[Folders, str, LineCallback, bool], Runner]


def children_folder(folders: Folders) -> Path:
    """Where records, locks and pipes of children are kept."""
    return Path(folders.run) / "children"


def open_runner(folders: Folders, boot_id: str, on_line: LineCallback, with_units: bool) -> Runner:
    """The backend for this host. Raises OSError when its folder cannot be had."""
    if not with_units:
        backend = ChildrenBackend(children_folder(folders), boot_id, RestartPolicy(), on_line)
        return Runner(backend, outlives_us=False)
    if own_pids(children_folder(folders)):
        # Children of an earlier start, from before our units were installed.
        ChildrenBackend(children_folder(folders), boot_id, RestartPolicy(), on_line).close()
    run = Path(folders.run)
    follower = JournalFollower(run / "journal", boot_id, RestartPolicy(), on_line)
    return Runner(UnitsBackend(RestartPolicy(), StartMarks(run / "started", boot_id), follower=follower), True)


def has_leftovers(folders: Folders) -> bool:
    """Whether an earlier process of ours left programs or units behind."""
    return bool(own_pids(children_folder(folders))) or any(_DROP_INS.glob("clockgate-*.service.d"))


def runs_units(
    plan: Plan, proc: Path = Path("/proc"), run: Path = Path("/run"), folders: Iterable[Path] = _UNIT_FOLDERS
) -> bool:
    """Whether systemd can run this plan: it is the first process here, and the units of every daemon are installed.

    The folder by which programs know systemd is also seen inside containers that share /run with their host.
    """
    if not (run / "systemd/system").is_dir() or _first_program(proc) != "systemd":
        return False
    places = tuple(folders)
    return all(any((place / _unit_file(one.unit_name)).exists() for place in places) for one in plan.daemons)


def own_pids(folder: Path) -> frozenset[int]:
    """Living processes that an earlier clockgated started as children. Changes nothing.

    Known by their record, or by the lock that they hold when there was no time to write one.
    """
    records = (_record(path) for path in sorted(folder.glob("*.json")))
    recorded = {one.pid for one in records if one is not None and is_alive(one.identity)}
    locked = {one.pid for path in sorted(folder.glob("*.lock")) for one in holders(path)}
    return frozenset(recorded | locked) - {os.getpid()}


def _record(path: Path) -> Record | None:
    try:
        with path.open("rb") as file:
            found = parse(file.read(_LARGEST_RECORD))
    except OSError:
        return None
    return found if isinstance(found, Record) else None


def _first_program(proc: Path) -> str:
    try:
        return (proc / "1/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _unit_file(unit: str) -> str:
    """The file that a unit is made from: its template, for an instance."""
    name, at, _ = unit.partition("@")
    return f"{name}@.service" if at else unit
