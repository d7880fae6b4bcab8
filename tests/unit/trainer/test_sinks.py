"""Figures to other programs: what they get, and that nothing they do ends or delays a run."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.train import sinks as room
from clockgate_trainer.train.progress import StepReport
from clockgate_trainer.train.sinks import Sinks
from clockgate_trainer.train.trackers import make_trackers
from transformers import TrainerCallback
from transformers.integrations import integration_utils


class Memory:
    """Remembers what it is told; breaks at `breaks_at`, and waits for `gate` first if there is one."""

    name = "memory"

    def __init__(self, breaks_at: int | None = None, gate: threading.Event | None = None) -> None:
        self.told: list[tuple[int, Mapping[str, float]]] = []
        self.ended = False
        self._breaks_at = breaks_at
        self._gate = gate

    def begin(self, total_steps: int, model: Any) -> None:
        pass

    def log(self, step: int, epoch: float, figures: Mapping[str, float]) -> None:
        if self._gate is not None:
            self._gate.wait()
        if step == self._breaks_at:
            raise ConnectionError("the server\nis gone")
        self.told.append((step, figures))

    def end(self) -> None:
        self.ended = True


def report(step: int, loss: float = 2.0, label_tokens: int = 10) -> StepReport:
    return StepReport(step, step / 4, loss, 0.5, 1e-3, 100, label_tokens, 2_000_000_000, 1_000_000_000, 3_000_000)


def run(sinks: Sinks, steps: int, every: int = 2) -> None:
    sinks.begin(steps, every, None)
    for step in range(1, steps + 1):
        sinks.step_done(report(step, loss=float(step), label_tokens=step))
    sinks.evaluated(steps, {"eval_loss": 1.5})
    sinks.close()


def test_a_sink_gets_token_weighted_means_every_few_steps_and_evaluations() -> None:
    memory, said = Memory(), list[str]()
    run(Sinks((memory,), said.append), 5)
    assert [step for step, _ in memory.told] == [2, 4, 5, 5]
    assert memory.told[0][1] == {
        "loss": pytest.approx((1 * 1 + 2 * 2) / 3),
        "grad_norm": 0.5,
        "learning_rate": 1e-3,
        "tokens_per_second": pytest.approx(100.0),
        "held_seconds": pytest.approx(2.0),
        "clock_bound_seconds": pytest.approx(0.003),
    }
    assert memory.told[-1][1] == {"eval_loss": 1.5}
    assert memory.ended
    assert not said


def test_a_sink_that_breaks_is_told_once_and_the_others_go_on() -> None:
    broken, sound, said = Memory(breaks_at=2), Memory(), list[str]()
    run(Sinks((broken, sound), said.append), 6)
    assert said == ["memory gets no more figures: ConnectionError: the server is gone; metrics.jsonl has all"]
    assert [step for step, _ in sound.told] == [2, 4, 6, 6]
    assert not broken.told


def test_a_sink_that_hangs_delays_no_step_and_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_LAST_PATIENCE_S", 0.2)
    gate = threading.Event()
    memory, said = Memory(gate=gate), list[str]()
    sinks = Sinks((memory,), said.append)
    started = time.monotonic()
    run(sinks, 3000, every=1)
    assert time.monotonic() - started < 10
    gate.set()
    assert "did not take the last figures" in said[0]
    assert "figures were not sent" in said[1]


class Local(TrainerCallback):
    """A callback as a person registers it with transformers."""

    heard: list[tuple[str, int, dict[str, Any]]]

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert args.to_sanitized_dict()["report_to"]
        Local.heard = [("begin", state.max_steps, {"job": args.run_name})]

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        Local.heard.append(("log", state.global_step, logs))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        Local.heard.append(("end", state.global_step, {}))


def test_callbacks_of_transformers_are_called_with_the_runs_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "local", Local)
    settings = parse(["--report_to", "local", "--output_dir", str(tmp_path / "job-7")])
    said: list[str] = []
    run(Sinks(make_trackers(settings), said.append), 4)
    assert not said
    assert Local.heard[0] == ("begin", 4, {"job": "job-7"})
    assert [(what, step) for what, step, _ in Local.heard[1:]] == [("log", 2), ("log", 4), ("log", 4), ("end", 4)]
    assert Local.heard[1][2]["loss"] == pytest.approx(5 / 3)
    assert Local.heard[1][2]["epoch"] == 0.5


def test_unknown_and_missing_sinks_are_told_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"--report_to names wandbb.*tensorboard"):
        make_trackers(parse(["--report_to", "wandbb"]))
    with pytest.raises(ConfigError, match=r"--report_to names comet_ml, which cannot be used"):
        make_trackers(parse(["--report_to", "comet_ml"]))
    assert make_trackers(parse([])) == ()
