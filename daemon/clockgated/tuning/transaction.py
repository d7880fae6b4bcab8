"""Making changes one after the other, all or none, and giving them back: the journal first, then the deed.

Killed at any instant, `recover` brings everything back as it was, or leaves everything as it was to be. Giving back
is by compare-and-swap in reverse order: what somebody else has changed since is theirs.
"""

import logging
from collections.abc import Callable, Sequence

from clockgated.tuning.hand import Hand
from clockgated.tuning.journal import JournalError, Mark, Stage, Step, Transaction
from clockgated.tuning.journal_file import JournalFile
from clockgated.tuning.model import Change
from clockgated.tuning.outcome import Outcome, OutcomeCode, Trouble, TroubleCode
from clockgated.tuning.same import is_same
from clockgated.tuning.stamps import Stamps

_LOG = logging.getLogger(__name__)
_TROUBLE_OUTCOMES = {TroubleCode.GONE: OutcomeCode.GONE}


def make(
    journal: JournalFile, hand: Hand, apply_id: int, changes: Sequence[Change], before: Callable[[Change], str | None]
) -> str | None:
    """Make `changes` in their order; None, or why the first that failed did. Nothing is undone here.

    `before` is asked before each change and may forbid it. Raises JournalError when nothing can be journalled, and
    JournalMovedError when another process is undoing this apply.
    """
    for index, change in enumerate(changes):
        with journal.locked() as is_locked:
            if not is_locked:
                return f"{journal.path} is locked by another process; see whether one hangs, then plan again"
            failure = before(change) or _made(journal, hand, apply_id, index, change)
        if failure is not None:
            return failure
    with journal.locked():
        journal.append(Mark.WRITTEN, apply_id)
    return None


def give_all_back(journal: JournalFile, hand: Hand, stamps: Stamps, why: str) -> tuple[Outcome, ...]:
    """Give back everything that the journal tells of, the newest first. Raises JournalError."""
    with journal.locked():
        left = [one for one in journal.read() if one.stage is not Stage.ENDED]
        if left:
            # One record for all: killed between two applies, the next start goes on with the other one.
            journal.append(Mark.UNDO_ALL, 0, detail=why)
    outcomes = tuple(one for apply in reversed(left) for one in give_back(journal, hand, stamps, apply.apply_id, why))
    forget_ended(journal)
    return outcomes


def give_back(journal: JournalFile, hand: Hand, stamps: Stamps, apply_id: int, why: str) -> tuple[Outcome, ...]:
    """Give an apply back that is not confirmed, or is to be given back, the last change first.

    Nothing is done for a confirmed one, nor for one that is over. What could not be given back is tried again by the
    next call. Raises JournalError.
    """
    # Whoever holds the lock for longer than its patience is stopped, and gives back by itself when it goes on.
    with journal.locked():
        transaction = next((one for one in journal.read() if one.apply_id == apply_id), None)
        if transaction is None or transaction.stage not in (Stage.OPEN, Stage.UNDOING):
            return ()
        if transaction.stage is not Stage.UNDOING:
            _note(journal, Mark.UNDO, apply_id, why)
        outcomes = tuple(_given_back(hand, step) for step in reversed(transaction.steps))
        stamps.restore(transaction.stamps)
        if all(one.code is not OutcomeCode.FAILED for one in outcomes):
            _note(journal, Mark.END, apply_id)
        return outcomes


def recover(journal: JournalFile, hand: Hand, stamps: Stamps, boot_id: str) -> tuple[Outcome, ...]:
    """After a start: undo what was not finished, and forget what is over; what was given back.

    A reboot reset everything by itself: the journal of another boot is put away. Raises JournalError.
    """
    with journal.locked():
        boots = journal.boot_ids()
        if boots and boots != {boot_id}:
            _LOG.warning("tuning: %s is of another boot: the reboot undid what it tells of", journal.path)
            journal.set_aside()
    outcomes: list[Outcome] = []
    for transaction in reversed(journal.read()):
        if transaction.stage in (Stage.OPEN, Stage.UNDOING):
            why = transaction.detail or "clockgated ended before the apply was over"
            outcomes += give_back(journal, hand, stamps, transaction.apply_id, why)
    forget_ended(journal)
    return tuple(outcomes)


def forget_ended(journal: JournalFile) -> None:
    """Remove from the journal what is over, and the journal itself when nothing is left. Raises JournalError."""
    with journal.locked():
        found = journal.read()
        ended = {one.apply_id for one in found if one.stage is Stage.ENDED}
        if len(ended) == len(found) and journal.path.exists():
            journal.forget()
        elif ended:
            journal.drop(ended)


def in_force(transactions: Sequence[Transaction]) -> tuple[tuple[Transaction, Step], ...]:
    """The changes that are to hold now, in the order in which they were made: of each knob the last one.

    A knob that is being changed, or given back, at this moment is left out.
    """
    moving = {
        step.change.knob
        for transaction in transactions
        if transaction.stage in (Stage.OPEN, Stage.UNDOING)
        for step in transaction.steps
    }
    latest = {
        step.change.knob: (transaction, step)
        for transaction in transactions
        if transaction.stage is Stage.COMMITTED
        for step in transaction.steps
        if step.change.knob not in moving
    }
    return tuple(sorted(latest.values(), key=lambda one: (one[0].apply_id, one[1].index)))


def _note(journal: JournalFile, mark: Mark, apply_id: int, detail: str = "") -> None:
    """Record a stage of giving back. A full disk must not keep from it.

    Without the record the next start does it once more, which changes nothing where it is done.
    """
    try:
        journal.append(mark, apply_id, detail=detail)
    except JournalError as error:
        _LOG.error("tuning: %s", error)


def _made(journal: JournalFile, hand: Hand, apply_id: int, index: int, change: Change) -> str | None:
    knob, wanted = change.knob, change.wanted
    found = hand.read(knob)
    if isinstance(found, Trouble):
        return f"{knob.subject}: {found.detail}"
    if not is_same(knob, found, change.found):
        return f'{knob.subject} is "{found}": planned from "{change.found}"; somebody else changed it: plan again'
    journal.append(Mark.WRITE, apply_id, step=index, change=change)
    trouble = hand.write(knob, wanted)
    actual = hand.read(knob)
    if isinstance(actual, str) and is_same(knob, actual, wanted):
        return None
    if isinstance(actual, str) and not is_same(knob, actual, found):
        journal.append(Mark.LANDED, apply_id, step=index, value=actual)
    if trouble is not None:
        return f"{knob.subject}: {trouble.detail}"
    seen = actual.detail if isinstance(actual, Trouble) else f'it reads "{actual}"'
    return f'{knob.subject}: the kernel took "{wanted}", but {seen}'


def _given_back(hand: Hand, step: Step) -> Outcome:
    change = step.change
    found = hand.read(change.knob)
    if isinstance(found, Trouble):
        return _outcome(step, _TROUBLE_OUTCOMES.get(found.code, OutcomeCode.FAILED), None, found.detail)
    if is_same(change.knob, found, change.found):
        return _outcome(step, OutcomeCode.REVERTED, found)
    # Nobody can tell what an interrupted write left, but that it was ours: nothing was recorded after it.
    is_unknown = step.is_in_flight and step.landed is None
    is_ours = any(is_same(change.knob, found, one) for one in (change.wanted, step.landed))
    if not is_ours and not is_unknown:
        detail = f'it is "{found}" and was set to "{change.wanted}": somebody else changed it; left to them'
        return _outcome(step, OutcomeCode.LEFT, found, detail)
    trouble = hand.write(change.knob, change.found)
    actual = hand.read(change.knob)
    if isinstance(actual, str) and is_same(change.knob, actual, change.found):
        return _outcome(step, OutcomeCode.REVERTED, actual)
    seen = actual if isinstance(actual, str) else None
    detail = trouble.detail if trouble is not None else f'the kernel took "{change.found}", but it reads "{seen}"'
    return _outcome(step, OutcomeCode.FAILED, seen, detail)


def _outcome(step: Step, code: OutcomeCode, actual: str | None, detail: str = "") -> Outcome:
    change = step.change
    return Outcome(code, change.knob, change.found, change.wanted, actual, detail)
