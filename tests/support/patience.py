"""Waiting in tests for what happens beside them."""

import time
from collections.abc import Callable


def eventually(what: Callable[[], bool], timeout_s: float = 10) -> bool:
    """Whether `what` becomes true in time."""
    due = time.monotonic() + timeout_s
    while not what():
        if time.monotonic() > due:
            return False
        time.sleep(0.01)
    return True
