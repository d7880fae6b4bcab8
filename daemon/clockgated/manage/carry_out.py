"""Carrying a plan out as far as files go: folders, generated files, leftovers of killed daemons, shared memory.

Starts and ends no process. Errors are OSError; what was done before one stays done, and doing it again is harmless.
"""

import ctypes
import json
import os
import pwd
from collections.abc import Collection
from pathlib import Path

from clockgated.durable import replace_file
from clockgated.manage.feed import SHM_KEY_BASE
from clockgated.manage.hostfiles import text_of
from clockgated.manage.plan import plan_as_json
from clockgated.manage.planned import Folders, Plan, PlannedFolder

_IPC_RMID = 0
_SYSVIPC = Path("/proc/sysvipc/shm")


def write_plan(plan: Plan, folders: Folders, running: Collection[str]) -> None:
    """Make folders and files what the plan says. `running` are the names of daemons that may be alive.

    What belongs to those is left alone: their sockets, and the segments that somebody is attached to.
    """
    for folder in plan.folders:
        _make_folder(folder)
    for daemon in plan.daemons:
        if daemon.name not in running:
            for leftover in daemon.leftovers:
                Path(leftover).unlink(missing_ok=True)
    for number in plan.shm_segments:
        free_segment(number)
    for file in plan.files:
        path, data = Path(file.path), file.text.encode()
        if not _is_same(path, data, file.mode):
            # Not synced: a boot begins with an empty run folder.
            replace_file(path, data, file.mode, sync=False)
    replace_file(_record(folders), plan_as_json(plan).encode(), sync=False)


def last_segments(folders: Folders) -> tuple[int, ...]:
    """Shared-memory segments of the plan that was carried out last in this boot; none when that cannot be read."""
    try:
        fields = json.loads(text_of(_record(folders)))
    except ValueError:
        return ()
    numbers = fields.get("shm_segments") if isinstance(fields, dict) else None
    return tuple(one for one in numbers if type(one) is int) if isinstance(numbers, list) else ()


def free_segment(number: int, table: Path = _SYSVIPC) -> bool:
    """Remove NTP segment `number`, unless somebody is attached to it; True when it is gone. Raises OSError."""
    found = find_segment(text_of(table), SHM_KEY_BASE + number)
    if found is None:
        return True
    identifier, is_attached = found
    if is_attached:
        return False
    # Nobody can attach between look and removal but a daemon of ours, and none is started meanwhile.
    if ctypes.CDLL(None, use_errno=True).shmctl(identifier, _IPC_RMID, None) != 0:
        number_of_error = ctypes.get_errno()
        raise OSError(number_of_error, f"shared-memory segment {number}: {os.strerror(number_of_error)}")
    return True


def find_segment(table: str, key: int) -> tuple[int, bool] | None:
    """Identifier of the segment with `key` in a /proc/sysvipc/shm, and whether anybody is attached to it."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 7 and fields[0] == str(key) and fields[1].isdecimal():
            return int(fields[1]), fields[6] != "0"
    return None


def _record(folders: Folders) -> Path:
    return Path(folders.run) / "plan.json"


def _make_folder(folder: PlannedFolder) -> None:
    path = Path(folder.path)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # By descriptor and without following links: some of these lie in folders of chronyd's own user, who must not get
    # root to hand over or open another folder.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if folder.owner is not None:
            user = _user(folder.owner)
            os.fchown(descriptor, user.pw_uid, user.pw_gid)
        os.fchmod(descriptor, folder.mode)
    finally:
        os.close(descriptor)


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise OSError(f"there is no user {name} any more; was chrony removed?") from None


def _is_same(path: Path, data: bytes, mode: int) -> bool:
    try:
        return path.read_bytes() == data and path.stat().st_mode & 0o7777 == mode
    except OSError:
        return False
