import os
import threading
import time
from pathlib import Path

import pytest
from clockgated.supervise.output import LineBudget, LineCutter, OutputReader
from clockgated.units import NS_PER_MS, NS_PER_S
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.binary(max_size=60), max_size=30))
def test_lines_do_not_depend_on_how_the_stream_was_split(parts: list[bytes]) -> None:
    cutter = LineCutter(max_bytes=40)
    lines = [line for part in parts for line in cutter.feed(part)]
    whole = LineCutter(max_bytes=40).feed(b"".join(parts))
    assert lines == whole
    assert all(0 < len(line) <= 40 and b"\n" not in line for line in lines)


def test_an_overlong_line_is_cut_and_the_next_is_whole() -> None:
    cutter = LineCutter(max_bytes=5)
    assert cutter.feed(b"abcdefgh") == []
    assert cutter.feed(b"ijk\nnext\r\n\n") == [b"abcde", b"next"]


def test_memory_stays_bounded_without_any_line_end() -> None:
    cutter = LineCutter(max_bytes=100)
    for _ in range(1000):
        assert cutter.feed(b"x" * 1000) == []
    assert cutter.feed(b"\n") == [b"x" * 100]


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 2000)), max_size=50))
def test_budget_never_grants_more_than_burst_plus_rate(asked: list[tuple[int, int]]) -> None:
    budget, now_ns, granted = LineBudget(per_second=100, burst=500), 0, 0
    for wanted, later_ms in asked:
        now_ns += later_ms * NS_PER_MS
        now = budget.take(wanted, now_ns)
        assert 0 <= now <= wanted
        granted += now
    assert granted <= 500 + 100 * now_ns // NS_PER_S


class _Pipe:
    """A named pipe with a reader that follows it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "pipe"
        os.mkfifo(self.path)
        self.lines: list[tuple[str, str]] = []
        self.reader = OutputReader(lambda name, line: self.lines.append((name, line)))
        self.reader.follow("one", self.path)

    def write(self, data: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY)
        os.write(descriptor, data)
        os.close(descriptor)

    def wait_for(self, count: int) -> None:
        due = time.monotonic() + 10
        while len(self.lines) < count and time.monotonic() < due:
            time.sleep(0.01)
        assert len(self.lines) >= count


def test_lines_arrive_with_their_name_over_several_writers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    pipe = _Pipe(tmp_path)
    pipe.write(b"first\nbegun")
    pipe.reader.end_line("one")
    pipe.write(b"second\x1b[2J\xff\n")
    pipe.wait_for(3)
    pipe.reader.close()
    assert pipe.lines == [("one", "first"), ("one", "begun"), ("one", "second\x1b[2J�")]
    assert "one: second�[2J�" in caplog.messages


def test_unfollowed_pipe_is_closed_and_can_be_followed_again(tmp_path: Path) -> None:
    pipe = _Pipe(tmp_path)
    pipe.reader.unfollow("one")
    due = time.monotonic() + 10
    while time.monotonic() < due:
        try:
            os.close(os.open(pipe.path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            break
        time.sleep(0.01)
    with pytest.raises(OSError, match="No such device or address"):
        os.open(pipe.path, os.O_WRONLY | os.O_NONBLOCK)
    pipe.reader.follow("one", pipe.path)
    pipe.write(b"again\n")
    pipe.wait_for(1)
    pipe.reader.close()


def test_closing_ends_the_thread_and_leaves_no_descriptor(tmp_path: Path) -> None:
    threads, descriptors = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    pipe = _Pipe(tmp_path)
    assert threading.active_count() == threads + 1
    pipe.reader.close()
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
