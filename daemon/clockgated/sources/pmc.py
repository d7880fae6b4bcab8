"""One long-lived interactive `pmc` beside a ptp4l, asked for the same data sets every cycle: no fork a second.

What pmc does that a caller has to know (3.1.1 to 4.4): its exit code is 0 whatever happened; silence is all that comes
when ptp4l is gone or serves another domain; after reading one command it leaves what else stood in the pipe in its own
buffer, so commands are sent one by one, each after the answer to the one before; it ends when its input closes, so a
daemon that is killed leaves no pmc behind.
"""

import contextlib
import os
import select
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clockgated import host
from clockgated.clock.model import Reason, ReasonCode
from clockgated.sources.pmc_text import blocks
from clockgated.units import NS_PER_MS, NS_PER_S

# PORT_DATA_SET is answered once per port. ptp4l answers in order, so when the last one, of which there is only one,
# is there, all are; and it is the one whose Sync is to be as new as possible.
ROUND = ("CURRENT_DATA_SET", "PARENT_DATA_SET", "TIME_PROPERTIES_DATA_SET", "PORT_DATA_SET", "TIME_STATUS_NP")

# A round is 3 kB for a clock of one port; 64 ports fit many times.
_MAX_ROUND_BYTES = 256 * 1024
_CHUNK_BYTES = 65536
# A pmc that is stopped, and one whose ptp4l is away, look alike: after so many silent rounds it is replaced.
_SILENT_ROUNDS = 5
_KILL_WAIT_S = 1.0
_SHOWN = 200


@dataclass(frozen=True)
class PmcSettings:
    """How to reach one ptp4l. `client_socket` is pmc's own end: no other process may use that path.

    `retry_ns` is the first wait after a pmc that could not be started or ended by itself; it doubles up to
    `max_retry_ns` until a round is answered.
    """

    program: str
    server_socket: Path
    client_socket: Path
    domain: int = 0
    transport_specific: int = 0
    round_timeout_ns: int = 500 * NS_PER_MS
    retry_ns: int = NS_PER_S
    max_retry_ns: int = 30 * NS_PER_S

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line. No boundary hop: else the grandmaster answers too, over ptp4l's shoulder."""
        return (
            self.program, "-u", "-b", "0", "-s", str(self.server_socket), "-i", str(self.client_socket),
            "-d", str(self.domain), "-t", str(self.transport_specific),
        )  # fmt: skip


class _PmcLostError(Exception):
    """The running pmc is of no more use; never leaves this module."""

    def __init__(self, reason: Reason):
        super().__init__(reason.detail)
        self.reason = reason


class Pmc:
    """A pmc that is started when first asked, replaced when it ends or hangs, and killed and reaped by `close`.

    Not for several threads. `mono_ns` is CLOCK_MONOTONIC.
    """

    def __init__(self, settings: PmcSettings, mono_ns: Callable[[], int] = host.mono_ns):
        self._settings = settings
        self._mono_ns = mono_ns
        self._child: subprocess.Popen[bytes] | None = None
        self._silent_rounds = 0
        self._failures = 0
        self._retry_mono_ns: int | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running pmc; None when none runs."""
        return self._child.pid if self._child else None

    def ask(self) -> bytes | Reason:
        """One round: the text of all answers to `ROUND`, or why there is none.

        Takes at most the round's timeout, and a second more in the rare case of a pmc that must be killed.
        """
        settings = self._settings
        if not _is_socket(settings.server_socket):
            # Asked nevertheless, pmc would write a line into syslog for each command.
            detail = f"ptp4l's socket {settings.server_socket} is not there; is ptp4l running with this uds_address?"
            return Reason(ReasonCode.SOURCE_UNREACHABLE, detail)
        child = self._child or self._start()
        if isinstance(child, Reason):
            return child
        deadline_mono_ns = self._mono_ns() + settings.round_timeout_ns
        try:
            answers = b"".join(self._command(child, name, deadline_mono_ns) for name in ROUND)
        except TimeoutError:
            return self._on_silence()
        except _PmcLostError as lost:
            return self._on_loss(lost.reason)
        self._silent_rounds, self._failures, self._retry_mono_ns = 0, 0, None
        return answers

    def close(self) -> None:
        """End pmc, reap it, and remove its socket; harmless when done twice."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()
        # Only a process stuck in the kernel outlives SIGKILL; the next start of any child reaps it then.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_KILL_WAIT_S)
        # A leftover harms nobody: pmc removes it before it binds.
        with contextlib.suppress(OSError):
            self._settings.client_socket.unlink(missing_ok=True)

    def _start(self) -> "subprocess.Popen[bytes] | Reason":
        if self._retry_mono_ns is not None and self._mono_ns() < self._retry_mono_ns:
            wait_ns = self._retry_mono_ns - self._mono_ns()
            detail = f"pmc failed {self._failures} times in a row; it is started again in {wait_ns / NS_PER_S:.1f} s"
            return Reason(ReasonCode.SOURCE_UNREACHABLE, detail)
        try:
            self._child = subprocess.Popen(
                self._settings.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                cwd="/",
                env={"LC_ALL": "C", "PATH": os.defpath},
            )
        except OSError as error:
            detail = f"cannot start {self._settings.program}: {error.strerror}; is linuxptp installed?"
            return self._on_loss(Reason(ReasonCode.SOURCE_UNREACHABLE, detail))
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None  # both were asked for
            os.set_blocking(pipe.fileno(), False)
        return self._child

    def _command(self, child: "subprocess.Popen[bytes]", data_set: str, deadline_mono_ns: int) -> bytes:
        """Ask for one data set and read until its answer, or a refusal, is there.

        The answer of a round that was given up may still come now. It ends this wait too early, and what was asked for
        is then read beside the next answer; of two answers the reader takes the later one.
        """
        assert child.stdin is not None
        try:
            os.write(child.stdin.fileno(), f"GET {data_set}\n".encode("ascii"))
        except BlockingIOError as error:
            # pmc has not read for thousands of commands.
            raise TimeoutError from error
        except BrokenPipeError as error:
            raise self._lost(child, self._last_words(child)) from error
        text = b""
        while not _is_answered(text, data_set):
            text += self._read(child, text, deadline_mono_ns)
            if len(text) > _MAX_ROUND_BYTES:
                detail = f"pmc printed more than {_MAX_ROUND_BYTES} bytes for {data_set}; wanted some hundred"
                raise _PmcLostError(Reason(ReasonCode.SOURCE_GARBLED, detail))
        return text

    def _read(self, child: "subprocess.Popen[bytes]", text: bytes, deadline_mono_ns: int) -> bytes:
        assert child.stdout is not None
        waiter = select.poll()
        waiter.register(child.stdout.fileno(), select.POLLIN)
        wait_ms = -(-(deadline_mono_ns - self._mono_ns()) // NS_PER_MS)
        if wait_ms <= 0 or not waiter.poll(wait_ms):
            raise TimeoutError
        chunk = os.read(child.stdout.fileno(), _CHUNK_BYTES)
        if not chunk:
            raise self._lost(child, text)
        return chunk

    def _last_words(self, child: "subprocess.Popen[bytes]") -> bytes:
        assert child.stdout is not None
        try:
            return os.read(child.stdout.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return b""

    def _lost(self, child: "subprocess.Popen[bytes]", text: bytes) -> _PmcLostError:
        last_words = text.decode("utf-8", "replace").strip()[-_SHOWN:]
        detail = f"pmc (pid {child.pid}) ended by itself" + (f", saying {last_words!r}" if last_words else "")
        detail += f"; can it bind {self._settings.client_socket}?"
        return _PmcLostError(Reason(ReasonCode.SOURCE_UNREACHABLE, detail))

    def _on_loss(self, reason: Reason) -> Reason:
        settings = self._settings
        self.close()
        # The shift is bounded so that years of failures do not make a number of years of bits.
        wait_ns = min(settings.max_retry_ns, settings.retry_ns << min(self._failures, 16))
        self._failures += 1
        self._retry_mono_ns = self._mono_ns() + wait_ns
        return reason

    def _on_silence(self) -> Reason:
        settings = self._settings
        self._silent_rounds += 1
        if self._silent_rounds >= _SILENT_ROUNDS:
            self._silent_rounds = 0
            self.close()
        detail = (
            f"ptp4l at {settings.server_socket} did not answer within {settings.round_timeout_ns / NS_PER_S:g} s; "
            f"is it up, with domainNumber {settings.domain} and transportSpecific {settings.transport_specific}?"
        )
        return Reason(ReasonCode.SOURCE_UNREACHABLE, detail)


def _is_socket(path: Path) -> bool:
    try:
        return path.is_socket()
    except OSError:
        # A folder on the way that may not be entered.
        return False


def _is_answered(text: bytes, data_set: str) -> bool:
    # pmc writes an answer at once, header and members; a refusal names no data set.
    if not text.endswith(b"\n"):
        return False
    return any(block.data_set == data_set or block.is_error for block in blocks(text))
