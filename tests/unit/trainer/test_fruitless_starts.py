"""A run that dies in the same step again and again, started again and again."""

from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.attempts import ATTEMPTS_FILE
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.outcome import read_outcome
from clockgate_trainer.train import run
from support.chaos import small

FLAGS = (
    "--time_sync_check", "false", "--device", "cpu", "--max_steps", "8", "--save_steps", "4",
    "--gradient_accumulation_steps", "1",
)  # fmt: skip


class Dying:
    """Makes the model fail in its `at`th forward of a start; the first one is the rehearsal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: int | None = None
        self._seen = 0
        whole = small.SmallModel.forward

        def forward(model: small.SmallModel, **batch: Any) -> small.Output:
            self._seen += 1
            if self._seen == self.at:
                raise RuntimeError("device-side assert")
            return whole(model, **batch)

        monkeypatch.setattr(small.SmallModel, "forward", forward)

    def start(self, folder: Path, at: int | None) -> int:
        self.at, self._seen = at, 0
        return run.main(parse(["--output_dir", str(folder), *FLAGS]), {}, small.PARTS)


def test_two_resumes_that_die_in_the_same_step_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_num_threads(1)
    runs = Dying(monkeypatch)
    # A rehearsal and six steps; then twice a rehearsal, and step 5, and step 6 from checkpoint-4.
    assert [runs.start(tmp_path, at) for at in (7, 3, 3)] == [1, 1, 1]
    assert runs.start(tmp_path, None) == 79
    outcome = read_outcome(tmp_path)
    assert outcome is not None
    assert (outcome.code, outcome.step, outcome.checkpoint) == (79, 4, str(tmp_path / "checkpoint-4"))
    assert "step 6 does not work" in outcome.reason
    assert str(tmp_path / ATTEMPTS_FILE) in capsys.readouterr().err
    (tmp_path / ATTEMPTS_FILE).unlink()
    assert runs.start(tmp_path, None) == 0
    assert not (tmp_path / ATTEMPTS_FILE).exists()


def test_a_resume_that_gets_further_may_be_resumed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    runs = Dying(monkeypatch)
    assert [runs.start(tmp_path, at) for at in (6, 3, 4, 4)] == [1, 1, 1, 1]
    assert runs.start(tmp_path, None) == 0
