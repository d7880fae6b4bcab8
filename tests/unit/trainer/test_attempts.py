"""Starts that get nowhere: counted per checkpoint, refused after two in a row."""

import json
from pathlib import Path

import pytest
from clockgate_trainer.attempts import (
    ATTEMPTS_FILE,
    Attempts,
    clear_attempts,
    next_attempt,
    read_attempts,
    write_attempts,
)
from clockgate_trainer.events import METRICS_FILE, MetricLog, last_value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def starts(*from_and_reached: tuple[int, int]) -> list[bool]:
    """Whether each start is allowed; `reached` is what was finished before it."""
    attempts: Attempts | None = None
    allowed = []
    for from_step, reached in from_and_reached:
        attempts = next_attempt(attempts, from_step, reached)
        allowed.append(attempts.may_start)
    return allowed


def test_the_third_start_at_a_step_that_does_not_work_is_refused() -> None:
    # The run saved step 100 and died in step 103; so did the two that resumed from 100.
    assert starts((0, 0), (100, 102), (100, 102), (100, 102)) == [True, True, True, False]


def test_a_start_that_got_further_counts_from_there() -> None:
    assert all(starts((100, 102), (100, 102), (100, 103), (100, 103), (100, 104), (100, 105)))
    assert starts((100, 102), (100, 102), (100, 103), (100, 103), (100, 103))[-1] is False


def test_another_checkpoint_and_step_zero_start_anew() -> None:
    assert all(starts((100, 102), (100, 102), (200, 205), (200, 205), (100, 205), (100, 205)))
    assert all(starts(*[(0, 0)] * 9))


def test_a_start_that_goes_less_far_than_one_before_is_fruitless() -> None:
    assert starts((100, 150), (100, 120), (100, 120)) == [True, True, False]


def test_the_count_is_read_as_written_and_forgotten(tmp_path: Path) -> None:
    assert read_attempts(tmp_path) is None
    write_attempts(tmp_path, Attempts(100, 102, 1))
    assert read_attempts(tmp_path) == Attempts(100, 102, 1)
    assert [path.name for path in tmp_path.iterdir()] == [ATTEMPTS_FILE]
    clear_attempts(tmp_path)
    clear_attempts(tmp_path)
    assert read_attempts(tmp_path) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=40)
    | st.dictionaries(st.sampled_from(["from_step", "fruitless"]), st.none()).map(
        lambda value: json.dumps(value).encode()
    )
)
def test_a_damaged_count_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ATTEMPTS_FILE).write_bytes(content)
    assert read_attempts(tmp_path) is None


@pytest.mark.parametrize("tail", ["", '{"step": 9, "att', "garbage\n", '{"note": 1}\n'])
def test_the_last_step_of_a_log_is_found_behind_a_torn_line(tmp_path: Path, tail: str) -> None:
    path = tmp_path / METRICS_FILE
    assert last_value(path, "step") is None
    log = MetricLog(tmp_path)
    for step in (1, 2):
        log.write(step=step, loss=0.5)
    log.close()
    with path.open("a", encoding="utf-8") as file:
        file.write(tail)
    assert last_value(path, "step") == 2
