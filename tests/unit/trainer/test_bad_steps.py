"""Steps whose loss or gradient is no number: what they change, who hears of them, and when the run ends."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.checkpoint.background import copied
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.outcome import read_outcome
from clockgate_trainer.train import run
from support.chaos import small

FLAGS = (
    "--time_sync_check", "false", "--device", "cpu", "--max_steps", "8", "--save_steps", "2",
    "--gradient_accumulation_steps", "1",
)  # fmt: skip


class Spoiled:
    """Makes the loss NaN in the steps named; the first forward of a start is the rehearsal, which is step 0."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: set[int]) -> None:
        torch.set_num_threads(1)
        self.model: small.SmallModel | None = None
        self.weights_before: dict[int, Any] = {}
        self._step = -1
        whole = small.SmallModel.forward

        def forward(model: small.SmallModel, **batch: Any) -> small.Output:
            self.model, self._step = model, self._step + 1
            self.weights_before[self._step] = copied(dict(model.named_parameters()))
            output = whole(model, **batch)
            return small.Output(output.logits * float("nan")) if self._step in steps else output

        monkeypatch.setattr(small.SmallModel, "forward", forward)

    def start(self, folder: Path, *flags: str) -> int:
        return run.main(parse(["--output_dir", str(folder), *FLAGS, *flags]), {}, small.PARTS)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def test_a_bad_step_changes_neither_weights_nor_schedule_and_counts_as_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoiled = Spoiled(monkeypatch, {3})
    assert spoiled.start(tmp_path) == 0
    before, after = spoiled.weights_before[3], spoiled.weights_before[4]
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not all(torch.equal(after[name], spoiled.weights_before[5][name]) for name in before)
    rows = metrics(tmp_path)
    assert [row["step"] for row in rows if row["skipped"]] == [3]
    assert rows[3]["learning_rate"] == rows[2]["learning_rate"]
    assert len(rows) == 8
    (told,) = events(tmp_path, "bad_step")
    assert (told["level"], told["step"], told["in_a_row"]) == ("CRITICAL", 3, 1)
    assert "CRITICAL: step 3: the loss is nan" in capsys.readouterr().err


def test_bad_steps_in_a_row_end_the_run_without_a_checkpoint_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Spoiled(monkeypatch, {2, 4, 5, 6, 7, 8}).start(tmp_path, "--max_bad_steps", "3") == 76
    outcome = read_outcome(tmp_path)
    assert outcome is not None
    assert (outcome.step, outcome.checkpoint) == (6, str(tmp_path / "checkpoint-4"))
    assert "3 steps in a row" in outcome.reason
    assert "lower" in outcome.reason
    assert checkpoints(tmp_path) == ["checkpoint-2", "checkpoint-4"]


def test_zero_means_that_no_number_of_bad_steps_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Spoiled(monkeypatch, {2, 3, 4, 5, 6, 7}).start(tmp_path, "--max_bad_steps", "0") == 0


def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled = Spoiled(monkeypatch, set())
    whole = small.PARTS.make_optimizer

    def make_optimizer(*arguments: Any) -> torch.optim.Optimizer:
        optimizer, done = whole(*arguments), 0

        def hook(*unused: object) -> None:
            nonlocal done
            done += 1
            if done == 5 and spoiled.model is not None:
                with torch.no_grad():
                    spoiled.model.up.bias[0] = float("nan")

        optimizer.register_step_post_hook(hook)
        return optimizer

    parts = replace(small.PARTS, make_optimizer=make_optimizer)
    assert run.main(parse(["--output_dir", str(tmp_path), *FLAGS]), {}, parts) == 76
    assert checkpoints(tmp_path) == ["checkpoint-2", "checkpoint-4"]
    assert "no numbers, such as up.bias" in events(tmp_path, "checkpoint_failed")[0]["detail"]


def test_people_are_called_once_for_losses_that_are_no_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "note.py"
    note.write_text(f"import sys\nopen({str(tmp_path / 'alerts')!r}, 'a').write(sys.stdin.read() + '\\n')\n")
    flags = ("--alert_exec", f"{sys.executable} {note}")
    assert Spoiled(monkeypatch, {3, 4}).start(tmp_path / "run", *flags) == 0
    (alert,) = [json.loads(line) for line in (tmp_path / "alerts").read_text(encoding="utf-8").splitlines()]
    assert (alert["kind"], alert["step"], alert["reasons"]) == ("bad_loss", 3, ["LOSS_NOT_FINITE"])
