"""Two real ranks over gloo, each with a daemon of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

SAVE_AND_GO_ON, SAVE_AND_EXIT, SAVE_FAILED = 2, 4, 16


class Pair:
    """Two rank processes on one scenario."""

    def __init__(self, folder: Path, scenario: str) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": "2",
            "OMP_NUM_THREADS": "1",
        }
        self.ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "support.gate_rank", str(folder), scenario],
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(2)
        ]

    def wait_until_ready(self) -> None:
        until = time.monotonic() + 40
        while not all((self.folder / f"ready-{rank}").exists() for rank in range(2)):
            assert time.monotonic() < until, "the ranks did not come up in 40 s"
            time.sleep(0.02)

    def seen(self, rank: int) -> dict[str, Any]:
        value = json.loads((self.folder / f"seen-{rank}.json").read_text(encoding="utf-8"))
        assert isinstance(value, dict)
        return value

    def end(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait(10)


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    started: list[Pair] = []
    yield started
    for pair in started:
        pair.end()


def test_two_ranks_take_the_same_decisions(tmp_path: Path, pairs: list[Pair]) -> None:
    pair = Pair(tmp_path, "verbs")
    pairs.append(pair)
    assert [rank.wait(50) for rank in pair.ranks] == [0, 0]
    zero, one = pair.seen(0), pair.seen(1)

    both = (
        "launch",
        "proceed",
        "held",
        "asked to save",
        "asked no more",
        "lied to",
        "save",
        "budget",
        "asked to leave",
        "exit",
    )
    for name in both:
        facts = [{key: value for key, value in seen[name].items() if key != "event"} for seen in (zero, one)]
        assert facts[0] == facts[1], name

    assert zero["launch"]["verdict"] == zero["proceed"]["verdict"] == "PROCEED"
    assert zero["proceed"]["bound_ns"] >= 200_000
    assert zero["proceed"]["event"]["vote_ns"] > 0

    assert (zero["held"]["verdict"], zero["held"]["kind"]) == ("PROCEED", "STEP")
    assert zero["held"]["event"]["polls"] >= 3
    assert zero["held"]["event"]["held_ns"] >= 300_000_000
    assert zero["hold event"]["blamed_ranks"] == [1]
    assert "HOLD_LIMIT" in zero["hold event"]["reasons"]

    assert zero["asked to save"]["flags"] & SAVE_AND_GO_ON
    assert not zero["asked no more"]["flags"] & SAVE_AND_GO_ON
    for seen in (zero, one):
        assert seen["lied to"]["verdict"] == "PROCEED"
        held = seen["lie"]["hold"]
        assert (held["reasons"], held["disproved_ranks"]) == (["CAUSALITY_VIOLATED"], [0, 1])
        assert (held["save_verdict"], held["untimed_reasons"]) == ("SAVE_UNTIMED", ["CAUSALITY_VIOLATED"])

    assert zero["save"]["flags"] & SAVE_FAILED
    assert zero["save"]["kind"] == "SAVE"

    assert zero["budget"]["verdict"] == "STOP"
    assert "HOLD_BUDGET_SPENT" in zero["budget"]["event"]["reasons"]
    assert zero["budget"]["blamed"] == [1]

    assert zero["asked to leave"]["verdict"] == "STOP"
    assert zero["asked to leave"]["flags"] & SAVE_AND_EXIT
    assert "SIGNAL" in zero["asked to leave"]["event"]["reasons"]

    assert zero["desync"]["ranks"] == one["desync"]["ranks"] == [0, 1]
    assert "rank 0: SAVE" in zero["desync"]["text"]
    assert "rank 1: COMMIT" in zero["desync"]["text"]


def test_a_killed_peer_is_lost_and_named_long_before_the_vote_timeout(tmp_path: Path, pairs: list[Pair]) -> None:
    pair = Pair(tmp_path, "30")
    pairs.append(pair)
    pair.wait_until_ready()
    pair.ranks[1].kill()
    assert pair.ranks[0].wait(20) == 79
    lost = pair.seen(0)["lost"]
    # Measured 1.3 s: the connection's end at once, then 1.2 s of watching for signs of life.
    assert lost["after_s"] < 5
    assert lost["ranks"] == [1]


def test_a_stopped_peer_is_lost_at_the_vote_timeout_and_named(tmp_path: Path, pairs: list[Pair]) -> None:
    pair = Pair(tmp_path, "3")
    pairs.append(pair)
    pair.wait_until_ready()
    pair.ranks[1].send_signal(signal.SIGSTOP)
    assert pair.ranks[0].wait(20) == 79
    lost = pair.seen(0)["lost"]
    assert 3 <= lost["after_s"] < 8
    assert lost["ranks"] == [1]
    assert "rank 1 shows no sign of life" in lost["text"]
