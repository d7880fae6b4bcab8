"""What a run gives away beside its checkpoints: figures to metric sinks, and predictions at its end."""

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.checkpoint.best import Score, point_to
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.generation.answer import Answer
from clockgate_trainer.outcome import Outcome, read_outcome
from clockgate_trainer.train import run
from clockgate_trainer.train.parts import Parts
from support.chaos.small import PARTS

FLAGS = (
    "--max_steps",
    "4",
    "--save_steps",
    "2",
    "--logging_steps",
    "2",
    "--device",
    "cpu",
    "--time_sync_check",
    "false",
)


@pytest.fixture(autouse=True)
def kept_signals() -> Iterator[None]:
    """A run installs handlers, and ignores SIGTERM at its end."""
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Sink:
    """Remembers steps, or breaks at the first."""

    name = "store"

    def __init__(self, *, breaks: bool = False) -> None:
        self.steps: list[int] = []
        self.model: Any = None
        self._breaks = breaks

    def begin(self, total_steps: int, model: Any) -> None:
        self.model = model

    def log(self, step: int, epoch: float, figures: Mapping[str, float]) -> None:
        if self._breaks:
            raise OSError("no network")
        self.steps.append(step)

    def end(self) -> None:
        self.steps.append(-1)


class Parrot:
    """Answers with what it is asked; `meanwhile` is done before each batch."""

    def __init__(self, meanwhile: Callable[[int], None] = lambda number: None) -> None:
        self._meanwhile = meanwhile

    def answer(
        self, prompts: Sequence[Sequence[int]], number: int, go_on: Callable[[], bool] | None = None
    ) -> list[Answer]:
        self._meanwhile(number)
        return [Answer(self.text(ids), self.text([*ids, *ids]), len(ids), ended=True) for ids in prompts]

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


def start(folder: Path, parts: Parts, *flags: str) -> tuple[int, Outcome]:
    code = run.main(parse(["--output_dir", str(folder), *FLAGS, *flags]), {}, parts)
    outcome = read_outcome(folder)
    assert outcome is not None
    return code, outcome


def speaking(meanwhile: Callable[[int], None] = lambda number: None) -> Parts:
    return replace(PARTS, make_speaker=lambda settings, model: Parrot(meanwhile))


def test_a_run_sends_its_figures_and_ends_its_sinks(tmp_path: Path) -> None:
    sink = Sink()
    code, _ = start(tmp_path, replace(PARTS, make_sinks=lambda settings: (sink,)))
    assert code == 0
    assert sink.steps == [2, 4, -1]
    assert sink.model is not None


def test_a_broken_sink_changes_no_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, outcome = start(tmp_path, replace(PARTS, make_sinks=lambda settings: (Sink(breaks=True),)))
    assert (code, outcome.step) == (0, 4)
    assert capfd.readouterr().err.count("store gets no more figures: OSError: no network") == 1


def test_predictions_are_written_once_training_is_done(tmp_path: Path) -> None:
    code, outcome = start(tmp_path, speaking(), "--do_predict", "--per_device_eval_batch_size", "4")
    assert (code, outcome.step) == (0, 4)
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 11
    assert all(line["prediction"] == line["input"] for line in lines)
    assert json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8"))["predict_samples"] == 11


def test_without_predictions_asked_for_none_are_made(tmp_path: Path) -> None:
    assert start(tmp_path, speaking())[0] == 0
    assert not (tmp_path / "predictions.jsonl").exists()


def test_predictions_of_an_earlier_run_stay_when_new_ones_fail(tmp_path: Path) -> None:
    (tmp_path / "predictions.jsonl").write_text("old\n", encoding="utf-8")

    def short(number: int) -> None:
        if number == 1:
            raise ConfigError("4 prompts do not fit")

    code, outcome = start(tmp_path, speaking(short), "--do_predict", "--per_device_eval_batch_size", "4")
    assert code == 78
    assert "no predictions were written: rank 0: 4 prompts do not fit" in outcome.reason
    assert outcome.checkpoint is not None
    assert (tmp_path / "predictions.jsonl").read_text(encoding="utf-8") == "old\n"
    assert not list(tmp_path.glob(".draft*"))


def test_a_signal_while_predicting_leaves_with_the_checkpoint(tmp_path: Path) -> None:
    def interrupt(number: int) -> None:
        if number == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    code, outcome = start(tmp_path, speaking(interrupt), "--do_predict", "--per_device_eval_batch_size", "4")
    assert code == 75
    assert "asked to leave before all rows were predicted" in outcome.reason
    assert not (tmp_path / "predictions.jsonl").exists()
    assert start(tmp_path, speaking(), "--do_predict")[0] == 0
    assert (tmp_path / "predictions.jsonl").exists()


def test_without_training_the_newest_checkpoint_predicts_whatever_the_other_flags_say(tmp_path: Path) -> None:
    assert start(tmp_path, PARTS)[0] == 0
    code, outcome = start(tmp_path, speaking(), "--do_predict", "--do_train", "false", "--learning_rate", "0.5")
    assert (code, outcome.step) == (0, 4)
    assert (tmp_path / "predictions.jsonl").exists()
    assert len((tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()) == 4


def test_predictions_made_by_a_later_start_are_those_of_the_best_weights_too(tmp_path: Path) -> None:
    assert start(tmp_path, PARTS)[0] == 0
    point_to(HOST, tmp_path / "checkpoint-2", 2, Score("train_loss", 0.25))
    loaded: list[str] = []
    parts = replace(speaking(), load_adapter=lambda model, folder: loaded.append(folder.name))
    code, outcome = start(tmp_path, parts, "--do_predict", "--load_best_model_at_end")
    assert (code, loaded) == (0, ["checkpoint-4", "checkpoint-2"])
    assert "the best checkpoint by train_loss is checkpoint-2" in outcome.reason


def test_a_signal_while_a_model_gets_ready_to_predict_is_heard(tmp_path: Path) -> None:
    def make_speaker(settings: Settings, model: Any) -> Parrot:
        os.kill(os.getpid(), signal.SIGTERM)
        return Parrot()

    code, _ = start(tmp_path, replace(PARTS, make_speaker=make_speaker), "--do_predict")
    assert code == 75
    assert not (tmp_path / "predictions.jsonl").exists()


def test_weights_that_nobody_trained_answer_with_a_word_about_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert start(tmp_path, speaking(), "--do_predict", "--do_train", "false")[0] == 0
    assert "holds no checkpoint" in capfd.readouterr().err


def test_a_model_that_generates_nothing_is_told(tmp_path: Path) -> None:
    code, outcome = start(tmp_path, PARTS, "--do_predict")
    assert code == 78
    assert "SmallModel generates no text" in outcome.reason


def test_the_number_of_trained_parameters_is_told_at_the_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    start(tmp_path, PARTS)
    trained, frozen = 16 * 8 + 8 + 8 * 32 + 32, 32 * 16
    assert f"{trained} of {trained + frozen} parameters are trained" in capfd.readouterr().err
