"""The launcher around real ranks, through torch's own agent: exit codes, signals, restarts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clockgate_trainer.checkpoint.claim import claimed
from clockgate_trainer.launch import rank_processes
from clockgate_trainer.outcome import read_outcome
from support.checkpoints import make_store, save

pytestmark = pytest.mark.integration

LAUNCHER = """
import sys
from pathlib import Path
from clockgate_trainer import launch
folder, script, *arguments = sys.argv[1:]
sys.exit(launch.run("support.rank_program", [*arguments, "--", folder, script], folder=Path(folder)))
"""


class Launch:
    """`launch` on two ranks of support.rank_program, one process with what it told."""

    def __init__(self, folder: Path, script: str, *arguments: str) -> None:
        self.folder = folder
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(folder), script, "--nproc_per_node", "2", *arguments],
            env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, str]:
        _, told = self.process.communicate(timeout=45)
        return self.process.returncode, told

    def wait_for(self, *names: str) -> None:
        until = time.monotonic() + 40
        while not all((self.folder / name).exists() for name in names):
            assert time.monotonic() < until, f"no {names} after 40 s"
            time.sleep(0.02)

    def got(self, rank: int) -> list[str]:
        path = self.folder / f"got-{rank}"
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def wait_until_both_got(self, name: str) -> None:
        until = time.monotonic() + 20
        while not all(name in self.got(rank) for rank in range(2)):
            assert time.monotonic() < until, f"not both ranks got {name}: {self.got(0)}, {self.got(1)}"
            time.sleep(0.02)


@pytest.fixture
def launches() -> Iterator[list[Launch]]:
    started: list[Launch] = []
    yield started
    for launch in started:
        if launch.process.poll() is None:
            for pid in rank_processes(launch.process.pid):
                os.kill(pid, signal.SIGKILL)
            launch.process.kill()
            launch.process.communicate()


@pytest.mark.parametrize(("script", "code"), [("0,0", 0), ("75,75", 75), ("77,77", 77)])
def test_the_ranks_exit_code_is_passed_on(tmp_path: Path, launches: list[Launch], script: str, code: int) -> None:
    launch = Launch(tmp_path, script)
    launches.append(launch)
    returned, told = launch.end()
    assert returned == code
    assert "Traceback" not in told
    outcome = read_outcome(tmp_path)
    assert outcome is not None
    assert outcome.code == code


def test_a_killed_rank_is_named_in_the_outcome_and_cores_are_shared(tmp_path: Path, launches: list[Launch]) -> None:
    launch = Launch(tmp_path, "lost,kill")
    launches.append(launch)
    (tmp_path / "outcome.json").write_text(json.dumps({"left": "by an earlier run"}), encoding="utf-8")
    returned, told = launch.end()
    assert returned == 79
    assert "rank 1 was killed by SIGKILL" in told
    outcome = read_outcome(tmp_path)
    assert outcome is not None
    assert (outcome.code, outcome.ranks) == (79, (1,))
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert (tmp_path / "omp-0").read_text(encoding="utf-8") == str(share)


def test_user_signals_reach_ranks_that_are_not_ready_yet_and_term_ends_with_75(
    tmp_path: Path, launches: list[Launch]
) -> None:
    launch = Launch(tmp_path, "signals,slow")
    launches.append(launch)
    launch.wait_for("ready-0", "ready-1")  # rank 1 takes no signals for another second
    launch.process.send_signal(signal.SIGUSR1)
    launch.process.send_signal(signal.SIGUSR2)
    for name in ("SIGUSR1", "SIGUSR2"):
        launch.wait_until_both_got(name)
    launch.process.send_signal(signal.SIGTERM)
    returned, told = launch.end()
    assert returned == 75
    assert "SIGTERM: 2 ranks handed SIGTERM" in told
    assert "Traceback" not in told


def test_an_interrupt_asks_the_ranks_to_save(tmp_path: Path, launches: list[Launch]) -> None:
    launch = Launch(tmp_path, "signals,signals")
    launches.append(launch)
    launch.wait_for("got-0", "got-1")
    launch.process.send_signal(signal.SIGINT)
    assert launch.end()[0] == 75


def test_only_a_lost_rank_is_started_again(tmp_path: Path, launches: list[Launch]) -> None:
    for folder, script in ((tmp_path / "lost", "once,0"), (tmp_path / "stopped", "75,75")):
        folder.mkdir()
        launches.append(Launch(folder, script, "--max_restarts", "1"))
    (code, told), (stopped_code, stopped_told) = launches[0].end(), launches[1].end()
    assert code == 0
    assert "restart 1 of 1" in told
    assert stopped_code == 75
    assert "restart" not in stopped_told


@pytest.mark.parametrize(("saved", "code"), [(False, 76), (True, 75)], ids=["nothing saved", "a checkpoint stands"])
def test_a_stop_in_the_first_moments_ends_with_a_code_of_the_contract(tmp_path: Path, saved: bool, code: int) -> None:
    if saved:
        assert save(make_store(tmp_path), 4, 1.0).saved
    process = subprocess.Popen(
        [sys.executable, "-m", "clockgate_trainer", "launch", "--nproc_per_node", "1", "--output_dir", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    # Once it blocks the signal, and long before torch is imported.
    until = time.monotonic() + 20
    while not blocks_term(process.pid):
        assert time.monotonic() < until
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=50)
    assert process.returncode == code, told
    assert "Traceback" not in told
    outcome = read_outcome(tmp_path) if tmp_path.is_dir() else None
    assert outcome is not None
    assert (outcome.code, outcome.step) == (code, 4 if saved else None)


def blocks_term(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk:")).split()[1], 16)
    return bool(blocked >> (signal.SIGTERM - 1) & 1)


def test_the_folder_of_a_run_under_way_is_left_alone(tmp_path: Path, launches: list[Launch]) -> None:
    (tmp_path / "outcome.json").write_text("of the run under way", encoding="utf-8")
    with claimed(tmp_path):
        launch = Launch(tmp_path, "78,78")
        launches.append(launch)
        assert launch.end()[0] == 78
    assert (tmp_path / "outcome.json").read_text(encoding="utf-8") == "of the run under way"
