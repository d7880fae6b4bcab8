"""A Debian or Ubuntu root to boot in a container, made by mmdebstrap at the first call and kept below .cache; and a
copy of it with this tree's package installed.

    python -m support.debian_root [--bare] SUITE...

makes them ahead of the tests, whose time limits do not allow for it, and shows its progress; with --bare without the
copies. Exit 1 when one cannot be made.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.package import built_package
from support.tools import ROOT, find_tool

_FOLDER = ROOT / ".cache/roots"
PACKAGES = (
    "chrony", "dbus", "iproute2", "linuxptp", "procps", "python3", "python3-grpcio", "python3-prometheus-client",
    "python3-protobuf", "python3-pyroute2", "python3-systemd", "systemd", "systemd-sysv", "tzdata", "util-linux",
)  # fmt: skip
_MIRROR = "http://deb.debian.org/debian"
_UBUNTU_SUITES = ("noble",)
_UBUNTU_MIRROR = "http://archive.ubuntu.com/ubuntu"
# Of the host, or of the root that packages are built in.
_UBUNTU_KEYS = tuple(Path(root) / "usr/share/keyrings/ubuntu-archive-keyring.gpg" for root in ("/", _FOLDER / "build"))
_BUILD_S = 600.0
_INSTALL_S = 200.0
_OPTIONS = (
    "--variant=apt",
    # The lists stay: apt is asked what it would do when the package is installed beside other time daemons.
    "--skip=cleanup/apt/lists",
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
    root, wanted = _FOLDER / suite, " ".join((*_OPTIONS, *PACKAGES))
    with _made(suite, wanted) as is_there:
        if not is_there:
            _build(suite, root, quiet=quiet)
    return root


def root_with_package(suite: str, package: Path, *, quiet: bool = True) -> Path:
    """A copy of the root of `suite` in which apt has installed `package`, with its unit disabled: tests start it.

    Another package makes another. Raises RootError.
    """
    bare, name = debian_root(suite, quiet=quiet), f"{suite}-with-package"
    root = _FOLDER / name
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    with _made(name, f"{digest} {' '.join((*_OPTIONS, *PACKAGES))}") as is_there:
        if not is_there:
            shutil.rmtree(root, ignore_errors=True)
            subprocess.run(["cp", "-a", "--reflink=auto", bare, root], check=True, timeout=_INSTALL_S)
            shutil.copy(package, root / package.name)
            _in_root(root, "apt-get", "install", "-y", "--no-install-recommends", f"/{package.name}")
            _in_root(root, "systemctl", "disable", "clockgated.service")
            (root / package.name).unlink()
    return root


def _in_root(root: Path, *command: str) -> None:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["chroot", root, *command], capture_output=True, text=True, check=False, timeout=_INSTALL_S, env=environment
    )
    if done.returncode != 0:
        raise RootError(f"{root}: {' '.join(command)}: {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")


@contextmanager
def _made(name: str, wanted: str) -> Iterator[bool]:
    """Whether the root `name` is there as `wanted`; if not it is to be made within. One process at a time."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = _FOLDER / f"{name}.packages"
        is_there = built.exists() and built.read_text() == wanted
        if not is_there:
            built.unlink(missing_ok=True)
        yield is_there
        built.write_text(wanted)


def _build(suite: str, root: Path, *, quiet: bool) -> None:
    shutil.rmtree(root, ignore_errors=True)
    loudness = ("--quiet",) if quiet else ()
    source = _source(suite)
    line = ["mmdebstrap", *loudness, *_OPTIONS, f"--include={','.join(PACKAGES)}", suite, str(root), source]
    stderr = subprocess.PIPE if quiet else None
    try:
        done = subprocess.run(line, stderr=stderr, text=True, check=False, timeout=_BUILD_S)
    except subprocess.TimeoutExpired:
        raise RootError(f"mmdebstrap was not done with {suite} after {_BUILD_S:g} s; is {source} slow?") from None
    if done.returncode != 0:
        raise RootError(f"mmdebstrap ended with {done.returncode} for {suite}: {(done.stderr or '').strip()[-500:]}")


def _source(suite: str) -> str:
    """Where the packages of `suite` come from, as mmdebstrap wants it."""
    if suite not in _UBUNTU_SUITES:
        return _MIRROR
    keys = next((path for path in _UBUNTU_KEYS if path.exists()), None)
    if keys is None:
        raise RootError(f"no keyring of Ubuntu's archive; wanted one of {', '.join(map(str, _UBUNTU_KEYS))}")
    return f"deb [signed-by={keys}] {_UBUNTU_MIRROR} {suite} main universe"


def _lacking() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    if find_tool("mmdebstrap") is None:
        return "needs mmdebstrap: apt-get install mmdebstrap"
    return None


def main(suites: list[str]) -> int:
    """Make the roots of `suites`; returns the exit code."""
    is_bare = suites[:1] == ["--bare"]
    suites = suites[is_bare:]
    if not suites:
        print("usage: python -m support.debian_root [--bare] SUITE...", file=sys.stderr)
        return 2
    for suite in suites:
        try:
            package = built_package()
            made = (
                debian_root(suite, quiet=False) if package is None else root_with_package(suite, package, quiet=False)
            )
            print(f"debian_root: {suite}: {made}", flush=True)
        except RootError as error:
            print(f"debian_root: {suite}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
