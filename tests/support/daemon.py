"""A real clockgated process with a configuration of its own, and clockgatectl beside it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from support.tools import ROOT

_ADMIN_COMMANDS = ("drill", "lease", "leases")
SOURCE_ROOTS = os.pathsep.join(str(ROOT / name) for name in ("daemon", "protos"))


@dataclass(frozen=True)
class Clockgated:
    """One running daemon."""

    process: subprocess.Popen[bytes]
    config: Path
    socket: Path
    admin_socket: Path
    log: Path

    def channel(self) -> grpc.Channel:
        """A channel to the read socket; close it."""
        return grpc.insecure_channel(f"unix:{self.socket}", options=[("grpc.max_reconnect_backoff_ms", 1000)])

    def admin_channel(self) -> grpc.Channel:
        """A channel to the admin socket; close it."""
        return grpc.insecure_channel(f"unix:{self.admin_socket}", options=[("grpc.max_reconnect_backoff_ms", 1000)])

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run clockgatectl against this daemon."""
        admin = ["--admin-address", str(self.admin_socket)] if words[0] in _ADMIN_COMMANDS else []
        return ctl("--address", str(self.socket), words[0], *admin, *words[1:])

    def wait_until_serving(self, timeout_s: float = 20) -> None:
        """Wait until the read API answers; AssertionError with the log when it does not."""
        due = time.monotonic() + timeout_s
        with self.channel() as channel:
            ready = grpc.channel_ready_future(channel)
            while True:
                assert self.process.poll() is None, f"clockgated ended: {self.log.read_text()}"
                assert time.monotonic() < due, f"clockgated does not answer: {self.log.read_text()}"
                try:
                    ready.result(timeout=0.2)
                    return
                except grpc.FutureTimeoutError:
                    continue

    def stop(self, timeout_s: float = 10) -> int:
        """Ask it to stop; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


def toml(
    folder: Path, *, clock: str = "", chrony: str = "", extra: str = "", mode: str = "observe", metrics: str = ""
) -> str:
    """A configuration with everything that is written below `folder`; the rest is lines for their sections.

    `metrics` is the address of that endpoint: none, since the usual port is one for all daemons of a machine.
    """
    return (
        f'[api]\nsocket = "{folder / "clockgate.sock"}"\nadmin_socket = "{folder / "admin/admin.sock"}"\n'
        f'[folders]\nrun = "{folder / "run"}"\nstate = "{folder / "state"}"\n'
        f'[metrics]\naddress = "{metrics}"\n[clock]\nmode = "{mode}"\n{clock}\n[chrony]\n{chrony}\n{extra}\n'
    )


def environment(**changes: str) -> Mapping[str, str]:
    """The environment for a daemon from this tree, without what systemd may have set for the test's own process."""
    own = {"NOTIFY_SOCKET", "JOURNAL_STREAM", "WATCHDOG_USEC", "WATCHDOG_PID", "CLOCKGATE_ADDRESS"}
    return {**{k: v for k, v in os.environ.items() if k not in own}, "PYTHONPATH": SOURCE_ROOTS, **changes}


def command(*words: str | Path, python: str | Path = sys.executable) -> list[str]:
    """The command line that runs clockgated from this tree."""
    return [str(python), "-W", "error", "-m", "clockgated.main", *map(str, words)]


def run_to_end(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run clockgated and wait for its end: for --check and for starts that must fail."""
    return subprocess.run(
        command(*words), env=environment(**env), capture_output=True, text=True, check=False, timeout=30
    )


def ctl(*words: str, python: str | Path = sys.executable, **env: str) -> subprocess.CompletedProcess[str]:
    """Run clockgatectl."""
    line = [str(python), "-W", "error", "-m", "clockgated.ctl.main", *words]
    return subprocess.run(line, env=environment(**env), capture_output=True, text=True, check=False, timeout=30)


@contextmanager
def clockgated(folder: Path, config: str, *, python: str | Path = sys.executable, **env: str) -> Iterator[Clockgated]:
    """A daemon with configuration text `config` (see `toml`), once it answers; ended by its process id."""
    folder.mkdir(parents=True, exist_ok=True)
    file, log = folder / "clockgated.toml", folder / "clockgated.log"
    file.write_text(config)
    with log.open("wb") as output:
        line = command("--config", file, "--log-level", "debug", python=python)
        process = subprocess.Popen(line, env=environment(**env), stdout=output, stderr=output)
    daemon = Clockgated(process, file, folder / "clockgate.sock", folder / "admin/admin.sock", log)
    try:
        daemon.wait_until_serving()
        yield daemon
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
