import re
import shlex
from pathlib import Path

import pytest
from clockgate_trainer.errors import UsageError
from clockgate_trainer.evaluation import ratings_file
from clockgate_trainer.evaluation.schedule import Schedule, make_schedule
from clockgate_trainer.flags.config_file import text_of, words_of
from clockgate_trainer.flags.parse import notices, parse
from clockgate_trainer.flags.table import Settings

PUBLISHED = (
    "--do_eval --do_mmlu_eval --evaluation_strategy steps --eval_steps 187 --eval_dataset_size 1024 "
    "--max_eval_samples 1000 --per_device_eval_batch_size 1"
)


def _documented() -> list[list[str]]:
    """The commands of docs/evaluation.md."""
    page = (Path(__file__).parents[3] / "docs/evaluation.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.replace("\\\n", "").splitlines()]


def made(line: str) -> Settings:
    return parse(line.split())


def due(schedule: Schedule, steps: int, *, saves: tuple[int, ...] = (), epoch: int = 4) -> list[int]:
    """Evaluated steps of a run of `steps`, which has a pass over the data every `epoch` steps."""
    return [
        step
        for step in range(1, steps + 1)
        if schedule.is_due(step, step / epoch, ends_epoch=step % epoch == 0, saves=step in saves, is_last=step == steps)
    ]


def test_the_words_of_the_published_scripts_mean_what_they_mean_there() -> None:
    settings = made(PUBLISHED)
    assert settings.scores_rows
    assert settings.do_mmlu_eval
    assert settings.held_out_rows == 1024
    assert settings.best_metric == "eval_loss"
    assert notices(settings) == ()
    assert due(make_schedule(settings, 400), 400) == [187, 374, 400]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("--do_eval", [10]),
        ("--do_mmlu_eval", [10]),
        ("--eval_strategy epoch", [4, 8, 10]),
        ("--eval_strategy epoch --eval_delay 2", [8, 10]),
        ("--eval_strategy steps --logging_steps 4", [4, 8, 10]),
        ("--eval_strategy steps --eval_steps 3 --eval_delay 5", [6, 9, 10]),
        ("--eval_strategy steps --eval_steps 0.25", [3, 6, 9, 10]),
        ("--do_eval --load_best_model_at_end", [5, 10]),
        ("--load_best_model_at_end --do_eval --metric_for_best_model train_loss", [10]),
    ],
)
def test_when_a_run_is_evaluated(line: str, wanted: list[int]) -> None:
    assert due(make_schedule(made(line), 10), 10, saves=(5,)) == wanted


def test_rows_are_held_out_only_when_they_are_evaluated_or_asked_for() -> None:
    assert made("").held_out_rows == 0
    assert made("--do_mmlu_eval").held_out_rows == 0
    assert made("--do_eval").held_out_rows == 1024
    assert made("--eval_dataset_size 7").held_out_rows == 7
    assert made("--do_eval --eval_dataset other.jsonl").held_out_rows == 0


@pytest.mark.parametrize(
    ("line", "metric", "greatest"),
    [
        ("", "train_loss", False),
        ("--do_eval", "train_loss", False),
        ("--eval_strategy epoch", "eval_loss", False),
        ("--do_eval --load_best_model_at_end", "eval_loss", False),
        ("--metric_for_best_model loss", "train_loss", False),
        ("--do_eval --metric_for_best_model loss --greater_is_better false", "eval_loss", False),
        ("--do_mmlu_eval --metric_for_best_model mmlu_accuracy", "mmlu_eval_accuracy", True),
        ("--do_mmlu_eval --mmlu_split test --metric_for_best_model eval_mmlu_accuracy", "mmlu_test_accuracy", True),
    ],
)
def test_what_best_json_goes_by(line: str, metric: str, greatest: bool) -> None:
    settings = made(line)
    assert (settings.best_metric, settings.best_is_greatest) == (metric, greatest)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--metric_for_best_model eval_loss", ("--metric_for_best_model", "--do_eval")),
        ("--metric_for_best_model mmlu_accuracy", ("--do_mmlu_eval",)),
        ("--metric_for_best_model rouge", ("'rouge'", "eval_loss")),
        ("--eval_strategy steps --greater_is_better true", ("--greater_is_better", "smaller")),
        ("--eval_steps 2.5", ("--eval_steps", "whole number")),
        ("--eval_strategy sometimes", ("no, steps, epoch",)),
        ("--mmlu_split dev", ("eval, test",)),
    ],
)
def test_what_contradicts_itself_is_refused_with_the_next_step(line: str, named: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        made(line)
    for part in named:
        assert part in str(caught.value)


def test_words_without_effect_are_said() -> None:
    line = "--eval_steps 187 --eval_delay 2 --max_eval_samples 9 --per_device_eval_batch_size 1 --mmlu_split test"
    told = " ".join(notices(made(line)))
    for name in ("eval_steps", "eval_delay", "max_eval_samples", "per_device_eval_batch_size", "mmlu_split"):
        assert f"--{name} has no effect without" in told


def test_a_run_file_gives_the_same_evaluation_again(tmp_path: Path) -> None:
    settings = made(f"{PUBLISHED} --metric_for_best_model loss --load_best_model_at_end")
    (tmp_path / "run.yaml").write_text(text_of(settings), encoding="utf-8")
    assert parse(words_of(tmp_path / "run.yaml")) == settings


@pytest.mark.parametrize("command", _documented())
def test_a_command_of_the_page_is_understood(command: list[str]) -> None:
    if command[1:3] == ["evaluate", "ratings"]:
        assert len(command) == 5
        assert all(ratings_file._NAME.fullmatch(name.removesuffix(".jsonl")) for name in command[3:])
    elif command[1] == "evaluate":
        parse([word for word in command[2:] if word not in ("--best", "--json")][not command[2].startswith("--") :])
    else:
        assert parse(command[1:]).evaluates
