"""A clockgated that manages time on a machine of its own, and what tests ask it."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from clockgate.v1 import clock_pb2, clock_pb2_grpc
from support.daemon import command, environment, toml
from support.machine import Machine, Program, machine
from support.tools import require_tool
from support.veth import Namespace

Reading = clock_pb2.Reading
SYNCHRONIZED = clock_pb2.CLOCK_STATE_SYNCHRONIZED
HOLDOVER = clock_pb2.CLOCK_STATE_HOLDOVER
FREE_RUNNING = clock_pb2.CLOCK_STATE_FREE_RUNNING


@dataclass
class Node:
    """One machine with a clockgated on it. Its folder has a short path: sockets have little room."""

    machine: Machine
    folder: Path
    program: Program | None = None
    started_mono_s: float = 0.0

    @property
    def log(self) -> str:
        """Everything that every clockgated of this node said."""
        return (self.folder / "clockgated.log").read_text(errors="replace")

    def configure(self, mode: str, *, clock: str = "", chrony: str = "", extra: str = "") -> None:
        """Write the configuration; `clock` and `chrony` are lines for their sections, `extra` is further sections."""
        fast = "poll_interval_s = 0.5\nsync_cycles = 2"
        text = toml(self.folder, mode=mode, clock=f"{fast}\n{clock}", chrony=chrony, extra=extra)
        (self.folder / "clockgated.toml").write_text(text)

    def start(self, path: Path | None = None) -> None:
        """Start clockgated and wait until it answers. Programs in the folder `path` come before all others."""
        line = command("--config", self.folder / "clockgated.toml", "--log-level", "debug")
        self.started_mono_s = time.monotonic()
        self.program = self.machine.start(*line, env=environment_with_tools(path), log=self.folder / "clockgated.log")
        due = time.monotonic() + 20
        while self.read() is None:
            assert self.program.is_alive(), self.log
            assert time.monotonic() < due, self.log
            time.sleep(0.05)

    def reload(self) -> None:
        """Ask it to read its configuration again."""
        assert self.program is not None
        self.program.send(signal.SIGHUP)

    def kill(self) -> None:
        """End clockgated as a crash would; what it runs goes on."""
        assert self.program is not None
        self.program.send(signal.SIGKILL)
        self.program.wait(10)

    def stop(self) -> float:
        """Ask clockgated to end; how many seconds that took."""
        assert self.program is not None
        began = time.monotonic()
        self.program.send(signal.SIGTERM)
        assert self.program.wait(10) == 0, self.log
        return time.monotonic() - began

    def read(self) -> Reading | None:
        """The newest reading; None while nobody answers."""
        with grpc.insecure_channel(f"unix:{self.folder / 'clockgate.sock'}") as channel:
            try:
                asked = clock_pb2.GetReadingRequest()
                return clock_pb2_grpc.ClockStub(channel).GetReading(asked, timeout=2).reading
            except grpc.RpcError:
                return None

    def wait_for(self, what: str, wanted: Callable[[Reading], bool], timeout_s: float = 40) -> Reading:
        """The first reading that is `wanted`; AssertionError that says `what` was awaited."""
        due = time.monotonic() + timeout_s
        while True:
            reading = self.read()
            if reading is not None and wanted(reading):
                return reading
            assert time.monotonic() < due, f"no {what} within {timeout_s} s; last: {reading}\n{self.log[-6000:]}"
            time.sleep(0.1)

    def wait_for_state(self, state: "clock_pb2.ClockState.ValueType", timeout_s: float = 40) -> Reading:
        """The first reading in that state."""
        return self.wait_for(clock_pb2.ClockState.Name(state), lambda reading: reading.state == state, timeout_s)

    def next_readings(self, count: int) -> list[Reading]:
        """As many readings as that, each newer than the one before."""
        readings: list[Reading] = []
        while len(readings) < count:
            readings.append(self._newer_than(readings[-1].sequence if readings else 0))
        return readings

    def _newer_than(self, sequence: int) -> Reading:
        return self.wait_for("newer reading", lambda reading: reading.sequence > sequence)

    def wait_for_pid(self, program: str, other_than: int | None = None, timeout_s: float = 30) -> int:
        """Host's number of the only process of that name that clockgated runs, once there is one."""
        due = time.monotonic() + timeout_s
        while not (found := [pid for pid in self.machine.pids(program) if pid != other_than]):
            assert time.monotonic() < due, f"no {program} within {timeout_s} s\n{self.log[-4000:]}"
            time.sleep(0.05)
        assert len(self.machine.pids(program)) == 1, "never two"
        return found[0]


@contextmanager
def grandmaster(network: Namespace, folder: Path, *options: str) -> Iterator[None]:
    """A grandmaster on eth0 of one end of a network; killed with the block, as a crash would."""
    folder.mkdir()
    # A short path for the socket, whatever the test's folder is.
    with tempfile.TemporaryDirectory(prefix="cg-") as short, (folder / "ptp4l.log").open("wb") as output:
        fast = ("--logSyncInterval=-3", "--logMinDelayReqInterval=-3", "--logAnnounceInterval=-2")
        words = ("-S", "-m", "-i", "eth0", f"--uds_address={short}/ptp4l", *fast, *options)
        argv = network.command(str(require_tool("ptp4l")), *words)
        process = subprocess.Popen(argv, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.kill()
            process.wait(10)


def codes(reading: Reading) -> set[str]:
    """Names of the reasons on a reading."""
    return {clock_pb2.ReasonCode.Name(reason.code).removeprefix("REASON_CODE_") for reason in reading.reasons}


@contextmanager
def node(network: Namespace) -> Iterator[Node]:
    """A node on one end of a network, not started yet; ended with the block, whatever runs on it."""
    with tempfile.TemporaryDirectory(prefix="cg-") as folder, machine(network) as made:
        yield Node(made, Path(folder))


def environment_with_tools(first: Path | None = None) -> dict[str, str]:
    """With the unpacked time daemons in PATH, where clockgated finds them as if they were installed."""
    folders = sorted({str(require_tool(name).parent) for name in ("chronyd", "chronyc", "ptp4l", "pmc")})
    before = [] if first is None else [str(first)]
    return {**environment(), "PATH": os.pathsep.join([*before, *folders, os.environ["PATH"]])}
