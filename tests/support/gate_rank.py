"""One rank of the gate's process tests: `python -m support.gate_rank FOLDER SCENARIO` under torchrun's environment.

SCENARIO is `verbs`, or the vote timeout, s, with which rank 0 shall lose rank 1. Each rank has a daemon of its own in
FOLDER and writes what it saw to `seen-RANK.json`.
"""

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import clockgate_trainer.gate.gate as gate_module
import clockgate_trainer.gate.vote as vote_module
import torch.distributed as dist
from clockgate_trainer.errors import DesyncError, PeerLostError, TrainerError
from clockgate_trainer.gate.clocks import wall_ns
from clockgate_trainer.gate.exit import leave
from clockgate_trainer.gate.gate import ClockGate, GateSettings
from clockgate_trainer.gate.model import Decision, Flags, Kind, Limits
from clockgate_trainer.gate.policy import OnUnknown
from clockgate_trainer.gate.sidecar import Sidecar
from clockgate_trainer.gate.vote import Vote, open_vote
from support.fake_daemon import FakeDaemon, make_reading

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
BAD_BOUND_NS = 40_000_000
# Longer than a busy machine keeps a row of this test waiting, and stamps of several votes.
LIE_NS, LIES = 5_000_000_000, 9


class Rank:
    """A rank with its daemon, its gate and its notes."""

    def __init__(self, folder: Path) -> None:
        self.number = int(os.environ["RANK"])
        self.folder = folder
        self.seen: dict[str, object] = {}
        self.events: list[tuple[str, Mapping[str, object]]] = []
        self.bound_ns = 100_000
        self.daemon = FakeDaemon(folder / f"{self.number}.sock", lambda: make_reading(bound_ns=self.bound_ns)).start()
        dist.init_process_group("gloo")
        self.vote = open_vote(60)
        self.sidecar = Sidecar(self.daemon.address, LIMITS, job="test", rank=self.number)
        self.gate = self.make_gate(self.vote)
        self.gate.install_signals()

    def make_gate(self, vote: Vote, *, hold_timeout_s: float = 30.0, vote_timeout_s: float = 20.0) -> ClockGate:
        settings = GateSettings(LIMITS, OnUnknown.HOLD, vote_timeout_s=vote_timeout_s, hold_timeout_s=hold_timeout_s)
        return ClockGate(vote, self.sidecar, settings, lambda name, fields: self.events.append((name, dict(fields))))

    def step(self, number: int, gate: ClockGate | None = None) -> Decision:
        gate = gate or self.gate
        gate.begin(number, batch=1 << 32 | 2, cursor_digest=7, last_step_ns=1)
        return gate.settle()

    def note(self, name: str, decision: Decision) -> None:
        self.seen[name] = {
            "kind": decision.kind.name,
            "step": decision.step,
            "verdict": decision.step_verdict.name,
            "blamed": decision.blamed_ranks,
            "flags": int(decision.flags),
            "bound_ns": decision.cluster_bound_ns,
            "event": dict(self.events[-1][1]),
        }

    def set_bound(self, bound_ns: int) -> None:
        """Change this rank's clock and wait until its sidecar has heard of it."""
        self.bound_ns = bound_ns
        time.sleep(3 * self.daemon.stream_period_s)

    def write(self) -> None:
        path = self.folder / f"seen-{self.number}.json"
        path.write_text(json.dumps(self.seen), encoding="utf-8")

    def ready(self) -> None:
        (self.folder / f"ready-{self.number}").touch()


def verbs(rank: Rank) -> None:
    """Everything that ends well, and the desync that ends it."""
    second = rank.number == 1
    rank.note("launch", rank.gate.launch_check())
    rank.note("proceed", rank.step(1))
    _hold(rank, second)
    if second:
        os.kill(os.getpid(), signal.SIGUSR1)
    rank.note("asked to save", rank.step(3))
    rank.note("asked no more", rank.step(4))
    _lie(rank, second)
    failed = Flags.SAVE_FAILED if second else Flags.NONE
    rank.note("save", rank.gate.agree(Kind.SAVE, 4, content_digest=5, flags=failed))
    if second:
        rank.set_bound(BAD_BOUND_NS)
    rank.note("budget", rank.step(5, rank.make_gate(rank.vote, hold_timeout_s=0.5)))
    if second:
        os.kill(os.getpid(), signal.SIGTERM)
    rank.note("asked to leave", rank.step(6))
    rank.note("exit", rank.gate.agree(Kind.EXIT, 6))
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        rank.gate.agree(Kind.COMMIT if second else Kind.SAVE, 7)
    except DesyncError as error:
        rank.seen["desync"] = {"ranks": error.ranks, "text": str(error)}


def _hold(rank: Rank, second: bool) -> None:
    """Rank 1's clock is bad until it has been asked three times during the hold."""
    if second:
        rank.set_bound(BAD_BOUND_NS)
        rank.daemon.reading = lambda: make_reading(bound_ns=BAD_BOUND_NS if _asked(rank, 2) < 4 else 100_000)
    rank.note("held", rank.step(2))
    rank.seen["hold event"] = next(dict(fields) for name, fields in rank.events if name == "hold")
    if second:
        rank.bound_ns = 100_000
        rank.daemon.reading = lambda: make_reading(bound_ns=rank.bound_ns)


def _lie(rank: Rank, second: bool) -> None:
    """Rank 1's clock is 5 s ahead of what its daemon promises, for some votes of a step and of the hold after it."""
    if second:
        stamps = itertools.count()

        def ahead() -> int:
            return wall_ns() + (LIE_NS if next(stamps) < LIES else 0)

        _stamp_with(ahead)
    rank.step(104)
    rank.note("lied to", rank.step(105))
    _stamp_with(wall_ns)
    lies = [(name, dict(fields)) for name, fields in rank.events if fields["step"] == 105]
    rank.seen["lie"] = dict(reversed(lies))


def _stamp_with(clock: Callable[[], int]) -> None:
    """Have rows and receipts of this process stamped by `clock`."""
    for module in (gate_module, vote_module):
        vars(module)["wall_ns"] = clock


def _asked(rank: Rank, step: int) -> int:
    return sum(request.step == step for request in rank.daemon.requests)


def lost(rank: Rank, vote_timeout_s: float) -> None:
    """Rank 1 says that it is ready and is then dealt with from outside; rank 0 loses it in the vote."""
    gate = rank.make_gate(rank.vote, vote_timeout_s=vote_timeout_s)
    rank.step(1, gate)
    rank.ready()
    if rank.number == 1:
        time.sleep(60)
    started = time.monotonic()
    try:
        rank.step(2, gate)
    except PeerLostError as error:
        rank.seen["lost"] = {"ranks": error.ranks, "text": str(error), "after_s": time.monotonic() - started}
        raise


def main(folder: Path, scenario: str) -> None:
    rank = Rank(folder)
    try:
        if scenario == "verbs":
            verbs(rank)
        else:
            lost(rank, vote_timeout_s=float(scenario))
    except TrainerError as error:
        leave(error.exit_code, rank.write)
    rank.write()
    rank.gate.close()
    rank.daemon.stop()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
