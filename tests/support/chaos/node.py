"""One node's clock daemon on a socket of its own, and everything that can happen to it."""

import signal
import time
from pathlib import Path

import grpc
from clockgate.v1 import admin_pb2, admin_pb2_grpc, clock_pb2, clock_pb2_grpc, gate_pb2
from support.chaos.agents import FLOOD
from support.chaos.warm import Process, Warm
from support.tools import find_tool

_GOOD = clock_pb2.CLOCK_STATE_SYNCHRONIZED
_NS_PER_S = 1_000_000_000
_OFFSET_NS = 200_000_000
_HOUR_NS = 3600 * _NS_PER_S
_SETTLE_S = 30
# Readings live for half a second: a daemon that is gone is missed before a run of a second is over.
_CONFIG = """[api]
socket = "{folder}/s"
admin_socket = "{folder}/admin/a"
[folders]
run = "{folder}/run"
state = "{folder}/state"
[metrics]
address = ""
[clock]
mode = "observe"
poll_interval_s = 0.1
"""
_RECORDED = """source = "recorded"
reading_ttl_s = 0.5
[chrony]
timeout_s = 0.05
[recorded]
file = "{folder}/{recording}.jsonl"
"""
# Asking chronyc takes a process each time.
_CHRONY = """source = "chrony"
reading_ttl_s = 2.0
[chrony]
socket = "{socket}"
chronyc = "{chronyc}"
maxclockerror_ppm = 50.0
"""
_RECORDINGS = {
    "usual": '{"after_s": 0, "bound_ns": 100000, "utc_bound_ns": 200000, "identity": "ntp:192.0.2.1", "stratum": 2}\n',
    "other": '{"after_s": 0, "bound_ns": 100000, "utc_bound_ns": null, "identity": "ntp:198.51.100.9", "stratum": 2}\n',
    "alone": '{"after_s": 0, "bound_ns": 100000, "utc_bound_ns": null, "identity": "ntp:192.0.2.1", "stratum": 2}\n',
}


class Node:
    """A real clockgated in `folder`, whose path must leave room for a socket's. It replays a recording, or asks the
    chronyd that `follow` names.

    `settle` brings it back to good health from whatever was done to it.
    """

    def __init__(self, warm: Warm, folder: Path) -> None:
        self._warm = warm
        self._folder = folder
        self._log = folder / "log"
        self._recording = "usual"
        self._chrony: Path | None = None
        self._drilled = False
        self._process: Process | None = None
        self._impostor: Process | None = None
        folder.mkdir(parents=True)
        for name, text in _RECORDINGS.items():
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")

    @property
    def socket(self) -> Path:
        """Where its API is."""
        return self._folder / "s"

    def follow(self, chrony: Path | None) -> None:
        """Ask the chronyd with this command socket from the next start on; None: replay recordings."""
        if chrony != self._chrony:
            self._chrony = chrony
            self.kill()

    def settle(self, recording: str = "usual") -> None:
        """Run, in the place of any impostor, with a good clock by `recording`, and without a drill."""
        if self._impostor is not None:
            self._impostor.end()
            self._impostor = None
            self.socket.unlink(missing_ok=True)
        running = self._process is not None and self._process.code() is None
        if not running or recording != self._recording:
            self._recording = recording
            self.restart()
        assert self._process is not None
        self._process.signal(signal.SIGCONT)
        due = time.monotonic() + _SETTLE_S
        while not self._is_good():
            if time.monotonic() > due:
                raise RuntimeError(f"the daemon in {self._folder} does not settle: {self._log.read_text()[-2000:]}")
            time.sleep(0.05)

    def signal(self, name: str) -> None:
        """Send a signal to the daemon; one that ends it is waited for."""
        if self._process is None:
            return
        self._process.signal(signal.Signals[name])
        if name in ("SIGKILL", "SIGTERM"):
            self._process.wait(5)

    def restart(self) -> None:
        """Kill the daemon, if there is one, and start it."""
        self.kill()
        config = self._folder / "clockgated.toml"
        config.write_text(_CONFIG.format(folder=self._folder) + self._source(), encoding="utf-8")
        self._process = self._warm.start("support.chaos.agents:daemon", {"config": str(config)}, self._log)

    def _source(self) -> str:
        if self._chrony is None:
            return _RECORDED.format(folder=self._folder, recording=self._recording)
        return _CHRONY.format(socket=self._chrony, chronyc=find_tool("chronyc"))

    def change_reference(self) -> None:
        """Start again with another reference and no bound to UTC: only like can be compared with like."""
        self._recording = "other"
        self.restart()

    def impersonate(self, kind: str) -> None:
        """Put an impostor in the daemon's place."""
        self.kill()
        self._impostor = self._warm.start(
            "support.chaos.impostor:serve", {"path": str(self.socket), "kind": kind}, self._folder / "impostor.log"
        )

    def drill(self, kind: str, for_s: float) -> None:
        """Put a fault between the daemon's measurement and its reading; nothing when it is not there to be asked."""
        self._drilled = True
        for_ns = int(for_s * _NS_PER_S)
        requests = {
            "freeze": admin_pb2.DrillRequest(freeze_source=admin_pb2.FreezeSource(), duration_ns=for_ns),
            "offset": admin_pb2.DrillRequest(add_offset=admin_pb2.AddOffset(offset_ns=_OFFSET_NS), duration_ns=for_ns),
            "step": admin_pb2.DrillRequest(step_clock=admin_pb2.StepClock(jump_ns=-_HOUR_NS)),
            "clear": admin_pb2.DrillRequest(clear=admin_pb2.Clear()),
        }
        with grpc.insecure_channel(f"unix:{self._folder}/admin/a") as channel:
            try:
                admin_pb2_grpc.AdminStub(channel).Drill(requests[kind], timeout=2)
            except grpc.RpcError:
                return  # another fault has the daemon

    def leases(self) -> list[gate_pb2.Lease]:
        """The open leases of runs; none when there is no daemon to ask."""
        with grpc.insecure_channel(f"unix:{self._folder}/admin/a") as channel:
            try:
                found = admin_pb2_grpc.AdminStub(channel).ListLeases(admin_pb2.ListLeasesRequest(), timeout=2)
            except grpc.RpcError:
                return []
        return [lease for lease in found.leases if not lease.job.startswith(FLOOD)]

    def break_leases(self) -> None:
        """End all leases of runs against their will."""
        with grpc.insecure_channel(f"unix:{self._folder}/admin/a") as channel:
            for lease in self.leases():
                admin_pb2_grpc.AdminStub(channel).BreakLease(
                    admin_pb2.BreakLeaseRequest(lease_id=lease.lease_id), timeout=2
                )

    def kill(self) -> None:
        """End daemon and impostor."""
        for process in (self._process, self._impostor):
            if process is not None:
                process.end()
        self._process = self._impostor = None

    def _is_good(self) -> bool:
        if self._drilled:
            self.drill("clear", 0)
            self._drilled = False
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            try:
                reading = clock_pb2_grpc.ClockStub(channel).GetReading(clock_pb2.GetReadingRequest(), timeout=1).reading
            except grpc.RpcError:
                return False
        return reading.state == _GOOD and reading.HasField("relative_bound_ns")
