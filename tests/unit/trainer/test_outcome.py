"""outcome.json on disk."""

import json
import os
from pathlib import Path

import pytest
from clockgate_trainer.outcome import OUTCOME_FILE, Outcome, clear_outcome, read_outcome, write_outcome
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

STOPPED = Outcome(code=75, reason="the hold budget is spent", step=12, checkpoint="runs/a/checkpoint-12", ranks=(1, 3))


def test_an_outcome_is_read_as_written_and_leaves_no_draft(tmp_path: Path) -> None:
    assert write_outcome(tmp_path, STOPPED) == tmp_path / OUTCOME_FILE
    assert read_outcome(tmp_path) == STOPPED
    assert list(tmp_path.iterdir()) == [tmp_path / OUTCOME_FILE]


def test_the_last_one_wins_and_a_reader_of_the_one_before_is_not_disturbed(tmp_path: Path) -> None:
    path = write_outcome(tmp_path, STOPPED)
    reader = path.open("rb")
    before = path.read_bytes()
    done = Outcome(code=0, reason="done", step=None, checkpoint=None, ranks=())
    write_outcome(tmp_path, done)
    assert read_outcome(tmp_path) == done
    with reader:
        assert reader.read() == before


def test_no_outcome_is_none_and_clearing_needs_none(tmp_path: Path) -> None:
    clear_outcome(tmp_path)
    clear_outcome(tmp_path / "no folder")
    assert read_outcome(tmp_path) is None
    write_outcome(tmp_path, STOPPED)
    clear_outcome(tmp_path)
    assert read_outcome(tmp_path) is None


def test_a_failed_write_keeps_the_old_outcome_and_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_outcome(tmp_path, STOPPED)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_outcome(tmp_path, Outcome(0, "done", None, None, ()))
    assert read_outcome(tmp_path) == STOPPED
    assert list(tmp_path.iterdir()) == [tmp_path / OUTCOME_FILE]


FIELDS = st.sampled_from(["code", "reason", "step", "checkpoint", "ranks"])
VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.none(), min_size=1, max_size=2)
ALMOST = st.dictionaries(FIELDS, VALUES, max_size=4) | VALUES


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | ALMOST.map(lambda value: json.dumps(value).encode()))
def test_a_damaged_outcome_names_its_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / OUTCOME_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=OUTCOME_FILE):
        read_outcome(tmp_path)
