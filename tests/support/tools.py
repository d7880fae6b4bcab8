"""Programs that integration tests need, and what happens when they are not there."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]

_FOLDERS = (
    Path("/usr/sbin"),
    ROOT / ".cache/tools/usr/sbin",
    ROOT / ".cache/tools/usr/bin",
    # Not resolved: the link in a virtual environment lies beside its programs, what it points to does not.
    Path(sys.executable).parent,
)


def find_tool(name: str) -> Path | None:
    """The program `name`: from PATH, the folder of system programs, the unpacked tools, or this environment."""
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, _FOLDERS)))
    return Path(found) if found else None


def require_tool(name: str) -> Path:
    """As find_tool; a test that needs a program that is not there skips, or fails where nothing may be missing."""
    found = find_tool(name)
    if found is None:
        missing(f"{name} is not on this machine")
    return found


def missing(what: str) -> NoReturn:
    """Skip the running test and say why. CLOCKGATE_REQUIRE_TOOLS=1 (set in CI) makes it a failure."""
    if os.environ.get("CLOCKGATE_REQUIRE_TOOLS") == "1":
        pytest.fail(f"{what}, and CLOCKGATE_REQUIRE_TOOLS=1 forbids to skip", pytrace=False)
    pytest.skip(what)


@cache
def lacking_for_namespaces() -> str | None:
    """What this process lacks to make network namespaces; None when it can."""
    if os.geteuid() != 0:
        return "needs root"
    ip = find_tool("ip")
    if ip is None:
        return "needs the program ip (package iproute2)"
    trial = f"clockgate-trial-{os.getpid()}"
    made = subprocess.run([ip, "netns", "add", trial], capture_output=True, text=True, check=False, timeout=20)
    if made.returncode != 0:
        return f"needs network namespaces: {made.stderr.strip()}"
    subprocess.run([ip, "netns", "delete", trial], check=True, timeout=20)
    return None
