"""clockgated beside a real chronyd whose servers do not agree: one of them is half a second off."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from clockgate.v1 import clock_pb2, clock_pb2_grpc
from support.chrony import Chronyd, chronyd, namespace
from support.daemon import Clockgated, clockgated, toml
from support.tools import require_tool

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PORT = 11123
FAST = f"port {PORT} iburst minpoll -2 maxpoll -2"
LIAR = "127.0.0.9"
# All share this machine's clock: a server lies where its client adds to what it says.
LIE_S = 0.5


@contextmanager
def client(folder: Path, *honest: str) -> Iterator[Chronyd]:
    """A chronyd that asks the `honest` servers and the liar. All are in one network namespace."""
    with namespace() as prefix, ExitStack() as stack:
        if not prefix:
            pytest.skip("needs network namespaces")
        for address in (*honest, LIAR):
            lines = ["local stratum 8", f"port {PORT}", "allow 127.0.0.0/8", f"bindaddress {address}"]
            server = stack.enter_context(chronyd(folder / address, prefix, lines))
            server.wait_for("local reference", "7F7F0101", "tracking")
        sources = [*(f"server {address} {FAST}" for address in honest), f"server {LIAR} {FAST} offset {LIE_S}"]
        yield stack.enter_context(chronyd(folder / "client", prefix, [*sources, "port 0"]))


@contextmanager
def beside(chrony: Chronyd, folder: Path) -> Iterator[Clockgated]:
    lines = f'socket = "{chrony.socket}"\nchronyc = "{require_tool("chronyc")}"'
    with clockgated(folder, toml(folder, clock="sync_cycles = 2\npoll_interval_s = 0.3", chrony=lines)) as daemon:
        yield daemon


def readings(daemon: Clockgated, count: int) -> Iterator[clock_pb2.Reading]:
    """As many readings as that, as they come."""
    with daemon.channel() as channel:
        stream: Any = clock_pb2_grpc.ClockStub(channel).WatchReadings(clock_pb2.WatchReadingsRequest(), timeout=60)
        for _ in range(count):
            yield next(stream).reading
        stream.cancel()


def test_a_falseticker_is_outvoted_and_never_followed(tmp_path: Path) -> None:
    with client(tmp_path, "127.0.0.2", "127.0.0.3") as chrony, beside(chrony, tmp_path / "daemon") as daemon:
        chrony.wait_for("falseticker", f"^,x,{LIAR},", "sources")
        due = time.monotonic() + 30
        while (found := next(readings(daemon, 1))).state != clock_pb2.CLOCK_STATE_SYNCHRONIZED:
            assert time.monotonic() < due, found
        for reading in readings(daemon, 6):
            assert reading.state == clock_pb2.CLOCK_STATE_SYNCHRONIZED
            assert reading.reference.source_name in ("127.0.0.2", "127.0.0.3")
            assert abs(reading.offset_ns) <= reading.relative_bound_ns < 10_000_000


def test_two_servers_that_contradict_each_other_are_nothing_to_synchronize_to(tmp_path: Path) -> None:
    with client(tmp_path, "127.0.0.2") as chrony, beside(chrony, tmp_path / "daemon") as daemon:
        chrony.wait_for("disagreement", f"^,x,{LIAR},", "sources")
        for reading in readings(daemon, 8):
            assert reading.state in (clock_pb2.CLOCK_STATE_UNKNOWN, clock_pb2.CLOCK_STATE_ACQUIRING)
            assert not reading.HasField("relative_bound_ns")
        codes = {clock_pb2.ReasonCode.Name(reason.code) for reason in reading.reasons}
        assert codes & {"REASON_CODE_SOURCE_UNSYNCHRONISED", "REASON_CODE_NO_SELECTED_SOURCE"}
