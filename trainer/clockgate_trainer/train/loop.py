"""The training loop, readable top to bottom.

The gate is asked just before the last forward of a step and answers before the first gradient leaves this rank. Every
turn taken here follows from what all ranks got from the same vote, so all ranks take it together.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from clockgate_trainer.checkpoint.store import SaveResult
from clockgate_trainer.data.collate import Batch
from clockgate_trainer.data.feed import Feed
from clockgate_trainer.data.order import Split
from clockgate_trainer.errors import ExitCode
from clockgate_trainer.gate.clocks import mono_ns
from clockgate_trainer.gate.gate import ClockGate, reason_names
from clockgate_trainer.gate.model import ABSENT, Decision, Flags, Kind, SaveVerdict, StepVerdict
from clockgate_trainer.outcome import Outcome
from clockgate_trainer.train import rng
from clockgate_trainer.train.evaluating import Examined, Examiner
from clockgate_trainer.train.network import Network, read
from clockgate_trainer.train.progress import StepReport
from clockgate_trainer.train.report import Reporter
from clockgate_trainer.train.saving import Position, Saver
from clockgate_trainer.train.shortage import fits, in_pieces, shortage_of


@dataclass(frozen=True)
class Run:
    """What stays the same from the first step to the last, on one rank.

    `save_every` is None when only the last step is saved. After `max_bad_steps` in a row that changed no weight the run
    ends; 0: never. `examiner` is None when nothing is evaluated. A micro-batch that does not fit is halved when it
    `may_shrink`; `advise` says what takes less memory.
    """

    rank: int
    total_steps: int
    save_every: int | None
    max_grad_norm: float
    max_bad_steps: int
    feed: Feed
    split: Split
    network: Network
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    gate: ClockGate
    saver: Saver
    reporter: Reporter
    examiner: Examiner | None = None
    may_shrink: bool = True
    advise: Callable[[], str] = str


def train(run: Run, position: Position) -> Outcome:
    """Train from `position` to the last step and save there, or stop where the gate says so and save there.

    Raises PeerLostError and DesyncError.
    """
    own_work_ns = ABSENT
    save_due = False
    bad_in_a_row = 0
    if run.examiner is not None:
        run.examiner.before_start(position)
    while position.step < run.total_steps:
        started_ns = mono_ns()
        step = position.step + 1
        rows = run.feed.step(position.cursor, run.split, run.rank)
        label_tokens = run.feed.label_tokens(rows)
        *early, last = run.feed.batches(rows)

        losses: list[torch.Tensor] = []
        fitted = fits(run.network, partial(_accumulate, run, early, label_tokens, losses))
        if not fitted:
            run.gate.request(Flags.OUT_OF_MEMORY)

        digest = run.feed.digest(position.cursor)
        run.gate.begin(step, batch=_batch_code(run.split), cursor_digest=digest, last_step_ns=own_work_ns)
        # A shortage from here on is told in a vote of its own.
        late = fitted and not fits(run.network, partial(_forward, run, last, losses))
        asked_ns = mono_ns()
        decision = run.gate.settle()
        # From the step's start to here no rank waits for another, so this tells who is slow.
        own_work_ns = asked_ns - started_ns
        if decision.step_verdict is StepVerdict.STOP:
            return _stop(run, position, decision)
        short = _short(decision)
        if short is None:
            short = _last_backward(run, losses, label_tokens, late=late)
        if short is None:
            learning_rate = float(run.scheduler.get_last_lr()[0])
            on_device = _gradients(run, losses)
            # The host has nothing to do until the device is done.
            run.gate.ask_ahead(step + 1)
            loss_sum, grad_norm = read(*on_device)
            loss = loss_sum / max(label_tokens, 1)
            short = None if math.isfinite(loss) else _told_late(run, step, late=late)
        if short is not None:
            smaller = _shrink(run, position, short)
            if smaller is None:
                return _too_large(run, position, decision, short)
            run = smaller
            continue
        applied = _update(run, loss, grad_norm)
        bad_in_a_row = 0 if applied else bad_in_a_row + 1
        if not applied:
            _tell_bad(run, step, loss, grad_norm, bad_in_a_row)
        position = Position(step, rows.after, rng.capture(run.network.device), run.split.micro_batch)

        step_ns = mono_ns() - started_ns
        run.reporter.step_done(
            StepReport(
                step=step,
                epoch=run.feed.epochs_done(rows.after),
                loss=loss,
                grad_norm=grad_norm,
                learning_rate=learning_rate,
                tokens=run.feed.tokens(rows),
                label_tokens=label_tokens,
                step_ns=step_ns,
                held_ns=run.reporter.held_ns,
                cluster_bound_ns=decision.cluster_bound_ns,
                peak_memory_bytes=run.network.peak_memory_bytes(),
                skipped=not applied,
                loss_scale=run.network.scale(),
            )
        )
        if bad_in_a_row == run.max_bad_steps > 0:
            return _hopeless(run, position, bad_in_a_row)
        run.saver.after_step(decision, loss, label_tokens)
        save_due = save_due or _asks_for_save(run, step, decision)
        is_last = step == run.total_steps
        examined = _examine(run, position, decision, save_due)
        decision = examined.decision
        if save_due and (is_last or decision.save_verdict is not SaveVerdict.SKIP_SAVE):
            save_due = False
            at_end = decision.for_last_save() if is_last else decision
            result = run.saver.save(position, at_end, last=is_last, score=examined.score)
            if result.diverged:
                return _diverged(run, position, result)
    return _finish(run, position)


def _accumulate(run: Run, batches: Sequence[Batch], label_tokens: int, losses: list[torch.Tensor]) -> None:
    """Forward and backward of all micro-batches but the last, without exchange; their losses go into `losses`."""
    for batch in batches:
        with run.network.without_exchange():
            losses.append(run.network.loss_sum(batch))
            run.network.backward(losses[-1], label_tokens)


def _forward(run: Run, batch: Batch, losses: list[torch.Tensor]) -> None:
    losses.append(run.network.loss_sum(batch))


def _last_backward(run: Run, losses: list[torch.Tensor], label_tokens: int, *, late: bool) -> tuple[int, ...] | None:
    """The backward of the last micro-batch, which exchanges gradients; the ranks known to be short after it, or None.

    A rank that ran short in its forward, and so `late` for the step's vote, spoils the exchange that the others are in:
    the loss is no number then on any rank, and all ask why. One that runs short in the exchange can tell nobody.
    """
    if run.split.world == 1:
        fitted = not late and fits(run.network, partial(run.network.backward, losses[-1], label_tokens))
        return None if fitted else (run.rank,)
    if late:
        losses[:] = [run.network.spoilt(run.feed.smallest())]
    run.network.backward(losses[-1], label_tokens)
    return None


def _told_late(run: Run, step: int, *, late: bool) -> tuple[int, ...] | None:
    """Ask all ranks, whose loss is no number, whether that is a rank's being short: the ranks that are, or None."""
    short = _short(run.gate.agree(Kind.EVAL, step, flags=Flags.OUT_OF_MEMORY if late else Flags.NONE))
    if short is not None:
        run.network.keep_scale()
    return short


def _batch_code(split: Split) -> int:
    return split.micro_batch << 32 | split.accumulation


def _gradients(run: Run, losses: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss summed over all ranks, and the norm that the gradients had before they were clipped; on the device.

    The gradients are exchanged, so all ranks see the same two.
    """
    run.network.unscale(run.optimizer)
    return run.network.total(losses), run.network.clip(run.max_grad_norm)


def _update(run: Run, loss: float, norm: float) -> bool:
    """Apply the gradients and forget them; false when loss or norm are no numbers, which changes no weight.

    The schedule stays too then: the learning rate of the next step is the one that this step would have had.
    """
    sound = math.isfinite(norm) and math.isfinite(loss)
    if sound:
        run.optimizer.step()
        run.scheduler.step()
    run.network.adjust_scale()
    run.network.drop_gradients()
    return sound


def _tell_bad(run: Run, step: int, loss: float, norm: float, in_a_row: int) -> None:
    what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient norm is {norm}"
    scale = run.network.scale()
    scaled = "" if scale is None else f"; the loss scale is {scale:g} from here on"
    run.reporter.bad_step(
        step, loss=loss, in_a_row=in_a_row, detail=f"{what}: the step changes no weight{scaled} ({in_a_row} in a row)"
    )


def _asks_for_save(run: Run, step: int, decision: Decision) -> bool:
    periodic = run.save_every is not None and step % run.save_every == 0
    return periodic or step == run.total_steps or bool(decision.flags & Flags.SAVE_AND_GO_ON)


def _examine(run: Run, position: Position, decision: Decision, save_due: bool) -> Examined:
    """Evaluate at `position` where that is due: just before a save, so that the save knows what it is worth."""
    if run.examiner is None:
        return Examined(decision)
    is_last = position.step == run.total_steps
    saves = save_due and (is_last or decision.save_verdict is not SaveVerdict.SKIP_SAVE)
    epochs_done = run.feed.epochs_done(position.cursor)
    return run.examiner.after_step(position, decision, epochs_done=epochs_done, saves=saves, is_last=is_last)


def _stop(run: Run, position: Position, decision: Decision) -> Outcome:
    """Undo the step that was begun, save the last finished one, and leave together."""
    run.network.drop_gradients()
    rng.restore(position.random, run.network.device)
    why = ", ".join(reason_names(decision.reasons)) or "a rank voted STOP"
    run.reporter.say(f"stopping before step {position.step + 1}: {why}", "stop")
    run.saver.drain()
    if position.step > run.saver.saved_step:
        run.saver.save(position, decision.for_last_save(), last=True)
    run.gate.agree(Kind.EXIT, position.step)
    saved = run.saver.saved_step == position.step and run.reporter.standing.checkpoint is not None
    return Outcome(
        code=ExitCode.STOPPED if saved else ExitCode.STOPPED_UNSAVED,
        reason=f"stopped by the gate: {why}" + ("" if saved else "; the last finished step is not saved"),
        step=position.step,
        checkpoint=_newest(run),
        ranks=decision.blamed_ranks,
    )


def _hopeless(run: Run, position: Position, in_a_row: int) -> Outcome:
    """Leave together without a save: weights that give no loss are not what anybody wants to go on from."""
    run.saver.drain()
    run.gate.agree(Kind.EXIT, position.step)
    return Outcome(
        code=ExitCode.STOPPED_UNSAVED,
        reason=(
            f"{in_a_row} steps in a row, up to step {position.step}, had a loss or a gradient that is no number "
            "(--max_bad_steps). Nothing was saved of them: resume from the newest verified checkpoint with a lower "
            "--learning_rate, or with --bf16 in place of --fp16"
        ),
        step=position.step,
        checkpoint=_newest(run),
        ranks=(),
    )


def _short(decision: Decision) -> tuple[int, ...] | None:
    """The ranks that told that their memory is short, None when none did; empty where a wait came between."""
    if not decision.flags & Flags.OUT_OF_MEMORY:
        return None
    return tuple(rank for rank, row in enumerate(decision.rows) if row.flags & Flags.OUT_OF_MEMORY)


def _shrink(run: Run, position: Position, short: tuple[int, ...]) -> Run | None:
    """Undo the step that was begun; the run in smaller micro-batches of the same rows, None when there are none.

    All ranks know the same `short` ones, so all turn to the same split.
    """
    run.network.drop_gradients()
    run.network.give_memory_back()
    if run.split.world > 1:
        # Ranks that had begun an exchange must end it, or DDP would go on with it in the next backward.
        run.network.backward(run.network.spoilt(run.feed.smallest()), 1)
        run.network.drop_gradients()
    rng.restore(position.random, run.network.device)
    smaller = run.split.smaller() if run.may_shrink else None
    if smaller is None:
        return None
    run.reporter.say(
        f"step {position.step + 1}: {shortage_of(short, run.split)}: it is done again, and all from here "
        f"on, in {in_pieces(smaller)} on every rank",
        "out_of_memory",
    )
    return replace(run, split=smaller)


def _too_large(run: Run, position: Position, decision: Decision, short: tuple[int, ...]) -> Outcome:
    """Save the last finished step, and leave together: the same start would end here again."""
    run.saver.drain()
    if position.step > run.saver.saved_step:
        run.saver.save(position, decision.for_last_save(), last=True)
    run.gate.agree(Kind.EXIT, position.step)
    reason = f"step {position.step + 1}: {shortage_of(short, run.split)}. {run.advise()}"
    return Outcome(ExitCode.CONFIG, reason, position.step, _newest(run), short)


def _diverged(run: Run, position: Position, result: SaveResult) -> Outcome:
    """Leave together: what the ranks train is no longer one adapter."""
    run.gate.agree(Kind.EXIT, position.step)
    return Outcome(
        code=ExitCode.STOPPED_UNSAVED,
        reason=f"{result.reason}; start again to go on from the newest verified checkpoint",
        step=position.step,
        checkpoint=_newest(run),
        ranks=result.ranks,
    )


def _finish(run: Run, position: Position) -> Outcome:
    run.gate.agree(Kind.EXIT, position.step)
    saved = run.saver.saved_step == position.step
    return Outcome(
        code=ExitCode.DONE if saved else ExitCode.STOPPED_UNSAVED,
        reason="all steps are done" if saved else "all steps are done, and the last one could not be saved",
        step=position.step,
        checkpoint=_newest(run),
        ranks=(),
    )


def _newest(run: Run) -> str | None:
    path = run.reporter.standing.checkpoint
    return None if path is None else str(path)
