"""Whole runs of a small model with evaluation: what it tells, and that training is the same as without it."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.small_runs import SmallRun, play

pytestmark = pytest.mark.timeout(240)

STEPS = 6
FLAGS = (
    "--time_sync_check", "false", "--device", "cpu", "--max_steps", str(STEPS), "--save_steps", "2",
    "--gradient_accumulation_steps", "2", "--learning_rate", "0.01", "--vote_timeout", "30", "--logging_steps", "100",
)  # fmt: skip
EVALUATED = ("--eval_strategy", "steps", "--eval_steps", "2", "--per_device_eval_batch_size", "3", "--eval_on_start")
SIGNAL_STEP = 4


class Runs:
    """The runs of this module, made once in one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._planned: list[tuple[str, SmallRun]] = []
        self.codes: dict[str, list[list[int]]] = {}

    def plan(self, name: str, ranks: int, *flags: str, **deed: Any) -> None:
        """Add one start; equal names share a run folder."""
        self._planned.append((name, SmallRun([str(self.folder / name)] * ranks, [*FLAGS, *flags], **deed)))

    def carry_out(self) -> "Runs":
        for (name, _), codes in zip(self._planned, play(self.folder, [one for _, one in self._planned]), strict=True):
            self.codes.setdefault(name, []).append(codes)
        return self

    def lines(self, name: str, file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name / file).read_text(encoding="utf-8").splitlines()]

    def evaluations(self, name: str) -> dict[int, dict[str, Any]]:
        """Evaluation lines of metrics.jsonl by step."""
        return {row["step"]: row for row in self.lines(name, "metrics.jsonl") if "eval_loss" in row}

    def adapter(self, name: str) -> str:
        path = self.folder / name / f"checkpoint-{STEPS}" / "manifest.json"
        digest: str = json.loads(path.read_text(encoding="utf-8"))["adapter_sha256"]
        return digest

    def best(self, name: str) -> dict[str, Any]:
        best: dict[str, Any] = json.loads((self.folder / name / "best.json").read_text(encoding="utf-8"))
        return best


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(tmp_path_factory.mktemp("evaluated"))
    for ranks in (1, 2):
        made.plan(f"plain-{ranks}", ranks)
        made.plan(f"evaluated-{ranks}", ranks, *EVALUATED)
        made.plan(f"parts-{ranks}", ranks, *EVALUATED, "--max_steps", "3")
        made.plan(f"parts-{ranks}", ranks, *EVALUATED)
    made.plan("start-3", 3, *EVALUATED, "--max_steps", "1")
    made.plan("signalled", 2, *EVALUATED, deed="SIGTERM", rank=1, step=SIGNAL_STEP)
    made.plan("signalled", 2, *EVALUATED)
    made.plan("killed", 2, *EVALUATED, deed="SIGKILL", rank=1, step=SIGNAL_STEP)
    made.plan("killed", 2, *EVALUATED)
    made.plan(
        "best",
        2,
        "--do_eval",
        "--load_best_model_at_end",
        "--save_total_limit",
        "1",
        "--learning_rate",
        "0.3",
        "--seed",
        "3",
    )
    made.plan("unaligned", 1, "--eval_strategy", "steps", "--eval_steps", "4", "--save_steps", "3")
    return made.carry_out()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_with_evaluation_has_the_adapter_of_a_run_without(runs: Runs, ranks: int) -> None:
    assert runs.codes[f"evaluated-{ranks}"] == runs.codes[f"plain-{ranks}"] == [[0] * ranks]
    assert runs.adapter(f"evaluated-{ranks}") == runs.adapter(f"plain-{ranks}")
    assert sorted(runs.evaluations(f"evaluated-{ranks}")) == [0, 2, 4, 6]
    assert runs.evaluations(f"plain-{ranks}") == {}


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_resumed_run_with_evaluation_has_it_too_and_the_same_losses(runs: Runs, ranks: int) -> None:
    assert runs.codes[f"parts-{ranks}"] == [[0] * ranks] * 2
    assert runs.adapter(f"parts-{ranks}") == runs.adapter(f"plain-{ranks}")
    whole, parts = runs.evaluations(f"evaluated-{ranks}"), runs.evaluations(f"parts-{ranks}")
    assert {step: parts[step]["eval_loss"] for step in whole if step} == {
        step: row["eval_loss"] for step, row in whole.items() if step
    }


def test_the_held_out_loss_is_the_same_number_at_any_number_of_ranks(runs: Runs) -> None:
    found = [runs.evaluations(name)[0] for name in ("evaluated-1", "evaluated-2", "start-3")]
    # 11 rows in batches of 3 on 3 ranks: the last batch is padded, and two ranks have a round of padding alone.
    assert len({row["eval_loss"] for row in found}) == 1
    assert {row["eval_rows"] for row in found} == {11}
    assert len({row["eval_tokens"] for row in found}) == 1


def test_an_evaluation_is_in_the_log_with_its_duration(runs: Runs) -> None:
    events = [row for row in runs.lines("evaluated-2", "events.jsonl") if row["event"] == "evaluation"]
    assert [row["step"] for row in events] == [0, 2, 4, 6]
    assert all(row["eval_duration_ns"] > 0 and row["eval_tokens"] > 0 for row in events)
    votes = [row["step"] for row in runs.lines("evaluated-2", "events.jsonl") if row.get("kind") == "EVAL"]
    assert sorted(set(votes)) == [0, 2, 4, 6]


def test_a_signal_before_an_evaluation_drops_it_and_stops_the_run_with_a_checkpoint(runs: Runs) -> None:
    assert runs.codes["signalled"] == [[75, 75], [0, 0]]
    dropped = [row for row in runs.lines("signalled", "events.jsonl") if row["event"] == "evaluation_dropped"]
    assert [f"step {SIGNAL_STEP} " in row["detail"] for row in dropped] == [True]
    first = [row["step"] for row in runs.lines("signalled", "metrics.jsonl") if row["attempt"] == 1]
    assert first == [0, 1, 2, 2, 3, SIGNAL_STEP], "steps, and evaluations before the first and after the second"
    assert runs.adapter("signalled") == runs.adapter("plain-2")


def test_a_rank_that_dies_before_an_evaluation_ends_the_other_and_the_run_is_resumed(runs: Runs) -> None:
    assert runs.codes["killed"] == [[79, -9], [0, 0]]
    assert runs.adapter("killed") == runs.adapter("plain-2")


def test_best_json_names_the_best_evaluated_checkpoint_which_rotation_keeps(runs: Runs) -> None:
    assert runs.codes["best"] == [[0, 0]]
    losses = {step: row["eval_loss"] for step, row in runs.evaluations("best").items()}
    assert sorted(losses) == [2, 4, 6]
    best = runs.best("best")
    assert best["metric"] == "eval_loss"
    assert best["step"] == min(losses, key=lambda step: losses[step]) < STEPS
    assert best["value"] == losses[best["step"]]
    kept = sorted(path.name for path in (runs.folder / "best").glob("checkpoint-*"))
    assert kept == sorted({best["checkpoint"], f"checkpoint-{STEPS}"})


def test_a_run_that_ends_with_the_best_weights_says_which_they_are(runs: Runs) -> None:
    outcome = json.loads((runs.folder / "best" / "outcome.json").read_text(encoding="utf-8"))
    assert f"the best checkpoint by eval_loss is {runs.best('best')['checkpoint']} " in outcome["reason"]
    assert outcome["checkpoint"].endswith(f"checkpoint-{STEPS}")


def test_the_figures_of_the_last_evaluation_are_in_metrics_json(runs: Runs) -> None:
    figures = json.loads((runs.folder / "evaluated-2" / "metrics.json").read_text(encoding="utf-8"))
    last = runs.evaluations("evaluated-2")[STEPS]
    assert figures == {name: last[name] for name in ("eval_loss", "eval_tokens", "eval_rows")}


def test_a_save_that_was_not_evaluated_does_not_compete(runs: Runs) -> None:
    assert sorted(runs.evaluations("unaligned")) == [4, 6]
    assert runs.best("unaligned")["step"] == 6
