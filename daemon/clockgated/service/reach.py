"""Whether the sockets that we serve are still reached by their paths. Knows nothing of the API behind them.

A socket whose file was deleted or replaced serves those who are connected and nobody else, and grpc does not notice.
Nor does it when its listener dies: grpc 1.51 never accepts again after it once ran out of descriptors, while the kernel
goes on queueing connections. So a watch compares the files and, less often, connects as a client would.
"""

import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

# RFC 9113, 3.4: what a client sends first, and an empty SETTINGS frame; the server's SETTINGS frame is the answer.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_LOOK_INTERVAL_S = 1.0
# A connection costs about a millisecond of this process's time.
_LOOKS_A_PROBE = 5
_PATIENCE_S = 2.0
# A machine that is out of breath answers late; one that does not for three probes in a row does not come back.
_MOST_UNANSWERED = 3

Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """Device and inode of the file at `path`; None when it cannot be looked at, as when it is gone."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_answered(path: Path, patience_s: float = _PATIENCE_S) -> bool:
    """Whether somebody answers on the unix socket at `path` as an HTTP/2 server does."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(patience_s)
            probe.connect(os.fspath(path))
            probe.sendall(_PREFACE)
            return bool(probe.recv(1))
    except OSError:
        # Also when this process has no descriptor left for the probe: nobody else gets through then either.
        return False


class ReachWatch:
    """Watches `paths`, which are served now, on a thread of its own until `close`."""

    def __init__(self, paths: Sequence[Path], *, look_interval_s: float = _LOOK_INTERVAL_S) -> None:
        self._served = {path: identity(path) for path in paths}
        self._unanswered = dict.fromkeys(paths, 0)
        self._look_interval_s = look_interval_s
        self._lost: str | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="reach", daemon=True).start()

    def lost(self) -> str | None:
        """Which socket is not reached any more, and why; None while all are. It stays lost."""
        return self._lost

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        looks = 0
        while self._lost is None and not self._closed.wait(self._look_interval_s):
            looks += 1
            found = [self._replaced(path) for path in self._served]
            if looks % _LOOKS_A_PROBE == 0:
                found += [self._silent(path) for path in self._served]
            self._lost = next((why for why in found if why is not None), None)

    def _replaced(self, path: Path) -> str | None:
        now = identity(path)
        if now == self._served[path]:
            return None
        return f"{path}: the socket's file was {'deleted' if now is None else 'replaced by another'}"

    def _silent(self, path: Path) -> str | None:
        self._unanswered[path] = 0 if is_answered(path) else self._unanswered[path] + 1
        if self._unanswered[path] < _MOST_UNANSWERED:
            return None
        return f"{path}: {_MOST_UNANSWERED} connections in a row got no answer"
