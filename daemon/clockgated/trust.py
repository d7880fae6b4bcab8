"""Who else could have written a file that root is about to obey. Looks at owners and modes, never at content."""

import os
import stat
from pathlib import Path

_MOST_LINKS = 40


def fault(path: Path) -> str | None:
    """Who but root may change the file at `path` or put another in its place, and the next step; None when nobody may.

    Also None without root: then the file has no more rights than whoever starts the daemon. Every folder on the way
    counts, also that of every link. In a folder with the sticky bit (/tmp) nobody else replaces an entry of root's, and
    on a file system that is mounted read-only nobody at all: Kubernetes mounts a ConfigMap like that, with mode 0777.
    """
    if os.geteuid() != 0:
        return None
    pending = list(reversed(path.absolute().parts[1:]))
    here, links = Path("/"), 0
    found = _fault_of(here)
    while found is None and pending:
        name = pending.pop()
        here = here.parent if name == ".." else here / name
        found = _fault_of(here)
        link = _link(here)
        if link is not None:
            links += 1
            if links > _MOST_LINKS:
                return f"{path}: more than {_MOST_LINKS} links on the way"
            pending += reversed(link.parts[1:] if link.is_absolute() else link.parts)
            here = Path("/") if link.is_absolute() else here.parent
    return None if found is None else f"{path}: {found}"


def _fault_of(path: Path) -> str | None:
    try:
        found = path.lstat()
        is_read_only = os.statvfs(path.parent if stat.S_ISLNK(found.st_mode) else path).f_flag & os.ST_RDONLY
    except OSError:
        return None  # who reads it will tell
    if found.st_uid != 0:
        return f"{path} belongs to user {found.st_uid}, who could change what root does; run `chown root {path}`"
    if stat.S_ISLNK(found.st_mode):
        return None
    is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & 0o022 and not is_sticky and not is_read_only:
        mode = stat.S_IMODE(found.st_mode)
        return f"{path} has mode {mode:04o}: others can write what root obeys; run `chmod go-w {path}`"
    return None


def _link(path: Path) -> Path | None:
    try:
        return path.readlink()
    except OSError:
        return None
