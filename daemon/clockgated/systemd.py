"""What systemd is told and where the log goes. Without systemd both are quiet and plain.

systemd-python is optional: pip cannot build it without libsystemd's headers, so it is only imported when systemd's own
variables say that it runs this process.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Protocol

from clockgated import host, units
from clockgated.errors import ConfigError

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LOG_LEVELS = tuple(_LEVELS)


class Notifier(Protocol):
    """The stages of the daemon's life, as systemd wants to hear of them."""

    def ready(self) -> None:
        """Start-up or a reload is over: the API answers."""
        ...

    def cycle_finished(self, status: str) -> None:
        """A measuring cycle is over; `status` is one line for `systemctl status`."""
        ...

    def reloading(self) -> None:
        """A reload begins; `ready` ends it."""
        ...

    def stopping(self) -> None:
        """The daemon is going down."""
        ...


class SilentNotifier:
    """Nobody listens."""

    def ready(self) -> None:
        """Nothing to say."""

    def cycle_finished(self, status: str) -> None:
        """Nothing to say."""

    def reloading(self) -> None:
        """Nothing to say."""

    def stopping(self) -> None:
        """Nothing to say."""


class SystemdNotifier:
    """Speaks sd_notify through `send`. The watchdog is fed only by finished cycles: a hung cycle gets us restarted."""

    def __init__(self, send: Callable[[str], object], *, feeds_watchdog: bool) -> None:
        self._send = send
        self._watchdog = "\nWATCHDOG=1" if feeds_watchdog else ""

    def ready(self) -> None:
        """See Notifier."""
        self._send("READY=1")

    def cycle_finished(self, status: str) -> None:
        """See Notifier."""
        self._send(f"STATUS={status}{self._watchdog}")

    def reloading(self) -> None:
        """See Notifier. Type=notify-reload matches the stamp with its own signal, by CLOCK_MONOTONIC."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={host.mono_ns() // units.NS_PER_US}")

    def stopping(self) -> None:
        """See Notifier."""
        self._send("STOPPING=1")


def notifier(environ: Mapping[str, str]) -> Notifier:
    """The notifier that `environ` asks for. Raises ConfigError when systemd waits for word and cannot be told."""
    if not environ.get("NOTIFY_SOCKET"):
        return SilentNotifier()
    try:
        # Here and not above: only a process that systemd runs needs the module.
        from systemd import daemon  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"NOTIFY_SOCKET is set, so systemd waits to hear from this process, but Python's systemd module is "
            f"missing ({error}); install python3-systemd, or unset NOTIFY_SOCKET"
        ) from None
    # The variable may be meant for our parent: sd_watchdog_enabled(3).
    is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return SystemdNotifier(daemon.notify, feeds_watchdog=bool(environ.get("WATCHDOG_USEC")) and is_ours)


def set_up_logging(level: str, environ: Mapping[str, str]) -> None:
    """Send records of `level` (one of LOG_LEVELS) and above to the journal when stderr leads there, else to stderr."""
    handler = (_journal_handler() if _stderr_is_journal(environ) else None) or _stderr_handler()
    logging.basicConfig(level=_LEVELS[level], handlers=[handler], force=True)


def _stderr_is_journal(environ: Mapping[str, str]) -> bool:
    """systemd.exec(5): JOURNAL_STREAM is "device:inode"; a redirected stderr does not match it."""
    try:
        stderr = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{stderr.st_dev}:{stderr.st_ino}"


def _journal_handler() -> logging.Handler | None:
    try:
        # Here and not above: only a process whose log goes to the journal needs the module.
        from systemd import journal  # noqa: PLC0415
    except ImportError:
        return None
    handler: logging.Handler = journal.JournalHandler(SYSLOG_IDENTIFIER="clockgated")
    # Level and logger are fields of the journal's entry; basicConfig would write them into its text as well.
    handler.setFormatter(logging.Formatter("%(message)s"))
    return handler


def _stderr_handler() -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    return handler
