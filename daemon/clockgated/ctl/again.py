"""Showing something again and again until it is interrupted."""

import signal
import sys
import threading
from collections.abc import Callable

from clockgated.ctl import address

EXIT_UNREACHABLE = 3


def again(show: Callable[[], int], interval_s: float) -> int:
    """Call `show` every `interval_s` until SIGINT; returns its last answer. A daemon that is gone is waited for.

    The signal only sets a flag: an exception of its own, raised while an object of grpc is being discarded, would be
    dropped by the interpreter.
    """
    code = EXIT_UNREACHABLE
    over = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: over.set())
    try:
        while not over.is_set():
            try:
                code = show()
            except address.UnreachableError as error:
                print(f"clockgatectl: {error}", file=sys.stderr)
                code = EXIT_UNREACHABLE
            over.wait(interval_s)
    finally:
        signal.signal(signal.SIGINT, before)
    return code
