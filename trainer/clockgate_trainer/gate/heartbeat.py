"""Signs of life in the job's key-value store, read only after a vote was lost, to name the ranks at fault.

A thread of each rank counts up. It stands still when the process is stopped or dead, and goes on when the rank is
merely busy; beside the count it tells how many votes the rank has joined, which names a rank that is stuck elsewhere.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

PERIOD_S = 0.3
# With more ranks each beats less often: one store serves all of them, about 3,000 beats a second at most.
_RANKS_AT_FULL_PACE = 1000
# A machine with more work than cores delays a beat, it does not skip four.
WATCH_PERIODS = 4
_LOOK_S = 0.1
_JOIN_S = 2.0
_ANSWER_S = 2.0
_GONE = -1


class Store(Protocol):
    """The part of torch.distributed's key-value store that is used here. Its failures are RuntimeErrors."""

    def set(self, key: str, value: str) -> None:
        """Store a value."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Read several values in one go; waits for keys that are not there yet."""


@dataclass(frozen=True)
class Blame:
    """Who kept a vote from completing, as far as signs of life tell; both empty when they tell nothing.

    `silent` ranks show no sign of life, `late` ranks are alive and have not joined the vote.
    """

    silent: tuple[int, ...] = ()
    late: tuple[int, ...] = ()


class Heartbeat:
    """Beats for `rank` in `store` until `stop`. The store must be a connection of its own: a wait in one thread blocks
    every other user of the same connection.
    """

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
        self._store = store
        self._rank = rank
        self._keys = [f"clockgate/heartbeat/{number}" for number in range(world_size)]
        self._period_s = PERIOD_S * max(1.0, world_size / _RANKS_AT_FULL_PACE)
        self._beats = 0
        self._answers = True
        self.votes = 0
        self._stopping = threading.Event()
        self._beat()
        self._thread = threading.Thread(target=self._keep_beating, name="clockgate-heartbeat", daemon=True)
        self._thread.start()

    def blame(self) -> Blame:
        """Watch the other ranks for four beats (1.2 s up to 1,000 ranks) at most and tell who is silent or late.

        A rank that left on purpose after losing a peer is neither. Nothing is told when the store is gone with its
        host, or does not answer for two seconds more: its host is frozen, or the way there is cut.
        """
        found: list[Blame] = []
        answered = _within(WATCH_PERIODS * self._period_s + _ANSWER_S, lambda: found.append(self._watch()))
        self._answers = self._answers and answered
        return found[0] if found else Blame()

    def _watch(self) -> Blame:
        try:
            first = now = self._look()
            until = time.monotonic() + WATCH_PERIODS * self._period_s
            silent = {rank for rank, (beats, _) in first.items() if beats != _GONE}
            while silent and time.monotonic() < until:
                time.sleep(_LOOK_S)
                now = self._look()
                silent = {rank for rank in silent if now[rank][0] == first[rank][0]}
        except RuntimeError:
            return Blame()
        late = {rank for rank, (beats, votes) in now.items() if beats != _GONE and votes < self.votes} - silent
        return Blame(silent=tuple(sorted(silent)), late=tuple(sorted(late)))

    def leave(self) -> None:
        """Tell the others that this rank goes on purpose, then stop."""
        self.stop()
        self._beats = _GONE
        if self._answers and not self._thread.is_alive():
            _within(_ANSWER_S, self._last_beat)

    def stop(self) -> None:
        """End the thread; may be called twice."""
        self._stopping.set()
        self._thread.join(_JOIN_S)

    def _last_beat(self) -> None:
        try:
            self._beat()
        except RuntimeError:
            return  # the store went with its host: nobody is left to read this

    def _keep_beating(self) -> None:
        while not self._stopping.wait(self._period_s):
            try:
                self._beats += 1
                self._beat()
            except RuntimeError:
                return  # the store went with its host; a lost vote will tell the rank

    def _beat(self) -> None:
        self._store.set(self._keys[self._rank], f"{self._beats} {self.votes}")

    def _look(self) -> dict[int, tuple[int, int]]:
        """Beats and votes of the other ranks."""
        looks = {}
        for rank, value in enumerate(self._store.multi_get(self._keys)):
            beats, _, votes = value.decode().partition(" ")
            if rank != self._rank:
                looks[rank] = (int(beats), int(votes))
        return looks


def _within(limit_s: float, work: Callable[[], None]) -> bool:
    """Do `work` in a thread and wait for it so long; whether it is done.

    A store that is frozen or cut off keeps its users for ever: the time limit of its own is kept by its server.
    """
    thread = threading.Thread(target=work, name="clockgate-store", daemon=True)
    thread.start()
    thread.join(limit_s)
    return not thread.is_alive()
