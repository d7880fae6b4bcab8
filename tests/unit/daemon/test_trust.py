"""Files that others can write are not obeyed by root; who cannot be root sees what root would do."""

import os
from pathlib import Path

import pytest
from clockgated import config, trust
from clockgated.errors import ConfigError
from clockgated.tuning import profile

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root refuses")

NOBODY = 65534


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    made = folder / "clockgated.toml"
    made.write_text("")
    made.chmod(0o644)
    assert trust.fault(made) is None, "pytest's folder is safe: sticky /tmp, then 0700"
    return made


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o602])
def test_a_file_that_others_can_write_is_refused_with_the_command_that_mends_it(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(ConfigError) as caught:
        config.load(file)
    assert str(caught.value) == (
        f"{file}: {file} has mode {mode:04o}: others can write what root obeys; run `chmod go-w {file}`"
    )
    file.chmod(mode & ~0o022)
    assert config.load(file) == config.Config()


def test_a_folder_that_others_can_write_is_refused_and_a_sticky_one_is_not(file: Path) -> None:
    file.parent.chmod(0o777)
    assert f"run `chmod go-w {file.parent}`" in str(trust.fault(file))
    file.parent.chmod(0o1777)
    assert trust.fault(file) is None


def test_what_is_mounted_read_only_is_written_by_nobody(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.parent.chmod(0o777)
    real = os.statvfs
    fields = list(real(file))
    fields[8] |= os.ST_RDONLY
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields) if path == file.parent else real(path))
    assert trust.fault(file) is None
    os.chown(file.parent, NOBODY, 0)
    assert trust.fault(file) is not None


def test_somebody_else_as_owner_of_file_or_folder_is_refused(file: Path) -> None:
    os.chown(file, NOBODY, 0)
    assert f"belongs to user {NOBODY}" in str(trust.fault(file))
    os.chown(file, 0, 0)
    os.chown(file.parent, NOBODY, 0)
    assert f"run `chown root {file.parent}`" in str(trust.fault(file))


def test_a_link_is_as_safe_as_where_it_lies_and_where_it_leads(file: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    link = own / "clockgated.toml"
    link.symlink_to("../etc/clockgated.toml")
    assert trust.fault(link) is None
    file.chmod(0o666)
    assert f"chmod go-w {file}" in str(trust.fault(link))
    file.chmod(0o644)
    # Through a link to a folder: what ".." means is decided by the folder, not by the text.
    deep = tmp_path / "deep/er"
    deep.mkdir(parents=True)
    (own / "to").symlink_to(deep)
    (tmp_path / "deep").chmod(0o777)
    assert f"chmod go-w {tmp_path / 'deep'}" in str(trust.fault(own / "to/../x.toml"))


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "more than 40 links" in str(trust.fault(tmp_path / "a"))


def test_a_tuning_profile_that_others_can_write_is_refused(file: Path) -> None:
    own = file.with_name("site.toml")
    own.write_text('extends = "tcp"\n')
    own.chmod(0o644)
    assert profile.load("site", file.parent).name == "site"
    own.chmod(0o666)
    with pytest.raises(ConfigError, match=r"others can write what root obeys; run `chmod go-w .*site\.toml`"):
        profile.load("site", file.parent)


def test_a_file_that_is_not_there_is_told_by_whoever_reads_it(tmp_path: Path) -> None:
    assert trust.fault(tmp_path / "none.toml") is None
