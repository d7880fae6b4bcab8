"""Clients that mean no good, one kind after the other, against one real daemon of each runtime: nobody else notices."""

import contextlib
import gzip
import random
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from clockgate.v1 import clock_pb2, clock_pb2_grpc
from support import raw_http2
from support.daemon import Clockgated, clockgated, toml
from support.fuzz_api import health
from support.oldest import oldest_python

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

MIB = 1 << 20
GET_READING = "/clockgate.v1.Clock/GetReading"
STATUS = grpc.StatusCode


@pytest.fixture(scope="module", params=["current", "oldest"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clockgated]:
    python = oldest_python() if request.param == "oldest" else Path(sys.executable)
    folder = tmp_path_factory.mktemp("abuse")
    recording = folder / "recorded.jsonl"
    recording.write_text('{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1", "stratum": 2}\n')
    text = toml(
        folder,
        clock='source = "recorded"\nsync_cycles = 1\npoll_interval_s = 0.1',
        extra=f'[recorded]\nfile = "{recording}"',
    )
    with clockgated(folder, text, python=python) as running:
        yield running


@pytest.fixture(autouse=True)
def _disturbs_nobody(daemon: Clockgated) -> Iterator[None]:
    """After each kind of abuse the daemon has what it had, and said nothing of an exception."""
    before = health.usage(daemon.process.pid)
    yield
    assert_others_are_served(daemon)
    # The first that makes every worker work leaves them, and their memory, behind: some 50 MiB once.
    assert health.growth(daemon.process.pid, before, most_threads=200, most_more_mib=80) is None
    assert health.complaint(daemon.log) is None


def channel(daemon: Clockgated) -> Any:
    """A connection of its own. `Any`: the stubs demand serializers, which bytes do without."""
    return grpc.insecure_channel(f"unix:{daemon.socket}", options=[("grpc.use_local_subchannel_pool", 1)])


def assert_others_are_served(daemon: Clockgated) -> None:
    with channel(daemon) as made:
        ask = clock_pb2_grpc.ClockStub(made).GetReading
        first = last = ask(clock_pb2.GetReadingRequest(), timeout=5).reading
        due = time.monotonic() + 5
        while last.sequence < first.sequence + 2:
            assert time.monotonic() < due, "the cycle does not run"
            last = ask(clock_pb2.GetReadingRequest(), timeout=2).reading
            assert last.age_ns < 2_000_000_000
            time.sleep(0.05)


def code_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    code: grpc.StatusCode = error.code()
    return code


def test_a_message_of_100_mib_is_refused_unread(daemon: Clockgated) -> None:
    with channel(daemon) as made:
        data = bytes(100 * MIB)
        assert code_of(lambda: made.unary_unary(GET_READING)(data, timeout=60)) == STATUS.RESOURCE_EXHAUSTED
        assert code_of(lambda: made.unary_unary(GET_READING)(bytes(70_000), timeout=20)) == STATUS.RESOURCE_EXHAUSTED
    # Without a library, which would ask first: the length is all that is sent of it.
    with raw_http2.connected(daemon.socket) as connection:
        connection.sendall(raw_http2.call_headers(1, GET_READING))
        connection.sendall(raw_http2.frame(raw_http2.DATA, stream=1, payload=b"\0\x7f\xff\xff\xff" + bytes(1000)))
        assert_others_are_served(daemon)


def test_what_is_small_only_until_it_is_unpacked_is_refused(daemon: Clockgated) -> None:
    with channel(daemon) as made:
        call = made.unary_unary(GET_READING)
        bomb = bytes(30 * MIB)  # 30 KiB on the wire: within the limit
        assert len(gzip.compress(bomb)) < 64 * 1024
        assert code_of(lambda: call(bomb, timeout=60, compression=grpc.Compression.Gzip)) in (
            STATUS.UNIMPLEMENTED, STATUS.RESOURCE_EXHAUSTED,
        )  # fmt: skip


@pytest.mark.parametrize("which", ["socket", "admin_socket"])
def test_garbage_on_the_socket_is_dropped(daemon: Clockgated, which: str) -> None:
    noise = random.Random(7)
    for size in (1, 24, 1000, 100_000):
        for start in (b"", raw_http2.PREFACE, raw_http2.PREFACE + raw_http2.settings()):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(5)
                connection.connect(str(getattr(daemon, which)))
                with contextlib.suppress(OSError):
                    connection.sendall(start + noise.randbytes(size))


def test_one_that_only_asks_whether_we_are_there_is_sent_away(daemon: Clockgated) -> None:
    with raw_http2.connected(daemon.socket) as connection:
        with contextlib.suppress(OSError):
            for _ in range(200):
                connection.sendall(raw_http2.frame(raw_http2.PING, payload=bytes(8)))
        kinds = [kind for kind, *_ in raw_http2.frames(connection)]
        assert raw_http2.GOAWAY in kinds


def test_calls_opened_and_reset_at_once_cost_nothing_that_stays(daemon: Clockgated) -> None:
    with raw_http2.connected(daemon.socket) as connection, contextlib.suppress(OSError):
        for stream in range(1, 6_001, 2):
            reset = raw_http2.frame(raw_http2.RST_STREAM, stream=stream, payload=b"\0\0\0\x08")
            connection.sendall(raw_http2.call_headers(stream, GET_READING) + reset)
        assert_others_are_served(daemon)


def test_many_that_never_read_hold_nobody_up(daemon: Clockgated) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(raw_http2.connected(daemon.socket, window=0))
            calls = [raw_http2.call_headers(one, GET_READING) + raw_http2.message(one) for one in range(1, 41, 2)]
            watch = raw_http2.call_headers(41, "/clockgate.v1.Clock/WatchReadings") + raw_http2.message(41)
            connection.sendall(b"".join(calls) + watch)
        assert_others_are_served(daemon)


def test_one_connection_has_at_most_a_hundred_calls(daemon: Clockgated) -> None:
    with raw_http2.connected(daemon.socket) as connection:
        calls = b"".join(raw_http2.call_headers(stream, GET_READING) for stream in range(1, 1001, 2))
        with contextlib.suppress(OSError):
            connection.sendall(calls)
        assert_others_are_served(daemon)
