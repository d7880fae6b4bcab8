"""How many streams a server has and how many it turned away: for metrics."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class StreamTally:
    """Counts; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.open = 0
        self.refused = 0

    @contextmanager
    def one_open(self) -> Iterator[None]:
        """Inside, one more stream is open."""
        with self._lock:
            self.open += 1
        try:
            yield
        finally:
            with self._lock:
                self.open -= 1

    def refuse(self) -> None:
        """One was turned away."""
        with self._lock:
            self.refused += 1
