"""A run that the gate stops, and the same command again while the clock is still bad, and when it is good."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from clockgate.v1 import clock_pb2
from clockgate_trainer.attempts import ATTEMPTS_FILE
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.outcome import Outcome, read_outcome
from clockgate_trainer.train import run
from support.chaos import small
from support.fake_daemon import FakeDaemon, make_reading

FLAGS = (
    "--time_sync_check", "true", "--device", "cpu", "--max_steps", "6", "--save_steps", "100",
    "--gradient_accumulation_steps", "1", "--hold_timeout", "0.3",
)  # fmt: skip
BAD_BOUND_NS = 40_000_000


class Turning(FakeDaemon):
    """Good until it is asked about a step after `good_until`."""

    good_until = 0

    def make(self) -> clock_pb2.Reading:
        asked = max((request.step for request in self.requests), default=0)
        return make_reading(bound_ns=100_000 if asked <= self.good_until else BAD_BOUND_NS)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Turning]:
    made = Turning(tmp_path / "clock.sock")
    made.reading = made.make
    made.stream_period_s = 0.02
    with made:
        yield made


def start(daemon: Turning, folder: Path, good_until: int) -> Outcome:
    daemon.requests.clear()
    daemon.good_until = good_until
    flags = ["--output_dir", str(folder), "--clock_daemon", str(daemon.path), *FLAGS]
    code = run.main(parse(flags), {}, small.PARTS)
    outcome = read_outcome(folder)
    assert outcome is not None
    assert outcome.code == code
    return outcome


def test_a_start_after_a_stop_waits_for_the_clock_and_goes_on_when_it_is_good(
    tmp_path: Path, daemon: Turning, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    # Steps that last until the daemon's answer is here.
    monkeypatch.setenv(small.PACE_VARIABLE, "0.1")
    folder = tmp_path / "run"
    assert start(daemon, folder, good_until=-1).code == 76, "nothing is saved, nothing was trained"
    stopped = start(daemon, folder, good_until=3)
    assert (stopped.code, stopped.ranks) == (75, (0,))
    assert stopped.step is not None
    assert 1 <= stopped.step < 6
    for _ in range(3):
        again = start(daemon, folder, good_until=-1)
        assert (again.code, again.step, again.checkpoint) == (75, stopped.step, stopped.checkpoint)
        assert "before the first step" in again.reason
    assert not (folder / ATTEMPTS_FILE).exists(), "waiting for a clock is no fruitless start"
    assert start(daemon, folder, good_until=99).code == 0
