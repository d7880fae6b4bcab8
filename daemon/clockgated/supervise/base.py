"""What a supervised program is, how it fares, and the interface of whatever runs it.

There are two backends: children of this process, and units of systemd. Both are told what should run and make
progress only in `poll`; neither blocks for a program to start or to end.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

# An interface name, which is part of a child's, may hold anything but blanks, slashes and colons.
_NAME = re.compile(r"[^\s/.][^\s/]{0,99}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class ChildSpec:
    """One program that should run.

    `argv[0]` is an absolute path. `restart_argv`, where it differs, starts the program without letting it step the
    clock: whenever a step is forbidden, and once a run of this boot has lasted. `files_digest` is the `digest_of` the
    generated files that the program reads, so that a changed configuration is a changed spec. `unit` is the systemd
    unit that stands for it, where systemd runs. `stale_after_ns` is how long a program may be alive without evidence
    before it is killed; None: not watched. It is ready, and the next in order may start, when all `ready_paths`
    exist, or, where there are none, when it has run for `ready_after_ns`. Lower `stop_order`s end first. Raises
    ValueError on what no backend could start.
    """

    name: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    drop_clock_right: bool = False
    unit: str | None = None
    files_digest: str = ""
    stale_after_ns: int | None = None
    restart_argv: tuple[str, ...] | None = None
    ready_paths: tuple[str, ...] = ()
    ready_after_ns: int = 0
    stop_order: int = 0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or not self.name.isprintable():
            raise ValueError(f"child name {self.name!r}: wanted 1 to 100 printable characters, no blanks, no slashes")
        for argv in (self.argv, self.later_argv):
            if not argv or not argv[0].startswith("/"):
                raise ValueError(f"child {self.name}: argv {argv!r} must begin with an absolute path")
        if any("\0" in word for word in (*self.argv, *self.later_argv, *(value for _, value in self.environment))):
            raise ValueError(f"child {self.name}: a NUL in argv or environment")
        wrong = [key for key, _ in self.environment if not _VARIABLE.fullmatch(key)]
        if wrong:
            raise ValueError(f"child {self.name}: environment names {wrong} are not letters, digits and _")

    @property
    def later_argv(self) -> tuple[str, ...]:
        """The command that never steps the clock."""
        return self.argv if self.restart_argv is None else self.restart_argv

    @cached_property
    def digest(self) -> str:
        """Equal for two specs exactly when a running program of the one may stand for the other."""
        parts = [self.argv, self.later_argv, sorted(self.environment), self.drop_clock_right, self.files_digest]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class ChildStatus:
    """How one program fares.

    `exits` counts ends that nobody asked for. `since_mono_ns` is CLOCK_MONOTONIC at the start of this run, or at the
    moment an earlier run was adopted. `crash_loop` stays True until a run lasted. `next_start_mono_ns` is set while
    waiting for the next attempt. `last_exit` is a sentence on the newest end or failed start.
    """

    name: str
    pid: int | None = None
    start_time_ticks: int | None = None
    running: bool = False
    exits: int = 0
    crash_loop: bool = False
    last_exit: str | None = None
    since_mono_ns: int | None = None
    adopted: bool = False
    next_start_mono_ns: int | None = None
    dropped_lines: int = 0


class Backend(Protocol):
    """Runs programs. No call raises for what a program does or fails to do: that is told by `status`."""

    def start(self, spec: ChildSpec, *, may_step: bool) -> None:
        """From now on keep `spec` running. A run with the same digest goes on; one with another is ended first.

        Without `may_step` any start until the next call is one with `later_argv`; a run that goes on is left alone.
        """

    def stop(self, name: str, grace_ns: int) -> None:
        """End it: SIGTERM, and SIGKILL when it is still there `grace_ns` later. The name then disappears."""

    def restart(self, name: str, why: str) -> None:
        """Kill it at once; it counts as an exit, with `why` as its last one, and comes back under back-off."""

    def names(self) -> tuple[str, ...]:
        """Everything that is wanted or still there, also what an earlier process of ours left behind."""

    def status(self, name: str) -> ChildStatus:
        """How `name` fared at the last poll; a name that is not there is not running."""

    def poll(self, now_mono_ns: int) -> None:
        """Notice what ended, and start, adopt, end and kill what is due. Call once a cycle."""

    def close(self) -> None:
        """Leave: children are ended, within a bounded time; units go on without us."""


def digest_of(texts: Iterable[str]) -> str:
    """One digest over the texts of generated files, in their order."""
    total = hashlib.sha256()
    for text in texts:
        total.update(hashlib.sha256(text.encode()).digest())
    return total.hexdigest()
