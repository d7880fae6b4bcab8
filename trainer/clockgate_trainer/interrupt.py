"""SIGTERM as an interrupt from the keyboard, for commands that have something to clear away when they are ended."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Within it SIGTERM raises KeyboardInterrupt, so that nothing half written and no scratch folder stays. Main thread
    only.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
