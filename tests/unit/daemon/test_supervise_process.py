import os
import signal
import subprocess
import time
from pathlib import Path

from clockgated.supervise.process import (
    ProcessIdentity,
    environment_of,
    holders,
    identity_of,
    is_alive,
    parse_stat,
    send,
)
from hypothesis import given
from hypothesis import strategies as st

_TAIL = "S " + " ".join(str(number) for number in range(4, 22)) + " 4711 3133440 412"


def test_stat_is_read_behind_a_name_with_blanks_and_parentheses() -> None:
    assert parse_stat(f"99 (a) b (c)) {_TAIL}\n") == ("S", 4711)


@given(st.text(max_size=200))
def test_stat_parser_accepts_any_text(text: str) -> None:
    parse_stat(text)
    parse_stat(f"1 ({text}) {_TAIL}")


def test_own_identity_is_found_and_alive() -> None:
    me = identity_of(os.getpid())
    assert me is not None
    assert is_alive(me)
    assert not is_alive(ProcessIdentity(me.pid, me.start_ticks + 1))


def test_a_zombie_has_an_identity_and_is_not_alive() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        identity = identity_of(process.pid)
        assert identity is not None
        assert not is_alive(identity)


def test_a_signal_reaches_the_named_process_and_never_a_successor_of_its_pid() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        identity = identity_of(process.pid)
        assert identity is not None
        assert send(ProcessIdentity(process.pid, identity.start_ticks - 1), signal.SIGKILL) is None
        time.sleep(0.1)
        assert process.poll() is None
        assert send(identity, signal.SIGKILL) is None
        assert process.wait(10) == -signal.SIGKILL
    assert send(identity, signal.SIGKILL) is None


def test_only_those_who_lock_a_file_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.touch()
    locking = ["flock", "--no-fork", str(path), "sleep", "60"]
    with (
        subprocess.Popen(locking) as holder,
        path.open("rb") as opened,
        subprocess.Popen(["sleep", "60"], stdin=opened) as reader,
    ):
        due = time.monotonic() + 10
        while not holders(path) and time.monotonic() < due:
            time.sleep(0.02)
        assert [identity.pid for identity in holders(path)] == [holder.pid]
        holder.kill()
        reader.kill()


def test_environment_is_that_of_the_start() -> None:
    with subprocess.Popen(["/bin/sleep", "60"], env={"CLOCKGATE_SPEC": "a=b"}) as process:
        due = time.monotonic() + 10
        while environment_of(process.pid) is None and time.monotonic() < due:
            time.sleep(0.01)
        shown = environment_of(process.pid)
        process.kill()
    assert shown == {"CLOCKGATE_SPEC": "a=b"}
    assert environment_of(process.pid) is None
