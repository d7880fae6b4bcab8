"""Figures to other programs' metric stores, beside the run and never in its way.

A sink may be slow, hang, or break: it works in a thread of its own, what it cannot take in time is dropped, and the
first thing that goes wrong in it ends the sink and not the run. Knows no sink.
"""

import math
import threading
from collections.abc import Callable, Mapping
from queue import Empty, Full, Queue
from typing import Any, Protocol

from clockgate_trainer.train.progress import StepReport

_WAITING = 1000
_LAST_PATIENCE_S = 30.0
_NS_PER_S = 1_000_000_000


class Sink(Protocol):
    """Takes figures; may raise anything at any time. All methods are called from one thread, in this order."""

    @property
    def name(self) -> str:
        """What a person calls it."""

    def begin(self, total_steps: int, model: Any) -> None:
        """A run of so many steps begins."""

    def log(self, step: int, epoch: float, figures: Mapping[str, float]) -> None:
        """Figures after `step` steps."""

    def end(self) -> None:
        """No more comes."""


class Sinks:
    """Hands figures to sinks. `say` hears what became of a sink; it must take calls from another thread."""

    def __init__(self, sinks: tuple[Sink, ...], say: Callable[[str], None]) -> None:
        self._sinks = list(sinks)
        self._say = say
        self._jobs: Queue[Callable[[Sink], None] | None] = Queue(_WAITING)
        self._dropped = 0
        self._window: list[StepReport] = []
        self._every, self._total_steps, self._epoch = 1, 0, 0.0
        self._thread = threading.Thread(target=self._work, name="metric-sinks", daemon=True)

    def begin(self, total_steps: int, every: int, model: Any) -> None:
        """From now on figures come: those of steps as means over `every` steps, up to `total_steps`."""
        self._every, self._total_steps = every, total_steps
        self._thread.start()
        self._put(lambda sink: sink.begin(total_steps, model))

    def step_done(self, report: StepReport) -> None:
        """Take note of a finished step."""
        self._window.append(report)
        self._epoch = report.epoch
        if report.step % self._every and report.step != self._total_steps:
            return
        figures = figures_of(self._window)
        self._window.clear()
        self._put(lambda sink: sink.log(report.step, report.epoch, figures))

    def evaluated(self, step: int, figures: Mapping[str, float]) -> None:
        """Take note of an evaluation."""
        epoch, told = self._epoch, dict(figures)
        self._put(lambda sink: sink.log(step, epoch, told))

    def close(self) -> None:
        """Let what waits go out, for a while, and end the sinks."""
        if not self._thread.is_alive():
            return
        self._put(lambda sink: sink.end())
        self._put(None)
        self._thread.join(_LAST_PATIENCE_S)
        if self._thread.is_alive():
            self._say(
                f"metric sinks did not take the last figures within {_LAST_PATIENCE_S:g} s; metrics.jsonl has all"
            )
        if self._dropped:
            self._say(f"{self._dropped} figures were not sent: a metric sink was too slow; metrics.jsonl has all")

    def _put(self, job: Callable[[Sink], None] | None) -> None:
        """Never waits: of a full queue the oldest goes."""
        while True:
            try:
                self._jobs.put_nowait(job)
                return
            except Full:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        try:
            self._jobs.get_nowait()
        except Empty:
            return
        self._dropped += 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            for sink in tuple(self._sinks):
                try:
                    job(sink)
                except Exception as err:  # noqa: BLE001 (another program's code: whatever it is, the run goes on)
                    self._sinks.remove(sink)
                    told = " ".join(str(err).split())[:300]
                    self._say(f"{sink.name} gets no more figures: {type(err).__name__}: {told}; metrics.jsonl has all")


def figures_of(window: list[StepReport]) -> dict[str, float]:
    """The figures of a window of steps, by the names that transformers' sinks know where they have one. Pure."""
    last = window[-1]
    labels = max(sum(step.label_tokens for step in window), 1)
    busy_ns = max(sum(step.step_ns - step.held_ns for step in window), 1)
    figures = {
        "loss": math.fsum(step.loss * step.label_tokens for step in window) / labels,
        "grad_norm": last.grad_norm,
        "learning_rate": last.learning_rate,
        "tokens_per_second": sum(step.tokens for step in window) * _NS_PER_S / busy_ns,
        "held_seconds": sum(step.held_ns for step in window) / _NS_PER_S,
    }
    if last.cluster_bound_ns is not None:
        figures["clock_bound_seconds"] = last.cluster_bound_ns / _NS_PER_S
    if last.peak_memory_bytes:
        figures["peak_memory_bytes"] = max(last.peak_memory_bytes)
    return figures
