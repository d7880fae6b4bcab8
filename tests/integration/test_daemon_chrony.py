"""clockgated beside a real pair of chronyd: an island and a client that is truly synchronised to it."""

import json
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clockgate.v1 import clock_pb2, clock_pb2_grpc
from support.chrony import SERVER_STRATUM, Chronyd, ChronyPair, chrony_pair
from support.daemon import Clockgated, clockgated, toml
from support.tools import require_tool

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChronyPair]:
    with chrony_pair(tmp_path_factory.mktemp("pair")) as running:
        yield running


def settings(folder: Path, chronyd: Chronyd, clock: str = "", chronyc: Path | None = None) -> str:
    program = chronyc or require_tool("chronyc")
    chrony = f'socket = "{chronyd.socket}"\nchronyc = "{program}"'
    return toml(folder, clock=f"sync_cycles = 2\n{clock}", chrony=chrony)


def read(daemon: Clockgated) -> clock_pb2.Reading:
    with daemon.channel() as channel:
        return clock_pb2_grpc.ClockStub(channel).GetReading(clock_pb2.GetReadingRequest(), timeout=5).reading


def wait_for(
    daemon: Clockgated, wanted: Callable[[clock_pb2.Reading], bool], timeout_s: float = 30
) -> clock_pb2.Reading:
    due = time.monotonic() + timeout_s
    while True:
        reading = read(daemon)
        if wanted(reading):
            return reading
        assert time.monotonic() < due, f"last reading: {reading}\nlog: {daemon.log.read_text()}"
        time.sleep(0.2)


def is_synchronized(reading: clock_pb2.Reading) -> bool:
    return reading.state == clock_pb2.CLOCK_STATE_SYNCHRONIZED


def codes(reading: clock_pb2.Reading) -> set[str]:
    return {clock_pb2.ReasonCode.Name(reason.code).removeprefix("REASON_CODE_") for reason in reading.reasons}


def test_client_of_an_island_is_synchronized_but_not_traceable(pair: ChronyPair, tmp_path: Path) -> None:
    with clockgated(tmp_path, settings(tmp_path, pair.client)) as daemon:
        reading = wait_for(daemon, is_synchronized)
        assert 0 < reading.relative_bound_ns < 50_000_000
        assert not reading.HasField("utc_bound_ns")
        assert reading.reference.traceability == clock_pb2.TRACEABILITY_NO
        assert reading.reference.stratum == SERVER_STRATUM + 1
        assert reading.reference.source_name == "127.0.0.1"
        assert reading.source_kind == clock_pb2.SOURCE_KIND_CHRONY
        assert "ISLAND" in codes(reading)
        assert reading.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert 0 <= reading.age_ns < 5_000_000_000
        assert reading.void_after_boot_ns - reading.as_of_boot_ns == 5_000_000_000

        shown = daemon.ctl("status")
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.startswith("SYNCHRONIZED\n")
        lines = [line.split(maxsplit=1) for line in shown.stdout.splitlines()[1:]]
        assert ["traceable", "no"] in lines
        assert "UTC bound       unknown" in shown.stdout
        assert "ISLAND: " in shown.stdout
        assert "±0 " not in shown.stdout
        # What chronyc would show.
        assert re.search(r"^  source 127\.0\.0\.1 +selected, stratum \d+, poll ", shown.stdout, re.MULTILINE)

        as_json = json.loads(daemon.ctl("status", "--json").stdout)
        assert as_json["usable"] is True
        assert as_json["reference"]["traceable"] == "no"
        assert as_json["utc_bound_ns"] is None
        assert as_json["relative_bound_ns"] > 0
        assert as_json["time_daemon"]["leap status"] == "normal"
        assert {"root delay", "root dispersion", "skew"} <= set(as_json["time_daemon"])


def test_island_itself_has_no_bound_and_never_zero(pair: ChronyPair, tmp_path: Path) -> None:
    with clockgated(tmp_path, settings(tmp_path, pair.server)) as daemon:
        reading = wait_for(daemon, lambda reading: reading.sequence >= 4)
        assert not is_synchronized(reading)
        assert not reading.HasField("relative_bound_ns")
        assert not reading.HasField("utc_bound_ns")
        assert reading.reference.traceability == clock_pb2.TRACEABILITY_NO
        assert "LOCAL_REFERENCE" in codes(reading)

        shown = daemon.ctl("status")
        assert shown.returncode == 1
        assert "relative bound  unknown" in shown.stdout
        assert "traceable       no" in shown.stdout
        assert "LOCAL_REFERENCE: " in shown.stdout


def test_killed_chronyd_leads_to_holdover_with_a_growing_bound(tmp_path: Path) -> None:
    with (
        chrony_pair(tmp_path / "pair") as own,
        clockgated(tmp_path, settings(tmp_path, own.client, clock="poll_interval_s = 0.3")) as daemon,
    ):
        before = wait_for(daemon, is_synchronized)
        own.client.kill()
        held = wait_for(daemon, lambda reading: reading.state == clock_pb2.CLOCK_STATE_HOLDOVER)
        assert "SOURCE_UNREACHABLE" in codes(held)
        assert held.epoch == before.epoch
        later = wait_for(daemon, lambda reading: reading.sequence >= held.sequence + 3)
        assert later.state == clock_pb2.CLOCK_STATE_HOLDOVER
        assert later.relative_bound_ns > held.relative_bound_ns > 0
        assert daemon.ctl("status").returncode == 0


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("exec sleep 1000", "SOURCE_UNREACHABLE"),
        ("echo '506 Cannot talk to daemon'; exit 1", "SOURCE_UNREACHABLE"),
        ("exit 0", "SOURCE_GARBLED"),
        ("echo 'what is this'; exit 0", "SOURCE_GARBLED"),
        ("head -c 5000000 /dev/zero", "SOURCE_GARBLED"),
        ("kill -9 $$", "SOURCE_UNREACHABLE"),
    ],
    ids=["hangs", "cannot-talk", "says-nothing", "garbage", "floods", "dies"],
)
def test_broken_chronyc_is_a_reason_and_the_api_goes_on(pair: ChronyPair, tmp_path: Path, body: str, code: str) -> None:
    fake = script(tmp_path / "chronyc", body)
    with clockgated(tmp_path, settings(tmp_path, pair.client, chronyc=fake)) as daemon:
        reading = wait_for(daemon, lambda reading: reading.sequence >= 2)
        assert code in codes(reading), reading
        assert not is_synchronized(reading)
        assert not reading.HasField("relative_bound_ns")
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log.read_text()


def test_missing_chronyc_is_a_reason_that_names_the_setting(pair: ChronyPair, tmp_path: Path) -> None:
    with clockgated(tmp_path, settings(tmp_path, pair.client, chronyc=tmp_path / "none")) as daemon:
        reading = wait_for(daemon, lambda reading: reading.sequence >= 1)
        assert "SOURCE_UNREACHABLE" in codes(reading)
        assert "[chrony] chronyc" in reading.reasons[0].detail


def test_drilled_offset_widens_the_bound_and_ends_by_itself(pair: ChronyPair, tmp_path: Path) -> None:
    with clockgated(tmp_path, settings(tmp_path, pair.client, clock="poll_interval_s = 0.2")) as daemon:
        wait_for(daemon, is_synchronized)
        asked = daemon.ctl("drill", "offset", "-200ms", "--for", "3s")
        assert asked.returncode == 0, asked.stderr
        assert "-200 ms" in asked.stdout
        drilled = wait_for(daemon, lambda reading: "DRILL" in codes(reading))
        assert drilled.state == clock_pb2.CLOCK_STATE_FREE_RUNNING
        assert drilled.offset_ns < -150_000_000
        assert daemon.ctl("status").returncode == 1
        back = wait_for(daemon, is_synchronized)
        assert "DRILL" not in codes(back)
        assert back.epoch == drilled.epoch


def test_drilled_step_raises_the_epoch(pair: ChronyPair, tmp_path: Path) -> None:
    with clockgated(tmp_path, settings(tmp_path, pair.client, clock="poll_interval_s = 0.2")) as daemon:
        before = wait_for(daemon, is_synchronized)
        assert daemon.ctl("drill", "step", "1s").returncode == 0
        wait_for(daemon, lambda reading: reading.epoch == before.epoch + 1)
        back = wait_for(daemon, is_synchronized)
        assert back.epoch == before.epoch + 1


def test_drilled_freeze_is_holdover_until_cleared(pair: ChronyPair, tmp_path: Path) -> None:
    with clockgated(tmp_path, settings(tmp_path, pair.client, clock="poll_interval_s = 0.2")) as daemon:
        wait_for(daemon, is_synchronized)
        assert daemon.ctl("drill", "freeze", "--for", "100s").returncode == 0
        wait_for(daemon, lambda reading: reading.state == clock_pb2.CLOCK_STATE_HOLDOVER)
        assert daemon.ctl("drill", "clear").returncode == 0
        wait_for(daemon, is_synchronized)


def test_auto_takes_chrony_where_its_socket_is_and_the_kernel_elsewhere(pair: ChronyPair, tmp_path: Path) -> None:
    def kind(name: str, socket: Path) -> Any:
        folder = tmp_path / name
        chrony = f'socket = "{socket}"\nchronyc = "{require_tool("chronyc")}"'
        with clockgated(folder, toml(folder, chrony=chrony)) as daemon:
            return wait_for(daemon, lambda reading: reading.sequence >= 1).source_kind

    assert kind("with", pair.client.socket) == clock_pb2.SOURCE_KIND_CHRONY
    assert kind("without", tmp_path / "none.sock") == clock_pb2.SOURCE_KIND_KERNEL


def test_api_modes_are_those_of_the_contract(pair: ChronyPair, tmp_path: Path) -> None:
    with clockgated(tmp_path, settings(tmp_path, pair.client)) as daemon:
        modes = {path: oct(stat.S_IMODE(path.stat().st_mode)) for path in (daemon.socket, daemon.admin_socket.parent)}
        assert modes == {daemon.socket: "0o666", daemon.admin_socket.parent: "0o700"}
