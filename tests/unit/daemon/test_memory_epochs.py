from dataclasses import replace
from pathlib import Path

import pytest
from clockgated.memory.epochs import Disruption, EpochJournal, JournalContent, encode, highest_epoch, parse
from hypothesis import given
from hypothesis import strategies as st

FIRST = Disruption(2, "boot-1", 10, 1_800_000_000_000_000_000, "CLOCK_STEPPED", "set by +1 s", 10**9)
TEXT = st.text(max_size=30)
NUMBER = st.integers(-(1 << 63), (1 << 63) - 1)
DISRUPTIONS = st.builds(Disruption, NUMBER, TEXT, NUMBER, NUMBER, TEXT, TEXT, st.none() | NUMBER)


@given(st.lists(DISRUPTIONS, max_size=5))
def test_a_journal_is_read_back_as_written(disruptions: list[Disruption]) -> None:
    assert parse(b"".join(map(encode, disruptions))) == JournalContent(tuple(disruptions))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_journal(data: bytes) -> None:
    parse(data)


@given(st.integers(1, 200))
def test_a_torn_last_line_is_told_and_hides_nothing(cut: int) -> None:
    line = encode(FIRST)
    content = parse(line + line[: min(cut, len(line) - 2)])
    assert content.disruptions == (FIRST,)
    assert len(content.discarded) == 1
    assert "line 2 (the last line, torn off)" in content.discarded[0]


def test_a_disruption_of_a_newer_release_is_kept() -> None:
    newer = replace(FIRST, code="SOMETHING_NEW")
    line = encode(newer).replace(b"{", b'{"another": [1], ', 1)
    assert parse(line).disruptions == (newer,)


def test_a_line_after_a_torn_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "epochs.jsonl"
    path.write_bytes(encode(FIRST) + encode(FIRST)[:20])
    journal = EpochJournal(path)
    assert journal.append(replace(FIRST, epoch=3)) is None
    content = journal.read()
    assert [one.epoch for one in content.disruptions] == [2, 3]
    assert len(content.discarded) == 1


def test_the_journal_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    journal = EpochJournal(tmp_path / "epochs.jsonl", keep=10)
    for epoch in range(55):
        assert journal.append(replace(FIRST, epoch=epoch)) is None
        epochs = [one.epoch for one in journal.read().disruptions]
        assert len(epochs) <= 20
        assert epochs == list(range(epoch + 1 - len(epochs), epoch + 1))
        assert len(epochs) >= min(epoch + 1, 10)


def test_a_journal_of_noise_is_cleaned_by_and_by(tmp_path: Path) -> None:
    path = tmp_path / "epochs.jsonl"
    path.write_bytes(b"noise\n" * 1000 + encode(FIRST))
    journal = EpochJournal(path, keep=10)
    assert journal.append(replace(FIRST, epoch=3)) is None
    assert journal.read() == JournalContent((FIRST, replace(FIRST, epoch=3)))


def test_only_the_end_of_a_huge_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "epochs.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 34)
        file.seek(0, 2)
        file.write(b"\n" + encode(FIRST))
    assert EpochJournal(path, keep=1).read().disruptions == (FIRST,)


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert EpochJournal(tmp_path / "none").read() == JournalContent()


@pytest.mark.parametrize("kind", ["folder", "no parent"])
def test_a_journal_that_cannot_be_written_is_told_and_never_raises(tmp_path: Path, kind: str) -> None:
    path = tmp_path if kind == "folder" else tmp_path / "absent" / "epochs.jsonl"
    complaint = EpochJournal(path).append(FIRST)
    assert complaint is not None
    assert "epoch 2 is not recorded" in complaint
    assert EpochJournal(path).read().disruptions == ()


def test_a_long_detail_is_cut_to_a_line_that_can_be_read() -> None:
    assert parse(encode(replace(FIRST, detail="\N{OWL}" * 10_000))).disruptions


def test_the_highest_epoch_is_that_of_the_boot() -> None:
    disruptions = (FIRST, replace(FIRST, epoch=9), replace(FIRST, epoch=50, boot_id="boot-0"))
    assert highest_epoch(disruptions, "boot-1") == 9
    assert highest_epoch(disruptions, "boot-2") is None
