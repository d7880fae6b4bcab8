"""What the gate asks of a vote, and the vote of a rank that is alone. Knows nothing of torch."""

from collections.abc import Callable
from typing import Protocol

from clockgate_trainer.gate.clocks import mono_ns
from clockgate_trainer.gate.model import Row


class Ballot(Protocol):
    """One vote under way. `started_mono_ns` and `received_mono_ns` are CLOCK_MONOTONIC, `received_wall_ns` is
    CLOCK_REALTIME; the two receive stamps are taken when the last row arrives, not when somebody looks; None before.
    """

    started_mono_ns: int
    received_mono_ns: int | None
    received_wall_ns: int | None

    def done(self) -> bool:
        """Whether all rows are here, or the vote has failed. Never blocks."""

    def collect(self, deadline_mono_ns: int, on_poll: Callable[[], None]) -> tuple[Row, ...]:
        """Rows of all ranks, in the order of ranks. Calls `on_poll` while it waits; signal handlers run meanwhile.

        Raises PeerLostError when the vote fails or the deadline passes; the group is of no use after that.
        """


class Vote(Protocol):
    """The ranks that decide together."""

    rank: int
    world_size: int

    def start(self, row: Row) -> Ballot:
        """Send this rank's row; returns at once. Every rank starts the same votes in the same order."""

    def close(self) -> None:
        """Stop taking part. May be called twice."""


class _SoloBallot:
    def __init__(self, row: Row) -> None:
        self._row = row
        self.started_mono_ns = mono_ns()
        self.received_mono_ns: int | None = self.started_mono_ns
        self.received_wall_ns: int | None = row.sent_wall_ns

    def done(self) -> bool:
        return True

    def collect(self, deadline_mono_ns: int, on_poll: Callable[[], None]) -> tuple[Row, ...]:
        return (self._row,)


class SoloVote:
    """The vote of a single rank: its row is the result. Needs no process group."""

    rank = 0
    world_size = 1

    def start(self, row: Row) -> Ballot:
        """Return a vote that is already complete."""
        return _SoloBallot(row)

    def close(self) -> None:
        """Do nothing."""
