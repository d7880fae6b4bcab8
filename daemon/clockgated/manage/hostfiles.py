"""Reading small files, links and the answers of short commands. What cannot be read is empty or None."""

import os
import re
import subprocess
from pathlib import Path

_ASK_TIMEOUT_S = 10.0


def text_of(path: Path) -> str:
    """The file as text, odd bytes replaced; empty when it cannot be read."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def link_name(path: Path) -> str | None:
    """The last component of what a link points at; None when it cannot be read."""
    try:
        return path.readlink().name
    except OSError:
        return None


def ask(*command: str) -> str:
    """Standard output of a short command; empty when it cannot run or takes too long."""
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=_ASK_TIMEOUT_S, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def effective_capabilities(status: Path) -> int:
    """The mask of effective capabilities in a /proc/PID/status; 0 when it cannot be read."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", text_of(status), re.MULTILINE)
    return int(found[1], 16) if found else 0
