"""Naming ranks after a lost vote, over a store that is a dictionary."""

import threading
import time

from clockgate_trainer.gate.heartbeat import Blame, Heartbeat


class DictStore:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.gone = threading.Event()

    def set(self, key: str, value: str) -> None:
        if self.gone.is_set():
            raise RuntimeError("Broken pipe")
        self.values[key] = value

    def multi_get(self, keys: list[str]) -> list[bytes]:
        if self.gone.is_set():
            raise RuntimeError("Broken pipe")
        return [self.values[key].encode() for key in keys]


def hearts(store: DictStore, count: int) -> list[Heartbeat]:
    return [Heartbeat(store, rank, count) for rank in range(count)]


def test_the_silent_the_late_and_the_departed_are_told_apart() -> None:
    asking, dead, stuck, departed, well = hearts(DictStore(), 5)
    for heart in (asking, departed, well):
        heart.votes = 3
    stuck.votes = 2
    time.sleep(0.5)
    dead.stop()
    departed.leave()
    started = time.monotonic()
    assert asking.blame() == Blame(silent=(1,), late=(2,))
    assert time.monotonic() - started < 3
    for heart in (asking, stuck, well):
        heart.stop()


def test_nobody_is_blamed_when_the_store_is_gone() -> None:
    store = DictStore()
    asking, other = hearts(store, 2)
    store.gone.set()
    assert asking.blame() == Blame()
    asking.leave()
    other.stop()


class FrozenStore(DictStore):
    """A store whose host is frozen, or behind a dead link, from a moment on: whoever asks waits."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = threading.Event()
        self.thawed = threading.Event()

    def set(self, key: str, value: str) -> None:
        self._answer()
        super().set(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self._answer()
        return super().multi_get(keys)

    def _answer(self) -> None:
        if self.frozen.is_set():
            self.thawed.wait()


def test_nobody_is_waited_for_when_the_store_does_not_answer() -> None:
    store = FrozenStore()
    asking, other = hearts(store, 2)
    store.frozen.set()
    started = time.monotonic()
    assert asking.blame() == Blame()
    asking.leave()
    assert time.monotonic() - started < 10
    store.thawed.set()
    other.stop()
