import os
from pathlib import Path

import pytest
from clockgated.durable import replace_file


def test_a_file_is_replaced_with_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "x"
    old = os.umask(0o077)
    try:
        for data in (b"one", b"two"):
            replace_file(path, data, mode=0o644)
            assert path.read_bytes() == data
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["x"]


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    replace_file(path, b"old")

    def refuse(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["x"]


def test_a_draft_left_by_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".x.new").write_bytes(b"half a longer fi")
    replace_file(tmp_path / "x", b"whole")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("x", b"whole")]


def test_without_sync_nothing_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    replace_file(tmp_path / "x", b"1", sync=False)
    assert synced == []
    replace_file(tmp_path / "x", b"2")
    assert len(synced) == 2
