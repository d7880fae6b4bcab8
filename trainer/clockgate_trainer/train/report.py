"""What one rank tells people and files while it runs. Decides nothing."""

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from clockgate_trainer.alert import Alerter, Targets
from clockgate_trainer.events import EventLog, MetricLog
from clockgate_trainer.gate.telling import Teller
from clockgate_trainer.tell import tell
from clockgate_trainer.train.distributed import Place
from clockgate_trainer.train.progress import Progress, StepReport, evaluation_line
from clockgate_trainer.train.sinks import Sinks


@dataclass
class Standing:
    """How far the run is, for an outcome at any moment: last finished step and newest verified checkpoint."""

    step: int | None = None
    checkpoint: Path | None = None


class Reporter:
    """Events of every rank; on rank 0 also metrics and lines on standard error."""

    def __init__(self, events: EventLog, metrics: MetricLog | None, standing: Standing) -> None:
        self._events = events
        self._metrics = metrics
        self._progress: Progress | None = None
        self._teller = Teller()
        self._alerter: Alerter | None = None
        self._sinks: Sinks | None = None
        self.standing = standing
        self.held_ns = 0

    def call_people(self, targets: Targets, *, after_hold_s: float, job: str) -> None:
        """From now on call `targets` when all ranks have waited for `after_hold_s`, and when the gate stops the run."""
        self._alerter = Alerter(targets, after_hold_s=after_hold_s, job=job, on_event=self._on_alert)

    def send_to(self, sinks: Sinks) -> None:
        """From the first step on send figures to `sinks` too."""
        self._sinks = sinks

    def say(self, text: str, event: str = "notice") -> None:
        """One sentence for a person (from rank 0 alone) and for the log."""
        self._events.write(event, detail=text)
        if self._metrics is not None:
            tell(f"clockgate-train: {text}")

    def log(self, event: str, **fields: object) -> None:
        """One record for the log alone."""
        self._events.write(event, **fields)

    def on_gate_event(self, name: str, fields: Mapping[str, object]) -> None:
        """Take note of a decision of the gate, a wait, or something about a rank or its daemon; ClockGate calls it."""
        self._events.write(name, **fields)
        if name == "hold":
            self._events.flush()
        for sentence in self._teller.sentences(name, fields):
            self._print(sentence)
        self._alert(name, fields)
        if name == "gate":
            held_ns = fields["held_ns"]
            self.held_ns = held_ns if isinstance(held_ns, int) else 0

    def _alert(self, name: str, fields: Mapping[str, object]) -> None:
        if self._alerter is None:
            return
        if name == "hold":
            self._alerter.hold(fields)
        elif name == "gate" and fields["kind"] == "STEP":
            # Who sent a signal knows of it.
            stops = fields["step_verdict"] == "STOP" and fields["reasons"] != ["SIGNAL"]
            if stops:
                self._alerter.stop(fields)
            else:
                self._alerter.go_on()

    def _on_alert(self, name: str, fields: Mapping[str, object]) -> None:
        self._events.write(name, **fields)
        self._events.flush()
        if fields["level"] == "CRITICAL":
            self._print(f"CRITICAL: step {fields['step']}: {fields['kind']}: {_people(fields)}")
        for failure in _texts(fields["undelivered"]):
            self._print(f"warning: the alert was not delivered: {failure}")

    def on_save_event(self, name: str, fields: Mapping[str, object]) -> None:
        """Take note of what became of a checkpoint."""
        self._events.write(name, **fields)
        if name == "checkpoint_saved":
            self._print(f"saved {fields['path']}")
        elif "level" in fields:
            self._print(f"{fields['level']}: {fields['detail']}")

    def bad_step(self, step: int, *, loss: float, in_a_row: int, detail: str) -> None:
        """Take note of a step that changed no weight. A loss that is no number is CRITICAL, and calls people once."""
        critical = not math.isfinite(loss)
        level = "CRITICAL" if critical else "WARNING"
        self._events.write("bad_step", level=level, step=step, loss=loss, in_a_row=in_a_row, detail=detail)
        self._print(f"{level}: step {step}: {detail}" if critical else f"clockgate-train: step {step}: {detail}")
        if critical and in_a_row == 1 and self._alerter is not None:
            self._alerter.bad_loss({"step": step, "reasons": ["LOSS_NOT_FINITE"], "detail": detail})

    def started(self, place: Place, device: torch.device) -> None:
        """Log who this rank is."""
        self._events.write("start", pid=os.getpid(), world_size=place.world_size, device=str(device))

    def begin(self, total_steps: int, every: int, model: object = None) -> None:
        """Say from now on how far the steps of `model` are."""
        self._progress = Progress(total_steps, every)
        if self._sinks is not None:
            self._sinks.begin(total_steps, every, model)

    def step_done(self, report: StepReport) -> None:
        """Take note of a finished step."""
        self.standing.step = report.step
        if self._metrics is None:
            return
        self._metrics.write(**asdict(report))
        if self._sinks is not None:
            self._sinks.step_done(report)
        line = self._progress.line(report) if self._progress is not None else None
        if line is not None:
            self._print(line)

    def evaluated(self, step: int, figures: Mapping[str, float], duration_ns: int) -> None:
        """Take note of what an evaluation after `step` steps came to; it took `duration_ns` of this rank's time."""
        told = {"step": step, **figures, "eval_duration_ns": duration_ns}
        self._events.write("evaluation", **told)
        if self._metrics is not None:
            self._metrics.write(**told)
        if self._sinks is not None:
            self._sinks.evaluated(step, figures)
        self._print(evaluation_line(step, figures, duration_ns))

    def show(self, text: str) -> None:
        """A line for a person alone: no log needs it."""
        self._print(text)

    def flush(self) -> None:
        """Bring what was told to disk."""
        self._events.flush()
        if self._metrics is not None:
            self._metrics.flush()

    def close(self) -> None:
        """Let alerts and figures under way go out, flush, and let go of the files."""
        if self._sinks is not None:
            self._sinks.close()
        if self._alerter is not None:
            self._alerter.close()
        self._events.close()
        if self._metrics is not None:
            self._metrics.close()

    def _print(self, text: str) -> None:
        if self._metrics is not None:
            tell(text)


def _people(fields: Mapping[str, object]) -> str:
    """Who and why, of an alert."""
    ranks = ", ".join(_texts(fields["ranks"]))
    held_s = fields["held_s"]
    waited = "" if held_s is None else f" after {held_s} s of waiting"
    return f"{', '.join(_texts(fields['reasons'])) or 'no reason given'} (rank {ranks or 'unknown'}){waited}"


def _texts(values: object) -> list[str]:
    return [str(value) for value in values] if isinstance(values, (list, tuple)) else []
