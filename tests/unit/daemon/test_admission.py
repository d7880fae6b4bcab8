"""The rules of a server: calls that wait for their client end, and nobody else waits for them."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from clockgate.v1 import clock_pb2
from clockgated.service.admission import UNARY_WORKERS, Admission
from support import raw_http2

MAX_STREAMS = 2
LARGE = bytes(100_000)
NS_PER_MS = 1_000_000


class Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Methods that answer with more than a window, and one that reads a real message."""

    def __init__(self) -> None:
        self.streams = 0

    def service(self, call: Any) -> Any:
        name = call.method.rpartition("/")[2]
        if name == "Large":
            return grpc.unary_unary_rpc_method_handler(lambda _request, _context: LARGE)
        if name == "Endless":
            return grpc.unary_stream_rpc_method_handler(self._endless)
        if name == "Small":
            return grpc.unary_unary_rpc_method_handler(
                lambda _request, _context: b"", request_deserializer=clock_pb2.ListEpochsRequest.FromString
            )
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, _context: (b"" for _ in requests),
            request_deserializer=clock_pb2.ListEpochsRequest.FromString,
        )

    def _endless(self, _request: bytes, _context: Any) -> Iterator[bytes]:
        self.streams += 1
        try:
            while True:
                yield LARGE
        finally:
            self.streams -= 1


@dataclass
class Server:
    path: Path
    channel: Any  # the stubs demand serializers, which bytes do without
    handlers: Handlers


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    handlers = Handlers()
    rules = Admission(MAX_STREAMS, answer_deadline_ns=300 * NS_PER_MS)
    made = grpc.server(
        ThreadPoolExecutor(rules.workers), handlers=[handlers], interceptors=[rules],
        maximum_concurrent_rpcs=rules.most_calls,
    )  # fmt: skip
    path = tmp_path / "a.sock"
    made.add_insecure_port(f"unix:{path}")
    made.start()
    with grpc.insecure_channel(f"unix:{path}") as channel:
        yield Server(path, channel, handlers)
    made.stop(0).wait()
    rules.close()


def small(server: Server, data: bytes = b"") -> bytes:
    answer: bytes = server.channel.unary_unary("/s/Small")(data, timeout=10)
    return answer


def ended(connection: socket.socket) -> set[int]:
    """The streams that the server ended, once it ended any."""
    streams: set[int] = set()
    for kind, flags, stream, _ in raw_http2.frames(connection):
        if kind == raw_http2.RST_STREAM or (kind == raw_http2.HEADERS and flags & raw_http2.END_STREAM):
            streams.add(stream)
            return streams
    return streams


@pytest.mark.parametrize("method", ["/s/Large", "/s/Endless"])
def test_a_client_that_takes_no_answer_is_let_go(server: Server, method: str) -> None:
    with raw_http2.connected(server.path, window=0) as connection:
        connection.sendall(raw_http2.call_headers(1, method) + raw_http2.message(1))
        began = time.monotonic()
        assert ended(connection) == {1}
        assert 0.2 < time.monotonic() - began < 10
        assert small(server) == b""
    due = time.monotonic() + 10
    while server.handlers.streams:
        assert time.monotonic() < due, "a stream outlives its client"
        time.sleep(0.02)
    # Its place is free again.
    for _ in range(MAX_STREAMS + 1):
        stream = server.channel.unary_stream("/s/Endless")(b"", timeout=10)
        assert next(stream) == LARGE
        stream.cancel()
        time.sleep(0.2)


def test_a_client_that_reads_slowly_is_served(server: Server) -> None:
    stream = server.channel.unary_stream("/s/Endless")(b"", timeout=20)
    for _ in range(4):
        assert next(stream) == LARGE
        time.sleep(0.15)
    stream.cancel()


@pytest.mark.parametrize("data", [b"\xff", b"\x08", b"\x0a\x05ab"])
def test_bytes_that_are_no_message_are_the_askers_mistake(
    server: Server, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for call in (
        lambda: small(server, data),
        lambda: list(server.channel.stream_stream("/s/Any")(iter([data]), timeout=10)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call()
        error: Any = caught.value
        assert (error.code(), error.details()) == (
            grpc.StatusCode.INVALID_ARGUMENT, "the bytes are no message of this method",
        )  # fmt: skip
    assert caplog.text == ""


def test_a_stream_without_a_first_message_gives_its_place_back(server: Server) -> None:
    never = threading.Event()

    def silence(*sent: bytes) -> Iterator[bytes]:
        yield from sent
        never.wait(30)

    silent: list[Any] = [server.channel.stream_stream("/s/Any")(silence(), timeout=30) for _ in range(MAX_STREAMS)]
    for one in silent:
        assert one.code() == grpc.StatusCode.CANCELLED, "a second after it began"
    # After the first message a client may take its time.
    patient = server.channel.stream_stream("/s/Any")(silence(b""), timeout=30)
    assert next(patient) == b""
    time.sleep(1.5)
    assert patient.is_active()
    patient.cancel()
    never.set()


def test_many_calls_without_a_message_make_room_for_one_with(server: Server) -> None:
    never = threading.Event()

    def silence() -> Iterator[bytes]:
        never.wait(30)
        yield from ()

    many = 20 * (UNARY_WORKERS + MAX_STREAMS)
    with grpc.insecure_channel(f"unix:{server.path}", options=[("grpc.use_local_subchannel_pool", 1)]) as other:
        made: Any = other
        calls: list[Any] = [made.stream_unary("/s/Small").future(silence(), timeout=30) for _ in range(many)]
        time.sleep(0.2)
        began = time.monotonic()
        assert small(server) == b""
        # A second for each full set of workers would be twenty.
        assert time.monotonic() - began < 8
        never.set()
        for call in calls:
            call.cancel()
