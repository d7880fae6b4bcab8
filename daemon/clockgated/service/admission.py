"""Who is served when. The peer of a unix socket is unknown to grpc, so the rules are for all callers together.

A stream keeps a worker thread for as long as it lasts: streams have a ceiling, below the number of workers. A call
whose request message does not come would keep one as well: it is cancelled after a second. So callers can use up the
streams, but never the workers of GetReading and Check.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from clockgated import host, units

UNARY_WORKERS = 16  # threads are only made when that many calls wait at once

_MESSAGE_DEADLINE_NS = units.NS_PER_S
# Given to a call that waited for a worker for longer than the deadline: its message is there or it never was sent.
_LEAST_PATIENCE_NS = 50 * units.NS_PER_MS
_SWEEP_INTERVAL_S = 0.1

_Behaviour = Callable[[Any, grpc.ServicerContext], Any]
_StreamBehaviour = Callable[[Any, grpc.ServicerContext], Iterator[Any]]


class _Sweeper:
    """Cancels calls whose request message is overdue. Cancelling wakes the worker that waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due_ns: dict[grpc.ServicerContext, int] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="admission", daemon=True).start()

    @contextmanager
    def awaiting(self, context: grpc.ServicerContext, due_mono_ns: int) -> Iterator[None]:
        """Inside, the call is cancelled once CLOCK_MONOTONIC passes `due_mono_ns`."""
        with self._lock:
            self._due_ns[context] = due_mono_ns
        try:
            yield
        finally:
            with self._lock:
                del self._due_ns[context]

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(_SWEEP_INTERVAL_S):
            now_ns = host.mono_ns()
            with self._lock:
                overdue = [context for context, due_ns in self._due_ns.items() if due_ns < now_ns]
            for context in overdue:
                context.cancel()  # type: ignore[no-untyped-call]  # the stubs leave its result out


class Admission(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """The rules of one server, applied to every method it has. `workers` is the number of threads it needs."""

    def __init__(self, max_streams: int) -> None:
        self.workers = max_streams + UNARY_WORKERS
        self._max_streams = max_streams
        self._streams = threading.BoundedSemaphore(max_streams)
        self._sweeper = _Sweeper()

    def close(self) -> None:
        """End the thread of the rules; calls are no longer cancelled."""
        self._sweeper.close()

    def intercept_service(self, continuation: Any, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The method's handler under the rules.

        Every handler becomes one that takes a stream of requests, which is the same on the wire: so control comes
        here before the first message, not after it.
        """
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        codec = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        arrived_ns = host.mono_ns()
        if not handler.response_streaming:
            unary = self._with_message(handler.unary_unary, arrived_ns)
            return grpc.stream_unary_rpc_method_handler(unary, **codec)
        if handler.request_streaming:
            stream = handler.stream_stream
        else:
            stream = self._with_message(handler.unary_stream, arrived_ns)
        return grpc.stream_stream_rpc_method_handler(self._within_ceiling(stream), **codec)

    def _with_message(self, behaviour: _Behaviour, arrived_ns: int) -> _Behaviour:
        def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            due_ns = max(arrived_ns + _MESSAGE_DEADLINE_NS, host.mono_ns() + _LEAST_PATIENCE_NS)
            with self._sweeper.awaiting(context, due_ns):
                request = next(requests, None)
            if request is None:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call carried no request message")
            return behaviour(request, context)

        return call

    def _within_ceiling(self, behaviour: _StreamBehaviour) -> _StreamBehaviour:
        def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            if not self._streams.acquire(blocking=False):
                context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{self._max_streams} streams are open, the most that [api] max_streams allows; "
                    "poll with a unary call instead",
                )
            try:
                yield from behaviour(requests, context)
            finally:
                self._streams.release()

        return call
