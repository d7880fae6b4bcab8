"""grpc.health.v1.Health: two questions. "" asks whether the daemon is alive, "clockgate.v1.Clock" whether the clock is
good; any other service of the server is serving as long as it answers.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import grpc
from clockgate.wire import stubs

from clockgated import host
from clockgated.clock.model import ClockState, Reading
from clockgated.publish import Publisher
from clockgated.service.words import shown

CLOCK_SERVICE = "clockgate.v1.Clock"
_USABLE = (ClockState.SYNCHRONIZED, ClockState.HOLDOVER)
_RECHECK_S = 0.9


def has_usable_bound(reading: Reading, now_boot_ns: int) -> bool:
    """Whether the reading's bound may be used at `now_boot_ns` (CLOCK_BOOTTIME of this boot)."""
    is_current = now_boot_ns <= reading.void_after_boot_ns
    return is_current and reading.state in _USABLE and reading.relative_bound_ns is not None


class HealthServicer:
    """Answers for the `services` of one server."""

    def __init__(
        self,
        publisher: Publisher,
        services: Collection[str],
        stopping: threading.Event,
        now_boot_ns: Callable[[], int] = host.boot_ns,
    ) -> None:
        self._publisher = publisher
        self._services = frozenset(services)
        self._stopping = stopping
        self._now_boot_ns = now_boot_ns

    def check(self, request: Any, context: grpc.ServicerContext) -> Any:
        """One answer now; NOT_FOUND for a service that this server does not have."""
        status = self._status(request.service)
        if status == stubs.STATUS_SERVICE_UNKNOWN:
            known = ", ".join(sorted(self._services))
            context.abort(grpc.StatusCode.NOT_FOUND, f"no service {shown(request.service)} here; known: {known}")
        return stubs.HealthCheckResponse(status=status)

    def watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """The status now and on every change, until the client cancels or the daemon stops."""
        sent = None
        while not self._stopping.is_set():
            sequence = self._publisher.latest().sequence
            status = self._status(request.service)
            if status != sent:
                yield stubs.HealthCheckResponse(status=status)
                sent = status
            # Bounded: a reading expires without a newer one when the cycle hangs.
            self._publisher.wait_newer(sequence, _RECHECK_S)
            if not context.is_active():
                return
        context.abort(grpc.StatusCode.UNAVAILABLE, "clockgated is stopping; connect again")

    def _status(self, service: str) -> int:
        if service == CLOCK_SERVICE:
            is_good = has_usable_bound(self._publisher.latest(), self._now_boot_ns())
            return stubs.STATUS_SERVING if is_good else stubs.STATUS_NOT_SERVING
        if service == "" or service in self._services:
            return stubs.STATUS_SERVING
        return stubs.STATUS_SERVICE_UNKNOWN
