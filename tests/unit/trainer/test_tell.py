import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from clockgate_trainer.events import EventLog, MetricLog
from clockgate_trainer.tell import let_go_of_stderr, tell
from clockgate_trainer.train.report import Reporter, Standing


@pytest.fixture
def full() -> Iterator[TextIO]:
    """A stream that has no room for a byte, as standard error."""
    # Not a with block: closing tries to write once more what found no room.
    stream = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115
    yield stream
    with pytest.raises(OSError, match="No space"):
        stream.close()


def test_line_that_finds_no_room_is_lost_and_nothing_else(full: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", full)
    tell("nobody hears this")


def test_run_goes_on_when_its_log_has_no_room(tmp_path: Path, full: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", full)
    reporter = Reporter(EventLog(tmp_path, 0), MetricLog(tmp_path), Standing())
    reporter.say("a word to a person")
    reporter.close()
    assert "a word to a person" in (tmp_path / "events.jsonl").read_text(encoding="utf-8")


def test_terminal_that_is_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, here = pty.openpty()
    os.close(terminal)
    with os.fdopen(here, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        tell("nobody hears this")
        let_go_of_stderr()


def test_full_disk_under_standard_error_leaves_the_exit_code_as_it_is() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "clockgate_trainer", "--max_step", "3"]
        done = subprocess.run(command, env={"PYTHONPATH": ":".join(sys.path)}, timeout=50, check=False, stderr=full)
    assert done.returncode == 2
