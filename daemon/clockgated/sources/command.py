"""One foreign command, bounded in time and output, its whole process group gone when the call returns."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

_CHUNK_BYTES = 65_536
_REAP_S = 1.0
# A command that closed its output is about to end; most have when they are first asked about.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.000_5, 0.02


class Ending(Enum):
    """How a command ended."""

    EXITED = auto()
    TIMED_OUT = auto()
    FLOODED = auto()


@dataclass(frozen=True)
class Outcome:
    """What a command left behind. `exit_code` is negative after a signal, None when it was killed by this module."""

    ending: Ending
    exit_code: int | None
    stdout: bytes
    stderr: bytes


def run_bounded(argv: Sequence[str], timeout_s: float, limit_bytes: int) -> Outcome:
    """Run `argv` without a shell for at most `timeout_s`, keeping at most `limit_bytes` of its output.

    OSError when it cannot be started. It gets a session of its own, so that a wrapper script is killed together with
    what it waits for; without that a grandchild would keep the pipes open. No `preexec_fn`: it is unsafe with threads.
    """
    due_s = time.monotonic() + timeout_s
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    # Not as a context manager: its exit waits without limit.
    try:
        ending, stdout, stderr = _drained(child, due_s, limit_bytes)
        if ending is Ending.EXITED and not _has_ended(child, due_s):
            ending = Ending.TIMED_OUT
    finally:
        _end(child)
    return Outcome(ending, child.returncode if ending is Ending.EXITED else None, stdout, stderr)


def _drained(child: subprocess.Popen[bytes], due_s: float, limit_bytes: int) -> tuple[Ending, bytes, bytes]:
    """Read both pipes to their ends, so that a child that fills one of them cannot block."""
    stdout, stderr = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for pipe, kept in ((child.stdout, stdout), (child.stderr, stderr)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, kept)
        while selector.get_map():
            left_s = due_s - time.monotonic()
            ready = selector.select(left_s) if left_s > 0 else []
            if not ready:
                return Ending.TIMED_OUT, bytes(stdout), bytes(stderr)
            for key, _events in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
            if len(stdout) + len(stderr) > limit_bytes:
                return Ending.FLOODED, bytes(stdout), bytes(stderr)
    return Ending.EXITED, bytes(stdout), bytes(stderr)


def _has_ended(child: subprocess.Popen[bytes], due_s: float) -> bool:
    """Whether it ended by itself in time. It is left unreaped: its number stays its own."""
    pause_s = _FIRST_PAUSE_S
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        left_s = due_s - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return True


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill what still runs in its group, reap it, close the pipes."""
    # Only while the child is not reaped is its number, and with it the group's, surely still its own: so before any
    # poll or wait. One that ended by itself may have left others behind in its group, with its pipes closed.
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    # It ends at once unless it hangs in the kernel; such a one is reaped by the interpreter later.
    with suppress(subprocess.TimeoutExpired):
        child.wait(_REAP_S)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
