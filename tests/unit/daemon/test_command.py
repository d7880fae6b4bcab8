import threading
import time
from pathlib import Path

import pytest
from clockgated.sources.command import Ending, run_bounded
from support.fake_program import fake_program, is_gone

LIMIT = 100_000


def test_output_and_exit_code_come_back(tmp_path: Path) -> None:
    program = fake_program(tmp_path, "echo out $1; echo err >&2; exit 3")
    outcome = run_bounded([str(program), "one"], 10, LIMIT)
    assert outcome.ending is Ending.EXITED
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (3, b"out one\n", b"err\n")
    assert is_gone(tmp_path)


def test_death_by_signal_is_a_negative_exit_code(tmp_path: Path) -> None:
    outcome = run_bounded([str(fake_program(tmp_path, "kill -9 $$"))], 10, LIMIT)
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, -9)


@pytest.mark.parametrize(
    "script",
    ["exec sleep 60", "sleep 60", "exec >&- 2>&-; exec sleep 60", "trap '' TERM; while :; do sleep 1; done"],
    ids=["hangs", "hangs in a child of its own", "hangs after closing its output", "ignores signals"],
)
def test_a_program_that_hangs_is_killed_and_reaped_in_time(tmp_path: Path, script: str) -> None:
    program = fake_program(tmp_path, script)
    began = time.monotonic()
    outcome = run_bounded([str(program)], 0.5, LIMIT)
    assert (outcome.ending, outcome.exit_code) == (Ending.TIMED_OUT, None)
    assert time.monotonic() - began < 10
    assert is_gone(tmp_path)


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        ("sleep 60 & echo $! >{file}; wait", Ending.TIMED_OUT),
        ("sleep 60 <&- >&- 2>&- & echo $! >{file}; echo done; exit 4", Ending.EXITED),
    ],
    ids=["waited for", "left behind with its pipes closed"],
)
def test_a_hanging_grandchild_is_killed_too(tmp_path: Path, script: str, ending: Ending) -> None:
    outcome = run_bounded([str(fake_program(tmp_path, script.format(file=tmp_path / "grandchild")))], 2, LIMIT)
    assert outcome.ending is ending
    assert (outcome.exit_code, outcome.stdout) == ((4, b"done\n") if ending is Ending.EXITED else (None, b""))
    grandchild = Path("/proc", (tmp_path / "grandchild").read_text().strip(), "stat")
    due = time.monotonic() + 10
    # It is init's to reap; until then it may be seen as a zombie.
    while grandchild.exists() and grandchild.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < due
        time.sleep(0.01)


def test_a_flood_is_cut_off(tmp_path: Path) -> None:
    outcome = run_bounded([str(fake_program(tmp_path, "while :; do echo flood; done"))], 30, LIMIT)
    assert outcome.ending is Ending.FLOODED
    assert len(outcome.stdout) < LIMIT + 100_000
    assert is_gone(tmp_path)


def test_a_flood_of_errors_cannot_block_the_program(tmp_path: Path) -> None:
    program = fake_program(tmp_path, "head -c 200000 /dev/zero >&2; echo done")
    outcome = run_bounded([str(program)], 30, 10 * LIMIT)
    assert (outcome.ending, outcome.stdout, len(outcome.stderr)) == (Ending.EXITED, b"done\n", 200_000)


def test_a_program_that_is_not_there_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_bounded([str(tmp_path / "absent")], 1, LIMIT)


def test_no_descriptor_and_no_thread_is_left_behind(tmp_path: Path) -> None:
    program = str(fake_program(tmp_path, "exec sleep 60"))
    before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    for _ in range(3):
        run_bounded([program], 0.1, LIMIT)
    assert (len(list(Path("/proc/self/fd").iterdir())), threading.active_count()) == before
