import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from clockgated.service.reach import ReachWatch, is_answered

FAST_S = 0.02


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    server = grpc.server(ThreadPoolExecutor(1))
    path = tmp_path / "served.sock"
    server.add_insecure_port(f"unix:{path}")
    server.start()
    yield path
    server.stop(0).wait()


@pytest.fixture
def mute(tmp_path: Path) -> Iterator[Path]:
    """A socket whose connections the kernel queues and nobody accepts, as after a listener has died."""
    path = tmp_path / "mute.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(100)
        yield path


def lost(watch: ReachWatch, timeout_s: float = 20) -> str:
    due = time.monotonic() + timeout_s
    while (why := watch.lost()) is None:
        assert time.monotonic() < due
        time.sleep(0.01)
    return why


def test_only_somebody_who_speaks_is_an_answer(served: Path, mute: Path, tmp_path: Path) -> None:
    assert is_answered(served)
    assert not is_answered(mute, 0.1)
    assert not is_answered(tmp_path / "absent")
    (tmp_path / "file").touch()
    assert not is_answered(tmp_path / "file")


def test_sockets_that_serve_stay_unlost(served: Path) -> None:
    with closing(ReachWatch([served], look_interval_s=FAST_S)) as watch:
        time.sleep(20 * FAST_S)
        assert watch.lost() is None


def test_a_deleted_file_and_one_in_its_place_are_noticed(served: Path, mute: Path) -> None:
    with closing(ReachWatch([served], look_interval_s=FAST_S)) as watch:
        served.unlink()
        assert lost(watch) == f"{served}: the socket's file was deleted"
    with closing(ReachWatch([mute], look_interval_s=FAST_S)) as watch:
        mute.unlink()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            other.bind(str(mute))
            assert "replaced by another" in lost(watch) or "deleted" in lost(watch)


def test_a_listener_that_no_longer_accepts_is_noticed(mute: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clockgated.service.reach.is_answered", lambda path: is_answered(path, 0.05))
    with closing(ReachWatch([mute], look_interval_s=FAST_S)) as watch:
        assert lost(watch) == f"{mute}: 3 connections in a row got no answer"


def test_its_thread_ends_with_it(served: Path) -> None:
    watch = ReachWatch([served], look_interval_s=FAST_S)
    watch.close()
    due = time.monotonic() + 10
    while any(thread.name == "reach" for thread in threading.enumerate()):
        assert time.monotonic() < due
        time.sleep(0.01)
