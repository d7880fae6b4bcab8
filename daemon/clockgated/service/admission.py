"""Who is served when. The peer of a unix socket is unknown to grpc, so the rules are for all callers of a server.

A stream keeps a worker thread for as long as it lasts: streams have a ceiling, below the number of workers. A call
whose message does not come, or whose answer is not taken, is ended (see `sweeper`). So callers can use up the streams,
but never the workers of GetReading and Check.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from clockgated import host
from clockgated.service.sweeper import ANSWER_DEADLINE_NS, Sweeper
from clockgated.service.tally import StreamTally

UNARY_WORKERS = 16  # threads are only made when that many calls wait at once

# Calls that may wait for a worker; more are refused at once. Each costs some KiB.
_MOST_WAITING = 1024

_Behaviour = Callable[[Any, grpc.ServicerContext], Any]
_StreamBehaviour = Callable[[Any, grpc.ServicerContext], Iterator[Any]]


class _Garbage:
    """Bytes that are no message of the method."""


class Admission(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """The rules of one server, applied to every method it has.

    `workers` is the number of threads that it needs, `most_calls` how many calls it may have at once. With `clients`,
    only those whose certificate is for one of these names are served. `tally` counts streams.
    """

    def __init__(
        self, max_streams: int, clients: Collection[str] = (), *, answer_deadline_ns: int = ANSWER_DEADLINE_NS
    ) -> None:
        self.workers = max_streams + UNARY_WORKERS
        self.most_calls = self.workers + _MOST_WAITING
        self._clients = frozenset(name.encode() for name in clients)
        self._max_streams = max_streams
        self._streams = threading.BoundedSemaphore(max_streams)
        self.tally = StreamTally()
        self._sweeper = Sweeper(self.workers, answer_deadline_ns=answer_deadline_ns)

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
            "request_deserializer": _tolerant(handler.request_deserializer),
            "response_serializer": handler.response_serializer,
        }
        arrived_ns = host.mono_ns()
        if not handler.response_streaming:
            unary = self._answering(self._with_message(handler.unary_unary, arrived_ns))
            return grpc.stream_unary_rpc_method_handler(unary, **codec)
        if handler.request_streaming:
            stream = self._with_messages(handler.stream_stream, arrived_ns)
        else:
            stream = self._with_message(handler.unary_stream, arrived_ns)
        return grpc.stream_stream_rpc_method_handler(self._within_ceiling(stream), **codec)

    def _with_message(self, behaviour: _Behaviour, arrived_ns: int) -> _Behaviour:
        def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            with self._sweeper.message(context, arrived_ns):
                request = next(requests, None)
            if request is None:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call carried no request message")
            return behaviour(_readable(request, context), context)

        return call

    def _with_messages(self, behaviour: _StreamBehaviour, arrived_ns: int) -> _StreamBehaviour:
        def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            return behaviour(self._read(requests, context, arrived_ns), context)

        return call

    def _read(self, requests: Iterator[Any], context: grpc.ServicerContext, arrived_ns: int) -> Iterator[Any]:
        """The messages of a stream. The first is owed at once; for the others a client may take its time."""
        with self._sweeper.message(context, arrived_ns):
            first = next(requests, None)
        if first is not None:
            yield _readable(first, context)
            for request in requests:
                yield _readable(request, context)

    def _answering(self, behaviour: _Behaviour) -> _Behaviour:
        def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            self._demand_known(context)
            answer = behaviour(requests, context)
            self._sweeper.last_answer(context)
            return answer

        return call

    def _within_ceiling(self, behaviour: _StreamBehaviour) -> _StreamBehaviour:
        def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            self._demand_known(context)
            if not self._streams.acquire(blocking=False):
                self.tally.refuse()
                context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{self._max_streams} streams are open, the most that [api] max_streams allows; "
                    "poll with a unary call instead",
                )
            try:
                with self.tally.one_open():
                    for answer in behaviour(requests, context):
                        with self._sweeper.answer(context):
                            yield answer
            finally:
                self._streams.release()

        return call

    def _demand_known(self, context: grpc.ServicerContext) -> None:
        """End the call unless its client's certificate is for a name that may ask."""
        if not self._clients:
            return
        shown = context.auth_context()
        names = {*shown.get("x509_subject_alternative_name", ()), *shown.get("x509_common_name", ())}
        if not names & self._clients:
            context.abort(
                grpc.StatusCode.PERMISSION_DENIED, "the client's certificate is for none of [api] tls_clients"
            )


def _tolerant(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """As `deserialize` (None: bytes as they come), with a value for what is no message.

    grpc would answer its errors with INTERNAL, and fill the log with tracebacks.
    """
    if deserialize is None:
        return None

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        # Bytes that are no UTF-8, and nesting without end, in the runtimes of protobuf that are written in Python.
        except (DecodeError, ValueError, RecursionError):
            return _Garbage()

    return read


def _readable(request: Any, context: grpc.ServicerContext) -> Any:
    if isinstance(request, _Garbage):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the bytes are no message of this method")
    return request
