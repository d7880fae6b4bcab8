"""Unix sockets: who may serve a path, and with which modes. Knows nothing of grpc or of the API.

grpc replaces a live unix socket without a word, so an flock on a file beside the socket decides who serves it, and is
taken before anything is touched. The lock file stays for ever: removing it would let two processes lock two files of
one name.
"""

import fcntl
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from clockgated.config_values import SOCKET_PATH_LIMIT_BYTES
from clockgated.errors import SocketError

_OPEN_SOCKET_UMASK = 0o111  # -> 0666
_PRIVATE_SOCKET_UMASK = 0o177  # -> 0600
_PROBE_TIMEOUT_S = 1.0


class Claim:
    """The right to serve `path`, held until `release` or the end of the process."""

    def __init__(self, path: Path, *, private: bool, lock: BinaryIO) -> None:
        self.path = path
        self._umask = _PRIVATE_SOCKET_UMASK if private else _OPEN_SOCKET_UMASK
        self._lock = lock

    def bind(self, bind: Callable[[str], object]) -> None:
        """Call `bind` with the path; the socket that it makes gets mode 0666, or 0600 when private.

        By umask, which is the process's (no other thread may create files meanwhile): a chmod after the bind would
        leave a moment in which the mode is wrong. Raises SocketError when `bind` fails.
        """
        try:
            with _umask(self._umask):
                bind(str(self.path))
        except (OSError, RuntimeError) as error:
            raise SocketError(f"{self.path}: cannot be served: {error}") from None

    def release(self) -> None:
        """Give the path up, once or again. A socket file that is still there is a stale one to the next claimant."""
        self._lock.close()


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def claim(path: Path, *, private: bool) -> Claim:
    """Take `path` for this process: make its folder when missing, lock it, and clear a stale socket away.

    Raises SocketError when the path cannot be served: it is too long, something else is there, another process serves
    it, or the folder is not writable or, when `private`, open to others.
    """
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT_BYTES:
        raise SocketError(f"{path}: {length} bytes long; a unix socket's path has at most {SOCKET_PATH_LIMIT_BYTES}")
    # A caller's narrow umask would shut clients out of the folders made here.
    with _umask(0o022):
        _prepare_folder(path.parent, private=private)
        lock = _locked(path)
    try:
        _clear(path)
    except SocketError:
        lock.close()
        raise
    return Claim(path, private=private, lock=lock)


def _prepare_folder(folder: Path, *, private: bool) -> None:
    try:
        folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700 if private else 0o755, exist_ok=True)
        found = folder.stat()
    except FileExistsError:
        raise SocketError(f"{folder}: something that is no folder is in the way of the socket's folder") from None
    except OSError as error:
        raise SocketError(
            f"{folder}: cannot be made the socket's folder: {error.strerror}; run as root, or choose another in [api]"
        ) from None
    if private and found.st_uid != os.geteuid():
        raise SocketError(f"{folder}: belongs to user {found.st_uid}; wanted user {os.geteuid()}, who runs clockgated")
    if private and stat.S_IMODE(found.st_mode) & 0o077:
        raise SocketError(
            f"{folder}: mode {stat.S_IMODE(found.st_mode):04o} lets others in; wanted 0700 for the folder of the admin "
            f"socket: run `chmod 0700 {folder}`, or choose another folder in [api] admin_socket"
        )


def _locked(path: Path) -> BinaryIO:
    name = path.with_name(path.name + ".lock")
    try:
        # O_NOFOLLOW: in a folder open to all, the name may be somebody's link to a file of ours.
        lock = os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+b", 0)
        # Whoever can open it can lock it, and keep clockgated from starting for ever. It may be older than this rule.
        os.fchmod(lock.fileno(), 0o600)
    except OSError as error:
        raise SocketError(
            f"{name}: cannot be opened: {error.strerror}; wanted a folder that clockgated may write"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n".encode())
    except BlockingIOError:
        with lock:
            holder = lock.read(32).decode(errors="replace").strip()
        who = f"process {holder}" if holder else "a process that is just starting"
        raise SocketError(
            f"{path}: another clockgated serves it ({who}); stop that one, or choose other paths in [api]"
        ) from None
    except OSError as error:
        lock.close()
        raise SocketError(f"{name}: cannot be locked: {error.strerror}") from None
    return lock


def _clear(path: Path) -> None:
    """Remove a stale socket; raises SocketError when anything else is there. Only under the lock."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        what = "a folder" if stat.S_ISDIR(kind) else "a link" if stat.S_ISLNK(kind) else "a file that is no socket"
        raise SocketError(f"{path}: {what} is in the way; move it, or choose another path in [api]")
    if _is_served(path):
        raise SocketError(f"{path}: another program serves it; stop that one, or choose another path in [api]")
    path.unlink()


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            # A full queue, or a socket of another type: somebody holds it.
            return True
    return True
