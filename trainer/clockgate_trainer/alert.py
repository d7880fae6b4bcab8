"""Calls a person when all ranks have waited for long, and when the gate stops the run: who keeps them, and why.

One rank does it, in a thread, so that no step waits for a web server or a program; each try has a time limit, and one
that fails is told in the log and ends nothing. The address may hold a secret: no text of ours repeats it.
"""

import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from clockgate.dial import is_loopback

from clockgate_trainer.errors import ConfigError

WEBHOOK_VARIABLE = "CLOCKGATE_ALERT_WEBHOOK"
_WEBHOOK_LIMIT_S = 4.0
# What keeps to the limit by itself can still say what went wrong.
_WEBHOOK_GRACE_S = 0.5
_COMMAND_LIMIT_S = 5.0
# A rank at its end waits this long for alerts under way: longer than both limits, shorter than an agent's patience.
_CLOSE_LIMIT_S = 12.0
_MOST_QUEUED = 20

OnEvent = Callable[[str, Mapping[str, object]], None]


@dataclass(frozen=True)
class Alert:
    """What is sent, as JSON: `kind` is hold, hold_over, stop or bad_loss, for `reasons`; `ranks` keep others waiting.

    `held_s` is how long all ranks have waited; None for a stop without a wait.
    """

    kind: str
    job: str
    step: int
    reasons: tuple[str, ...]
    ranks: tuple[int, ...]
    held_s: float | None
    detail: str
    host: str


@dataclass(frozen=True)
class Targets:
    """Whom to call: a web server by POST, a program with the alert on its standard input. None: nobody."""

    webhook: str | None = None
    command: tuple[str, ...] | None = None


def read_targets(webhook: str | None, command: str | None, environ: Mapping[str, str]) -> Targets:
    """Whom the flags name; the address may be in CLOCKGATE_ALERT_WEBHOOK instead, where `ps` does not show it.

    Raises ConfigError, without repeating the address, when it is none.
    """
    origin, url = ("--alert_webhook", webhook) if webhook else (WEBHOOK_VARIABLE, environ.get(WEBHOOK_VARIABLE))
    if url:
        _demand_address(origin, url)
    try:
        words = tuple(shlex.split(command)) if command else ()
    except ValueError as error:
        raise ConfigError(f"--alert_exec cannot be split into words ({error}): quote it as for a shell") from error
    return Targets(url or None, words or None)


def demand_program(targets: Targets) -> None:
    """Raise ConfigError when the program is not on this machine."""
    if targets.command is not None and shutil.which(targets.command[0]) is None:
        raise ConfigError(f"--alert_exec: there is no program {targets.command[0]} here: give its full path")


class Alerter:
    """Calls `targets` once a wait lasts `after_hold_s`, when that wait is over, and at a stop.

    `on_event("alert", fields)` hears of each alert, sent or not, from the alerter's thread. The thread starts with the
    first wait or stop. Methods return at once, but for `close`.
    """

    def __init__(self, targets: Targets, *, after_hold_s: float, job: str, on_event: OnEvent) -> None:
        self._targets = targets
        self._after_hold_s = after_hold_s
        self._job = job
        self._on_event = on_event
        self._changed = threading.Condition()
        self._due: deque[Alert] = deque(maxlen=_MOST_QUEUED)
        self._hold: Mapping[str, object] | None = None
        self._hold_began_s = 0.0
        self._hold_told = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def hold(self, fields: Mapping[str, object]) -> None:
        """All ranks wait, or wait for another reason than before; `fields` are those of the gate's event."""
        with self._changed:
            if self._hold is None:
                self._hold_began_s = time.monotonic()
            self._hold = fields
            self._wake()

    def go_on(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            if self._hold is not None and self._hold_told:
                self._due.append(self._about_hold("hold_over", self._hold))
            self._hold, self._hold_told = None, False
            self._changed.notify()

    def stop(self, fields: Mapping[str, object]) -> None:
        """The gate stops the run; `fields` as for `hold`."""
        with self._changed:
            held_s = None if self._hold is None else time.monotonic() - self._hold_began_s
            self._hold, self._hold_told = None, False
            self._due.append(self._make("stop", fields, held_s))
            self._wake()

    def bad_loss(self, fields: Mapping[str, object]) -> None:
        """The loss is no number; `fields` as for `hold`."""
        with self._changed:
            self._due.append(self._make("bad_loss", fields, None))
            self._wake()

    def close(self) -> None:
        """Wait for alerts under way, 12 s at most. May be called twice."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSE_LIMIT_S)

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="clockgate-alert", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while True:
            alert = self._next()
            if alert is None:
                return
            self._send(alert)

    def _next(self) -> Alert | None:
        """Wait for the next alert that is due; None at the end."""
        with self._changed:
            while True:
                if self._due:
                    return self._due.popleft()
                if self._closing:
                    return None
                left_s = None
                if self._hold is not None and not self._hold_told:
                    left_s = self._hold_began_s + self._after_hold_s - time.monotonic()
                    if left_s <= 0:
                        self._hold_told = True
                        return self._about_hold("hold", self._hold)
                self._changed.wait(left_s)

    def _about_hold(self, kind: str, fields: Mapping[str, object]) -> Alert:
        return self._make(kind, fields, time.monotonic() - self._hold_began_s)

    def _make(self, kind: str, fields: Mapping[str, object], held_s: float | None) -> Alert:
        reasons, ranks, step = fields.get("reasons"), fields.get("blamed_ranks"), fields.get("step")
        return Alert(
            kind=kind,
            job=self._job,
            step=step if isinstance(step, int) else 0,
            reasons=tuple(map(str, reasons)) if isinstance(reasons, (list, tuple)) else (),
            ranks=tuple(rank for rank in ranks if isinstance(rank, int)) if isinstance(ranks, (list, tuple)) else (),
            held_s=None if held_s is None else round(held_s, 1),
            detail=str(fields.get("detail") or ""),
            host=socket.gethostname(),
        )

    def _send(self, alert: Alert) -> None:
        body = json.dumps(asdict(alert)).encode()
        failures = []
        if self._targets.webhook is not None:
            failures.append(_post(self._targets.webhook, body))
        if self._targets.command is not None:
            failures.append(_hand_over(self._targets.command, body))
        level = "INFO" if alert.kind == "hold_over" else "CRITICAL"
        undelivered = [failure for failure in failures if failure is not None]
        self._on_event("alert", {"level": level, **asdict(alert), "undelivered": undelivered})


def _demand_address(origin: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        # Names that no resolver takes: an empty label, or one of more than 63 characters.
        (parts.hostname or "").encode("idna")
    except ValueError:
        fits = False
    if fits and "@" in parts.netloc:
        raise ConfigError(f"{origin} holds a user or a password before its host: put the secret into the path or query")
    if not fits or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"{origin} is no address of a web server: wanted http:// or https:// with a host")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigError(
            f"{origin} is http:// to another machine, where everybody on the way reads its secret: wanted https://, or "
            "http:// to localhost or a loopback address"
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A webhook that moves somewhere else is told about, not followed: the alert is for the host that was named."""

    def redirect_request(self, *unused: Any) -> None:
        return None


def _post(url: str, body: bytes) -> str | None:
    """What went wrong, or None. The text names the host alone.

    A thread of its own asks, since looking up a name and a server that answers drop by drop keep to no limit.
    """
    answers: list[str | None] = []
    asking = threading.Thread(target=lambda: answers.append(_ask(url, body)), name="clockgate-webhook", daemon=True)
    asking.start()
    asking.join(_WEBHOOK_LIMIT_S + _WEBHOOK_GRACE_S)
    return answers[0] if answers else f"webhook at {urlsplit(url).hostname}: not done after {_WEBHOOK_LIMIT_S:g} s"


def _ask(url: str, body: bytes) -> str | None:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
    host = urlsplit(url).hostname
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_WEBHOOK_LIMIT_S):
            return None
    except urllib.error.HTTPError as error:
        error.close()
        return f"webhook at {host}: HTTP {error.code}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"webhook at {host}: {type(error).__name__}"


def _hand_over(command: tuple[str, ...], body: bytes) -> str | None:
    """What went wrong, or None. The program and what it started are ended at the limit."""
    name = command[0]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"{name}: {error.strerror or error}"
    try:
        process.communicate(body, timeout=_COMMAND_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"{name}: not done after {_COMMAND_LIMIT_S:g} s"
    return None if process.returncode == 0 else f"{name}: ended with {process.returncode}"
