"""Comparing what was set with what is, naming who changed it, and setting it again where the policy says so.

Reads and writes through the hand; every write is in the journal first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clockgated.tuning.drift import UNKNOWN_WRITER, DriftAction, DriftPolicy, Round, judge
from clockgated.tuning.hand import Hand
from clockgated.tuning.journal import Mark, Stage, Step, Transaction
from clockgated.tuning.journal_file import JournalFile
from clockgated.tuning.model import Counter, Knob, Owner, OwnerKind, Verdict, VerdictCode
from clockgated.tuning.outcome import Trouble, TroubleCode
from clockgated.tuning.same import is_same
from clockgated.tuning.transaction import in_force

_TROUBLES = {TroubleCode.GONE: VerdictCode.UNSUPPORTED, TroubleCode.UNSUPPORTED: VerdictCode.UNSUPPORTED}

OwnerOf = Callable[[Knob, str], Owner | None]
"""Who may have set a knob to a value; None when nobody is known."""


@dataclass(frozen=True)
class Checked:
    """A verdict, with the change's counters as they were when it was planned."""

    verdict: Verdict
    evidence_before: tuple[Counter, ...] = ()


@dataclass(frozen=True)
class Eyes:
    """What a check looks with: who may have written a value, the counters of those names, how each knob is kept."""

    owner_of: OwnerOf
    counters: Callable[[Sequence[str]], tuple[Counter, ...]]
    policy_of: Callable[[Knob], DriftPolicy]


def check(journal: JournalFile, hand: Hand, eyes: Eyes, now_boot_ns: int, *, may_write: bool) -> tuple[Checked, ...]:
    """A verdict for every change in force, in the order in which they were made.

    With `may_write` what drifted is set again where its policy allows; only one thread may do that. Raises
    JournalError.
    """
    transactions = journal.read()
    checked = [_check(one, step, hand, eyes, now_boot_ns) for one, step in in_force(transactions)]
    if may_write:
        checked = [_kept(found, journal, hand) for found in checked]
    unfinished = [
        _Found(step, Verdict(VerdictCode.ERROR, step.change.knob, step.change.found, None, _unfinished(one)))
        for one in transactions
        if one.stage in (Stage.OPEN, Stage.UNDOING)
        for step in one.steps
    ]
    return tuple(_with_evidence(found, eyes) for found in (*checked, *unfinished))


@dataclass(frozen=True)
class _Found:
    step: Step
    verdict: Verdict
    apply_id: int = 0
    may_reassert: bool = False
    writer: str = UNKNOWN_WRITER


def _check(apply: Transaction, step: Step, hand: Hand, eyes: Eyes, now_boot_ns: int) -> _Found:
    knob, wanted = step.change.knob, step.change.wanted
    actual = hand.read(knob)
    if isinstance(actual, Trouble):
        code = _TROUBLES.get(actual.code, VerdictCode.ERROR)
        return _Found(step, Verdict(code, knob, wanted, None, actual.detail))
    if is_same(knob, actual, wanted):
        return _Found(step, Verdict(VerdictCode.CLEAN, knob, wanted, actual))
    owner = eyes.owner_of(knob, actual)
    writer = UNKNOWN_WRITER if owner is None else f"{owner.kind} {owner.place}"
    rounds = [Round(one.at_boot_ns, one.detail) for one in apply.reasserts if one.step == step.index]
    action, why = judge(rounds, writer, now_boot_ns, eyes.policy_of(knob), is_as_set=False)
    back = ", which it was before" if is_same(knob, actual, step.change.found) else ""
    verdict = Verdict(
        VerdictCode.CONFLICT if action is DriftAction.LEAVE else VerdictCode.DRIFT,
        knob,
        wanted,
        actual,
        f'it is "{actual}"{back}, and was set to "{wanted}": {why}',
        owner or Owner(OwnerKind.OTHER, "last writer unknown"),
    )
    return _Found(step, verdict, apply.apply_id, action is DriftAction.REASSERT, writer)


def _kept(found: _Found, journal: JournalFile, hand: Hand) -> _Found:
    """Set it again if that is to be done; the verdict stays one of drift, which is to be told."""
    verdict, change = found.verdict, found.step.change
    # What may cut the node off is set by an apply alone, under its guard.
    if not found.may_reassert or change.needs_confirm or change.resets_link:
        return found
    with journal.locked() as is_locked:
        if not is_locked:
            return found
        journal.read()
        journal.append(Mark.REASSERT, found.apply_id, step=found.step.index, value=verdict.actual, detail=found.writer)
        hand.write(change.knob, change.wanted)
    return found


def _unfinished(apply: Transaction) -> str:
    if apply.stage is Stage.OPEN:
        return "not confirmed: it is being applied at this moment, or its apply broke off; look again in a minute"
    return f"not given back yet ({apply.detail}); `clockgatectl tune revert` tries again"


def _with_evidence(found: _Found, eyes: Eyes) -> Checked:
    before = found.step.change.evidence
    evidence = eyes.counters([one.name for one in before]) if before else ()
    verdict = found.verdict
    told = Verdict(verdict.code, verdict.knob, verdict.wanted, verdict.actual, verdict.detail, verdict.owner, evidence)
    return Checked(told, before)
