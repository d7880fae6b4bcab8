"""--do_predict in whole runs: every rank answers its share, rank 0 writes, and a signal ends it on all ranks."""

import json
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.outcome import read_outcome
from support.forked_ranks import Job, run_jobs
from support.tiny_model import make_model, make_rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROWS = 7


class Runs:
    """Every run of this module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        base = [
            "--model_name_or_path", str(make_model(folder / "model")),
            "--dataset", str(make_rows(folder / "rows.jsonl")),
            "--eval_dataset", str(make_rows(folder / "held.jsonl", ROWS)), "--dataset_format", "input-output",
            "--device", "cpu", "--lora_r", "8", "--learning_rate", "0.01", "--gradient_accumulation_steps", "2",
            "--max_steps", "4", "--logging_steps", "100", "--time_sync_check", "false", "--do_predict",
            "--predict_with_generate", "--per_device_eval_batch_size", "2",
        ]  # fmt: skip
        short = ["--max_new_tokens", "6"]
        there = ["--resume_from_checkpoint", str(folder / "two" / "checkpoint-4"), "--do_train", "false"]
        slow = ["--max_new_tokens", "150", "--min_new_tokens", "150", "--per_device_eval_batch_size", "1"]
        jobs = {
            "two": Job(2, [*base, *short, "--output_dir", str(folder / "two")]),
            "one": Job(1, [*base, *short, *there, "--output_dir", str(folder / "one")]),
            "left": Job(2, [*base, *slow, "--output_dir", str(folder / "left")], {}, "SIGTERM", 1, 4),
        }
        self.codes = dict(zip(jobs, run_jobs(folder, list(jobs.values())), strict=True))

    def predictions(self, name: str) -> list[dict[str, Any]]:
        text = (self.folder / name / "predictions.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("predicting"))


def test_two_ranks_predict_every_held_out_row_once_in_order(runs: Runs) -> None:
    assert runs.codes["two"] == [0, 0]
    found = runs.predictions("two")
    rows = [json.loads(line) for line in (runs.folder / "held.jsonl").read_text(encoding="utf-8").splitlines()]
    squeezed = [one["input"].replace(" ", "") for one in found]
    assert squeezed == [row["input"].replace(" ", "") for row in rows]
    assert all(one["prediction_with_input"].endswith(one["prediction"]) for one in found)
    assert all(one["prediction_with_input"].startswith(one["input"]) for one in found)


def test_figures_are_in_metrics_json(runs: Runs) -> None:
    figures = json.loads((runs.folder / "two" / "metrics.json").read_text(encoding="utf-8"))
    assert figures["predict_samples"] == ROWS
    assert 1 <= figures["predict_gen_len"] <= 6


def test_one_rank_without_training_predicts_from_a_checkpoint_what_two_predicted(runs: Runs) -> None:
    assert runs.codes["one"] == [0]
    assert runs.predictions("one") == runs.predictions("two")
    assert not list((runs.folder / "one").glob("checkpoint-*"))


def test_a_signal_while_predicting_ends_all_ranks_with_the_checkpoint(runs: Runs) -> None:
    assert runs.codes["left"] == [75, 75]
    assert not (runs.folder / "left" / "predictions.jsonl").exists()
    outcome = read_outcome(runs.folder / "left")
    assert outcome is not None
    assert outcome.checkpoint is not None
    assert outcome.checkpoint.endswith("checkpoint-4")
