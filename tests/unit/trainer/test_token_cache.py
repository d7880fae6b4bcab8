import errno
import fcntl
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clockgate_trainer.data.cache import cached, content_key, store_name
from clockgate_trainer.data.record import Fault, Kind
from clockgate_trainer.data.store import BadDataError, DamagedError, data_of, open_store, write_store
from clockgate_trainer.data.tokens import Coded, TokenRow, token_data
from clockgate_trainer.errors import ConfigError

ROWS = [TokenRow.after([1, *range(10, 12 + row % 3), 2], 1 + row % 2) for row in range(7)]
FILES = ["ids.i32", "learned.u8", "ends.i64", "labels.i64", "meta.json"]


def coded() -> Iterator[Coded | Fault]:
    for line, row in enumerate(ROWS, start=1):
        yield Coded(row, line, 2, 3, line == 1, line < 3)
    yield Fault(9, Kind.EMPTY_ANSWER, "é")


def test_store_gives_back_what_was_written(tmp_path: Path) -> None:
    write_store(tmp_path / "s", coded())
    store = open_store(tmp_path / "s")
    for place, wanted in enumerate(ROWS):
        np.testing.assert_array_equal(store.row(place).input_ids, wanted.input_ids)
        np.testing.assert_array_equal(store.row(place).learned, wanted.learned)
    summary = store.summary
    assert (summary.rows, summary.cut_prompts, summary.cut_answers, summary.largest_id) == (7, 1, 2, 13)
    assert summary.warnings == (Fault(9, Kind.EMPTY_ANSWER, "é"),)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_data_of_stores_is_like_data_in_memory_and_can_hold_rows_twice_or_not(tmp_path: Path) -> None:
    write_store(tmp_path / "s", coded())
    store = open_store(tmp_path / "s")
    data = data_of([(store, [0, 1]), (store, [6, 0])])
    wanted = token_data([ROWS[place] for place in (0, 1, 6, 0)])
    assert [row.labels.tolist() for row in data.rows] == [row.labels.tolist() for row in wanted.rows]
    assert data.lengths.tolist() == wanted.lengths.tolist()
    assert data.label_counts.tolist() == wanted.label_counts.tolist()
    assert len({data_of([(store, rows)]).fingerprint for rows in ([0, 1], [1, 0], [0])}) == 3


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_damage_is_found_and_the_store_made_again(
    tmp_path: Path, name: str, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = cached(tmp_path, "s", coded, subject="rows").digest
    path = tmp_path / "s" / name
    content = path.read_bytes()
    if harm == "flip":
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    elif harm == "cut":
        path.write_bytes(content[:-1])
    else:
        path.unlink()
    with pytest.raises((DamagedError, OSError)):
        open_store(tmp_path / "s")
    assert cached(tmp_path, "s", coded, subject="rows").digest == before
    assert "made again" in caplog.text


def test_store_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    cached(tmp_path, "s", coded, subject="rows")

    def never() -> Iterator[Coded | Fault]:
        raise AssertionError

    assert cached(tmp_path, "s", never, subject="rows").summary.rows == 7


def test_faults_leave_no_store_and_up_to_twenty_are_told(tmp_path: Path) -> None:
    def bad() -> Iterator[Coded | Fault]:
        yield from coded()
        for line in range(100, 150):
            yield Fault(line, Kind.NULL, "x")
        raise AssertionError("read on after twenty faults")

    with pytest.raises(BadDataError) as caught:
        cached(tmp_path, "s", bad, subject="rows")
    assert [fault.line for fault in caught.value.faults] == list(range(100, 120))
    assert [path.name for path in tmp_path.iterdir()] == ["s.lock"]


def test_writer_that_dies_half_way_leaves_nothing_that_is_taken_for_whole(tmp_path: Path) -> None:
    def dies() -> Iterator[Coded | Fault]:
        yield from coded()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached(tmp_path, "s", dies, subject="rows")
    # What a killed process would have left.
    (tmp_path / ".s.draft").mkdir()
    (tmp_path / ".s.draft" / "ids.i32").write_bytes(b"torn")
    assert cached(tmp_path, "s", coded, subject="rows").summary.rows == 7
    assert not (tmp_path / ".s.draft").exists()


def _rank(folder: Path, made: Any) -> None:
    def slowly() -> Iterator[Coded | Fault]:
        with made.get_lock():
            made.value += 1
        time.sleep(0.5)
        yield from coded()

    assert cached(folder, "s", slowly, subject="rows").summary.rows == 7


def test_processes_that_start_together_tokenize_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    made = context.Value("i", 0)
    ranks = [context.Process(target=_rank, args=(tmp_path, made)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(40)
    assert [rank.exitcode for rank in ranks] == [0] * 4
    assert made.value == 1


def test_folder_that_cannot_be_used_is_told_with_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="--token_cache"):
        cached(tmp_path / "file", "s", coded, subject="rows")

    def no_locks(_handle: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(ConfigError, match="No locks available"):
        cached(tmp_path, "s", coded, subject="rows")


def test_name_follows_from_every_fact_and_content(tmp_path: Path) -> None:
    assert len({store_name(facts) for facts in ({"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 1})}) == 4
    path = tmp_path / "rows"
    path.write_bytes(b"a")
    first = content_key(path)
    path.write_bytes(b"b")
    assert content_key(path) != first
