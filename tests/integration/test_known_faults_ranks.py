"""Faults that others report of several ranks, tried on two: uneven batches, folders left behind, slow saves."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from clockgate_trainer.checkpoint.verify import verify
from clockgate_trainer.outcome import read_outcome
from support.small_runs import SmallRun, play

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

# Of the small model's data, which 6 rows a step do not divide.
ROWS = 40
SLOW_S, PATIENCE_S = 6, 2


@dataclass(frozen=True)
class Ended:
    """Exit codes of both ranks of each run, by its name, and where their folders are."""

    folder: Path
    codes: dict[str, list[int]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("runs")
    runs: dict[str, SmallRun] = {}

    def plan(name: str, *flags: str, deed: str = "", step: int = 0) -> None:
        words = ["--time_sync_check", "false", "--save_strategy", "no", *flags]
        runs[name] = SmallRun([str(folder / name)] * 2, words, deed, rank=0, step=step)

    uneven = ("--per_device_train_batch_size", "3", "--gradient_accumulation_steps", "1")
    plan("uneven", *uneven, "--num_train_epochs", "2")
    plan("slow", "--max_steps", "2", "--vote_timeout", str(PATIENCE_S), "--ddp_timeout", str(PATIENCE_S),
         "--save_timeout", "60", deed="slow", step=SLOW_S)  # fmt: skip
    for name in ("left over", "half written"):
        (folder / name / "checkpoint-1").mkdir(parents=True)
        (folder / name / "checkpoint-1" / "adapter_model.safetensors").write_bytes(b"of an earlier run")
        plan(name, "--max_steps", "1", *(["--resume_from_checkpoint", "none"] if name == "half written" else []))
    return Ended(folder, dict(zip(runs, play(folder, list(runs.values())), strict=True)))


def test_uneven_batches_end_on_both_ranks_and_every_row_is_seen(ended: Ended) -> None:
    assert ended.codes["uneven"] == [0, 0]
    lines = (ended.folder / "uneven" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    epochs = [json.loads(line)["epoch"] for line in lines]
    assert len(epochs) == 2 * 7
    assert epochs[5:8] == pytest.approx([36 / ROWS, 1.0, 1 + 6 / ROWS])


def test_a_save_longer_than_every_timeout_of_an_exchange_ends_no_rank(ended: Ended) -> None:
    assert ended.codes["slow"] == [0, 0]
    assert verify(ended.folder / "slow" / "checkpoint-2") == ()
    assert SLOW_S > 2 * PATIENCE_S


@pytest.mark.parametrize("name", ["left over", "half written"])
def test_a_checkpoint_folder_left_behind_is_refused_on_both_ranks_at_once(ended: Ended, name: str) -> None:
    assert ended.codes[name] == [78, 78]
    outcome = read_outcome(ended.folder / name)
    assert outcome is not None
    assert "checkpoint-1" in outcome.reason
    assert (ended.folder / name / "checkpoint-1" / "adapter_model.safetensors").read_bytes() == b"of an earlier run"
