"""Does a run that is killed again and again end as if nothing had happened? One line a cell, exit code 1 when not.

    bench/kill_and_resume.py FOLDER [--kills N] [--steps N] [--seed N] [--jobs N] [--device cpu]

A cell is a number of ranks, with and without packing. Its undisturbed run is compared with one whose random rank gets
SIGKILL at a random step, N times, and which is started again each time by the same command.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.tiny_model import make_model, make_rows

_RANKS = (1, 2, 4)
_ROWS = 120
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Cell:
    """How many ranks, and whether rows are packed."""

    ranks: int
    packed: bool

    @property
    def name(self) -> str:
        """For people and folders."""
        return f"{self.ranks}-{'packed' if self.packed else 'padded'}"


def main() -> int:
    """Run all cells and print what became of them."""
    parser = argparse.ArgumentParser(description="resume after SIGKILL, against an undisturbed run")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    make_model(options.folder / "model")
    make_rows(options.folder / "rows.jsonl", _ROWS)
    cells = [Cell(ranks, packed) for ranks in _RANKS for packed in (False, True)]
    with ThreadPoolExecutor(options.jobs) as pool:
        told = list(pool.map(lambda cell: try_cell(cell, options), cells))
    return 0 if all(told) else 1


def try_cell(cell: Cell, options: argparse.Namespace) -> bool:
    """Whether every kill of the cell was made and the final adapter is that of the undisturbed run."""
    draw = random.Random(f"{options.seed} {cell.name}")
    words = command(cell, options)
    whole, killed = options.folder / f"{cell.name}-whole", options.folder / f"{cell.name}-killed"
    run([*words, "--output_dir", str(whole)], options.folder / f"{cell.name}.log")
    at = sorted(draw.sample(range(2, options.steps), options.kills))
    seen = [
        kill_at(step, draw.randrange(cell.ranks), [*words, "--output_dir", str(killed)], killed, options.device)
        for step in at
    ]
    run([*words, "--output_dir", str(killed)], options.folder / f"{cell.name}.log")
    hashes = [adapter_of(folder, options.steps) for folder in (whole, killed)]
    verified = run([sys.executable, "-m", "clockgate_trainer", "verify", str(killed)], None) == 0
    equal = hashes[0] == hashes[1] is not None
    print(
        f"{cell.name:10} killed at steps {at}, exit codes {seen}, adapter {str(hashes[1])[:16]} "
        f"{'equal' if equal else 'DIFFERS'}, checkpoints {'verified' if verified else 'NOT VERIFIED'}",
        flush=True,
    )
    return equal and verified and len(seen) == options.kills


def command(cell: Cell, options: argparse.Namespace) -> list[str]:
    """The command line of a cell, all but its run folder."""
    launch = ["launch", "--nproc_per_node", str(cell.ranks), "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    flags = (
        f"--model_name_or_path {options.folder / 'model'} --dataset {options.folder / 'rows.jsonl'} "
        f"--dataset_format input-output --lora_r 8 --lora_dropout 0.1 --learning_rate 0.001 --bf16 --deterministic "
        f"--max_steps {options.steps} --keep_steps --save_steps 5 --gradient_accumulation_steps 2 "
        f"--per_device_train_batch_size 2 --device {options.device} --time_sync_check false --vote_timeout 60 "
        f"--source_max_len 32 --target_max_len 32"
    ).split()
    return [sys.executable, "-m", "clockgate_trainer", *launch, "--", *flags, *(["--packing"] if cell.packed else [])]


def kill_at(step: int, victim: int, words: Sequence[str], folder: Path, device: str) -> int:
    """Start the run, SIGKILL rank `victim` once `step` is done, and return the launcher's exit code."""
    with folder.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=_environment(device))
        until_s = time.monotonic() + _PATIENCE_S
        while process.poll() is None and time.monotonic() < until_s and newest_step(folder) < step:
            time.sleep(0.01)
        pid = pid_of(folder, victim)
        if process.poll() is None and pid is not None:
            os.kill(pid, signal.SIGKILL)
        return process.wait(_PATIENCE_S)


def run(words: Sequence[str], log: Path | None) -> int:
    """Run to the end, and return the exit code."""
    with (log or Path(os.devnull)).open("ab") as out:
        return subprocess.run(words, stdout=out, stderr=out, env=_environment("cpu"), check=False).returncode


def newest_step(folder: Path) -> int:
    """The last step that metrics.jsonl tells of; 0 when there is none."""
    lines = _lines(folder / "metrics.jsonl")
    return int(lines[-1]["step"]) if lines else 0


def pid_of(folder: Path, rank: int) -> int | None:
    """The process of the newest start of `rank`."""
    name = "events.jsonl" if rank == 0 else f"events-rank{rank}.jsonl"
    starts = [line for line in _lines(folder / name) if line.get("event") == "start"]
    return int(starts[-1]["pid"]) if starts else None


def adapter_of(folder: Path, step: int) -> str | None:
    """The adapter's hash in the last checkpoint."""
    try:
        manifest = json.loads((folder / f"checkpoint-{step}" / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(manifest["adapter_sha256"])


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    # The last line may be half written.
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _environment(device: str) -> dict[str, str]:
    return (
        os.environ
        | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        | ({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})
    )


if __name__ == "__main__":
    sys.exit(main())
