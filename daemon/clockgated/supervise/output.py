"""Children's output, line by line, on one thread: bounded in memory, in lines handed on, and in CPU time.

Each child writes into a named pipe. An anonymous one would end with this process; into the named one a child that
outlives us keeps writing as soon as the next process of ours opens it. While nobody has it open its writes fail with
EPIPE and are lost, and children are started with SIGPIPE ignored, so it neither dies nor blocks.
"""

import logging
import os
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from clockgated import host
from clockgated.units import NS_PER_MS, NS_PER_S

_log = logging.getLogger(__name__)
_CHUNK_BYTES = 65536
# A pipe that delivered more than the budget rests for so long: a flood then costs about ten reads a second, and the
# flooding child waits in its writes instead of burning a core together with us. It is never left waiting for good.
_REST_NS = 100 * NS_PER_MS

LineCallback = Callable[[str, str], None]


@dataclass
class LineCutter:
    """Cuts a stream of bytes into lines. Keeps at most `max_bytes` of an unfinished one; the rest of it is lost."""

    max_bytes: int = 4096
    _rest: bytes = b""
    _is_cut: bool = False

    def feed(self, data: bytes) -> list[bytes]:
        """Lines that `data` completes, without their ends, overlong ones cut; empty ones are left out."""
        *complete, rest = data.split(b"\n")
        lines = []
        for part in complete:
            line, self._rest = self._grown(part), b""
            self._is_cut = False
            if line.rstrip(b"\r"):
                lines.append(line.rstrip(b"\r"))
        self._rest = self._grown(rest)
        self._is_cut = self._is_cut or len(self._rest) == self.max_bytes
        return lines

    def _grown(self, part: bytes) -> bytes:
        return self._rest if self._is_cut else (self._rest + part[: self.max_bytes])[: self.max_bytes]


@dataclass
class LineBudget:
    """A token bucket: `burst` lines at once, `per_second` in the long run."""

    per_second: int = 100
    burst: int = 500
    _tokens_ns: int | None = None
    _at_mono_ns: int = 0

    def take(self, wanted: int, now_mono_ns: int) -> int:
        """How many of `wanted` lines may pass now."""
        full_ns = self.burst * NS_PER_S
        if self._tokens_ns is None:
            self._tokens_ns = full_ns
        else:
            earned_ns = max(0, now_mono_ns - self._at_mono_ns) * self.per_second
            self._tokens_ns = min(full_ns, self._tokens_ns + earned_ns)
        self._at_mono_ns = now_mono_ns
        granted = min(wanted, self._tokens_ns // NS_PER_S)
        self._tokens_ns -= granted * NS_PER_S
        return granted


@dataclass
class _Stream:
    descriptor: int
    cutter: LineCutter = field(default_factory=LineCutter)
    budget: LineBudget = field(default_factory=LineBudget)
    rests_until_mono_ns: int = 0
    dropped: int = 0
    dropped_told: int = 0
    is_over: bool = False


class OutputReader:
    """Follows any number of pipes on one thread of its own, and hands on each line.

    Each goes to `on_line` and, with `logs_lines`, to the log. `on_line(name, line)` is called on that thread; it must
    be quick and must not raise. A name's pipe is followed over restarts of the child, until `unfollow`.
    """

    def __init__(self, on_line: LineCallback, *, logs_lines: bool = True) -> None:
        self._on_line = on_line
        self._logs_lines = logs_lines
        self._lock = threading.Lock()
        self._streams: dict[str, _Stream] = {}
        self._is_closing = False
        self._wake_in, self._wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="child-output", daemon=True)
        self._thread.start()

    def follow(self, name: str, path: Path) -> None:
        """Hand on every line that arrives in the named pipe `path`; raises OSError when it cannot be opened."""
        with self._lock:
            if name in self._streams:
                return
            # Opened for writing too, so that the pipe has no end of file when the child goes away.
            self._streams[name] = _Stream(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        self._wake()

    def end_line(self, name: str) -> None:
        """Finish the line that a child left unfinished when it ended."""
        with self._lock:
            stream = self._streams.get(name)
            if stream is not None:
                _write(stream.descriptor)

    def unfollow(self, name: str) -> None:
        """Close the pipe; what is still in it is lost."""
        with self._lock:
            stream = self._streams.get(name)
            if stream is not None:
                stream.is_over = True
        self._wake()

    def dropped_lines(self, name: str) -> int:
        """Lines of this name that were over the budget and not handed on."""
        with self._lock:
            stream = self._streams.get(name)
            return 0 if stream is None else stream.dropped

    def close(self) -> None:
        """End the thread and close every pipe; a second call does nothing."""
        if self._is_closing:
            return
        self._is_closing = True
        self._wake()
        self._thread.join(timeout=5)

    def _wake(self) -> None:
        _write(self._wake_out)

    def _run(self) -> None:
        while not self._is_closing:
            self._turn()
        with self._lock:
            for stream in self._streams.values():
                os.close(stream.descriptor)
            self._streams.clear()
        os.close(self._wake_in)
        os.close(self._wake_out)

    def _turn(self) -> None:
        ready = self._wait()
        if self._wake_in in ready:
            _read(self._wake_in)
        for name, stream in self._open_streams():
            if stream.descriptor in ready:
                self._drain(name, stream)

    def _open_streams(self) -> list[tuple[str, _Stream]]:
        with self._lock:
            for name in [name for name, stream in self._streams.items() if stream.is_over]:
                os.close(self._streams.pop(name).descriptor)
            return list(self._streams.items())

    def _wait(self) -> set[int]:
        now_ns = host.mono_ns()
        poller = select.poll()
        poller.register(self._wake_in, select.POLLIN)
        timeout_ms = None
        for _, stream in self._open_streams():
            if stream.rests_until_mono_ns <= now_ns:
                poller.register(stream.descriptor, select.POLLIN)
            else:
                timeout_ms = _REST_NS // NS_PER_MS
        return {descriptor for descriptor, _ in poller.poll(timeout_ms)}

    def _drain(self, name: str, stream: _Stream) -> None:
        now_ns = host.mono_ns()
        lines = stream.cutter.feed(_read(stream.descriptor))
        granted = stream.budget.take(len(lines), now_ns)
        if granted < len(lines):
            stream.dropped += len(lines) - granted
            stream.rests_until_mono_ns = now_ns + _REST_NS
        elif stream.dropped > stream.dropped_told:
            _log.warning("%s: %d lines of a flood were dropped", name, stream.dropped - stream.dropped_told)
            stream.dropped_told = stream.dropped
        for line in lines[:granted]:
            text = line.decode("utf-8", errors="replace")
            if self._logs_lines:
                _log.info("%s: %s", name, _printable(text))
            self._on_line(name, text)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _write(descriptor: int) -> None:
    try:
        os.write(descriptor, b"\n")
    except BlockingIOError:
        return  # full: there is something to read anyhow


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except BlockingIOError:
        return b""
