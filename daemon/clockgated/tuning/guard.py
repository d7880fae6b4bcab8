"""The guard: a process outside the daemon that gives an apply back unless it is confirmed in time.

Where systemd runs it is a transient timer, elsewhere a process of its own session. Both run `undo_later`. It is armed
before the change and looks into the journal when its time has come: what is confirmed stays. So a daemon that hangs, or
dies and does not come back, or cannot be reached any more to be told so, does not leave the node cut off.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import clockgated
from clockgated.tuning.roots import Roots

_TIMEOUT_S = 10.0
_UNIT = "clockgate-tuning-undo"
_PACKAGE_FOLDER = Path(clockgated.__file__).parent.parent


class Guard(Protocol):
    """Gives an apply back after a while, unless it is confirmed or disarmed."""

    def arm(self, apply_id: int, after_s: float) -> str | None:
        """Begin; None, or why there can be no guard. Nothing risky is done without one."""
        ...

    def disarm(self) -> None:
        """End it early. One that cannot be ended finds the apply confirmed or over, and does nothing."""
        ...


class ProcessGuard:
    """A process of its own session: it outlives this one, but not the end of a systemd unit."""

    def __init__(self, folder: Path, roots: Roots | None = None) -> None:
        self._folder = folder
        self._roots = roots or Roots()
        self._process: subprocess.Popen[bytes] | None = None

    def arm(self, apply_id: int, after_s: float) -> str | None:
        """See Guard."""
        try:
            self._process = subprocess.Popen(
                undo_command(self._folder, apply_id, after_s, self._roots),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, cwd="/", env=_environment(),
            )  # fmt: skip
        except OSError as error:
            return f"{sys.executable}: {error.strerror}"
        return None

    def disarm(self) -> None:
        """See Guard."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class SystemdGuard:
    """A transient timer: it outlives the daemon's unit, and systemd itself keeps the time."""

    def __init__(self, folder: Path, roots: Roots | None = None, systemd: Sequence[str] = ()) -> None:
        self._folder = folder
        self._roots = roots or Roots()
        self._prefix = tuple(systemd)
        self._unit: str | None = None

    def arm(self, apply_id: int, after_s: float) -> str | None:
        """See Guard."""
        unit = f"{_UNIT}-{apply_id}"
        settings = [f"--setenv={name}={value}" for name, value in _environment().items() if name == "PYTHONPATH"]
        complaint = self._run(
            "systemd-run", "--quiet", "--collect", f"--unit={unit}", f"--on-active={after_s:g}s",
            "--timer-property=AccuracySec=100ms", *settings, "--",
            *undo_command(self._folder, apply_id, 0, self._roots),
        )  # fmt: skip
        if complaint is None:
            self._unit = unit
        return complaint

    def disarm(self) -> None:
        """See Guard."""
        if self._unit is not None:
            self._run("systemctl", "--no-ask-password", "stop", f"{self._unit}.timer")
            self._unit = None

    def _run(self, *command: str) -> str | None:
        try:
            done = subprocess.run(
                (*self._prefix, *command),
                capture_output=True,
                check=False,
                timeout=_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{command[0]}: {error}"
        return None if done.returncode == 0 else f"{command[0]}: {done.stderr.decode(errors='replace').strip()[-300:]}"


def host_guard(folder: Path, roots: Roots | None = None) -> Guard:
    """The guard for this host: systemd's where systemd runs and shares our network namespace."""
    roots = roots or Roots()
    is_booted = (roots.root / "run/systemd/system").is_dir()  # sd_booted(3)
    return SystemdGuard(folder, roots) if is_booted and _is_init_here(roots) else ProcessGuard(folder, roots)


def undo_command(folder: Path, apply_id: int, after_s: float, roots: Roots) -> tuple[str, ...]:
    """The command that gives `apply_id` back after `after_s`, unless it is confirmed by then."""
    return (
        sys.executable, "-P", "-m", "clockgated.tuning.undo_later", f"--folder={folder}", f"--apply={apply_id}",
        f"--after={after_s:g}", f"--boot-id={roots.boot_id}", f"--proc={roots.proc}", f"--sys={roots.sys}",
    )  # fmt: skip


def _environment() -> dict[str, str]:
    """Ours, with the folder that this package lies in: it may be a checkout that is run in place."""
    paths = [str(_PACKAGE_FOLDER), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def _is_init_here(roots: Roots) -> bool:
    try:
        return (roots.proc / "1/ns/net").stat().st_ino == roots.netns_inode
    except OSError:
        return False
