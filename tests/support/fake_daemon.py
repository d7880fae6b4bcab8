"""A clock daemon of strings and glue: a real gRPC server on a unix socket whose answers a test chooses."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from clockgate import rule
from clockgate.v1 import clock_pb2, clock_pb2_grpc, gate_pb2, gate_pb2_grpc

BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
NS_PER_S = 1_000_000_000
_sequence = itertools.count(1)


def make_reading(
    *,
    bound_ns: int | None = 100_000,
    utc_bound_ns: int | None = None,
    state: "clock_pb2.ClockState.ValueType" = clock_pb2.CLOCK_STATE_SYNCHRONIZED,
    identity: str | None = "ntp:192.0.2.1",
    boot_id: str = BOOT_ID,
    as_of_boot_ns: int | None = None,
    ttl_s: float = 5.0,
    growth_ppb: int = 1_000,
    sequence: int | None = None,
    epoch: int = 1,
) -> clock_pb2.Reading:
    """A reading made now, good unless told otherwise."""
    made_boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) if as_of_boot_ns is None else as_of_boot_ns
    reading = clock_pb2.Reading(
        state=state,
        growth_ppb=growth_ppb,
        epoch=epoch,
        as_of_boot_ns=made_boot_ns,
        void_after_boot_ns=made_boot_ns + int(ttl_s * NS_PER_S),
        boot_id=boot_id,
        sequence=next(_sequence) if sequence is None else sequence,
        source_kind=clock_pb2.SOURCE_KIND_CHRONY,
    )
    if bound_ns is not None:
        reading.relative_bound_ns = bound_ns
    if utc_bound_ns is not None:
        reading.utc_bound_ns = utc_bound_ns
    if identity is not None:
        reading.reference.identity = identity
    return reading


class FakeDaemon:
    """Serves clockgate.v1 Clock and Gate at `path` until `stop`; may be started again.

    `reading` makes the reading of each answer; `judge` makes the answer to Check. With `delay_s` above 0 Check takes
    that long and the stream is mute, as from a frozen daemon. `requests` are the Checks that arrived. The stream sends
    every `stream_period_s`. `leases` are the requests of RegisterJob whose streams are open; while `lease_refusal` is
    set, new ones are refused with it and open ones are ended by it.
    """

    def __init__(self, path: Path, reading: Callable[[], clock_pb2.Reading] = make_reading) -> None:
        self.path = path
        self.reading = reading
        self.delay_s = 0.0
        self.judge: Callable[[gate_pb2.CheckRequest, clock_pb2.Reading], gate_pb2.CheckResponse] = _judge
        self.stream_period_s = 0.2
        self.requests: list[gate_pb2.CheckRequest] = []
        self.leases: list[gate_pb2.RegisterJobRequest] = []
        self.lease_refusal: tuple[grpc.StatusCode, str] | None = None
        self._server: grpc.Server | None = None
        self._stopping = threading.Event()

    @property
    def address(self) -> str:
        return f"unix:{self.path}"

    def start(self) -> "FakeDaemon":
        self._stopping = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8))
        clock_pb2_grpc.add_ClockServicer_to_server(_Clock(self, self._stopping), self._server)
        gate_pb2_grpc.add_GateServicer_to_server(_Gate(self, self._stopping), self._server)
        self._server.add_insecure_port(self.address)
        self._server.start()
        return self

    def stop(self) -> None:
        """Die at once: calls in flight are cut."""
        self._stopping.set()
        if self._server is not None:
            self._server.stop(None).wait(5)
            self._server = None

    def __enter__(self) -> "FakeDaemon":
        return self.start()

    def __exit__(self, *unused: object) -> None:
        self.stop()


class _Clock(clock_pb2_grpc.ClockServicer):
    def __init__(self, daemon: FakeDaemon, stopping: threading.Event) -> None:
        self._daemon = daemon
        self._stopping = stopping

    def GetReading(  # noqa: N802 - the name is the proto's
        self, request: clock_pb2.GetReadingRequest, context: grpc.ServicerContext
    ) -> clock_pb2.GetReadingResponse:
        return clock_pb2.GetReadingResponse(reading=self._daemon.reading())

    def WatchReadings(  # noqa: N802 - the name is the proto's
        self, request: clock_pb2.WatchReadingsRequest, context: grpc.ServicerContext
    ) -> Iterator[clock_pb2.WatchReadingsResponse]:
        while context.is_active() and not self._stopping.is_set():
            if self._daemon.delay_s == 0:
                yield clock_pb2.WatchReadingsResponse(reading=self._daemon.reading())
            self._stopping.wait(self._daemon.stream_period_s)

    def ListEpochs(  # noqa: N802 - the name is the proto's
        self, request: clock_pb2.ListEpochsRequest, context: grpc.ServicerContext
    ) -> clock_pb2.ListEpochsResponse:
        return clock_pb2.ListEpochsResponse()


class _Gate(gate_pb2_grpc.GateServicer):
    def __init__(self, daemon: FakeDaemon, stopping: threading.Event) -> None:
        self._daemon = daemon
        self._stopping = stopping

    def Check(  # noqa: N802 - the name is the proto's
        self, request: gate_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> gate_pb2.CheckResponse:
        self._daemon.requests.append(request)
        if self._daemon.delay_s:
            time.sleep(self._daemon.delay_s)
        return self._daemon.judge(request, self._daemon.reading())

    def RegisterJob(  # noqa: N802 - the name is the proto's
        self, request_iterator: Iterator[gate_pb2.RegisterJobRequest], context: grpc.ServicerContext
    ) -> Iterator[gate_pb2.RegisterJobResponse]:
        request = next(request_iterator)
        if self._daemon.lease_refusal is not None:
            context.abort(*self._daemon.lease_refusal)
        self._daemon.leases.append(request)
        try:
            yield gate_pb2.RegisterJobResponse(lease=gate_pb2.Lease(lease_id="1", job=request.job, rank=request.rank))
            while context.is_active() and not self._stopping.is_set():
                if self._daemon.lease_refusal is not None:
                    context.abort(*self._daemon.lease_refusal)
                self._stopping.wait(self._daemon.stream_period_s)
        finally:
            self._daemon.leases.remove(request)


def _judge(request: gate_pb2.CheckRequest, reading: clock_pb2.Reading) -> gate_pb2.CheckResponse:
    judged = rule.judge(reading, request.limits, time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    reading.age_ns = max(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - reading.as_of_boot_ns, 0)
    return gate_pb2.CheckResponse(
        step_verdict=judged.step, save_verdict=judged.save, reasons=judged.reasons, reading=reading
    )
