"""The one collective of a step: every rank's row to every rank, over gloo groups that nothing else uses.

Asynchronous and awaited by polling: a blocking wait keeps signal handlers from running, and a timeout inside gloo
would kill the group. Up to 64 ranks it is one all-gather; above that the ranks of a node go first, then one rank of
each node, so that no rank talks to more than its node or one rank of each other node. The rows, and so the decision,
are the same.
"""

import logging
import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from clockgate_trainer.errors import PeerLostError
from clockgate_trainer.gate.ballot import Ballot, SoloVote, Vote
from clockgate_trainer.gate.clocks import boot_id, mono_ns, wall_ns
from clockgate_trainer.gate.heartbeat import Blame, Heartbeat
from clockgate_trainer.gate.levels import Levels, by_rank, make_levels
from clockgate_trainer.gate.model import ROW_LENGTH, Kind, Row

__all__ = ["FLAT_UP_TO", "Ballot", "Groups", "SoloVote", "TwoLevelVote", "Vote", "VoteGroup", "open_vote"]

_log = logging.getLogger(__name__)

FLAT_UP_TO = 64
_FIRST_NAP_S = 0.0001
_LONGEST_NAP_S = 0.01
# All ranks connect at the same moment; a question to the store, asked when a rank is lost, must not take long.
_STORE_CONNECT = timedelta(seconds=60)
_STORE_TIMEOUT = timedelta(seconds=2)
# gloo's own timeout must never fire before ours: after it the group is dead and the reason is lost.
_GLOO_MARGIN_S = 3600.0


def open_vote(vote_timeout_s: float, *, flat_up_to: int = FLAT_UP_TO) -> Vote:
    """The vote of this job: of all ranks, or SoloVote without torch.distributed or with one rank.

    A collective: every rank calls it at the same point, after init_process_group. `vote_timeout_s` is the longest
    deadline that will be used. Above `flat_up_to` ranks on several nodes it has two levels.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return SoloVote()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    timeout = timedelta(seconds=vote_timeout_s + _GLOO_MARGIN_S)
    group = dist.new_group(backend="gloo", timeout=timeout)
    heartbeat = _open_heartbeat(rank, world_size)
    levels = _find_levels(group, world_size) if world_size > flat_up_to else None
    if levels is None or not levels.is_worth_it:
        return VoteGroup(group, heartbeat)
    # Only members make these groups: a thousand nodes would make a thousand groups on every rank otherwise.
    node_group, leader_group = (
        dist.new_group(list(members), backend="gloo", timeout=timeout, use_local_synchronization=True)
        if rank in members
        else None
        for members in (levels.node_of(rank), levels.leaders)
    )
    return TwoLevelVote(Groups(levels, rank, node_group, leader_group), heartbeat)


def _find_levels(group: dist.ProcessGroup, world_size: int) -> Levels:
    """Who is on a node with whom: by torchrun's number of the node, else by host and boot. A collective."""
    own = os.environ.get("GROUP_RANK") or f"{socket.gethostname()} {boot_id()}"
    names: list[str] = [own] * world_size
    dist.all_gather_object(names, own, group=group)
    return make_levels(names)


def _open_heartbeat(rank: int, world_size: int) -> Heartbeat | None:
    """Signs of life through the job's store, where the environment tells its address; else lost ranks stay unnamed."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not port:
        return None
    try:
        # torch exports the class without saying so to type checkers.
        store = dist.TCPStore(  # type: ignore[attr-defined]
            host, int(port), is_master=False, timeout=_STORE_CONNECT, wait_for_workers=False
        )
    except RuntimeError as error:
        _log.warning(
            "no signs of life through the store at %s:%s (%s): lost ranks will not be named", host, port, error
        )
        return None
    store.set_timeout(_STORE_TIMEOUT)
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


@dataclass(frozen=True)
class Groups:
    """One rank's place in a two-level vote: `node` joins the ranks of its node, `leaders` one rank of each node (None
    on a rank that leads none). Nothing else uses the groups.
    """

    levels: Levels
    rank: int
    node: dist.ProcessGroup | None
    leaders: dist.ProcessGroup | None


class TwoLevelVote:
    """Votes of ranks on many nodes, by `groups`; `heartbeat` as for VoteGroup."""

    def __init__(self, groups: Groups, heartbeat: Heartbeat | None) -> None:
        self._groups = groups
        self._heartbeat = heartbeat
        self.rank = groups.rank
        self.world_size = groups.levels.world_size

    def start(self, row: Row) -> Ballot:
        """Send this rank's row; returns at once."""
        if self._heartbeat is not None:
            self._heartbeat.votes += 1
        return _TwoLevelBallot(row, self._groups, self._heartbeat)

    def close(self) -> None:
        """Stop the signs of life. The groups are left to destroy_process_group."""
        if self._heartbeat is not None:
            self._heartbeat.stop()


class _PolledBallot(ABC):
    """What both kinds of vote have in common: the wait, the stamps, and the words for a vote that was lost."""

    def __init__(self, row: Row, heartbeat: Heartbeat | None) -> None:
        self._row = row
        self._heartbeat = heartbeat
        self.received_mono_ns: int | None = None
        self.received_wall_ns: int | None = None
        self.started_mono_ns = mono_ns()

    @abstractmethod
    def done(self) -> bool:
        """Whether all rows are here, or the vote has failed. Never blocks."""

    @abstractmethod
    def _rows(self) -> Sequence[Sequence[int]]:
        """Rows of all ranks of a vote that is done. Raises RuntimeError when it failed."""

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
            rows = self._rows()
        except RuntimeError as error:
            raise self._lost(str(error)) from error
        if self.received_mono_ns is None:
            self._stamp()  # the callback is about to run: later by microseconds
        return tuple(Row.from_wire(tuple(row)) for row in rows)

    def _stamp(self, _: object = None) -> None:
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


class _GroupBallot(_PolledBallot):
    def __init__(self, row: Row, group: dist.ProcessGroup, world_size: int, heartbeat: Heartbeat | None) -> None:
        super().__init__(row, heartbeat)
        self._tensors = [torch.empty(ROW_LENGTH, dtype=torch.int64) for _ in range(world_size)]
        try:
            self._work = dist.all_gather(self._tensors, _tensor(row), group=group, async_op=True)
        except RuntimeError as error:
            raise self._lost(str(error)) from error
        # Runs when the last row arrives, whatever the main thread is doing then.
        self._work.get_future().add_done_callback(self._stamp)

    def done(self) -> bool:
        return bool(self._work.is_completed())

    def _rows(self) -> list[list[int]]:
        self._work.wait()
        rows: list[list[int]] = torch.stack(self._tensors).tolist()
        return rows


class _TwoLevelBallot(_PolledBallot):
    """Three collectives one after the other, in a thread: what the main thread computes meanwhile delays none."""

    def __init__(self, row: Row, groups: Groups, heartbeat: Heartbeat | None) -> None:
        super().__init__(row, heartbeat)
        self._groups = groups
        levels = groups.levels
        self._all = torch.zeros((len(levels.nodes), levels.widest, ROW_LENGTH), dtype=torch.int64)
        self._failure: RuntimeError | None = None
        self._finished = threading.Event()
        threading.Thread(target=self._run, name="clockgate-vote", daemon=True).start()

    def done(self) -> bool:
        return self._finished.is_set()

    def _rows(self) -> list[list[int]]:
        if self._failure is not None:
            raise self._failure
        blocks: list[list[list[int]]] = self._all.tolist()
        return by_rank(self._groups.levels, blocks)

    def _run(self) -> None:
        try:
            self._exchange()
        except RuntimeError as error:
            self._failure = error
        else:
            self._stamp()
        self._finished.set()

    def _exchange(self) -> None:
        """Rows of the node to its leader, of all nodes to all leaders, of all ranks to everybody."""
        groups = self._groups
        members = groups.levels.node_of(groups.rank)
        block = torch.zeros((groups.levels.widest, ROW_LENGTH), dtype=torch.int64)
        leads = groups.leaders is not None
        parts = list(block[: len(members)].unbind()) if leads else None
        dist.gather(_tensor(self._row), parts, dst=members[0], group=groups.node)
        if leads:
            dist.all_gather(list(self._all.unbind()), block, group=groups.leaders)
        dist.broadcast(self._all, src=members[0], group=groups.node)


def _tensor(row: Row) -> torch.Tensor:
    return torch.tensor(row.to_wire(), dtype=torch.int64)


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
