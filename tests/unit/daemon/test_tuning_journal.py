"""The journal's records: what survives a torn line, what is refused, what they tell."""

import contextlib
import os
from pathlib import Path

import pytest
from clockgated.tuning.journal import (
    JournalError,
    LinkStamps,
    Mark,
    Record,
    Stage,
    Transaction,
    encode,
    parse,
    transactions,
)
from clockgated.tuning.journal_file import JournalFile, JournalMovedError
from clockgated.tuning.model import Area, Knob, LinkId
from hypothesis import given
from hypothesis import strategies as st
from support.tuning import BOOT, change

CHANGE = change("net.ipv4.tcp_rmem", "4096 131072 6291456", "4096 131072 67108864")


def record(mark: Mark, apply_id: int = 7, **fields: object) -> Record:
    return Record(mark, apply_id, BOOT, 1000, **fields)  # type: ignore[arg-type]


OPEN = record(Mark.OPEN, detail="hash")
WRITE = record(Mark.WRITE, step=0, change=CHANGE)


def told(*records: Record) -> Transaction:
    return transactions(parse(b"".join(map(encode, records))).records)[0]


def test_a_record_comes_back_as_it_was_written() -> None:
    link = LinkId("eth0", 3, "02:00:00:00:00:01", "mlx5_core")
    knob = Knob(4026531840, Area.RINGS, "rx", link)
    written = record(Mark.WRITE, step=2, change=change(knob, "1024", "2048"), stamps=(LinkStamps(link, 1, 12),))

    assert parse(encode(written)).records == (written,)


@pytest.mark.parametrize("kept", range(1, len(encode(WRITE)), 13))
def test_a_torn_last_record_is_dropped_wherever_it_was_torn(kept: int) -> None:
    content = parse(encode(OPEN) + encode(WRITE)[:kept])

    assert content.records == (OPEN,)
    assert content.is_torn
    assert content.intact_bytes == len(encode(OPEN))


@pytest.mark.parametrize("place", range(0, len(encode(OPEN)) - 1, 23))
def test_damage_before_the_last_record_is_an_error_that_names_the_line(place: int) -> None:
    damaged = bytearray(encode(OPEN))
    damaged[place] ^= 1

    with pytest.raises(JournalError, match="line 1"):
        parse(bytes(damaged) + encode(WRITE))


@given(st.binary(max_size=300))
def test_no_bytes_make_reading_fail_otherwise(data: bytes) -> None:
    with contextlib.suppress(JournalError):
        transactions(parse(data).records)


@given(st.lists(st.sampled_from(list(Mark)), max_size=12))
def test_no_order_of_records_makes_reading_fail_otherwise(marks: list[Mark]) -> None:
    with contextlib.suppress(JournalError):
        transactions([record(mark, step=0, change=CHANGE, value="1") for mark in marks])


def test_a_write_is_in_flight_until_a_later_record_says_that_it_is_over() -> None:
    assert told(OPEN, WRITE).steps[0].is_in_flight
    assert told(OPEN, WRITE, record(Mark.UNDO)).steps[0].is_in_flight
    assert not told(OPEN, WRITE, record(Mark.WRITTEN)).steps[0].is_in_flight
    assert not told(OPEN, WRITE, record(Mark.WRITE, step=1, change=CHANGE)).steps[0].is_in_flight


def test_undo_all_undoes_what_is_in_force_and_nothing_that_is_over() -> None:
    over = [record(Mark.OPEN, 1), record(Mark.UNDO, 1), record(Mark.END, 1)]
    kept = [record(Mark.OPEN, 2), record(Mark.COMMIT, 2)]
    found = transactions([*over, *kept, record(Mark.UNDO_ALL, 0, detail="asked")])

    assert [one.stage for one in found] == [Stage.ENDED, Stage.UNDOING]


def test_records_without_a_beginning_are_refused() -> None:
    with pytest.raises(JournalError, match="out of order"):
        transactions([WRITE])


def test_an_append_drops_a_torn_record_first(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, BOOT)
    with journal.locked():
        apply_id = journal.open("hash")
    with journal.path.open("ab") as file:
        file.write(encode(WRITE)[:40])

    fresh = JournalFile(tmp_path, BOOT)
    fresh.read()
    with fresh.locked():
        fresh.append(Mark.COMMIT, apply_id)

    assert fresh.read()[0].stage is Stage.COMMITTED
    assert not parse(fresh.path.read_bytes()).is_torn


def test_whoever_finds_that_another_process_appended_stops(tmp_path: Path) -> None:
    ours, guards = JournalFile(tmp_path, BOOT), JournalFile(tmp_path, BOOT)
    with ours.locked():
        apply_id = ours.open("hash")
    guards.read()
    guards.append(Mark.UNDO, apply_id)

    with pytest.raises(JournalMovedError):
        ours.append(Mark.COMMIT, apply_id)
    assert ours.read()[0].stage is Stage.UNDOING


def test_a_lock_that_a_stopped_process_holds_is_given_up_on(tmp_path: Path) -> None:
    with JournalFile(tmp_path, BOOT).locked() as first, JournalFile(tmp_path, BOOT).locked(patience_s=0.1) as second:
        assert first
        assert not second


def test_a_full_disk_is_told_before_anything_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalFile(tmp_path, BOOT)
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:30]))

    with pytest.raises(JournalError, match="make room"):
        journal.open("hash")
    monkeypatch.undo()

    # What was taken of the record is dropped by the next one.
    assert journal.read() == ()
    assert journal.open("hash") > 0
    assert len(journal.read()) == 1


def test_ids_rise_although_the_clock_may_not(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, BOOT, now_boot_ns=lambda: 5)

    assert [journal.open("a"), journal.open("b"), journal.open("c")] == [5, 6, 7]


def test_only_root_reads_the_journal(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "tuning", BOOT)
    with journal.locked():
        journal.open("hash")

    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert journal.path.parent.stat().st_mode & 0o777 == 0o700
