"""What follows the last step of a run: its figures in one file, and the best weights back in the model."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from clockgate_trainer.checkpoint.best import read_best
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.figures import FIGURES_FILE, merge_figures
from clockgate_trainer.outcome import Outcome
from clockgate_trainer.train.distributed import Meeting
from clockgate_trainer.train.report import Reporter
from clockgate_trainer.train.start import together


def keep_figures(figures: Mapping[str, float], folder: Path, reporter: Reporter) -> None:
    """Put the figures of the last evaluation into metrics.json; for one rank. A full disk is told, no more."""
    try:
        merge_figures(folder, figures)
    except OSError as err:
        reporter.say(f"{FIGURES_FILE} cannot be written: {err}; the figures are in metrics.jsonl too")


def return_to_best(
    outcome: Outcome,
    folder: Path,
    meeting: Meeting,
    reporter: Reporter,
    load: Callable[[Path], None],
) -> Outcome:
    """Have every rank `load` the best checkpoint of the run in `folder`; gives the outcome with its name. A collective.

    Raises SharedError when it cannot be read on some rank.
    """
    # What rank 0 sees counts for all: another node may see a shared folder late.
    best = meeting.gather(read_best(HOST, folder))[0]
    if best is None:
        reporter.say("--load_best_model_at_end: no checkpoint has a score; the weights are those of the last step")
        return outcome
    if best.step != outcome.step:
        together(meeting, lambda: _load(load, folder / best.checkpoint))
    told = f"the best checkpoint by {best.metric} is {best.checkpoint} ({best.value:.4g})"
    reporter.say(told, "best")
    return replace(outcome, reason=f"{outcome.reason}; {told}")


def _load(load: Callable[[Path], None], checkpoint: Path) -> None:
    try:
        load(checkpoint)
    except ConfigError as err:
        raise ConfigError(f"all steps are done, and the best checkpoint cannot be loaded: {err}") from err
