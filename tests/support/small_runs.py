"""Whole runs of a small model on several ranks: `python -m support.small_runs RUNS.json`.

The ranks are forked from one process; each calls the trainer's `run.main`, as `clockgate-train` does. Prints the exit
codes of each run's ranks as JSON.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train import network, run
from clockgate_trainer.train.parts import Parts
from support.chaos.small import PARTS, SmallModel

LIMIT_S = 120


@dataclass(frozen=True)
class SmallRun:
    """One run: `folders` holds the run folder of each rank. After `step` steps of this start `rank` has a bit of its
    weights flipped (`deed` flip) or gets the signal that `deed` names. With the deed slow `rank` takes `step` seconds
    to write its weights. With the deed short it runs out of memory from then on in micro-batches of several rows, in
    the model's forward, or in the loss with the deed short-in-loss. `steady`: without dropout."""

    folders: Sequence[str]
    flags: Sequence[str]
    deed: str = ""
    rank: int = 1
    step: int = 0
    steady: bool = False


def play(folder: Path, runs: Sequence[SmallRun]) -> list[list[int]]:
    """Do `runs` one after the other in a process of their own; their ranks' exit codes."""
    script = folder / "runs.json"
    script.write_text(json.dumps([asdict(one) for one in runs]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.small_runs", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S * len(runs),
        check=True,
    )
    codes: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return codes


def _parts(one: SmallRun) -> Parts:
    """The small model's parts, with what shall happen in the middle of training."""

    def make_optimizer(
        settings: Settings, parameters: Iterable[torch.nn.Parameter], device: torch.device
    ) -> torch.optim.Optimizer:
        weights = list(parameters)
        optimizer = PARTS.make_optimizer(settings, weights, device)
        done = 0

        def hook(*unused: object) -> None:
            nonlocal done
            done += 1
            if done != one.step:
                return
            if one.deed == "flip":
                with torch.no_grad():
                    weights[0].view(torch.int32).view(-1)[0] ^= 1
            else:
                os.kill(os.getpid(), signal.Signals[one.deed])

        optimizer.register_step_post_hook(hook)
        return optimizer

    def build_model(settings: Settings, device: torch.device) -> Any:
        model = PARTS.build_model(settings, device)
        write = model.save_pretrained

        def write_slowly(*arguments: Any, **options: Any) -> None:
            time.sleep(one.step)
            write(*arguments, **options)

        model.save_pretrained = write_slowly
        return model

    if one.deed == "slow":
        return replace(PARTS, build_model=build_model)
    return replace(PARTS, make_optimizer=make_optimizer)


def _steady(settings: Settings, device: torch.device) -> Any:
    model = PARTS.build_model(settings, device)
    model.dropout.p = 0.0
    return model


def _run_short(one: SmallRun) -> Parts:
    """Parts of a rank that has too little memory."""
    steps = 0

    def count(*unused: object) -> None:
        nonlocal steps
        steps += 1

    def make_optimizer(*arguments: Any) -> torch.optim.Optimizer:
        optimizer = PARTS.make_optimizer(*arguments)
        optimizer.register_step_post_hook(count)
        return optimizer

    owner, name = (network, "cross_entropy") if one.deed == "short-in-loss" else (SmallModel, "forward")
    whole = getattr(owner, name)

    def limited(*arguments: Any, **named: Any) -> Any:
        batch = sys._getframe(1).f_locals["batch"] if owner is network else None
        rows = (named["input_ids"] if batch is None else batch.input_ids).shape[0]
        if steps >= one.step and rows > 1:
            raise torch.OutOfMemoryError("CUDA out of memory: made up")
        return whole(*arguments, **named)

    setattr(owner, name, limited)
    return replace(PARTS, make_optimizer=make_optimizer)


def _fork(one: SmallRun, rank: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        signal.alarm(LIMIT_S)
        ranks = str(len(one.folders))
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        settings = parse([*one.flags, "--output_dir", one.folders[rank]])
        parts = PARTS
        if one.deed and rank == one.rank:
            parts = _run_short(one) if one.deed.startswith("short") else _parts(one)
        code = run.main(settings, os.environ, replace(parts, build_model=_steady) if one.steady else parts)
    except UsageError:
        traceback.print_exc()
        code = 2
    finally:
        sys.stderr.flush()
        os._exit(code)


def _play(one: SmallRun) -> list[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pids = [_fork(one, rank, port) for rank in range(len(one.folders))]
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


if __name__ == "__main__":
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # what it imports takes seconds
    wanted = [SmallRun(**fields) for fields in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))]
    print(json.dumps([_play(one) for one in wanted]))
