import os
from pathlib import Path

import pytest
from clockgated.errors import ConfigError
from clockgated.instance import FolderClaim


def test_a_run_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    first = FolderClaim(tmp_path / "run")
    assert first.is_held
    second = FolderClaim(tmp_path / "run")
    assert (second.is_held, second.owner) == (False, str(os.getpid()))
    with pytest.raises(ConfigError, match=rf"another clockgated uses it \(process {os.getpid()}\)"):
        second.insist()
    first.insist()
    first.close()
    third = FolderClaim(tmp_path / "run")
    assert third.is_held
    third.close()


def test_a_folder_that_cannot_be_had_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    claim = FolderClaim(tmp_path / "file/run")
    assert (claim.is_held, claim.owner) == (False, None)
    claim.insist()
    claim.close()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "clockgated.lock").symlink_to(precious)
    assert not FolderClaim(tmp_path).is_held
    assert precious.read_text() == "precious"


def test_nobody_else_can_hold_the_lock_also_where_an_earlier_release_left_it_open(tmp_path: Path) -> None:
    lock = tmp_path / "clockgated.lock"
    lock.touch(0o644)
    claim = FolderClaim(tmp_path)
    assert claim.is_held
    assert lock.stat().st_mode & 0o777 == 0o600
    claim.close()
