"""The one collective of a step: every rank's row to every rank, over a gloo group of its own.

Asynchronous and awaited by polling: a blocking wait keeps signal handlers from running, and a timeout inside gloo
would kill the group.
"""

import os
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from clockgate_trainer.errors import PeerLostError
from clockgate_trainer.gate.ballot import Ballot, SoloVote, Vote
from clockgate_trainer.gate.clocks import mono_ns, wall_ns
from clockgate_trainer.gate.heartbeat import Blame, Heartbeat
from clockgate_trainer.gate.model import ROW_LENGTH, Kind, Row

__all__ = ["Ballot", "SoloVote", "Vote", "VoteGroup", "open_vote"]

_FIRST_NAP_S = 0.0001
_LONGEST_NAP_S = 0.01
_STORE_TIMEOUT = timedelta(seconds=2)
# gloo's own timeout must never fire before ours: after it the group is dead and the reason is lost.
_GLOO_MARGIN_S = 3600.0


def open_vote(vote_timeout_s: float) -> Vote:
    """The vote of this job: a group over all ranks, or SoloVote without torch.distributed or with one rank.

    A collective: every rank calls it at the same point, after init_process_group. `vote_timeout_s` is the longest
    deadline that will be used.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return SoloVote()
    group = dist.new_group(backend="gloo", timeout=timedelta(seconds=vote_timeout_s + _GLOO_MARGIN_S))
    return VoteGroup(group, _open_heartbeat(dist.get_rank(group), dist.get_world_size(group)))


def _open_heartbeat(rank: int, world_size: int) -> Heartbeat | None:
    """Signs of life through the job's store, where the environment tells its address; else lost ranks stay unnamed."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not port:
        return None
    # torch exports the class without saying so to type checkers.
    store = dist.TCPStore(  # type: ignore[attr-defined]
        host, int(port), is_master=False, timeout=_STORE_TIMEOUT, wait_for_workers=False
    )
    return Heartbeat(store, rank, world_size)


class VoteGroup:
    """Votes over `group`, a gloo process group that nothing else uses.

    `heartbeat` names ranks when a vote is lost; None leaves them unnamed.
    """

    def __init__(self, group: dist.ProcessGroup, heartbeat: Heartbeat | None) -> None:
        self._group = group
        self._heartbeat = heartbeat
        self.rank = dist.get_rank(group)
        self.world_size = dist.get_world_size(group)

    def start(self, row: Row) -> Ballot:
        """Send this rank's row; returns at once."""
        if self._heartbeat is not None:
            self._heartbeat.votes += 1
        return _GroupBallot(row, self._group, self.world_size, self._heartbeat)

    def close(self) -> None:
        """Stop the signs of life. The group is left to destroy_process_group."""
        if self._heartbeat is not None:
            self._heartbeat.stop()


class _GroupBallot:
    def __init__(self, row: Row, group: dist.ProcessGroup, world_size: int, heartbeat: Heartbeat | None) -> None:
        self._row = row
        self._heartbeat = heartbeat
        self.received_mono_ns: int | None = None
        self.received_wall_ns: int | None = None
        own = torch.tensor(row.to_wire(), dtype=torch.int64)
        self._rows = [torch.empty(ROW_LENGTH, dtype=torch.int64) for _ in range(world_size)]
        self.started_mono_ns = mono_ns()
        try:
            self._work = dist.all_gather(self._rows, own, group=group, async_op=True)
        except RuntimeError as error:
            raise self._lost(str(error)) from error
        # Runs when the last row arrives, whatever the main thread is doing then.
        self._work.get_future().add_done_callback(self._stamp)

    def done(self) -> bool:
        return bool(self._work.is_completed())

    def collect(self, deadline_mono_ns: int, on_poll: Callable[[], None]) -> tuple[Row, ...]:
        nap_s = _FIRST_NAP_S
        while not self.done():
            on_poll()
            if mono_ns() > deadline_mono_ns:
                waited_s = (mono_ns() - self.started_mono_ns) / 1e9
                raise self._lost(f"it was not complete after {waited_s:.1f} s (--vote_timeout)")
            time.sleep(nap_s)
            nap_s = min(2 * nap_s, _LONGEST_NAP_S)
        try:
            self._work.wait()
        except RuntimeError as error:
            raise self._lost(str(error)) from error
        if self.received_mono_ns is None:
            self._stamp(None)  # the callback is about to run: later by microseconds
        return tuple(Row.from_wire(tuple(row.tolist())) for row in self._rows)

    def _stamp(self, _: object) -> None:
        self.received_mono_ns = mono_ns()
        self.received_wall_ns = wall_ns()

    def _lost(self, cause: str) -> PeerLostError:
        blame = self._heartbeat.blame() if self._heartbeat is not None else Blame()
        if self._heartbeat is not None:
            self._heartbeat.leave()
        kind = Kind(self._row.kind).name
        named = "; ".join(
            f"{_ranks(ranks)} {what}"
            for ranks, what in ((blame.silent, "shows no sign of life"), (blame.late, "is alive and did not vote"))
            if ranks
        )
        return PeerLostError(
            f"the {kind} vote of step {self._row.step} was lost: {named or 'no rank could be named'} ({cause}); the "
            "newest verified checkpoint stands: resume from it",
            ranks=blame.silent or blame.late,
        )


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
