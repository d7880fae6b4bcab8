"""Whether a network namespace is still there, by its inode. Changes nothing."""

import re
from pathlib import Path

from clockgated.tuning.roots import names_in, raw_text_of

_HIDDEN = "hidden"


def lives(inode: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process is in the network namespace, or a mount (as `ip netns` makes it) keeps it.

    Also when a process hides where it is: what may still be there is not given up.
    """
    name = f"net:[{inode}]"
    if re.search(rf"\s{re.escape(name)}\s", raw_text_of(proc / "self/mountinfo") or ""):
        return True
    return any(_namespace_of(proc / pid) in (name, _HIDDEN) for pid in names_in(proc) if pid.isdecimal())


def _namespace_of(process: Path) -> str | None:
    try:
        return str((process / "ns/net").readlink())
    except PermissionError:
        return _HIDDEN
    except OSError:
        return None  # it has ended
