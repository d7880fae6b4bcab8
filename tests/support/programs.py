"""Small fake programs for the supervisor, and what tests do with a backend: pump it, count, kill its owner."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from clockgated import host
from clockgated.supervise.base import Backend, ChildSpec
from clockgated.supervise.policy import RestartPolicy
from clockgated.units import NS_PER_MS, NS_PER_S

_ROOT = Path(__file__).parents[2]
BOOT = "test-boot"
FAST = RestartPolicy(
    first_delay_ns=20 * NS_PER_MS,
    max_delay_ns=160 * NS_PER_MS,
    healthy_after_ns=30 * NS_PER_S,
    loop_exits=4,
    loop_window_ns=30 * NS_PER_S,
)

SLEEPER = "exec sleep 600"
STUBBORN = "trap '' TERM\necho up\nwhile :; do sleep 0.05; done"
DIES_AT_ONCE = "echo 'Fatal error : bad option' >&2\nexit 255"
FLOODER = "exec yes 'a line of a flood'"
COUNTER = "n=0\nwhile :; do n=$((n + 1)); echo $n; sleep 0.02; done"
LEAVES_A_DESCENDANT = "sleep 600 &\nexit 3"


def program(folder: Path, name: str, body: str) -> Path:
    """A shell script below `folder`."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def pump(backend: Backend, until: Callable[[], bool], timeout_s: float = 15) -> None:
    """Poll until `until`; AssertionError when that takes too long."""
    due = time.monotonic() + timeout_s
    while not until():
        backend.poll(host.mono_ns())
        assert time.monotonic() < due, f"not within {timeout_s} s: {[backend.status(one) for one in backend.names()]}"
        time.sleep(0.01)


def pids_of(word: str) -> list[int]:
    """Living processes that have `word` in their command line and lead a session, as children of a backend do.

    A shell that is about to execute another program is for a moment two processes of one command line.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                is_leader = os.getsid(int(entry.name)) == int(entry.name)
            except OSError:
                continue  # it ended meanwhile
            if is_leader and word.encode() in arguments:
                found.append(int(entry.name))
    return found


def wait_for_one(word: str) -> int:
    """Pid of the only process as in `pids_of`. In the moment after its exec a process shows no command line yet."""
    due = time.monotonic() + 10
    while not (found := pids_of(word)):
        assert time.monotonic() < due, f"no process has {word} in its command line"
        time.sleep(0.01)
    (pid,) = found
    return pid


def supervising(folder: Path, spec: ChildSpec, die_at: str = "") -> "subprocess.Popen[bytes]":
    """Another process that keeps `spec` running with its ledger in `folder`, until it kills itself at `die_at`."""
    words = [json.dumps(asdict(spec)), str(folder), die_at]
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "support.supervising", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(_ROOT / name) for name in ("daemon", "protos", "tests"))},
    )
