"""The way out of a rank that must not wait for anybody."""

import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

_FLUSH_LIMIT_S = 10.0


def leave(code: int, flush: Callable[[], None]) -> NoReturn:
    """End this process with `code` by os._exit, after `flush` and the standard streams.

    A normal exit would run destructors of process groups that wait for dead peers. A flush that fails or takes longer
    than 10 s (a frozen file server) does not keep the rank: the code stands.
    """
    alarm = threading.Timer(_FLUSH_LIMIT_S, os._exit, args=(code,))
    alarm.daemon = True
    alarm.start()
    try:
        flush()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
