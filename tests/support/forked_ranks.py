"""Runs training jobs of several ranks after one import of torch: `python -m support.forked_ranks JOBS.json`.

The ranks of each job are forked from this process, which costs milliseconds where a launcher costs seconds a rank.
Prints the exit codes of each job's ranks as JSON, one list a job.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

# Imported for its weight alone, before any fork.
import clockgate_trainer.train.qlora
import clockgate_trainer.train.run  # noqa: F401
from clockgate_trainer.__main__ import main as trainer_main

LIMIT_S = 200


@dataclass(frozen=True)
class Job:
    """One run: `flags` for all ranks, then those in `rank_flags` for one, by its number as text. `signal_name` is sent
    to rank `signal_rank` once metrics.jsonl tells step `signal_step`; a rank that was stopped is killed when the others
    have ended."""

    ranks: int
    flags: Sequence[str]
    rank_flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    signal_name: str = ""
    signal_rank: int = 0
    signal_step: int = 0


def run_jobs(folder: Path, jobs: Sequence[Job]) -> list[list[int]]:
    """Run jobs one after the other in a process of their own; their exit codes (minus a signal's number)."""
    script = folder / "jobs.json"
    script.write_text(json.dumps([asdict(job) for job in jobs]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "support.forked_ranks", str(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S * len(jobs),
        check=True,
    )
    codes: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return codes


def run_forked(job: Job) -> list[int]:
    """Run one job with ranks forked from this process, which has no other children; its exit codes."""
    port = _free_port()
    pids = [_fork(job, rank, port) for rank in range(job.ranks)]
    if job.signal_name:
        _signal_at_step(job, pids)
    stopped = [pids[job.signal_rank]] if job.signal_name == "SIGSTOP" else []
    codes = {pid: _exit_code(pid) for pid in pids if pid not in stopped}
    for pid in stopped:
        os.kill(pid, signal.SIGKILL)
        codes[pid] = _exit_code(pid)
    return [codes[pid] for pid in pids]


def _exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(job: Job, rank: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        signal.alarm(LIMIT_S)
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(job.ranks),
            "LOCAL_WORLD_SIZE": str(job.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        code = trainer_main([*job.flags, *job.rank_flags.get(str(rank), ())])
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        os._exit(code)


def _signal_at_step(job: Job, pids: Sequence[int]) -> None:
    metrics = Path(job.flags[list(job.flags).index("--output_dir") + 1]) / "metrics.jsonl"
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        if metrics.exists() and any(
            json.loads(line)["step"] >= job.signal_step
            for line in metrics.read_text(encoding="utf-8").splitlines(keepends=True)
            if line.endswith("\n")
        ):
            break
        time.sleep(0.005)
    os.kill(pids[job.signal_rank], signal.Signals[job.signal_name])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    jobs = [Job(**fields) for fields in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))]
    print(json.dumps([run_forked(job) for job in jobs]))
