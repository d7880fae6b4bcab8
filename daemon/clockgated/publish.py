"""The newest reading: one writer (cycle.py), any number of readers, no copy and no lock held while it is used."""

import threading
import time

from clockgated.clock.model import Reading


class Publisher:
    """Holds the newest reading and wakes those who wait for a newer one. Every method may be called from any thread."""

    def __init__(self, initial: Reading) -> None:
        self._changed = threading.Condition()
        self._latest = initial
        self._is_closed = False

    def latest(self) -> Reading:
        """The newest reading, at once."""
        return self._latest

    def publish(self, reading: Reading) -> None:
        """Replace the newest reading. ValueError when its sequence does not rise: two writers, or an old one."""
        with self._changed:
            if reading.sequence <= self._latest.sequence:
                raise ValueError(
                    f"reading {reading.sequence} published after {self._latest.sequence}; "
                    "wanted a higher sequence: only one cycle may publish"
                )
            self._latest = reading
            self._changed.notify_all()

    def wait_newer(self, sequence: int, timeout_s: float) -> Reading | None:
        """The newest reading as soon as it is newer than `sequence`; None after `timeout_s` or once closed.

        Readings in between may be missed, the newest never is.
        """
        due_s = time.monotonic() + timeout_s
        with self._changed:
            while not self._is_closed and self._latest.sequence <= sequence:
                left_s = due_s - time.monotonic()
                if left_s <= 0 or not self._changed.wait(left_s):
                    break
            if self._is_closed or self._latest.sequence <= sequence:
                return None
            return self._latest

    def close(self) -> None:
        """Wake everybody who waits, now and later, with None. `latest` goes on answering."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
