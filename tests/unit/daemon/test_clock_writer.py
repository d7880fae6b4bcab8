import os
import shutil
from pathlib import Path

import pytest
from clockgated.sources.clock_writer import ClockWriter, find_writers, is_running
from support.fake_proc import add_process


def test_a_time_daemon_with_the_right_to_set_the_clock_is_found(tmp_path: Path) -> None:
    add_process(tmp_path, 40, "bash")
    add_process(tmp_path, 300, "chronyd", "/usr/sbin/chronyd", "-F", "1", start_ticks=77)
    assert find_writers(tmp_path) == (ClockWriter("chronyd", 300, 77, True),)


def test_every_writer_is_found_and_only_two_kinds_keep_the_error(tmp_path: Path) -> None:
    for pid, name in enumerate(["chronyd", "ntpd", "phc2sys", "systemd-timesyn"], 10):
        add_process(tmp_path, pid, name)
    found = [(writer.name, writer.keeps_maxerror) for writer in find_writers(tmp_path)]
    assert found == [("chronyd", True), ("ntpd", True), ("phc2sys", False), ("systemd-timesyn", False)]


def test_a_daemon_without_the_right_to_set_the_clock_is_no_writer(tmp_path: Path) -> None:
    add_process(tmp_path, 10, "chronyd", capabilities=(1 << 40) - 1 - (1 << 25))
    assert find_writers(tmp_path) == ()


def test_chronyds_child_is_no_second_daemon(tmp_path: Path) -> None:
    add_process(tmp_path, 10, "chronyd")
    add_process(tmp_path, 11, "chronyd", parent=10)
    assert [writer.pid for writer in find_writers(tmp_path)] == [10]


@pytest.mark.parametrize(
    ("words", "is_writer"),
    [
        (["chronyd", "-x"], False),
        (["chronyd", "-d", "-x"], False),
        (["chronyd", "-nx"], False),
        (["chronyd", "-F", "1", "-x"], False),
        (["chronyd", "-u", "-x"], True),
        (["chronyd", "-fx.conf"], True),
        (["chronyd", "-f", "/etc/x.conf", "-F-1"], True),
        (["chronyd", "--x"], True),
        (["chronyd", "server x"], True),
    ],
)
def test_chronyd_told_to_leave_the_clock_alone_is_no_writer(tmp_path: Path, words: list[str], is_writer: bool) -> None:
    add_process(tmp_path, 10, "chronyd", *words)
    assert bool(find_writers(tmp_path)) is is_writer


def test_ntpd_that_slews_by_itself_leaves_the_kernels_error_unattended(tmp_path: Path) -> None:
    add_process(tmp_path, 10, "ntpd", "ntpd", "-p", "/run/ntpd.pid", "-gx")
    assert [writer.keeps_maxerror for writer in find_writers(tmp_path)] == [False]
    # For phc2sys the letter means something else.
    add_process(tmp_path, 10, "phc2sys", "phc2sys", "-x")
    assert len(find_writers(tmp_path)) == 1


def test_a_process_that_ends_meanwhile_is_skipped(tmp_path: Path) -> None:
    add_process(tmp_path, 10, "chronyd")
    add_process(tmp_path, 11, "ntpd")
    (tmp_path / "10" / "stat").unlink()
    (tmp_path / "11" / "status").write_text("")
    (tmp_path / "12").mkdir()
    assert find_writers(tmp_path) == ()
    assert find_writers(tmp_path / "absent") == ()


def test_a_later_process_with_the_same_number_is_another(tmp_path: Path) -> None:
    add_process(tmp_path, 10, "chronyd", start_ticks=5)
    (writer,) = find_writers(tmp_path)
    assert is_running(tmp_path, writer)
    add_process(tmp_path, 10, "chronyd", start_ticks=6)
    assert not is_running(tmp_path, writer)
    assert find_writers(tmp_path)[0].identity != writer.identity
    shutil.rmtree(tmp_path / "10")
    assert not is_running(tmp_path, writer)


def test_the_real_proc_is_readable() -> None:
    assert isinstance(find_writers(Path("/proc")), tuple)
    assert is_running(Path("/proc"), ClockWriter("init", os.getpid(), 0, False)) is False
