"""transformers.Trainer and clockgate-train under the same two faults: `python -m support.side_by_side FOLDER`.

The first fault is a wall clock that was set back by an hour between two checkpoints, seen as such a clock leaves it:
older folders carry later times. The second is SIGTERM to one of two ranks. Prints as JSON what is left of each run.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from clockgate_trainer.__main__ import main as trainer_main
from clockgate_trainer.checkpoint.verify import verify
from support.forked_ranks import Job, run_forked
from support.tiny_model import make_model, make_rows
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

EARLY, LATE, KEPT = 4, 6, 2
"""Steps of the first start and of both together, a checkpoint every two, and how many are kept."""
_SIGNAL_AT, _LONG = 3, 400
_HOUR_S = 3600
_LIMIT_S = 45
_PACE_S = 0.04


def main(folder: Path) -> dict[str, object]:
    """See the module. Each part runs in a process of its own."""
    model, rows = make_model(folder / "model"), make_rows(folder / "rows.jsonl")
    ours = _flags(model, rows)
    theirs_signalled = _signal_theirs(folder / "theirs-signalled", model)
    flags = [*ours, "--output_dir", str(folder / "ours-signalled"), "--max_steps", str(_LONG)]
    ours_signalled = run_forked(Job(2, flags, {}, "SIGTERM", 1, _SIGNAL_AT))
    _in_child(partial(_rotate_theirs, folder / "theirs", model))
    _in_child(partial(_rotate_ours, folder / "ours", ours))
    return {
        "theirs_rotated": _kept(folder / "theirs"),
        "ours_rotated": _kept(folder / "ours"),
        "theirs_signalled": {"codes": theirs_signalled, "last": _last(folder / "theirs-signalled")},
        "ours_signalled": {
            "codes": ours_signalled,
            "verified": [not verify(path) for path in (folder / "ours-signalled").glob("checkpoint-*")],
        },
    }


def _flags(model: Path, rows: Path) -> list[str]:
    return [
        "--model_name_or_path", str(model), "--dataset", str(rows), "--dataset_format", "input-output",
        "--device", "cpu", "--bits", "32", "--lora_r", "4", "--gradient_accumulation_steps", "1",
        "--optim", "adamw_torch",
        "--save_steps", "2", "--save_total_limit", str(KEPT), "--time_sync_check", "false", "--vote_timeout", "20",
        "--group_by_length", "false",
    ]  # fmt: skip


def _rotate_theirs(run: Path, model: Path) -> None:
    _trainer(run, model, max_steps=EARLY).train()
    _as_if_made_before_a_step_back(run)
    _trainer(run, model, max_steps=LATE).train(resume_from_checkpoint=True)


def _rotate_ours(run: Path, flags: list[str]) -> None:
    for steps in (EARLY, LATE):
        assert trainer_main([*flags, "--output_dir", str(run), "--max_steps", str(steps)]) == 0
        if steps == EARLY:
            _as_if_made_before_a_step_back(run)


def _as_if_made_before_a_step_back(run: Path) -> None:
    """Give every checkpoint the times that it would have if the clock had been set back by an hour after it."""
    for path in run.glob("checkpoint-*"):
        made = path.stat().st_mtime + _HOUR_S
        os.utime(path, (made, made))


def _kept(run: Path) -> list[str]:
    return sorted(path.name for path in run.glob("checkpoint-*"))


def _last(run: Path) -> list[str]:
    """What is in the checkpoint that transformers would resume from."""
    found = get_last_checkpoint(str(run)) if run.exists() else None
    return [] if found is None else sorted(path.name for path in Path(found).iterdir())


class _Mark(TrainerCallback):
    """Says when a step is reached, and makes steps last."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **unused: object
    ) -> None:
        time.sleep(_PACE_S)
        if state.global_step == _SIGNAL_AT:
            self._file.touch()


def _trainer(run: Path, model: Path, mark: Path | None = None, **arguments: Any) -> Trainer:
    rows = [{"input_ids": [1, 5 + n, 7, 2], "labels": [1, 5 + n, 7, 2]} for n in range(16)]
    settings: Mapping[str, Any] = {
        "output_dir": str(run),
        "use_cpu": True,
        "per_device_train_batch_size": 1,
        "save_steps": 2,
        "save_total_limit": KEPT,
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        **arguments,
    }
    return Trainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        args=TrainingArguments(**settings),
        train_dataset=rows,
        callbacks=[] if mark is None else [_Mark(mark)],
    )


def _signal_theirs(run: Path, model: Path) -> list[int | None]:
    """Two ranks that save on SIGTERM (enable_jit_checkpoint); the second one gets it."""
    run.mkdir()
    mark = run / "mark"
    pids = [_fork(partial(_rank_of_theirs, run, model, rank, mark)) for rank in range(2)]
    due = time.monotonic() + _LIMIT_S
    while not mark.exists() and time.monotonic() < due:
        time.sleep(0.02)
    os.kill(pids[1], signal.SIGTERM)
    codes: dict[int, int] = {}
    while len(codes) < len(pids) and time.monotonic() < due:
        for pid in set(pids) - set(codes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    for pid in set(pids) - set(codes):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return [codes.get(pid) for pid in pids]


def _rank_of_theirs(run: Path, model: Path, rank: int, mark: Path) -> None:
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29877",
    }  # fmt: skip
    trainer = _trainer(
        run, model, mark if rank == 1 else None, max_steps=_LONG, save_strategy="no", enable_jit_checkpoint=True,
        ddp_backend="gloo", ddp_timeout=15,
    )  # fmt: skip
    trainer.train()
    dist.destroy_process_group()


def _in_child(work: Callable[[], None]) -> None:
    pid = _fork(work)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, f"a part of the comparison ended with {code}"


def _fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(3 * _LIMIT_S)
        torch.set_num_threads(1)
        work()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
