"""How punctual the measuring cycle is and how long it takes, counted for metrics."""

import threading
from bisect import bisect_left
from dataclasses import dataclass

from clockgated.units import NS_PER_MS

LIMITS_NS = tuple(round(ms * NS_PER_MS) for ms in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000))
"""Upper edges of the classes in which durations are counted, ns; one more class has all that are longer."""


@dataclass(frozen=True)
class Histogram:
    """How many durations fell into each class of LIMITS_NS and beyond, and their sum, ns."""

    counts: tuple[int, ...] = (0,) * (len(LIMITS_NS) + 1)
    sum_ns: int = 0

    def with_one(self, duration_ns: int) -> "Histogram":
        """As this one with one more."""
        place = bisect_left(LIMITS_NS, duration_ns)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return Histogram(counts, self.sum_ns + duration_ns)


@dataclass(frozen=True)
class Beat:
    """All cycles so far: how late they began, how long they took, and how many published a reading or failed."""

    lateness: Histogram = Histogram()
    duration: Histogram = Histogram()
    published: int = 0
    failed: int = 0


class Beats:
    """One thread notes cycles, any thread reads what was noted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._beat = Beat()

    def latest(self) -> Beat:
        """All cycles so far."""
        return self._beat

    def note(self, *, late_ns: int, took_ns: int, is_published: bool) -> None:
        """One more cycle, which began `late_ns` after it was due and took `took_ns` (CLOCK_MONOTONIC)."""
        with self._lock:
            before = self._beat
            self._beat = Beat(
                before.lateness.with_one(max(0, late_ns)),
                before.duration.with_one(max(0, took_ns)),
                before.published + is_published,
                before.failed + (not is_published),
            )
