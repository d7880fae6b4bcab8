"""--do_predict: answers to the rows that were not trained on, after the last step.

    1   vote EVAL     before each round: all ranks are here; was one asked to leave, did one fail? then all drop it
    2                 a round: one batch on each rank
    3   exchange      what each rank predicted goes to rank 0, which writes predictions.jsonl and metrics.json
    4   vote EXIT     all leave together

Batches are formed before they are dealt to ranks, and each draws from a seed of its own: any number of ranks gives the
same predictions, up to the rounding of shapes. No weight and no checkpoint changes here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.layout import draft_path
from clockgate_trainer.data.tokens import TokenData
from clockgate_trainer.errors import ConfigError, ExitCode
from clockgate_trainer.figures import merge_figures
from clockgate_trainer.gate.clocks import mono_ns
from clockgate_trainer.gate.gate import ClockGate
from clockgate_trainer.gate.model import Flags, Kind, StepVerdict
from clockgate_trainer.generation.answer import Speaker
from clockgate_trainer.generation.predictions import PREDICTIONS_FILE, Prediction, figures_of, lines_of, parted
from clockgate_trainer.outcome import Outcome
from clockgate_trainer.train.distributed import Meeting, Place, SharedError
from clockgate_trainer.train.report import Reporter
from clockgate_trainer.train.start import together

_NS_PER_S = 1_000_000_000
_TOLD_EVERY_NS = 10 * _NS_PER_S
# An answer of thousands of tokens on a slow device: nobody is given up for one batch of those before.
_ROUND_GRACE_S = 1800.0


def demand_same_rows(meeting: Meeting, rows: TokenData | None) -> None:
    """Raise SharedError on all ranks when there is nothing to predict, or not the same. A collective."""
    told = meeting.gather(None if rows is None else rows.fingerprint)
    if None in told:
        raise SharedError(
            "--do_predict has no rows to predict: give --eval_dataset FILE, or an --eval_dataset_size below the number "
            "of rows of --dataset"
        )
    odd = tuple(rank for rank, one in enumerate(told) if one != told[0])
    if odd:
        raise SharedError(
            f"rank {odd[0]} would predict other rows than rank 0: wanted the same --eval_dataset on all nodes",
            ranks=odd,
        )


@dataclass(frozen=True)
class Predictor:
    """Predicts on this rank; all ranks make one and call it together."""

    speaker: Speaker
    rows: TokenData
    batch_size: int
    folder: Path
    place: Place
    gate: ClockGate
    meeting: Meeting
    reporter: Reporter

    def predict(self, outcome: Outcome) -> Outcome:
        """Predict and write; the outcome when all goes well, else how the ranks leave. A collective.

        Raises PeerLostError and DesyncError, and SharedError when a rank cannot answer or rank 0 cannot write.
        """
        started_ns = mono_ns()
        step = outcome.step or 0
        mine = self._answer_all(step)
        if mine is None:
            self.gate.agree(Kind.EXIT, step)
            saved = outcome.checkpoint is not None
            return replace(
                outcome,
                code=ExitCode.STOPPED if saved else ExitCode.STOPPED_UNSAVED,
                reason=f"{outcome.reason}; asked to leave before all rows were predicted: nothing is written of them",
            )
        told = self.meeting.bring_to_first(mine)
        together(self.meeting, lambda: self._write(told, (mono_ns() - started_ns) / _NS_PER_S))
        self.gate.agree(Kind.EXIT, step)
        return outcome

    def _answer_all(self, step: int) -> dict[int, list[Prediction]] | None:
        """Predictions of this rank by the number of their batch; None when all ranks leave instead. A collective."""
        numbers = range(0, len(self.rows), self.batch_size)
        batches = [range(start, min(start + self.batch_size, len(self.rows))) for start in numbers]
        world, rank = self.place.world_size, self.place.rank
        found: dict[int, list[Prediction]] = {}
        problem: str | None = None
        told_ns = mono_ns()
        for first in range(0, len(batches) + world, world):
            if self._all_leave(step, problem):
                return None
            number = first + rank
            if number >= len(batches) or first >= len(batches):
                continue
            try:
                found[number] = self._answer(batches[number], number)
            except ConfigError as err:
                problem = str(err)
            if mono_ns() - told_ns > _TOLD_EVERY_NS:
                self.reporter.say(f"predicted {min(first + world, len(batches))} of {len(batches)} batches", "predict")
                told_ns = mono_ns()
        return found

    def _all_leave(self, step: int, problem: str | None) -> bool:
        flags = Flags.NONE if problem is None else Flags.OUT_OF_MEMORY
        if self.gate.asked_to_leave:
            flags |= Flags.SAVE_AND_EXIT
        decision = self.gate.agree(Kind.EVAL, step, flags=flags, extra_s=_ROUND_GRACE_S)
        if decision.flags & Flags.OUT_OF_MEMORY:
            problems = self.meeting.gather(problem)
            told = [f"rank {rank}: {text}" for rank, text in enumerate(problems) if text is not None]
            ranks = tuple(rank for rank, text in enumerate(problems) if text is not None)
            raise SharedError(f"no predictions were written: {'; '.join(told)}", ranks=ranks)
        return decision.step_verdict is StepVerdict.STOP

    def _answer(self, numbers: Sequence[int], batch: int) -> list[Prediction]:
        asked = [parted(self.rows.rows[number]) for number in numbers]
        answers = self.speaker.answer([prompt for prompt, _ in asked], batch, self._may_go_on)
        text = self.speaker.text
        return [
            Prediction(text(prompt), text(wanted), answer)
            for (prompt, wanted), answer in zip(asked, answers, strict=True)
        ]

    def _may_go_on(self) -> bool:
        return not self.gate.asked_to_leave

    def _write(self, told: list[object] | None, seconds: float) -> None:
        """On rank 0: put all predictions in their place, in the order of rows."""
        if told is None:
            return
        batches = {number: batch for one in told if isinstance(one, dict) for number, batch in one.items()}
        predictions = [one for _, batch in sorted(batches.items()) for one in batch]
        figures = figures_of(predictions, seconds)
        path = self.folder / PREDICTIONS_FILE
        draft = draft_path(path)
        try:
            HOST.write(draft, lines_of(predictions))
            HOST.replace(draft, path)
            HOST.sync_folder(self.folder)
            merge_figures(self.folder, figures)
        except OSError as err:
            raise ConfigError(f"{path} cannot be written: {err.strerror or err}. Make room, and start again") from err
        self.reporter.say(
            f"{len(predictions)} predictions in {path} ({figures['predict_samples_per_second']:.3g} rows/s, "
            f"{figures['predict_ended']:.0%} ended by themselves)",
            "predicted",
        )
