import os
from pathlib import Path

import pytest
from clockgated.supervise.ledger import Ledger, Record, encode, parse
from hypothesis import given
from hypothesis import strategies as st

RECORD = Record("ptp4l@eth0", "boot", 12, 34, "digest")


def test_a_record_is_read_back_as_written(tmp_path: Path) -> None:
    Ledger(tmp_path / "new").record(RECORD)
    assert Ledger(tmp_path / "new").load() == (RECORD,)


def test_a_forgotten_record_is_gone(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.record(RECORD)
    ledger.forget(RECORD.name)
    assert ledger.load() == ()


@given(st.binary(max_size=300))
def test_any_bytes_are_a_record_or_a_complaint(data: bytes) -> None:
    assert isinstance(parse(data), Record | str)


@given(st.integers(0, 200), st.binary(max_size=4))
def test_a_damaged_record_never_raises(at: int, noise: bytes) -> None:
    whole = encode(RECORD)
    assert isinstance(parse(whole[:at] + noise + whole[at + len(noise) :]), Record | str)


@pytest.mark.parametrize("wrong", [b'"pid": "12"', b'"pid": -1', b'"pid": true', b'"pid": 99999999999'])
def test_a_pid_that_is_none_is_refused(wrong: bytes) -> None:
    assert isinstance(parse(encode(RECORD).replace(b'"pid": 12', wrong)), str)


def test_garbage_is_told_and_removed_and_hides_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger(tmp_path)
    ledger.record(RECORD)
    (tmp_path / "chronyd.json").write_bytes(b"\0\0\0")
    (tmp_path / "other.json").write_bytes(encode(RECORD))
    assert ledger.load() == (RECORD,)
    assert {path.name for path in tmp_path.iterdir()} == {"ptp4l@eth0.json"}
    assert "chronyd.json discarded: not JSON" in caplog.text
    assert "other.json discarded: is about ptp4l@eth0" in caplog.text


def test_a_lock_is_taken_once_until_every_copy_is_closed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    first = ledger.take_lock("chronyd")
    assert first is not None
    inherited = os.dup(first)
    os.close(first)
    assert Ledger(tmp_path).take_lock("chronyd") is None
    os.close(inherited)
    again = ledger.take_lock("chronyd")
    assert again is not None
    os.close(again)


def test_a_file_in_the_place_of_the_pipe_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "chronyd.out").write_text("not a pipe")
    assert Ledger(tmp_path).pipe_path("chronyd").is_fifo()
    assert Ledger(tmp_path).pipe_path("chronyd").is_fifo()


def test_the_folder_is_private(tmp_path: Path) -> None:
    Ledger(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
