"""From configuration to parts: units, the choice of the source, --check. No daemon runs here."""

import logging
from pathlib import Path

import pytest
from clockgated import config, main
from clockgated.clock.model import ClockState, Reason, ReasonCode, SourceKind
from clockgated.clock.state import StatePolicy
from clockgated.narrator import Narrator
from support.readings import reading


def settings(text: str) -> config.Config:
    return config.parse(text.encode(), "x.toml")


@pytest.mark.parametrize(
    ("source", "exists", "kind"),
    [
        ("auto", True, SourceKind.CHRONY),
        ("auto", False, SourceKind.KERNEL),
        ("chrony", False, SourceKind.CHRONY),
        ("kernel", True, SourceKind.KERNEL),
        ("recorded", True, SourceKind.RECORDED),
    ],
)
def test_auto_is_chrony_exactly_when_its_socket_exists(source: str, exists: bool, kind: SourceKind) -> None:
    asked = settings(f'[clock]\nsource = "{source}"\n[recorded]\nfile = "/x"\n')
    assert main.choose_source(asked, chrony_socket_exists=exists) is kind


def test_settings_reach_the_policies_in_their_units() -> None:
    asked = settings(
        "[clock]\nmax_bound_ms = 0.5\nreading_ttl_s = 7\nmax_drift_ppm = 20\nholdover_horizon_s = 3\nsync_cycles = 4\n"
        "[chrony]\nmaxclockerror_ppm = 1.5\n"
    )
    assert main.state_policy(asked) == StatePolicy(
        max_bound_ns=500_000,
        sync_cycles=4,
        holdover_horizon_ns=3_000_000_000,
        reading_ttl_ns=7_000_000_000,
        growth_ppb=20_000,
    )
    bound = main.bound_policy(asked)
    assert (bound.max_drift_ppb, bound.assumed_clockerror_ppb) == (20_000, 1_500)


def test_check_prints_ok_for_a_good_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[clock]\nmax_bound_ms = 5\n")
    assert main.main(["--config", str(file), "--check"]) == 0
    assert capsys.readouterr().out == "ok\n"


def test_check_prints_every_problem_and_ends_with_78(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[clock]\nmax_bound_us = 5\nsync_cycles = 0\n")
    assert main.main(["--config", str(file), "--check"]) == 78
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"clockgated: {file}: [clock] ") for line in lines)


def test_check_reads_the_recording_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f'[clock]\nsource = "recorded"\n[recorded]\nfile = "{tmp_path / "none.jsonl"}"\n')
    assert main.main(["--config", str(file), "--check"]) == 78
    assert "none.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--log-level", "loud"], ["--mode", "x"], ["extra"]])
def test_wrong_usage_ends_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(words)
    assert ended.value.code == 2


def test_narrator_speaks_of_changes_only(caplog: pytest.LogCaptureFixture) -> None:
    now = [reading(state=ClockState.ACQUIRING, relative_bound_ns=None)]
    narrator = Narrator(lambda: now[0])
    caplog.set_level(logging.INFO)
    narrator.tell()
    assert not caplog.messages
    now[0] = reading(reasons=(Reason(ReasonCode.ISLAND, "alone"),))
    assert narrator.tell() == "SYNCHRONIZED, bound ±0.04 ms, epoch 3, source chrony"
    narrator.tell()
    assert caplog.messages == ["SYNCHRONIZED, bound ±0.04 ms, epoch 3, source chrony (was ACQUIRING); ISLAND: alone"]
    now[0] = reading(epoch=4, state=ClockState.DISRUPTED)
    narrator.tell()
    assert caplog.records[-1].levelno == logging.WARNING
