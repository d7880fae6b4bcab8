import ctypes
import os
import pwd
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from clockgated.manage.carry_out import find_segment, free_segment, last_segments, write_plan
from clockgated.manage.feed import SHM_KEY_BASE
from clockgated.manage.plan import make_plan
from clockgated.manage.planned import Folders, Plan, PlannedFolder
from clockgated.manage.settings import Mode
from support.plan_hosts import NTP_CLIENT, host

ME = pwd.getpwuid(os.geteuid()).pw_name
IPC_CREAT = 0o1000
SEGMENT = 251


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(f"{tmp_path}/run", f"{tmp_path}/state")


def ntp_plan(folders: Folders) -> Plan:
    return make_plan(NTP_CLIENT, replace(host(), chrony_user=ME), folders)


def mode(path: str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def test_folders_and_files_are_what_the_plan_says_whatever_the_umask(folders: Folders) -> None:
    plan = ntp_plan(folders)
    before = os.umask(0o077)
    try:
        write_plan(plan, folders, running=())
    finally:
        os.umask(before)
    for folder in plan.folders:
        assert mode(folder.path) == folder.mode, folder
    for file in plan.files:
        assert (Path(file.path).read_text(), mode(file.path)) == (file.text, file.mode)


def test_an_unchanged_file_is_not_written_again(folders: Folders) -> None:
    plan = ntp_plan(folders)
    write_plan(plan, folders, running=())
    (file,) = plan.files
    before = Path(file.path).stat()
    write_plan(plan, folders, running=())
    assert Path(file.path).stat().st_ino == before.st_ino
    Path(file.path).write_text("edited by hand")
    write_plan(plan, folders, running=())
    assert Path(file.path).read_text() == file.text


def test_leftovers_go_but_for_daemons_that_run(folders: Folders) -> None:
    plan = ntp_plan(folders)
    write_plan(plan, folders, running=())
    (daemon,) = plan.daemons
    names = {Path(path).name for path in daemon.leftovers}
    assert names == {"chronyd.sock", "chronyd.pid"}
    for path in daemon.leftovers:
        Path(path).touch()
    write_plan(plan, folders, running={"chronyd"})
    assert all(Path(path).exists() for path in daemon.leftovers)
    write_plan(plan, folders, running=())
    assert not any(Path(path).exists() for path in daemon.leftovers)


def test_a_link_in_the_place_of_a_folder_is_not_followed(folders: Folders, tmp_path: Path) -> None:
    plan = ntp_plan(folders)
    write_plan(plan, folders, running=())
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o755)
    dump = Path(folders.run, "chrony/dump")
    dump.rmdir()
    dump.symlink_to(precious)
    with pytest.raises(OSError, match="dump"):
        write_plan(plan, folders, running=())
    assert mode(str(precious)) == 0o755


def test_a_user_that_is_gone_is_named(folders: Folders) -> None:
    plan = Plan(Mode.NTP, (), folders=(PlannedFolder(folders.run, 0o755, "no-such-user"),))
    with pytest.raises(OSError, match="no user no-such-user"):
        write_plan(plan, folders, running=())


def test_segments_of_the_last_plan_are_remembered(folders: Folders) -> None:
    assert last_segments(folders) == ()
    write_plan(replace(ntp_plan(folders), shm_segments=(SEGMENT,)), folders, running=())
    assert last_segments(folders) == (SEGMENT,)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"shm_segments": 3}', '{"shm_segments": ["a", true]}', "\0"])
def test_a_damaged_memory_of_the_last_plan_is_none(folders: Folders, text: str) -> None:
    Path(folders.run).mkdir()
    Path(folders.run, "plan.json").write_text(text)
    assert last_segments(folders) == ()


TABLE = """       key      shmid perms                  size  cpid  lpid nattch   uid
1314148496      65538   600                    96     1     1      2     0
1314148497      65539   600                    96     1     1      0     0
"""


def test_a_segment_is_found_by_its_key_with_whether_it_is_used() -> None:
    assert find_segment(TABLE, 1314148496) == (65538, True)
    assert find_segment(TABLE, 1314148497) == (65539, False)
    assert find_segment(TABLE, 1) is None
    assert find_segment("", 1) is None


def test_an_unused_segment_is_removed(tmp_path: Path) -> None:
    assert ctypes.CDLL(None).shmget(SHM_KEY_BASE + SEGMENT, 96, IPC_CREAT | 0o600) >= 0
    assert free_segment(SEGMENT)
    assert find_segment(Path("/proc/sysvipc/shm").read_text(), SHM_KEY_BASE + SEGMENT) is None
    assert free_segment(SEGMENT), "one that is not there is gone"


def test_a_segment_in_use_is_left_alone(tmp_path: Path) -> None:
    table = tmp_path / "shm"
    table.write_text(TABLE)
    assert free_segment(1314148496 - SHM_KEY_BASE, table) is False
