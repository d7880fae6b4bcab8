"""What one careless or hostile client of the open socket may do: never disturb the cycle nor the calls of others."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from clockgate.v1 import clock_pb2, clock_pb2_grpc
from support.daemon import Clockgated, clockgated, toml

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

MANY = 1_000
# What this side needs for them, and what a daemon usually finds: less than one descriptor for each.
PLENTY, USUAL = 4_096, 512
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SERVER_PATIENCE_S = 5


@contextmanager
def descriptors(soft: int) -> Iterator[None]:
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < soft:
        pytest.skip(f"the hard limit of this process is below {soft}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Clockgated]:
    recording = tmp_path / "recorded.jsonl"
    recording.write_text('{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1", "stratum": 2}\n')
    text = toml(
        tmp_path,
        clock='source = "recorded"\nsync_cycles = 1\npoll_interval_s = 0.2',
        extra=f'[recorded]\nfile = "{recording}"',
    )
    with descriptors(USUAL), clockgated(tmp_path, text) as running, descriptors(PLENTY):
        yield running


def assert_others_are_served(daemon: Clockgated, *, calls: int = 10) -> None:
    """Somebody else connects now: each call is answered in time, by readings that go on."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"unix:{daemon.socket}", options=options) as channel:
        ask = clock_pb2_grpc.ClockStub(channel).GetReading
        first = last = ask(clock_pb2.GetReadingRequest(), timeout=5).reading
        took_s = []
        for _ in range(calls):
            time.sleep(0.1)
            began = time.monotonic()
            last = ask(clock_pb2.GetReadingRequest(), timeout=2).reading
            took_s.append(time.monotonic() - began)
            assert last.age_ns < 2_000_000_000
        assert last.sequence >= first.sequence + 2
    resident_kib = Path(f"/proc/{daemon.process.pid}/status").read_text().partition("VmRSS:")[2].split()[0]
    print(f"\nslowest of {calls} calls: {1000 * max(took_s):.1f} ms; RSS {int(resident_kib) / 1024:.0f} MiB")
    assert "this cycle failed" not in daemon.log.read_text()


@pytest.mark.parametrize("greeting", [b"", PREFACE], ids=["silent", "speaking"])
def test_a_thousand_idle_connections_disturb_nobody(daemon: Clockgated, greeting: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(MANY):
            one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            one.settimeout(5)
            one.connect(str(daemon.socket))
            one.sendall(greeting)
        assert_others_are_served(daemon)
        if not greeting:
            # One that does not even speak is not kept.
            one.settimeout(3 * SERVER_PATIENCE_S)
            while one.recv(4096):
                pass
    assert_others_are_served(daemon, calls=5)


def test_a_thousand_streams_disturb_no_unary_call(daemon: Clockgated) -> None:
    with ExitStack() as stack:
        streams: list[Any] = []
        for _ in range(20):
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = stack.enter_context(grpc.insecure_channel(f"unix:{daemon.socket}", options=options))
            stub = clock_pb2_grpc.ClockStub(channel)
            streams += [stub.WatchReadings(clock_pb2.WatchReadingsRequest()) for _ in range(MANY // 20)]
        assert_others_are_served(daemon)
        refused = sum(stream.done() and stream.code() == grpc.StatusCode.RESOURCE_EXHAUSTED for stream in streams)
        assert refused == MANY - 64, "the rest are served"
        for stream in streams:
            stream.cancel()
    assert_others_are_served(daemon, calls=5)


@pytest.mark.parametrize("which", ["socket", "admin_socket"])
def test_a_deleted_socket_ends_the_daemon_so_that_it_is_started_again(daemon: Clockgated, which: str) -> None:
    path: Path = getattr(daemon, which)
    path.unlink()
    assert daemon.process.wait(15) == 1
    assert f"{path}: the socket's file was deleted; stopping" in daemon.log.read_text()
