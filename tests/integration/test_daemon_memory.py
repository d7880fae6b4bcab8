"""What a daemon remembers across its own end: the epoch, the bound, and why an epoch began. Real processes."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from clockgate.v1 import clock_pb2, clock_pb2_grpc
from clockgated import host
from support.daemon import Clockgated, clockgated, toml

pytestmark = pytest.mark.integration

GOOD = '{"after_s": 0, "bound_ns": 200000, "estimate_95_ns": 900, "identity": "ntp:192.0.2.1", "stratum": 2}\n'
SILENT = '{"after_s": 0, "silence": "unplugged"}\n'
NS_PER_S = 1_000_000_000


def settings(folder: Path, recording: str = GOOD, clock: str = "") -> str:
    """A daemon that replays `recording` and keeps what it remembers below `folder`."""
    file = folder / "recorded.jsonl"
    file.write_text(recording)
    return toml(
        folder,
        clock=f'source = "recorded"\nsync_cycles = 1\npoll_interval_s = 0.1\n{clock}',
        extra=f'[recorded]\nfile = "{file}"',
    )


def read(daemon: Clockgated) -> clock_pb2.Reading:
    with daemon.channel() as channel:
        return clock_pb2_grpc.ClockStub(channel).GetReading(clock_pb2.GetReadingRequest(), timeout=5).reading


def read_until(daemon: Clockgated, state: "clock_pb2.ClockState.ValueType", timeout_s: float = 15) -> clock_pb2.Reading:
    due = time.monotonic() + timeout_s
    while (reading := read(daemon)).state != state:
        assert time.monotonic() < due, reading
        time.sleep(0.05)
    return reading


def good(folder: Path, ending: signal.Signals = signal.SIGTERM) -> clock_pb2.Reading:
    """Run a daemon until its reading is good, and end it; returns that reading."""
    with clockgated(folder, settings(folder)) as daemon:
        reading = read_until(daemon, clock_pb2.CLOCK_STATE_SYNCHRONIZED)
        daemon.process.send_signal(ending)
        daemon.process.wait(10)
    return reading


def edit(folder: Path, change: Any) -> None:
    """Change the saved reading as if the world had changed."""
    file = folder / "run/last-reading.json"
    saved = json.loads(file.read_text())
    change(saved)
    file.write_text(json.dumps(saved))


def saved_reading(folder: Path) -> dict[str, Any]:
    """The reading that the daemon before left."""
    found: dict[str, Any] = json.loads((folder / "run/last-reading.json").read_text())["reading"]
    return found


def epochs(daemon: Clockgated) -> list[dict[str, Any]]:
    shown = daemon.ctl("epochs", "--json")
    assert shown.returncode == 0, shown.stderr
    found: list[dict[str, Any]] = json.loads(shown.stdout)["epochs"]
    return found


def codes(reading: clock_pb2.Reading) -> list[str]:
    return [clock_pb2.ReasonCode.Name(one.code).removeprefix("REASON_CODE_") for one in reading.reasons]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_goes_on_in_the_same_epoch_with_the_bound_aged(tmp_path: Path, ending: signal.Signals) -> None:
    before = good(tmp_path, ending)
    saved = saved_reading(tmp_path)
    assert saved["epoch"] == before.epoch
    time.sleep(1)
    # The source stays silent, so that what is served is what was taken up.
    with clockgated(tmp_path, settings(tmp_path, SILENT)) as daemon:
        after = read(daemon)
        assert after.state == clock_pb2.CLOCK_STATE_HOLDOVER
        assert (after.epoch, after.boot_id, after.reference) == (before.epoch, before.boot_id, before.reference)
        assert after.sequence > saved["sequence"]
        away_ns = after.as_of_boot_ns - saved["as_of_boot_ns"]
        assert away_ns >= NS_PER_S
        aged_ns = saved["relative_bound_ns"] + saved["growth_ppb"] * away_ns // NS_PER_S
        # Nothing but what two looks at the clocks may be off on top.
        assert aged_ns <= after.relative_bound_ns < aged_ns + NS_PER_S // 1000
        assert any("while no clockgated watched" in text for text in after.assumptions)
        assert daemon.ctl("status").returncode == 0, "usable while within bound and horizon"
        assert {read(daemon).state for _ in range(20)} == {clock_pb2.CLOCK_STATE_HOLDOVER}, "never UNKNOWN"
        assert [one["cause"] for one in epochs(daemon)] == ["STARTING"]
    assert good(tmp_path, ending).epoch == before.epoch, "and synchronized again in that epoch"


def test_a_jump_while_away_begins_an_epoch(tmp_path: Path) -> None:
    before = good(tmp_path)

    def jump(saved: dict[str, Any]) -> None:
        # REALTIME - BOOTTIME was less by a second when this was saved.
        saved["look"]["wall_ns"] -= NS_PER_S

    edit(tmp_path, jump)
    with clockgated(tmp_path, settings(tmp_path, SILENT)) as daemon:
        after = read(daemon)
        assert (after.state, after.epoch) == (clock_pb2.CLOCK_STATE_DISRUPTED, before.epoch + 1)
        assert not after.HasField("relative_bound_ns")
        assert "CLOCK_STEPPED" in codes(after)
        newest = epochs(daemon)[-1]
        assert (newest["epoch"], newest["cause"]) == (after.epoch, "CLOCK_STEPPED")
        assert abs(newest["jump_ns"] - NS_PER_S) < 50_000_000
        shown = daemon.ctl("epochs")
        assert f"{after.epoch}  boot {after.boot_id[:8]}" in shown.stdout
        assert "CLOCK_STEPPED: the wall clock was set by +1000 ms" in shown.stdout
    assert good(tmp_path).epoch == after.epoch, "and it goes on in that epoch"


def test_another_boot_discards_the_reading_and_says_so(tmp_path: Path) -> None:
    good(tmp_path)

    def reboot(saved: dict[str, Any]) -> None:
        saved["reading"]["boot_id"] = "another"

    edit(tmp_path, reboot)
    with clockgated(tmp_path, settings(tmp_path, SILENT)) as daemon:
        reading = read(daemon)
        assert reading.state == clock_pb2.CLOCK_STATE_UNKNOWN
        newest = epochs(daemon)[-1]
        assert (newest["cause"], newest["boot_id"]) == ("STARTING", reading.boot_id)
        assert "the last reading is of boot another" in newest["detail"]


def test_a_changed_kernel_frequency_while_away_is_paid_for_in_bound(tmp_path: Path) -> None:
    before = good(tmp_path)

    def retune(saved: dict[str, Any]) -> None:
        saved["steering"]["freq_ppb"] += 100_000_000

    edit(tmp_path, retune)
    saved = saved_reading(tmp_path)
    with clockgated(tmp_path, settings(tmp_path, SILENT, "max_bound_ms = 60000")) as daemon:
        after = read(daemon)
        away_ns = after.as_of_boot_ns - saved["as_of_boot_ns"]
        assert after.epoch == before.epoch
        # 10 % of the time until it was taken up, which is most of it.
        assert after.relative_bound_ns > saved["relative_bound_ns"] + away_ns // 100


def test_a_saved_reading_that_is_garbage_begins_an_epoch_that_does_not_fall(tmp_path: Path) -> None:
    before = good(tmp_path)
    (tmp_path / "run/last-reading.json").write_bytes(b"\x00{")
    with clockgated(tmp_path, settings(tmp_path, SILENT)) as daemon:
        reading = read(daemon)
        assert reading.state == clock_pb2.CLOCK_STATE_UNKNOWN
        assert reading.epoch > before.epoch


def test_a_disruption_is_in_the_journal_with_the_reading(tmp_path: Path) -> None:
    with clockgated(tmp_path, settings(tmp_path)) as daemon:
        first = read_until(daemon, clock_pb2.CLOCK_STATE_SYNCHRONIZED)
        assert daemon.ctl("drill", "step", "1s").returncode == 0
        due = time.monotonic() + 10
        while (reading := read(daemon)).epoch == first.epoch:
            assert time.monotonic() < due
            time.sleep(0.02)
        lines = (tmp_path / "state/epochs.jsonl").read_text().splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == [first.epoch, first.epoch + 1]
        newest = epochs(daemon)[-1]
        assert (newest["epoch"], newest["cause"]) == (reading.epoch, "CLOCK_STEPPED")
        assert 0 <= host.boot_ns() - newest["began_boot_ns"] < 60 * NS_PER_S
        assert newest["jump_ns"] is None, "a pretended step sets no clock"


def test_an_estimate_is_shown_beside_the_bound_and_is_no_part_of_it(tmp_path: Path) -> None:
    with clockgated(tmp_path, settings(tmp_path)) as daemon:
        reading = read_until(daemon, clock_pb2.CLOCK_STATE_SYNCHRONIZED)
        assert (reading.estimate_95_ns, reading.relative_bound_ns) == (900, 200_000)
        assert "95 % estimate   900 ns (for people; the bound is the promise)" in daemon.ctl("status").stdout
        assert json.loads(daemon.ctl("status", "--json").stdout)["estimate_95_ns"] == 900
