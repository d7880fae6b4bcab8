"""The job's lease, on a fake daemon that refuses, restarts and breaks."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from clockgate_trainer.gate import lease, sidecar
from clockgate_trainer.gate.clocks import boot_ns
from clockgate_trainer.gate.lease import Notice
from clockgate_trainer.gate.model import Limits, StepVerdict
from clockgate_trainer.gate.policy import OnUnknown
from clockgate_trainer.gate.sidecar import NullSidecar, Sidecar
from support.fake_daemon import FakeDaemon

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
FULL = (grpc.StatusCode.RESOURCE_EXHAUSTED, "64 leases are open, the limit is 64")
BROKEN = (grpc.StatusCode.ABORTED, "the operator broke it")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    made = FakeDaemon(tmp_path / "clock.sock")
    made.stream_period_s = 0.05
    yield made
    made.stop()


@pytest.fixture
def rank(daemon: FakeDaemon) -> Iterator[Sidecar]:
    made = Sidecar(daemon.address, LIMITS, job="job", rank=3, with_lease=True)
    yield made
    made.close()


def wait_for(condition: Callable[[], bool], within_s: float = 10) -> float:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < within_s, f"not so after {within_s} s"
        time.sleep(0.01)
    return time.monotonic() - started


def notices(rank: Sidecar) -> list[Notice]:
    found: list[Notice] = []

    def took() -> bool:
        found.extend(rank.take_notices())
        return bool(found)

    wait_for(took)
    return found


def test_a_lease_names_job_and_rank_and_ends_with_the_sidecar(daemon: FakeDaemon, rank: Sidecar) -> None:
    daemon.start()
    wait_for(lambda: len(daemon.leases) == 1)
    assert (daemon.leases[0].job, daemon.leases[0].rank) == ("job", 3)
    (opened,) = notices(rank)
    assert (opened.event, opened.level) == ("lease_opened", "INFO")
    rank.close()
    wait_for(lambda: not daemon.leases)


def test_a_rank_without_a_lease_asks_for_none(daemon: FakeDaemon) -> None:
    daemon.start()
    plain = Sidecar(daemon.address, LIMITS, job="job", rank=1)
    assert plain.await_answer(10)
    time.sleep(0.3)
    assert not daemon.leases
    assert plain.take_notices() == NullSidecar().take_notices() == ()
    plain.close()


def test_a_lease_is_back_within_two_seconds_of_a_daemons_restart(daemon: FakeDaemon, rank: Sidecar) -> None:
    daemon.start()
    wait_for(lambda: len(daemon.leases) == 1)
    notices(rank)
    daemon.stop()
    wait_for(lambda: not daemon.leases)
    time.sleep(1.5)  # reconnecting has backed off as far as it does
    daemon.start()
    assert wait_for(lambda: len(daemon.leases) == 1) < 2
    assert rank.take_notices() == (), "a daemon's absence is told by its readings"


def test_a_refused_lease_is_a_warning_told_once_and_stops_nothing(
    daemon: FakeDaemon, rank: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_REFUSED_S", 0.05)
    daemon.lease_refusal = FULL
    daemon.start()
    (refused,) = notices(rank)
    assert (refused.event, refused.level) == ("lease_refused", "WARNING")
    assert "RESOURCE_EXHAUSTED: 64 leases are open" in refused.detail
    time.sleep(0.5)
    assert rank.take_notices() == ()
    assert rank.verdict(boot_ns(), OnUnknown.HOLD).step is StepVerdict.PROCEED
    daemon.lease_refusal = None
    wait_for(lambda: len(daemon.leases) == 1)
    assert notices(rank)[0].event == "lease_opened"


def test_a_broken_lease_is_told_and_asked_for_again(
    daemon: FakeDaemon, rank: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_REFUSED_S", 0.05)
    daemon.start()
    wait_for(lambda: len(daemon.leases) == 1)
    notices(rank)
    daemon.lease_refusal = BROKEN
    lost = notices(rank)[0]
    assert (lost.event, lost.level) == ("lease_lost", "WARNING")
    assert "the operator broke it" in lost.detail
    daemon.lease_refusal = None
    wait_for(lambda: len(daemon.leases) == 1)


@pytest.mark.parametrize(
    ("status", "event"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "lease_refused"),
        (grpc.StatusCode.UNIMPLEMENTED, "lease_unknown"),
    ],
)
def test_a_question_with_one_answer_is_asked_once(
    daemon: FakeDaemon, rank: Sidecar, monkeypatch: pytest.MonkeyPatch, status: grpc.StatusCode, event: str
) -> None:
    monkeypatch.setattr(lease, "_REFUSED_S", 0.05)
    daemon.lease_refusal = (status, "no")
    daemon.start()
    assert notices(rank)[0].event == event
    daemon.lease_refusal = None
    time.sleep(0.5)
    assert not daemon.leases


def test_one_long_step_does_not_cost_the_lease(
    daemon: FakeDaemon, rank: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "_IDLE_ASK_S", 0.1)
    monkeypatch.setattr(sidecar, "_RENEW_S", 0.3)
    daemon.start()
    assert rank.await_answer(10)
    rank.ask(7)
    wait_for(lambda: sum(request.step == 7 for request in daemon.requests) >= 3)
