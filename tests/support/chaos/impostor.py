"""What may sit on a daemon's socket instead of the daemon: noise, silence, and readings that are not true."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from clockgate.v1 import clock_pb2, gate_pb2
from support.fake_daemon import FakeDaemon, make_reading

_HOUR_NS = 3_600_000_000_000
_NOISE_BYTES = 4096


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _future() -> clock_pb2.Reading:
    """A reading that was made in an hour."""
    return make_reading(as_of_boot_ns=_boot_ns() + _HOUR_NS)


def _backwards() -> clock_pb2.Reading:
    """A reading that expired before it was made."""
    reading = make_reading()
    reading.void_after_boot_ns = reading.as_of_boot_ns - 1
    return reading


def _negative() -> clock_pb2.Reading:
    """A bound below nothing."""
    return make_reading(bound_ns=-5, utc_bound_ns=-5)


def _perfect() -> clock_pb2.Reading:
    """A clock that is claimed to be true to the nanosecond, whatever it is."""
    return make_reading(bound_ns=1, utc_bound_ns=1, growth_ppb=0)


def _hopeless() -> clock_pb2.Reading:
    """A bound of ten seconds."""
    return make_reading(bound_ns=10_000_000_000, utc_bound_ns=10_000_000_000)


def _stale() -> clock_pb2.Reading:
    """The same old reading for ever."""
    return make_reading(as_of_boot_ns=_boot_ns() - _HOUR_NS, sequence=7)


def _unheard() -> clock_pb2.Reading:
    """Numbers of a protocol that nobody speaks."""
    reading = make_reading()
    reading.ClearField("state")
    reading.MergeFromString(b"\x08\x63")  # field 1, state, is 99
    return reading


READINGS: Mapping[str, Callable[[], clock_pb2.Reading]] = {
    "future": _future,
    "backwards": _backwards,
    "negative": _negative,
    "perfect": _perfect,
    "hopeless": _hopeless,
    "stale": _stale,
    "unheard": _unheard,
    "slow": make_reading,
    "lenient": _hopeless,
}
KINDS = ("noise", "mute", *READINGS)


def _lenient(request: gate_pb2.CheckRequest, reading: clock_pb2.Reading) -> gate_pb2.CheckResponse:
    """PROCEED, whatever the reading says."""
    return gate_pb2.CheckResponse(
        step_verdict=gate_pb2.STEP_VERDICT_PROCEED, save_verdict=gate_pb2.SAVE_VERDICT_SAVE, reading=reading
    )


def serve(path: str, kind: str) -> int:
    """Take over the socket `path` and be an impostor of `kind` until killed."""
    Path(path).unlink(missing_ok=True)
    if kind in ("noise", "mute"):
        _answer_raw(path, noise=kind == "noise")
    daemon = FakeDaemon(Path(path), READINGS[kind])
    daemon.stream_period_s = 0.05
    if kind == "slow":
        daemon.delay_s = 2.0
    if kind == "lenient":
        daemon.judge = _lenient
    daemon.start()
    while True:
        signal.pause()


def _answer_raw(path: str, *, noise: bool) -> None:
    """Accept everybody and send random bytes, or nothing."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        kept = []
        while True:
            line, _ = server.accept()
            if noise:
                threading.Thread(target=_babble, args=(line,), daemon=True).start()
            else:
                kept.append(line)


def _babble(line: socket.socket) -> None:
    with line:
        try:
            line.sendall(os.urandom(_NOISE_BYTES))
            line.recv(_NOISE_BYTES)
        except OSError:
            return  # the other side had enough
