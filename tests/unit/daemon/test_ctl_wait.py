"""`clockgatectl wait` against a served reading."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from clockgate.v1 import clock_pb2
from clockgated import systemd
from clockgated.ctl import wait_command
from clockgated.ctl.main import main
from support.fake_daemon import FakeDaemon, make_reading

pytestmark = pytest.mark.usefixtures("quick_looks")


class Ready(systemd.SilentNotifier):
    """Notes that systemd was told."""

    def __init__(self) -> None:
        self.told = threading.Event()

    def ready(self) -> None:
        self.told.set()


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_command, "_INTERVAL_S", 0.05)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "read.sock").start()
    try:
        yield fake
    finally:
        fake.stop()


def bad() -> clock_pb2.Reading:
    return make_reading(state=clock_pb2.CLOCK_STATE_FREE_RUNNING)


def test_a_clock_within_its_limits_is_not_waited_for(served: FakeDaemon) -> None:
    assert main(["--address", served.address, "wait"]) == 0


def test_a_clock_outside_is_waited_for_until_it_is_within(served: FakeDaemon) -> None:
    looks: list[clock_pb2.Reading] = [bad(), bad()]
    served.reading = lambda: looks.pop() if looks else make_reading()
    assert main(["--address", served.address, "wait", "--timeout", "30"]) == 0
    assert not looks


def test_waiting_ends_at_its_timeout_and_tells_the_state(
    served: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    served.reading = bad
    assert main(["--address", served.address, "wait", "--timeout", "0.1"]) == 1
    assert capsys.readouterr().err == "clockgatectl: the clock is FREE_RUNNING\n"


def test_a_daemon_that_is_not_there_is_told_apart(tmp_path: Path) -> None:
    assert main(["--address", str(tmp_path / "none.sock"), "wait", "--timeout", "0"]) == 3


def test_staying_tells_systemd_and_ends_when_the_clock_leaves_its_limits(
    served: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = Ready()
    monkeypatch.setattr(systemd, "notifier", lambda _: ready)
    served.reading = lambda: bad() if ready.told.is_set() else make_reading()
    assert main(["--address", served.address, "wait", "--stay"]) == 1
    assert ready.told.is_set()


def test_staying_outlives_a_daemon_that_is_away_for_less_than_its_reading_lives(
    served: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, codes = Ready(), list[int]()
    monkeypatch.setattr(systemd, "notifier", lambda _: ready)
    served.reading = lambda: make_reading(ttl_s=3.0)
    waiting = threading.Thread(target=lambda: codes.append(main(["--address", served.address, "wait", "--stay"])))
    waiting.start()
    assert ready.told.wait(20)
    served.stop()
    waiting.join(0.5)
    assert waiting.is_alive()
    waiting.join(30)
    assert codes == [3]


def test_staying_forgives_what_is_shorter_than_the_grace(
    served: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = Ready()
    monkeypatch.setattr(systemd, "notifier", lambda _: ready)
    # Within at the start, outside for three looks, within once, and outside for good.
    looks = [bad(), make_reading(), bad(), bad(), bad(), make_reading()]
    served.reading = lambda: looks.pop() if len(looks) > 1 else looks[0]
    assert main(["--address", served.address, "wait", "--stay", "--grace", "1"]) == 1
    assert capsys.readouterr().err.count("FREE_RUNNING") == 2


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "inf"])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["wait", f"--timeout={text}"])
    assert stopped.value.code == 2
