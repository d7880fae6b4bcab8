"""What is known about a run before any weights load: data, number of steps, and the checkpoint to go on from."""

from collections.abc import Mapping
from dataclasses import dataclass

from clockgate_trainer.checkpoint.resume import Found, demand_settings, load
from clockgate_trainer.checkpoint.state import TrainState
from clockgate_trainer.data.order import Split, steps_for_epochs
from clockgate_trainer.flags.parse import notices
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.corpus import Corpus, load_corpus
from clockgate_trainer.train.distributed import Meeting, Place
from clockgate_trainer.train.model import check_model
from clockgate_trainer.train.report import Reporter
from clockgate_trainer.train.saving import find, identity
from clockgate_trainer.train.start import demand_same_run, together


@dataclass(frozen=True)
class Plan:
    """A run that has not begun. `state` is what the checkpoint `found` holds for this rank; both None on a new run."""

    corpus: Corpus
    split: Split
    total_steps: int
    identity: Mapping[str, object]
    found: Found | None
    state: TrainState | None

    @property
    def done_before(self) -> bool:
        """Whether the last step is in a checkpoint already."""
        return self.found is not None and self.found.step >= self.total_steps


def make_plan(settings: Settings, place: Place, meeting: Meeting, reporter: Reporter) -> Plan:
    """Read everything but weights and compare it between ranks. A collective.

    Raises SharedError when data, model, checkpoint or flags are not as they should be on any rank.
    """
    corpus = together(meeting, lambda: _read(settings))
    demand_same_run(meeting, settings, corpus.data)
    for note in (*notices(settings), *corpus.notes):
        reporter.say(note)
    rows = len(corpus.data.rows)
    split = Split(place.world_size, settings.per_device_train_batch_size, settings.gradient_accumulation_steps)
    epochs = settings.num_train_epochs
    total_steps = settings.max_steps if epochs is None else steps_for_epochs(epochs, rows, split)
    reporter.say(
        f"{rows} rows; an optimizer step takes {split.rows_per_step} of them ({split.micro_batch} in a micro-batch x "
        f"{split.accumulation} micro-batches x {split.world} ranks); {total_steps} steps"
    )
    wanted = identity(settings, total_steps, corpus.data.fingerprint)
    found = meeting.gather(together(meeting, lambda: find(settings) if place.leads else None))[0]
    state = None if found is None else together(meeting, lambda: _load(found, place, wanted))
    if found is not None:
        _tell(found, reporter)
    return Plan(corpus, split, total_steps, wanted, found, state)


def _read(settings: Settings) -> Corpus:
    corpus = load_corpus(settings)
    check_model(settings, corpus.data)
    return corpus


def _load(found: Found, place: Place, wanted: Mapping[str, object]) -> TrainState:
    state = load(found.path, place.rank, place.world_size)
    demand_settings(state, wanted)
    return state


def _tell(found: Found, reporter: Reporter) -> None:
    for broken in found.passed_over:
        reporter.say(f"{broken.path} is passed over: {'; '.join(map(str, broken.problems))}", "passed_over")
    reporter.say(f"going on from {found.path}", "resume")
    reporter.standing.step = found.step
    reporter.standing.checkpoint = found.path
