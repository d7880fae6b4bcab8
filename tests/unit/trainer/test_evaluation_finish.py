"""What follows the last step: figures in metrics.json, and the best weights."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from clockgate_trainer.checkpoint.best import Score, point_to
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.figures import merge_figures
from clockgate_trainer.outcome import Outcome
from clockgate_trainer.train.distributed import Meeting, Place, SharedError
from clockgate_trainer.train.finish import return_to_best

ALONE = Place(0, 1, 0, 1)
DONE = Outcome(0, "all steps are done", 6, "checkpoint-6", ())


def test_figures_of_another_kind_stay_and_equal_names_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text('{"predict_rows": 3, "eval_loss": 9}', encoding="utf-8")
    merge_figures(tmp_path, {"eval_loss": 1.5, "eval_rows": 2})
    merge_figures(tmp_path, {"mmlu_eval_accuracy": float("nan")})
    assert json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8")) == {
        "predict_rows": 3,
        "eval_loss": 1.5,
        "eval_rows": 2,
        "mmlu_eval_accuracy": None,
    }


@pytest.mark.parametrize("content", ["", "[1]", "{"])
def test_a_file_that_is_no_object_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "metrics.json").write_text(content, encoding="utf-8")
    merge_figures(tmp_path, {"eval_loss": 1.5})
    assert json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8")) == {"eval_loss": 1.5}


def finish(folder: Path, loaded: list[Path], *, fails: bool = False) -> Outcome:
    def load(path: Path) -> None:
        if fails:
            raise ConfigError("it is torn")
        loaded.append(path)

    reporter = cast(Any, SimpleNamespace(say=lambda *words: None))
    return return_to_best(DONE, folder, Meeting(ALONE, 1.0), reporter, load)


def test_the_weights_of_the_best_checkpoint_are_loaded_and_named_in_the_outcome(tmp_path: Path) -> None:
    loaded: list[Path] = []
    assert finish(tmp_path, loaded) == DONE
    point_to(HOST, tmp_path / "checkpoint-4", 4, Score("eval_loss", 0.25))
    outcome = finish(tmp_path, loaded)
    assert loaded == [tmp_path / "checkpoint-4"]
    assert outcome.reason == "all steps are done; the best checkpoint by eval_loss is checkpoint-4 (0.25)"
    assert outcome.checkpoint == "checkpoint-6"


def test_the_last_step_needs_no_loading_when_it_is_the_best(tmp_path: Path) -> None:
    loaded: list[Path] = []
    point_to(HOST, tmp_path / "checkpoint-6", 6, Score("eval_loss", 0.25))
    finish(tmp_path, loaded)
    assert loaded == []


def test_best_weights_that_cannot_be_read_end_the_run_with_an_error_on_all_ranks(tmp_path: Path) -> None:
    point_to(HOST, tmp_path / "checkpoint-4", 4, Score("eval_loss", 0.25))
    with pytest.raises(SharedError, match="all steps are done, and the best checkpoint cannot be loaded: it is torn"):
        finish(tmp_path, [], fails=True)
