"""What is known about a run before any weights load: data, number of steps, and the checkpoint to go on from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clockgate_trainer.checkpoint.resume import Found, demand_settings, load
from clockgate_trainer.checkpoint.state import TrainState
from clockgate_trainer.data.feed import Feed
from clockgate_trainer.data.order import Split
from clockgate_trainer.data.tokens import TokenData
from clockgate_trainer.flags.parse import notices
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.distributed import Meeting, Place
from clockgate_trainer.train.exam import Exam, demand_same_exam, make_exam
from clockgate_trainer.train.feeding import count_steps, describe, make_feed
from clockgate_trainer.train.homes import Homes, find_together
from clockgate_trainer.train.parts import Corpus
from clockgate_trainer.train.predicting import demand_same_rows
from clockgate_trainer.train.report import Reporter
from clockgate_trainer.train.saving import identity
from clockgate_trainer.train.shortage import in_pieces
from clockgate_trainer.train.start import demand_same_run, together


@dataclass(frozen=True)
class Plan:
    """A run that has not begun. `state` is what the checkpoint `found` holds for this rank; both None on a new run.

    `held` are the rows that are not trained on, None without any.
    """

    feed: Feed
    split: Split
    total_steps: int
    identity: Mapping[str, object]
    found: Found | None
    state: TrainState | None
    exam: Exam | None = None
    held: TokenData | None = None

    @property
    def done_before(self) -> bool:
        """Whether the last step is in a checkpoint already."""
        return self.found is not None and self.found.step >= self.total_steps


def make_plan(
    settings: Settings,
    place: Place,
    meeting: Meeting,
    reporter: Reporter,
    read: Callable[[Settings], Corpus],
    *,
    homes: Homes,
) -> Plan:
    """Read everything but weights and compare it between ranks. A collective.

    Raises SharedError when data, model, checkpoint or flags are not as they should be on any rank.
    """
    corpus = together(meeting, lambda: read(settings))
    demand_same_run(meeting, settings, corpus.data)
    if settings.do_predict:
        demand_same_rows(meeting, corpus.held)
    for note in (*notices(settings), *corpus.notes):
        reporter.say(note)
    feed = together(meeting, lambda: make_feed(settings, corpus))
    split = Split(place.world_size, settings.per_device_train_batch_size, settings.gradient_accumulation_steps)
    total_steps = count_steps(settings, feed, split)
    for told in describe(settings, feed, split, total_steps):
        reporter.say(told)
    exam = together(meeting, lambda: make_exam(settings, corpus, total_steps))
    if exam is not None:
        demand_same_exam(meeting, exam)
    wanted = identity(settings, total_steps, corpus.data.fingerprint)
    found = find_together(settings, place, meeting, homes)
    if found is not None and not settings.do_train:
        _tell(found, reporter)
        return Plan(feed, split, total_steps, wanted, found, None, exam, corpus.held)
    state = None if found is None else together(meeting, lambda: _load(found, settings, place, wanted))
    if found is not None and state is not None:
        _tell(found, reporter)
        resumed = split.in_micro_batches_of(state.cursor.get("micro_batch", split.micro_batch))
        if resumed != split:
            split = resumed
            reporter.say(f"in {in_pieces(split)} on every rank, as the run before it did when memory was short")
        if state.world_size != place.world_size:
            reporter.say(f"it is of {state.world_size} ranks and this run has {place.world_size}: not bit-identical")
    return Plan(feed, split, total_steps, wanted, found, state, exam, corpus.held)


def _load(found: Found, settings: Settings, place: Place, wanted: Mapping[str, object]) -> TrainState:
    change = settings.allow_world_size_change
    state = load(found.path, place.rank, place.world_size, allow_world_size_change=change)
    demand_settings(state, wanted)
    return state


def _tell(found: Found, reporter: Reporter) -> None:
    for broken in found.passed_over:
        reporter.say(f"{broken.path} is passed over: {'; '.join(map(str, broken.problems))}", "passed_over")
    reporter.say(f"going on from {found.path}", "resume")
    reporter.standing.step = found.step
    reporter.standing.checkpoint = found.path
