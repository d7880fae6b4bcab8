"""Evaluation of a small quantised Llama: in training on one and two ranks, packed or not, and by the command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.checkpoint.verify import verify
from clockgate_trainer.evaluate import main
from support.forked_ranks import Job, run_jobs
from support.tiny_model import make_model, make_rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

Evaluate = Callable[..., tuple[int, str, str]]
STEPS = 4
QUESTIONS = [
    {"subject": subject, "input": f"{subject} {n}?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:", "output": "ABCD"[n % 4]}
    for subject, count in (("sums", 5), ("words", 3))
    for n in range(count)
]


class Runs:
    """The runs of this module and the figures of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = make_rows(folder / "rows.jsonl", count=26)
        self.questions = folder / "questions.json"
        self.questions.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS), encoding="utf-8")
        self.base = [
            "--model_name_or_path", str(make_model(folder / "model")), "--dataset", str(self.rows),
            "--dataset_format", "input-output", "--eval_dataset_size", "7", "--device", "cpu", "--lora_r", "4",
            "--lora_dropout", "0.1", "--learning_rate", "0.01", "--gradient_accumulation_steps", "1",
            "--time_sync_check", "false", "--max_steps", str(STEPS), "--save_steps", "2", "--logging_steps", "100",
            "--optim", "adamw_torch",
        ]  # fmt: skip
        self.evaluated = [
            "--do_eval", "--eval_strategy", "steps", "--eval_steps", "2", "--eval_on_start",
            "--per_device_eval_batch_size", "3", "--do_mmlu_eval", "--mmlu_dataset", str(self.questions),
            "--load_best_model_at_end",
        ]  # fmt: skip
        self.names: list[str] = []
        self.jobs: list[Job] = []
        self.codes: dict[str, list[int]] = {}

    def plan(self, name: str, ranks: int, *flags: str) -> None:
        self.names.append(name)
        self.jobs.append(Job(ranks, [*self.base, "--output_dir", str(self.folder / name), *flags]))

    def carry_out(self) -> "Runs":
        self.codes = dict(zip(self.names, run_jobs(self.folder, self.jobs), strict=True))
        return self

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def figures(self, name: str, step: int) -> dict[str, Any]:
        """What an evaluation came to, without stamps and durations."""
        (found,) = (row for row in self.lines(name) if "eval_loss" in row and row["step"] == step)
        return {key: value for key, value in found.items() if key.startswith(("eval_", "mmlu_")) and "_ns" not in key}

    def adapter(self, name: str) -> str:
        path = self.folder / name / f"checkpoint-{STEPS}"
        assert verify(path) == ()
        digest: str = json.loads((path / "manifest.json").read_text(encoding="utf-8"))["adapter_sha256"]
        return digest


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(tmp_path_factory.mktemp("evaluated"))
    packed = ("--packing", "--keep_steps")
    made.plan("evaluated-1", 1, *made.evaluated)
    made.plan("plain", 2)
    made.plan("evaluated-2", 2, *made.evaluated)
    made.plan("packed", 1, *packed)
    made.plan("packed-evaluated", 1, *packed, *made.evaluated)
    return made.carry_out()


@pytest.mark.parametrize(
    ("plain", "evaluated"),
    [("plain", "evaluated-2"), ("packed", "packed-evaluated")],
)
def test_evaluation_changes_no_bit_of_a_quantised_adapter(runs: Runs, plain: str, evaluated: str) -> None:
    assert set(runs.codes[plain] + runs.codes[evaluated]) == {0}
    assert runs.adapter(evaluated) == runs.adapter(plain)
    losses = [[row["loss"] for row in runs.lines(name) if "loss" in row] for name in (plain, evaluated)]
    assert losses[0] == losses[1]


def test_figures_are_the_same_at_one_and_two_ranks(runs: Runs) -> None:
    one, two = (runs.figures(f"evaluated-{ranks}", 0) for ranks in (1, 2))
    assert one == two
    assert one["eval_rows"] == 7
    assert one["mmlu_questions"] == len(QUESTIONS)
    by_subject = [one["mmlu_eval_accuracy_sums"], one["mmlu_eval_accuracy_words"]]
    assert one["mmlu_eval_accuracy"] == pytest.approx(sum(by_subject) / 2)


def test_packed_rows_have_the_loss_of_unpacked_ones(runs: Runs) -> None:
    packed, plain = runs.figures("packed-evaluated", 0), runs.figures("evaluated-1", 0)
    assert packed["eval_loss"] == pytest.approx(plain["eval_loss"], rel=1e-5)
    assert packed["eval_tokens"] == plain["eval_tokens"]


def test_the_held_out_loss_falls(runs: Runs) -> None:
    assert runs.figures("evaluated-2", STEPS)["eval_loss"] < runs.figures("evaluated-2", 0)["eval_loss"]


@pytest.fixture
def evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Evaluate:
    """Runs the command in an empty folder, in which it must leave nothing; its exit code and what it printed."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        code = main([*words, "--device", "cpu"])
        assert list(tmp_path.iterdir()) == []
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_the_command_gives_the_figures_that_the_run_gave(runs: Runs, evaluate: Evaluate) -> None:
    words = ["--dataset", str(runs.rows), "--dataset_format", "input-output", "--eval_dataset_size", "7"]
    more = ["--do_mmlu_eval", "--mmlu_dataset", str(runs.questions), "--per_device_eval_batch_size", "3"]
    code, out, err = evaluate(str(runs.folder / "evaluated-1"), "--json", *words, *more)
    assert code == 0, err
    told = json.loads(out)
    assert told["weights"].endswith(f"checkpoint-{STEPS}")
    wanted = runs.figures("evaluated-1", STEPS)
    assert {name: told[name] for name in wanted} == wanted


def test_the_command_compares_best_and_base_on_a_file_of_their_own(runs: Runs, evaluate: Evaluate) -> None:
    words = ["--eval_dataset", str(runs.rows), "--dataset_format", "input-output", "--max_eval_samples", "5"]
    base = ["--model_name_or_path", str(runs.folder / "model"), "--bits", "32"]
    losses = []
    for subject in ([str(runs.folder / "evaluated-2"), "--best"], base):
        code, out, err = evaluate(*subject, *words)
        assert code == 0, err
        (line,) = (line for line in out.splitlines() if "eval loss" in line)
        assert line.endswith("of 5 rows")
        losses.append(float(line.split()[2]))
    assert losses[0] < losses[1]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "name a checkpoint, a run folder, an adapter or --model_name_or_path"),
        (["--model_name_or_path", "m"], 2, "nothing to evaluate on: give --eval_dataset FILE"),
        (["no-folder", "--eval_dataset", "f"], 78, "no-folder: no such folder"),
        (["--model_name_or_path", "m", "--eval_datasets", "f"], 2, "did you mean --eval_dataset?"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_with_the_next_step(
    evaluate: Evaluate, words: list[str], code: int, told: str
) -> None:
    given, out, err = evaluate(*words)
    assert (given, out) == (code, "")
    assert told in err
