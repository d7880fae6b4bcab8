"""ClockGate.connect in a process of one rank: what a person can give it, and what it makes of that."""

import logging
from pathlib import Path
from typing import Any

import clockgate_trainer
import pytest
from clockgate_trainer import ClockGate, StepVerdict
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.gate.limits import make_limits
from clockgate_trainer.gate.model import Limits
from support.fake_daemon import FakeDaemon, make_reading
from support.patience import eventually


def test_a_gate_with_a_daemon_votes_holds_a_lease_and_gives_it_back(tmp_path: Path) -> None:
    with FakeDaemon(tmp_path / "clock.sock") as daemon:
        gate = ClockGate.connect(job="mine", clock_daemon=str(daemon.path), time_sync_check="true")
        assert gate.launch_check().step_verdict is StepVerdict.PROCEED
        gate.begin(1)
        assert gate.settle().step_verdict is StepVerdict.PROCEED
        gate.begin(2)
        decision = gate.settle()
        assert decision.rows[0].step_duration_ns > 0, "the time from begin to settle of the step before"
        # The lease is asked for beside the votes.
        assert eventually(lambda: [lease.job for lease in daemon.leases] == ["mine"])
        gate.close()
        gate.close()


def test_without_a_daemon_it_warns_demands_or_does_without_as_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("clockgate_trainer.gate.gate._FIRST_ANSWER_S", 0.05)
    nowhere: dict[str, Any] = {"clock_daemon": str(tmp_path / "none.sock")}
    with pytest.raises(ConfigError, match="clock daemon of rank 0 does not answer") as caught:
        ClockGate.connect(time_sync_check="true", **nowhere)
    assert caught.value.ranks == (0,)
    gate = ClockGate.connect(**nowhere)
    with caplog.at_level(logging.WARNING, "clockgate_trainer"):
        assert gate.launch_check().step_verdict is StepVerdict.WARN
    assert "warning: DAEMON_NEVER_REACHED (rank 0); training goes on" in caplog.text
    gate.close()
    off = ClockGate.connect(time_sync_check="false", **nowhere)
    assert off.launch_check().step_verdict is StepVerdict.PROCEED
    off.close()


def test_it_has_the_limits_and_the_policy_that_it_was_given(tmp_path: Path) -> None:
    bad = {"max_sync_delay_ms": 1.0, "on_unknown": "stop", "hold_timeout_s": 0.1}
    with FakeDaemon(tmp_path / "clock.sock", lambda: make_reading(bound_ns=600_000)) as daemon:
        gate = ClockGate.connect(clock_daemon=str(daemon.path), **bad)  # type: ignore[arg-type]  # a dict of unlike values
        assert gate.launch_check().step_verdict is StepVerdict.STOP
        gate.close()


@pytest.mark.parametrize(
    "options",
    [
        {"hold_timeout_s": float("inf")},
        {"hold_timeout_s": -1},
        {"vote_timeout_s": float("nan")},
        {"vote_timeout_s": 0},
        {"time_sync_check": "yes"},
        {"on_unknown": "hope"},
        {"max_sync_delay_ms": 0.0},
        {"max_sync_delay_ms": float("nan")},
        {"max_sync_delay_ms": 1.0, "warn_sync_delay_ms": 2.0},
    ],
)
def test_values_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="wanted"):
        ClockGate.connect(**options)


def test_flags_and_arguments_give_the_same_limits() -> None:
    assert make_limits(50.0) == Limits(warn_ns=5_000_000, hold_ns=50_000_000)
    settings = parse(["--max_sync_delay", "0.001"])
    assert make_limits(settings.max_sync_delay, settings.warn_delay_ms) == make_limits(0.001) == Limits(100, 1_000)


def test_names_of_the_package_are_found_and_others_are_not() -> None:
    for name in clockgate_trainer.__all__:
        assert getattr(clockgate_trainer, name) is not None
    with pytest.raises(AttributeError, match="Clockgate"):
        _ = clockgate_trainer.Clockgate  # type: ignore[attr-defined]  # the point of the test
