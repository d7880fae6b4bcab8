"""Streams in turn: a new reading must not wake hundreds of workers in one moment, which no other call gets through."""

import heapq
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# As many as the shipped ceiling answer at once; each one beyond waits for twice as long as an answer takes to make.
_AT_ONCE = 64
_EACH_S = 0.002
_LONGEST_S = 0.5


class Turns:
    """Hands out places; the lowest free one first. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[int] = []
        self._places = 0

    @contextmanager
    def one(self) -> Iterator[float]:
        """A place until the end of the block; yields the seconds by which it is behind the first ones."""
        with self._lock:
            if self._free:
                place = heapq.heappop(self._free)
            else:
                place = self._places
                self._places += 1
        try:
            yield min(_LONGEST_S, _EACH_S * max(0, place - _AT_ONCE))
        finally:
            with self._lock:
                heapq.heappush(self._free, place)
