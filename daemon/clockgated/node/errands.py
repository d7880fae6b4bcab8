"""Looks that may hang, each on a thread of its own: who asks waits for a while, and goes on without an answer."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clockgated import host


@dataclass(frozen=True)
class Part:
    """One part of the node. `look` is called at most every `every_ns` and never twice at a time; it must not raise."""

    look: Callable[[], Any]
    every_ns: int = 0


@dataclass(frozen=True)
class Answer:
    """What a look returned, and CLOCK_BOOTTIME, ns, just before it."""

    value: Any
    as_of_boot_ns: int


class Errands:
    """The looks of one thread that asks; not thread-safe for others."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = dict(parts)
        self._answered = threading.Condition()
        self._answers: dict[str, Answer] = {}
        self._under_way: dict[str, threading.Thread] = {}
        self._begun_boot_ns: dict[str, int] = {}

    def look(self, patience_s: float, *, without: frozenset[str] = frozenset()) -> Mapping[str, Answer]:
        """Begin every look that is due, but those of `without`; the newest answers after at most `patience_s`."""
        now_boot_ns = host.boot_ns()
        for name, part in self._parts.items():
            is_due = now_boot_ns - self._begun_boot_ns.get(name, -part.every_ns) >= part.every_ns
            if is_due and name not in without and not self._hangs(name):
                self._begin(name, part, now_boot_ns)
        due_s = time.monotonic() + patience_s
        with self._answered:
            while any(map(self._hangs, self._parts)):
                left_s = due_s - time.monotonic()
                if left_s <= 0 or not self._answered.wait(left_s):
                    break
            return dict(self._answers)

    def overdue(self) -> Mapping[str, int]:
        """The looks that have not come back, and CLOCK_BOOTTIME, ns, of their beginning."""
        return {name: self._begun_boot_ns[name] for name in self._parts if self._hangs(name)}

    def _hangs(self, name: str) -> bool:
        thread = self._under_way.get(name)
        return thread is not None and thread.is_alive() and self._began_after_answer(name)

    def _began_after_answer(self, name: str) -> bool:
        answer = self._answers.get(name)
        return answer is None or answer.as_of_boot_ns < self._begun_boot_ns[name]

    def _begin(self, name: str, part: Part, now_boot_ns: int) -> None:
        def run() -> None:
            answer = Answer(part.look(), now_boot_ns)
            with self._answered:
                self._answers[name] = answer
                self._answered.notify_all()

        self._begun_boot_ns[name] = now_boot_ns
        # A daemon thread: what hangs in a driver must not keep the process alive.
        self._under_way[name] = threading.Thread(target=run, name=f"look-{name}", daemon=True)
        self._under_way[name].start()
