"""Applies, reverts and recovers on a fake tree in forked processes that are killed at every write in turn.

Run as a program: prints one JSON object with what was tried and every state that was neither all old nor all new. The
kill is a real SIGKILL of a real process, before, within or after one system call; files and fsyncs are real.
"""

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from clockgated.tuning.file_hand import FileHand
from clockgated.tuning.journal import Mark
from clockgated.tuning.journal_file import JournalFile
from clockgated.tuning.model import Change, Knob
from clockgated.tuning.outcome import OutcomeCode
from clockgated.tuning.roots import Roots
from clockgated.tuning.transaction import forget_ended, give_all_back, give_back, make, recover
from support.tuning import BOOT, NoStamps, change, quick_folder

CLAMPED = "net.core.netdev_budget"
"""The fake kernel stores another value here than it is given."""

_LONGEST_VALUE = 100
"""Bytes: what is longer is a record."""

_FIRST = {
    "net.ipv4.tcp_rmem": ("4096 131072 6291456", "4096 131072 67108864"),
    "net.ipv4.tcp_slow_start_after_idle": ("1", "0"),
    "net.ipv4.tcp_mtu_probing": ("0", "1"),
    "net.core.somaxconn": ("4096", "8192"),
    "vm.nr_hugepages": ("0", "16"),
}
_SECOND = {
    "net.ipv4.tcp_rmem": ("4096 131072 67108864", "4096 131072 134217728"),
    "net.ipv4.tcp_wmem": ("4096 16384 4194304", "4096 16384 67108864"),
}
# What is there at first; the second plan sets one key again.
_ORIGINAL = {key: old for plan in (_SECOND, _FIRST) for key, (old, _) in plan.items()} | {CLAMPED: "300"}


class ClampingHand(FileHand):
    """A kernel that keeps at most 500 of one key, without a word."""

    def write(self, knob: Knob, value: str) -> Any:
        """See Hand."""
        return super().write(knob, str(min(500, int(value))) if knob.key == CLAMPED else value)


class Killer:
    """Ends this process at one of the system calls that leave something behind: before, half way through, or after.

    A file of the kernel takes the value of one write whole and never stands empty; files of a test are made to do so.
    """

    def __init__(self, at: int) -> None:
        self._left = at
        self._open, self._write, self._ftruncate = os.open, os.write, os.ftruncate
        os.open = self._opened
        os.write = self._written  # type: ignore[assignment]
        for name in ("fsync", "unlink", "ftruncate", "rename", "replace"):
            setattr(os, name, self._wrapped(getattr(os, name)))

    def _opened(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        return self._open(path, flags & ~os.O_TRUNC, *arguments, **options)

    def _written(self, descriptor: int, data: bytes) -> int:
        self._tick()
        if len(data) > _LONGEST_VALUE:
            self._left -= 1
            if self._left == 0:
                self._write(descriptor, data[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
        taken = self._write(descriptor, data)
        if len(data) <= _LONGEST_VALUE:
            self._ftruncate(descriptor, taken)
        self._tick()
        return taken

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self._tick()
            done = real(*arguments, **options)
            self._tick()
            return done

        return wrapped

    def _tick(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def changes(plan: dict[str, tuple[str, str]]) -> tuple[Change, ...]:
    """The changes of a plan."""
    return tuple(change(key, *values) for key, values in plan.items())


class World:
    """A fake host with a journal."""

    def __init__(self, folder: Path) -> None:
        self.roots = Roots(folder / "proc", folder / "sys", folder)
        self.state = folder / "state"
        for key, value in _ORIGINAL.items():
            path = self.roots.sysctl(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(value.replace(" ", "\t") + "\n")

    def journal(self) -> JournalFile:
        """As a new process opens it."""
        return JournalFile(self.state, BOOT)

    def values(self) -> dict[str, str]:
        """What every key holds."""
        return {key: " ".join(self.roots.sysctl(key).read_text().split()) for key in _ORIGINAL}

    def apply(self, plan: dict[str, tuple[str, str]]) -> None:
        """Apply to the end, as the daemon does."""
        journal, hand = self.journal(), ClampingHand(self.roots)
        with journal.locked():
            apply_id = journal.open("hash")
        failure = make(journal, hand, apply_id, changes(plan), lambda _: None)
        if failure is not None:
            give_back(journal, hand, NoStamps(), apply_id, failure)
            forget_ended(journal)
            return
        with journal.locked():
            journal.append(Mark.COMMIT, apply_id)

    def revert(self) -> None:
        """Give everything back."""
        outcomes = give_all_back(self.journal(), ClampingHand(self.roots), NoStamps(), "asked")
        assert all(one.code is OutcomeCode.REVERTED for one in outcomes), outcomes

    def recover(self) -> None:
        """What a start does."""
        recover(self.journal(), ClampingHand(self.roots), NoStamps(), BOOT)


def in_child(work: Callable[[], None], kill_at: int) -> bool:
    """Run `work` in a forked process that is killed at its `kill_at`th point; whether it came to its end instead."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            Killer(kill_at)
            work()
            status = 0
        finally:
            # Not by the way of the parent's folders, which an exception would take.
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert os.waitstatus_to_exitcode(status) == 0, "the child failed by itself"
    return True


def after(base: dict[str, str], plan: dict[str, tuple[str, str]]) -> dict[str, str]:
    """What holds once `plan` is applied."""
    return base | {key: new for key, (_, new) in plan.items()}


Scenario = tuple[str, Callable[[World], None], Callable[[World], None], list[dict[str, str]]]

_CLAMPED_PLAN = {"net.ipv4.tcp_wmem": ("4096 16384 4194304", "4096 16384 67108864"), CLAMPED: ("300", "900")}


def scenarios() -> Iterator[Scenario]:
    """Name, what happened before, what is killed, and the states that may be left."""
    one = after(_ORIGINAL, _FIRST)
    two = after(one, _SECOND)
    yield "apply", lambda _: None, lambda world: world.apply(_FIRST), [_ORIGINAL, one]
    yield "second apply", lambda world: world.apply(_FIRST), lambda world: world.apply(_SECOND), [one, two]
    yield "refused value", lambda world: world.apply(_FIRST), lambda world: world.apply(_CLAMPED_PLAN), [one]

    def both(world: World) -> None:
        world.apply(_FIRST)
        world.apply(_SECOND)

    yield "revert of two", both, lambda world: world.revert(), [_ORIGINAL, two]


def main() -> int:
    """Try every point of every scenario, and every point of the recovery after a few of them."""
    points = recoveries = 0
    mixed: list[str] = []
    for name, prepare, work, allowed in scenarios():
        for at in itertools.count(1):
            with quick_folder() as folder:
                world = World(Path(folder))
                prepare(world)
                is_over = in_child(partial(work, world), at)
                if is_over:
                    break
                points += 1
                # The recovery is killed as well, at a point that moves with the first.
                is_whole = in_child(world.recover, 1 + at % 7)
                recoveries += not is_whole
                world.recover()
                if world.values() not in allowed:
                    mixed.append(f"{name}, point {at}: {world.values()}")
    print(json.dumps({"points": points, "killed_recoveries": recoveries, "mixed": mixed}))
    return 1 if mixed else 0


if __name__ == "__main__":
    sys.exit(main())
