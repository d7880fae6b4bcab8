"""One start of a run among those before it: refused when two in a row from the same checkpoint got nowhere."""

from pathlib import Path

from clockgate_trainer.attempts import ATTEMPTS_FILE, Attempts, next_attempt, read_attempts, write_attempts
from clockgate_trainer.checkpoint.resume import Found
from clockgate_trainer.errors import NoProgressError
from clockgate_trainer.events import METRICS_FILE, last_value
from clockgate_trainer.train.distributed import Meeting, Place
from clockgate_trainer.train.report import Reporter


def demand_progress(meeting: Meeting, place: Place, folder: Path, found: Found | None, reporter: Reporter) -> None:
    """Count this start from `found`. A collective. Raises NoProgressError on all ranks when it is not worth it.

    Called when nothing but steps can fail any more: starts that a clock, a flag or a missing file ended do not count.
    """
    attempts = None
    if place.leads:
        reached = last_value(folder / METRICS_FILE, "step") or 0
        attempts = next_attempt(read_attempts(folder), 0 if found is None else found.step, reached)
        try:
            write_attempts(folder, attempts)
        except OSError as error:
            reporter.say(f"{folder / ATTEMPTS_FILE} cannot be written ({error.strerror}): this start is not counted")
    told: Attempts | None = meeting.gather(attempts)[0]
    if told is not None and not told.may_start:
        raise NoProgressError(
            f"{told.fruitless} starts in a row from step {told.from_step} got no further than step "
            f"{told.furthest_step}: step {told.furthest_step + 1} does not work. Look into the ranks' logs for its "
            f"cause, mend it, and delete {folder / ATTEMPTS_FILE} to start again"
        )
