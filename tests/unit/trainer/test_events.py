import json
import math
import os
import struct
from enum import IntEnum
from pathlib import Path

import pytest
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.events import EventLog, MetricLog
from hypothesis import given, settings
from hypothesis import strategies as st


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_rank_has_a_file_and_every_line_carries_both_clocks_rank_and_attempt(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    for rank, name in ((0, "events.jsonl"), (3, "events-rank3.jsonl")):
        log = EventLog(folder, rank)
        log.write("gate", step=4, verdict="PROCEED")
        log.close()
        (line,) = lines_of(folder / name)
        assert {key: line[key] for key in ("event", "rank", "attempt", "step", "verdict")} == {
            "event": "gate",
            "rank": rank,
            "attempt": 1,
            "step": 4,
            "verdict": "PROCEED",
        }
        assert isinstance(line["wall_ns"], int)
        assert isinstance(line["mono_ns"], int)


def test_a_field_never_replaces_a_stamp(tmp_path: Path) -> None:
    log = EventLog(tmp_path, 0)
    log.write("gate", event="other", rank=9, wall_ns=0, attempt=7)
    (line,) = lines_of(log.path)
    assert (line["event"], line["rank"], line["attempt"]) == ("gate", 0, 1)
    assert line["wall_ns"] != 0


def test_a_resumed_run_appends_under_the_next_attempt(tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        log = EventLog(tmp_path, 0)
        assert log.attempt == attempt
        log.write("start")
        log.close()
    assert [line["attempt"] for line in lines_of(tmp_path / "events.jsonl")] == [1, 2, 3]


def test_the_attempt_is_found_behind_lines_longer_than_one_look(tmp_path: Path) -> None:
    log = EventLog(tmp_path, 0)
    log.write("start")
    log.close()
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b"x" * 200_000 + b"\n")
    assert EventLog(tmp_path, 0).attempt == 2


def test_a_line_torn_by_a_crash_spoils_only_itself(tmp_path: Path) -> None:
    log = MetricLog(tmp_path)
    log.write(step=1)
    log.write(step=2)
    log.close()
    os.truncate(log.path, log.path.stat().st_size - 5)
    again = MetricLog(tmp_path)
    again.write(step=2)
    again.close()
    first, torn, last = log.path.read_text(encoding="utf-8").splitlines()
    assert json.loads(first)["step"] == 1
    with pytest.raises(ValueError, match=r"delimiter|Unterminated|Expecting"):
        json.loads(torn)
    assert (json.loads(last)["step"], json.loads(last)["attempt"]) == (2, 2)


@settings(deadline=None)
@given(st.floats(width=64))
def test_a_float_reads_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, value: float) -> None:
    log = MetricLog(tmp_path_factory.mktemp("floats"))
    log.write(loss=value)
    log.close()
    back = float(str(lines_of(log.path)[0]["loss"]))
    assert struct.pack("d", back) == struct.pack("d", value) or (math.isnan(back) and math.isnan(value))


def test_nan_and_infinities_are_strings_that_float_reads(tmp_path: Path) -> None:
    log = MetricLog(tmp_path)
    log.write(loss=math.nan, grad_norm=math.inf, low=-math.inf, nested={"values": [math.nan]})
    (line,) = lines_of(log.path)
    assert (line["loss"], line["grad_norm"], line["low"], line["nested"]) == ("nan", "inf", "-inf", {"values": ["nan"]})


class Colour(IntEnum):
    RED = 1


def test_values_that_json_does_not_know_become_text(tmp_path: Path) -> None:
    log = EventLog(tmp_path, 0)
    log.write("odd", path=Path("/a"), colour=Colour.RED, group={3}, key={4: b"x"}, lone="\ud800")
    (line,) = lines_of(log.path)
    assert line["path"] == "/a"
    assert line["colour"] == 1
    assert line["group"] == [3]
    assert line["key"] == {"4": "b'x'"}
    assert line["lone"] == "\ud800"


def test_a_full_disk_loses_lines_says_so_once_and_counts_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(tmp_path, 0)
    log.write("before")
    write = os.write

    def half_then_full(handle: int, content: bytes) -> int:
        if log.dropped == 0:
            return write(handle, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "write", half_then_full)
        for _ in range(3):
            log.write("lost")
    log.write("after")
    log.write("later")
    log.close()
    assert log.dropped == 3
    before, torn, after, later = log.path.read_text(encoding="utf-8").splitlines()
    assert json.loads(before)["event"] == "before"
    assert '"lost"' in torn
    assert json.loads(after)["lines_lost_before"] == 3
    assert "lines_lost_before" not in json.loads(later)
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "events.jsonl is not complete" in told


def test_a_log_that_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    with pytest.raises(ConfigError, match=r"events\.jsonl cannot be written .* another --output_dir"):
        EventLog(tmp_path, 0)


def test_flush_and_close_may_come_late_and_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = EventLog(tmp_path, 0)
    log.close()
    log.close()
    log.flush()
    log.write("too late")
    assert log.dropped == 1
    assert "it is closed" in capfd.readouterr().err
