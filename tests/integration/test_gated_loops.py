"""ClockGate and its callback in loops that are not ours: two ranks of each example, one of them with a bad clock."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from clockgate.v1 import clock_pb2
from support.fake_daemon import FakeDaemon, make_reading

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

EXAMPLES = ("ddp_loop", "hf_trainer", "trl_sft")
BAD_BOUND_NS = 40_000_000


class Fading(FakeDaemon):
    """Bad from the first Check about step 3 of a job until one step was asked about four times: until it was held."""

    def make(self) -> clock_pb2.Reading:
        newest = self.requests[-1].job if self.requests else ""
        asked = Counter(request.step for request in self.requests if request.job == newest and request.step >= 3)
        is_bad = bool(asked) and max(asked.values()) < 4
        return make_reading(bound_ns=BAD_BOUND_NS if is_bad else 100_000)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[tuple[FakeDaemon, Fading]]:
    zero, one = FakeDaemon(tmp_path / "0.sock"), Fading(tmp_path / "1.sock")
    one.reading = one.make
    one.stream_period_s = 0.02
    with zero, one:
        yield zero, one


def test_both_ranks_of_each_example_wait_for_one_clock_and_finish(
    tmp_path: Path, daemons: tuple[FakeDaemon, Fading]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "support.example_ranks", str(tmp_path), *(one.address for one in daemons), *EXAMPLES],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=280,
        check=True,
    )
    codes = json.loads(done.stdout.splitlines()[-1])
    told = {name: (tmp_path / f"{name}-0.log").read_text(encoding="utf-8") for name in EXAMPLES}
    assert codes == {name: [0, 0] for name in EXAMPLES}, told
    jobs = {request.job for request in daemons[0].requests}
    assert jobs == {"ddp-loop", "hf-trainer", "trl-sft"}
    for name in EXAMPLES:
        assert re.search(r"all ranks wait: .*HOLD_LIMIT.* \(rank 1\)", told[name]), told[name]
    for name in ("hf_trainer", "trl_sft"):
        assert "ClockGateCallback: checkpoints are written in place" in told[name]
        assert (tmp_path / name / "checkpoint-6").is_dir()
    assert (tmp_path / "ddp_loop" / "step-5.pt").is_file()
