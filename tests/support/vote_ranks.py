"""Many ranks that only vote: `python -m support.vote_ranks RANKS NODES VOTES` forks them after one import of torch.

Each rank votes VOTES times on the same rows by both kinds of vote, flat and in two levels (NODES nodes); the program
prints one line of JSON: for each rank the sha256 of its decisions by each kind.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from clockgate_trainer.errors import PeerLostError
from clockgate_trainer.gate.clocks import mono_ns
from clockgate_trainer.gate.decide import decide
from clockgate_trainer.gate.model import ABSENT, PROTOCOL_VERSION, Kind, Limits, Row, SaveVerdict, StepVerdict
from clockgate_trainer.gate.vote import TwoLevelVote, Vote, VoteGroup, open_vote
from support.ports import free_port

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
LIMIT_S = 100


def decisions_of(ranks: int, nodes: int, votes: int, *, killed: int = -1) -> list[dict[str, str]]:
    """Run the ranks in processes of their own; what each decided, by kind of vote.

    Rank `killed` kills itself at the end; the others then tell under "lost" what became of one more vote in two levels.
    """
    done = subprocess.run(
        [sys.executable, "-m", "support.vote_ranks", str(ranks), str(nodes), str(votes), str(killed)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S + 60,
        check=True,
    )
    found: list[dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def make_row(rank: int, number: int) -> Row:
    """The row of a rank in one vote: any verdicts and bounds, from a seed."""
    draw = random.Random(rank * 1_000_003 + number)
    return Row(
        version=PROTOCOL_VERSION,
        kind=Kind.STEP,
        step=number,
        step_verdict=draw.choice(list(StepVerdict)),
        save_verdict=draw.choice(list(SaveVerdict)),
        reasons=draw.getrandbits(40) & ~1,
        relative_bound_ns=draw.choice([ABSENT, draw.randrange(60_000_000)]),
        utc_bound_ns=draw.choice([ABSENT, draw.randrange(60_000_000)]),
        reference_hash=draw.choice([ABSENT, 1, 2]),
        epoch=draw.randrange(9),
        sent_wall_ns=draw.randrange(2**62),
        step_duration_ns=draw.randrange(10**9),
        flags=draw.randrange(32),
        batch=1 << 32 | 1,
        cursor_digest=draw.randrange(2**62),
        content_digest=ABSENT,
    )


def _digest(vote: Vote, votes: int) -> str:
    seen = hashlib.sha256()
    ballot = None
    for number in range(votes):
        row = replace(make_row(vote.rank, number), step=number)
        ballot = vote.start(row)
        rows = ballot.collect(mono_ns() + LIMIT_S * 10**9, lambda: None)
        seen.update(repr(decide(rows, LIMITS)).encode())
    assert ballot is None or ballot.received_wall_ns is not None
    return seen.hexdigest()


def _lost(vote: Vote) -> str:
    """How a vote without one of the ranks ends here."""
    try:
        vote.start(make_row(vote.rank, 1)).collect(mono_ns() + LIMIT_S * 10**9, lambda: None)
    except PeerLostError:
        return "lost"
    return "decided"


def _rank(votes: int, killed: int) -> dict[str, str]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    flat, two = open_vote(LIMIT_S), open_vote(LIMIT_S, flat_up_to=1)
    assert isinstance(flat, VoteGroup)
    assert isinstance(two, TwoLevelVote)
    found = {"flat": _digest(flat, votes), "two_levels": _digest(two, votes)}
    dist.barrier()
    if killed >= 0:
        if dist.get_rank() == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        found["lost"] = _lost(two)
    flat.close()
    two.close()
    return found


def main(ranks: int, nodes: int, votes: int, killed: int = -1) -> int:
    port = free_port()
    pipes = []
    for rank in range(ranks):
        reading, writing = os.pipe()
        if os.fork() == 0:
            signal.alarm(LIMIT_S)
            os.environ |= {
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_RANK": "0",
                "GROUP_RANK": str(rank * nodes // ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            try:
                os.write(writing, json.dumps(_rank(votes, killed)).encode())
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(0)
        os.close(writing)
        pipes.append(reading)
    told = [Path(f"/proc/self/fd/{reading}").read_bytes() for reading in pipes]
    for _ in pipes:
        os.wait()
    print(json.dumps([json.loads(text) for text in told if text]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:5])))
