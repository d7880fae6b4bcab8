"""What one rank tells people and files while it runs. Decides nothing."""

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from clockgate_trainer.events import EventLog, MetricLog
from clockgate_trainer.train.distributed import Place
from clockgate_trainer.train.progress import Progress, StepReport


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
        self._warning: str | None = None
        self.standing = standing
        self.held_ns = 0

    def say(self, text: str, event: str = "notice") -> None:
        """One sentence for a person (from rank 0 alone) and for the log."""
        self._events.write(event, detail=text)
        if self._metrics is not None:
            print(f"clockgate-train: {text}", file=sys.stderr, flush=True)

    def log(self, event: str, **fields: object) -> None:
        """One record for the log alone."""
        self._events.write(event, **fields)

    def on_gate_event(self, name: str, fields: Mapping[str, object]) -> None:
        """Take note of a decision of the gate, or of a wait; the caller of ClockGate passes this on."""
        self._events.write(name, **fields)
        if name == "hold":
            self._events.flush()
            self._print(f"step {fields['step']}: all ranks wait: {_cause(fields)}")
            return
        self._tell_warning(fields)
        held_ns = fields["held_ns"]
        self.held_ns = held_ns if isinstance(held_ns, int) else 0
        if self.held_ns:
            self._print(f"step {fields['step']}: waited {self.held_ns / 1e9:.1f} s, then {fields['step_verdict']}")

    def _tell_warning(self, fields: Mapping[str, object]) -> None:
        """Say why steps go on under a warning: once when it begins or its cause changes, and when it is over."""
        if fields["kind"] != "STEP":
            return
        warning = _cause(fields) if fields["step_verdict"] == "WARN" else None
        if warning not in (None, self._warning):
            self._print(f"step {fields['step']}: warning: {warning}; training goes on")
        elif warning is None and self._warning is not None:
            self._print(f"step {fields['step']}: the warning is over")
        self._warning = warning

    def on_save_event(self, name: str, fields: Mapping[str, object]) -> None:
        """Take note of what became of a checkpoint."""
        self._events.write(name, **fields)
        if name == "checkpoint_saved":
            self._print(f"saved {fields['path']}")
        elif "level" in fields:
            self._print(f"{fields['level']}: {fields['detail']}")

    def started(self, place: Place, device: torch.device) -> None:
        """Log who this rank is."""
        self._events.write("start", pid=os.getpid(), world_size=place.world_size, device=str(device))

    def begin(self, total_steps: int, every: int) -> None:
        """Say from now on how far the steps are."""
        self._progress = Progress(total_steps, every)

    def step_done(self, report: StepReport) -> None:
        """Take note of a finished step."""
        self.standing.step = report.step
        if self._metrics is None:
            return
        self._metrics.write(**asdict(report))
        line = self._progress.line(report) if self._progress is not None else None
        if line is not None:
            self._print(line)

    def flush(self) -> None:
        """Bring what was told to disk."""
        self._events.flush()
        if self._metrics is not None:
            self._metrics.flush()

    def close(self) -> None:
        """Flush and let go of the files."""
        self._events.close()
        if self._metrics is not None:
            self._metrics.close()

    def _print(self, text: str) -> None:
        if self._metrics is not None:
            print(text, file=sys.stderr, flush=True)


def _cause(fields: Mapping[str, object]) -> str:
    reasons, ranks = fields["reasons"], fields["blamed_ranks"]
    named = ", ".join(map(str, reasons)) if isinstance(reasons, list) else ""
    who = f" (rank {', '.join(map(str, ranks))})" if isinstance(ranks, list) and ranks else ""
    return f"{named or 'no reason given'}{who}"
