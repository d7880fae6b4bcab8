"""From the command line to parts: --check, --print-plan, and what the daemon says. No daemon runs here."""

import json
import logging
from pathlib import Path

import pytest
from clockgated import main
from clockgated.clock.model import ClockState, Reason, ReasonCode
from clockgated.narrator import Narrator
from clockgated.serving import Retry
from clockgated.units import NS_PER_S
from support.readings import reading


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
    recording = tmp_path / "none.jsonl"
    file.write_text(f'[clock]\nmode = "observe"\nsource = "recorded"\n[recorded]\nfile = "{recording}"\n')
    assert main.main(["--config", str(file), "--check"]) == 78
    assert "none.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--log-level", "loud"],
        ["--mode", "x"],
        ["extra"],
        ["--json"],
        ["--check", "--print-plan"],
        ["--print-plan", "--give-back"],
    ],
)
def test_wrong_usage_ends_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(words)
    assert ended.value.code == 2


def observing(folder: Path) -> list[str]:
    file = folder / "c.toml"
    file.write_text(f'[clock]\nmode = "observe"\n[folders]\nrun = "{folder / "run"}"\nstate = "{folder / "state"}"\n')
    return ["--config", str(file)]


def test_print_plan_shows_the_plan_for_people_and_for_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = observing(tmp_path)
    assert main.main([*words, "--print-plan"]) == 0
    assert capsys.readouterr().out.startswith("mode: observe\nwhy:\n  ASKED_FOR: ")
    assert main.main([*words, "--print-plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mode"] == "observe"
    assert [path.name for path in tmp_path.iterdir()] == ["c.toml"], "nothing is written"


def test_give_back_without_anything_taken_over_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([*observing(tmp_path), "--give-back"]) == 0
    assert capsys.readouterr() == ("", "")


def test_give_back_that_fails_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = observing(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state/taken-over.json").write_text("?")
    assert main.main([*words, "--give-back"]) == 1
    assert "taken-over.json: not JSON" in capsys.readouterr().err


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


def test_planning_is_tried_again_at_growing_distances() -> None:
    retry, now_ns, waits = Retry(0), 0, []
    for _ in range(9):
        began_ns = now_ns
        while not retry.is_due(now_ns):
            now_ns += NS_PER_S
        waits.append((now_ns - began_ns) // NS_PER_S)
        retry.failed(now_ns)
    assert waits == [15, 30, 60, 120, 240, 480, 900, 900, 900]
