"""At which steps a run is evaluated. Pure."""

import math
from dataclasses import dataclass

from clockgate_trainer.flags.table import Settings


@dataclass(frozen=True)
class Schedule:
    """When: every `every` steps (None: not by steps), at the end of each pass over the data, at saves, at the end.

    Evaluations by steps do not begin before step `delay`, those by passes not before pass `delay`.
    """

    every: int | None
    each_epoch: bool
    delay: float
    at_saves: bool
    at_start: bool

    def is_due(self, step: int, epochs_done: float, *, ends_epoch: bool, saves: bool, is_last: bool) -> bool:
        """Whether to evaluate after `step`, which leaves `epochs_done` passes behind and is about to be saved or not.

        The last step is always evaluated: what comes after it would be weights that nobody has looked at.
        """
        by_steps = self.every is not None and step % self.every == 0 and step >= self.delay
        by_epochs = self.each_epoch and ends_epoch and epochs_done >= self.delay
        return is_last or by_steps or by_epochs or (saves and self.at_saves)


def make_schedule(settings: Settings, total_steps: int) -> Schedule:
    """The schedule of these flags in a run of `total_steps`, as transformers reads them."""
    every = None
    if settings.eval_strategy == "steps":
        wanted = settings.logging_steps if settings.eval_steps is None else settings.eval_steps
        every = math.ceil(total_steps * wanted) if wanted < 1 else int(wanted)
    return Schedule(
        every=every,
        each_epoch=settings.eval_strategy == "epoch",
        delay=settings.eval_delay,
        at_saves=settings.load_best_model_at_end and settings.best_metric != "train_loss",
        at_start=settings.eval_on_start,
    )
