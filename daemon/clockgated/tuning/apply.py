"""One apply, from the changes of a plan to their confirmation, or to everything as it was.

In order: what has to wait is set aside, everything else is validated, the guard is armed, the changes are made, and
then the node has to prove that it can still be reached. Anything that goes wrong gives back what was done.
"""

import logging
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from clockgated import host
from clockgated.tuning import confirm
from clockgated.tuning.confirm import Decision, Look, Patience, Target
from clockgated.tuning.guard import Guard
from clockgated.tuning.hand import Hand
from clockgated.tuning.interlock import ClockLook, reset_refusal
from clockgated.tuning.journal import JournalError, Mark
from clockgated.tuning.journal_file import JournalFile, JournalMovedError
from clockgated.tuning.model import Area, Change
from clockgated.tuning.outcome import Outcome, OutcomeCode, Trouble, TroubleCode
from clockgated.tuning.roots import Roots, text_of
from clockgated.tuning.same import is_same
from clockgated.tuning.stamps import Stamps
from clockgated.tuning.transaction import forget_ended, give_back, make
from clockgated.tuning.validate import problem
from clockgated.units import NS_PER_S

_LOG = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.25
# The daemon decides this long before the guard does, so that the two do not meet.
_BEFORE_GUARD_S = 5.0
_CONGESTION_CONTROLS = "net.ipv4.tcp_available_congestion_control"


def _no_clock() -> ClockLook:
    return ClockLook()


def _no_leases() -> str | None:
    return None


@dataclass(frozen=True)
class Surroundings:
    """What an apply asks on its way; tests pass their own.

    `lease_refusal` names the jobs that forbid a reset, `clock` tells what the clock rests on. `targets` lists what
    could answer, `reached` what does, with the links whose echoes fill the MTU.
    """

    guard: Guard
    stamps: Stamps
    targets: Callable[[], Sequence[Target]]
    reached: Callable[[Sequence[Target], AbstractSet[int]], AbstractSet[str]]
    roots: Roots = field(default_factory=Roots)
    lease_refusal: Callable[[], str | None] = _no_leases
    clock: Callable[[], ClockLook] = _no_clock
    now_boot_ns: Callable[[], int] = host.boot_ns
    confirm_s: float = 60.0
    settle_s: float = 2.0


def carry_out(
    journal: JournalFile,
    hand: Hand,
    changes: Sequence[Change],
    around: Surroundings,
    *,
    plan_hash: str,
    ignore_leases: bool = False,
) -> tuple[Outcome, ...]:
    """Make `changes` as far as they may be made now, all of those or none; one outcome each, in their order.

    Blocks until what may cut the node off is confirmed or given back. Raises JournalError when nothing can be
    journalled.
    """
    return _Apply(journal, hand, around, plan_hash, ignore_leases=ignore_leases).run(tuple(changes))


class _Apply:
    def __init__(
        self, journal: JournalFile, hand: Hand, around: Surroundings, plan_hash: str, *, ignore_leases: bool
    ) -> None:
        self._journal = journal
        self._hand = hand
        self._around = around
        self._plan_hash = plan_hash
        self._ignore_leases = ignore_leases

    def run(self, changes: tuple[Change, ...]) -> tuple[Outcome, ...]:
        targets = self._around.targets() if any(one.needs_confirm for one in changes) else ()
        before = self._look(targets, frozenset())
        waiting = {change: why for change in changes if (why := self._why_to_wait(change, before)) is not None}
        chosen = [change for change in changes if change not in waiting]
        failure = self._made(chosen, targets, before) if chosen else None
        return tuple(
            _outcome(change, OutcomeCode.DEFERRED, change.found, waiting[change])
            if change in waiting
            else self._outcome_of(change, failure)
            for change in changes
        )

    def _why_to_wait(self, change: Change, before: Look) -> str | None:
        leases = self._around.lease_refusal()
        refusal = reset_refusal(change, leases, before.clock, ignore_leases=self._ignore_leases)
        if refusal is None and change.needs_confirm and not before.reached:
            return (
                "it may cut the node off, and nothing answers by which the opposite could be proven; name a host that "
                "answers in [tuning] probe_hosts"
            )
        return refusal

    def _made(self, changes: Sequence[Change], targets: Sequence[Target], before: Look) -> str | None:
        """Make and confirm; None, or why everything was given back."""
        known = (text_of(self._around.roots.sysctl(_CONGESTION_CONTROLS)) or "").split()
        problems = [found for change in changes if (found := problem(change, known)) is not None]
        if problems:
            return "; ".join(problems)
        is_risky = any(one.needs_confirm for one in changes)
        stamps = self._around.stamps.read(one.knob.link for one in changes if one.knob.link is not None)
        with self._journal.locked() as is_locked:
            if not is_locked:
                return f"{self._journal.path} is locked by another process; see whether one hangs, then plan again"
            self._journal.read()
            apply_id = self._journal.open(self._plan_hash, stamps)
        try:
            failure = self._guarded(apply_id) if is_risky else None
            failure = failure or make(self._journal, self._hand, apply_id, changes, self._why_not_now)
            changed_boot_ns = self._around.now_boot_ns()
            self._around.stamps.restore(stamps)
            if failure is None and is_risky:
                failure = self._unproven(changes, targets, before, changed_boot_ns)
            if failure is None:
                with self._journal.locked():
                    self._journal.append(Mark.COMMIT, apply_id)
        except JournalMovedError:
            failure = "the guard gave it back: reachability was not proven in time"
        except JournalError as error:
            failure = str(error)
        is_settled = failure is None or self._is_given_back(apply_id, failure)
        # Where a driver was too busy to take the old value back the guard tries once more.
        if is_risky and is_settled:
            self._around.guard.disarm()
        return failure

    def _guarded(self, apply_id: int) -> str | None:
        complaint = self._around.guard.arm(apply_id, self._around.confirm_s)
        return None if complaint is None else f"no guard could be set up for what may cut the node off: {complaint}"

    def _why_not_now(self, change: Change) -> str | None:
        """Asked again just before each change: a job may have begun since."""
        around = self._around
        refusal = reset_refusal(change, around.lease_refusal(), around.clock(), ignore_leases=self._ignore_leases)
        return None if refusal is None else f"{change.knob.subject}: {refusal}"

    def _unproven(
        self, changes: Sequence[Change], targets: Sequence[Target], before: Look, changed_boot_ns: int
    ) -> str | None:
        """Wait for proof; None, or what is missing at the end."""
        full_size = {
            change.knob.link.ifindex
            for change in changes
            if change.knob.area is Area.MTU and change.knob.link is not None
        }
        asked = [one for one in targets if one.name in before.reached]
        limit_ns = round(max(1.0, self._around.confirm_s - _BEFORE_GUARD_S) * NS_PER_S)
        patience = Patience(limit_ns, round(self._around.settle_s * NS_PER_S))
        while True:
            after = self._look(asked, full_size)
            decision, why = confirm.judge(before, after, changed_boot_ns, self._around.now_boot_ns(), patience)
            if decision is not Decision.WAIT:
                return why if decision is Decision.UNDO else None
            time.sleep(_LOOK_EVERY_S)

    def _look(self, targets: Sequence[Target], full_size: AbstractSet[int]) -> Look:
        return Look(frozenset(self._around.reached(targets, full_size)), self._around.clock())

    def _is_given_back(self, apply_id: int, why: str) -> bool:
        """Give everything back; False when something has to be tried again."""
        _LOG.warning("tuning: everything is given back: %s", why)
        outcomes = give_back(self._journal, self._hand, self._around.stamps, apply_id, why)
        for one in outcomes:
            if one.code is not OutcomeCode.REVERTED:
                _LOG.error("tuning: %s is not given back: %s", one.knob.subject, one.detail)
        forget_ended(self._journal)
        return all(one.code is not OutcomeCode.FAILED for one in outcomes)

    def _outcome_of(self, change: Change, failure: str | None) -> Outcome:
        """What became of a change that was tried, from what is there now."""
        found = self._hand.read(change.knob)
        if isinstance(found, Trouble) and found.code is TroubleCode.GONE:
            return _outcome(change, OutcomeCode.GONE, None, failure or found.detail)
        actual = found if isinstance(found, str) else None
        if failure is None:
            code = OutcomeCode.APPLIED if is_same(change.knob, actual, change.wanted) else OutcomeCode.FAILED
            return _outcome(change, code, actual, "" if code is OutcomeCode.APPLIED else "changed again at once")
        is_back = is_same(change.knob, actual, change.found)
        return _outcome(change, OutcomeCode.REVERTED if is_back else OutcomeCode.FAILED, actual, failure)


def _outcome(change: Change, code: OutcomeCode, actual: str | None, detail: str = "") -> Outcome:
    return Outcome(code, change.knob, change.found, change.wanted, actual, detail)
