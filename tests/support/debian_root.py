"""A Debian root to boot in a container, made by mmdebstrap at the first call and kept below .cache.

    python -m support.debian_root SUITE...

makes them ahead of the tests, whose time limits do not allow for it, and shows its progress. Exit 1 when one cannot be
made.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.tools import ROOT, find_tool

PACKAGES = (
    "chrony", "dbus", "iproute2", "linuxptp", "procps", "python3", "python3-grpcio", "python3-protobuf",
    "python3-systemd", "systemd", "systemd-sysv", "tzdata", "util-linux",
)  # fmt: skip
_MIRROR = "http://deb.debian.org/debian"
_BUILD_S = 600.0
_OPTIONS = (
    "--variant=essential",
    '--aptopt=APT::Install-Recommends "false"',
    '--aptopt=Acquire::Retries "3"',
    # A root that is lost with the machine needs no fsync for each of its files, and nobody reads in it.
    "--dpkgopt=force-unsafe-io",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    # An empty identity makes systemd take a new one at each boot.
    '--customize-hook=: > "$1/etc/machine-id"',
)


class RootError(Exception):
    """No root can be made here, and why."""


def debian_root(suite: str, *, quiet: bool = True) -> Path:
    """A root of `suite` with PACKAGES, made unless it is there; another list of packages or options makes another.

    Raises RootError. What mmdebstrap says goes to stderr unless `quiet`.
    """
    lacking = _lacking()
    if lacking is not None:
        raise RootError(lacking)
    folder = ROOT / ".cache/roots"
    folder.mkdir(parents=True, exist_ok=True)
    root, wanted = folder / suite, " ".join((*_OPTIONS, *PACKAGES))
    with (folder / f"{suite}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = folder / f"{suite}.packages"
        if not built.exists() or built.read_text() != wanted:
            built.unlink(missing_ok=True)
            _build(suite, root, quiet=quiet)
            built.write_text(wanted)
    return root


def _build(suite: str, root: Path, *, quiet: bool) -> None:
    shutil.rmtree(root, ignore_errors=True)
    loudness = ("--quiet",) if quiet else ()
    line = ["mmdebstrap", *loudness, *_OPTIONS, f"--include={','.join(PACKAGES)}", suite, str(root), _MIRROR]
    stderr = subprocess.PIPE if quiet else None
    try:
        done = subprocess.run(line, stderr=stderr, text=True, check=False, timeout=_BUILD_S)
    except subprocess.TimeoutExpired:
        raise RootError(f"mmdebstrap was not done with {suite} after {_BUILD_S:g} s; is {_MIRROR} slow?") from None
    if done.returncode != 0:
        raise RootError(f"mmdebstrap ended with {done.returncode} for {suite}: {(done.stderr or '').strip()[-500:]}")


def _lacking() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    if find_tool("mmdebstrap") is None:
        return "needs mmdebstrap: apt-get install mmdebstrap"
    return None


def main(suites: list[str]) -> int:
    """Make the roots of `suites`; returns the exit code."""
    if not suites:
        print("usage: python -m support.debian_root SUITE...", file=sys.stderr)
        return 2
    for suite in suites:
        try:
            print(f"debian_root: {suite}: {debian_root(suite, quiet=False)}", flush=True)
        except RootError as error:
            print(f"debian_root: {suite}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
