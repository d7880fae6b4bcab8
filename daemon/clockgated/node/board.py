"""The newest judgement of the machine: one writer (watch.py), any number of readers."""

import threading
import time

from clockgated.node.model import NodeHealth


class NodeBoard:
    """Holds the newest judgement and wakes those who wait for a newer one. For threads.

    `boot_id` is that of every stamp.
    """

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self._changed = threading.Condition()
        self._latest: NodeHealth | None = None
        self._is_closed = False
        self._is_asked = False

    def latest(self) -> NodeHealth | None:
        """The newest judgement, at once; None before the first one."""
        return self._latest

    def publish(self, health: NodeHealth) -> None:
        """Replace the newest judgement."""
        with self._changed:
            self._latest = health
            self._changed.notify_all()

    def wait_newer(self, sequence: int, timeout_s: float) -> NodeHealth | None:
        """The newest judgement as soon as it is newer than `sequence`; None after `timeout_s` or once closed."""
        due_s = time.monotonic() + timeout_s
        with self._changed:
            while not self._is_closed and (self._latest is None or self._latest.sequence <= sequence):
                left_s = due_s - time.monotonic()
                if left_s <= 0 or not self._changed.wait(left_s):
                    break
            if self._is_closed or self._latest is None or self._latest.sequence <= sequence:
                return None
            return self._latest

    def ask_extras(self) -> None:
        """Have drivers and peers asked with the next look, which comes soon."""
        with self._changed:
            self._is_asked = True
            self._changed.notify_all()

    def take_asked(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for somebody to ask for extras; whether somebody did. For the writer alone."""
        due_s = time.monotonic() + timeout_s
        with self._changed:
            while not self._is_asked and not self._is_closed:
                left_s = due_s - time.monotonic()
                if left_s <= 0 or not self._changed.wait(left_s):
                    break
            is_asked, self._is_asked = self._is_asked, False
            return is_asked

    def close(self) -> None:
        """Wake everybody who waits, now and later, with None."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
