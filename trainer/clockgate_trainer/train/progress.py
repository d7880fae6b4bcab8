"""Where a run stands, for a person: one line now and then on standard error. Knows no file and no rank."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class StepReport:
    """One finished optimizer step of the whole job.

    `loss` is the mean over label tokens of all ranks, `tokens` counts real tokens of all ranks, `step_ns` is monotonic
    and includes `held_ns`, the time the gate made the ranks wait beyond the vote itself. `peak_memory_bytes` is the
    most that this rank's allocator has held on each of its GPUs since the start; empty without one. A `skipped` step
    changed no weight, since its loss or gradient was no number. `loss_scale` is that of the next step, None unless in
    float16.
    """

    step: int
    epoch: float
    loss: float
    grad_norm: float
    learning_rate: float
    tokens: int
    label_tokens: int
    step_ns: int
    held_ns: int
    cluster_bound_ns: int | None
    peak_memory_bytes: tuple[int, ...] = ()
    skipped: bool = False
    loss_scale: float | None = None


@dataclass
class Progress:
    """Turns step reports into lines, one per `every` steps."""

    total_steps: int
    every: int
    _window: list[StepReport] = field(default_factory=list)
    _held_ns: int = 0

    def line(self, report: StepReport) -> str | None:
        """Take note of a step; the line to show after it, None between lines."""
        self._window.append(report)
        self._held_ns += report.held_ns
        if report.step % self.every and report.step != self.total_steps:
            return None
        text = self._text(report)
        self._window.clear()
        return text

    def _text(self, report: StepReport) -> str:
        busy_ns = max(sum(step.step_ns - step.held_ns for step in self._window), 1)
        labels = max(sum(step.label_tokens for step in self._window), 1)
        loss = sum(step.loss * step.label_tokens for step in self._window) / labels
        speed = sum(step.tokens for step in self._window) * _NS_PER_S / busy_ns
        left_s = (self.total_steps - report.step) * busy_ns / len(self._window) / _NS_PER_S
        bound = "unknown" if report.cluster_bound_ns is None else f"±{report.cluster_bound_ns / 1e6:.3f} ms"
        return (
            f"step {report.step}/{self.total_steps}  loss {loss:.4f}  {speed:,.0f} tokens/s  "
            f"clocks {bound}  held {self._held_ns / _NS_PER_S:.1f} s  {duration(left_s)} left"
        )


def evaluation_line(step: int, figures: Mapping[str, float], duration_ns: int) -> str:
    """What an evaluation after `step` steps came to; accuracies of single subjects are left to the log."""
    parts = []
    if "eval_loss" in figures:
        parts.append(
            f"eval loss {figures['eval_loss']:.4f} over {figures['eval_tokens']:,.0f} tokens of "
            f"{figures['eval_rows']:,.0f} rows"
        )
    overall = (name for name in figures if name.startswith("mmlu_") and name.endswith("_accuracy"))
    parts += [f"{name} {figures[name]:.1%} of {figures['mmlu_questions']:,.0f} questions" for name in overall]
    return f"step {step}: {'; '.join(parts)}; {duration(duration_ns / _NS_PER_S)}"


def duration(seconds: float) -> str:
    """A duration as a person says it: 42 s, 3 min 05 s, 2 h 10 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
