"""The one place of this daemon where tuning is asked for: plan, apply, verify, revert. For threads.

What touches the host is built on first use: a daemon that is never asked to tune does not load it. Settings that were
applied stay when the daemon stops; a start undoes what an earlier one left unfinished.
"""

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from clockgated import host
from clockgated.config import TuningConfig
from clockgated.errors import ClockgateError
from clockgated.tuning.apply import Surroundings, carry_out
from clockgated.tuning.claim import sole_apply
from clockgated.tuning.hand import Hand
from clockgated.tuning.interlock import ClockLook, reset_refusal
from clockgated.tuning.journal import JournalError, Stage, Transaction
from clockgated.tuning.journal_file import JournalFile
from clockgated.tuning.model import Plan, VerdictCode
from clockgated.tuning.outcome import Outcome, OutcomeCode
from clockgated.tuning.transaction import give_all_back, recover
from clockgated.tuning.verify import Checked, Eyes, check

_LOG = logging.getLogger(__name__)
# Everybody may ask for plans, of every profile and for any path: nobody may push out the one that root has read.
_REMEMBERED_PLANS = 512
# A comparison of the drift thread is over in that time; another apply may take a minute.
_PATIENCE_S = 3.0


class RefusalKind(Enum):
    """Why nothing was tried."""

    UNKNOWN_PLAN = auto()
    """This daemon gave out no plan of that hash."""
    MOVED = auto()
    """The node has changed since the plan."""
    BUSY = auto()
    """Something else is being applied, or waits to be given back."""


@dataclass(frozen=True)
class Refused:
    """Nothing was tried, and why: what was seen, what is wanted, the next step."""

    kind: RefusalKind
    why: str


@dataclass(frozen=True)
class Tools:
    """What touches the host. `news_group`: see `Ethtool.news_group`."""

    hand: Hand
    around: Surroundings
    eyes: Eyes
    news_group: Callable[[], int | None]


@dataclass(frozen=True)
class Outside:
    """What tuning asks the rest of the daemon: `lease_refusal` names open leases, `clock` what the clock rests on."""

    lease_refusal: Callable[[], str | None]
    clock: Callable[[], ClockLook]


Survey = Callable[[str | None, float | None], Plan]
MakeTools = Callable[[TuningConfig, Path, Outside], Tools]


@dataclass(frozen=True)
class Tally:
    """How many settings are in force, and how many of them were not as applied at the last comparison."""

    applied: int
    differing: int


class TuningDesk:
    """Every method may be called from any thread; one apply, revert or reassertion at a time.

    `tally` is None before the first comparison, and after one that could not be made.
    """

    def __init__(
        self,
        settings: TuningConfig,
        folder: Path,
        *,
        survey: Survey,
        make_tools: MakeTools,
        outside: Outside,
        boot_id: str,
    ) -> None:
        self.settings = settings
        self._folder = folder
        self._survey = survey
        self._make_tools = make_tools
        self._outside = outside
        self._boot_id = boot_id
        self._lock = threading.Lock()
        self._tools: Tools | None = None
        self._asked: OrderedDict[str, tuple[str | None, float | None]] = OrderedDict()
        self._told: frozenset[str] = frozenset()
        # False while somebody else was in the way of undoing what an earlier daemon left unfinished.
        self._is_recovered = True
        self.tally: Tally | None = None

    def reconfigure(self, settings: TuningConfig) -> None:
        """Take other settings into use."""
        with self._lock:
            self.settings, self._tools = settings, None

    def start(self) -> None:
        """Undo what an earlier daemon did not finish, and forget what a reboot undid; tells in the log.

        What another process is busy with meanwhile is left to the next `watch`.
        """
        if not self._journal().path.exists():
            return
        try:
            with sole_apply(self._folder) as holder:
                self._is_recovered = holder is None
                if holder is None:
                    self._recover()
                else:
                    _LOG.warning("tuning: %s is applying; what it leaves is looked at when it is done", holder)
        except JournalError as error:
            _LOG.error("tuning: %s", error)

    def _recover(self) -> None:
        """Undo what is unfinished; only for whoever holds the right to change things."""
        self._is_recovered = True
        tools = self._built()
        for one in recover(self._journal(), tools.hand, tools.around.stamps, self._boot_id):
            level = logging.ERROR if one.code is OutcomeCode.FAILED else logging.WARNING
            _LOG.log(level, 'tuning: undone: %s is "%s" (%s) %s', one.knob.subject, one.actual, one.code, one.detail)

    def plan(self, profile: str | None, rtt_ms: float | None) -> Plan:
        """A plan, and the right to apply it by its hash. Raises ClockgateError when none can be made."""
        plan = self._survey(profile, rtt_ms)
        with self._lock:
            self._asked[plan.plan_hash] = (profile, rtt_ms)
            self._asked.move_to_end(plan.plan_hash)
            if len(self._asked) > _REMEMBERED_PLANS:
                self._asked.popitem(last=False)
        return plan

    def apply(self, plan_hash: str, *, ignore_leases: bool) -> tuple[Outcome, ...] | Refused:
        """Plan again and carry it out if it is still the same. Raises JournalError when nothing can be journalled."""
        with self._lock:
            asked = self._asked.get(plan_hash)
        if asked is None:
            # As JSON has it: what came with a request may move a terminal's cursor.
            shown = json.dumps(plan_hash[:64])
            return Refused(RefusalKind.UNKNOWN_PLAN, f"no plan {shown} was made here; run `clockgatectl tune plan`")
        with sole_apply(self._folder, _PATIENCE_S) as holder:
            if holder is not None:
                return Refused(RefusalKind.BUSY, f"{holder} is applying or giving back; try again when it is done")
            left = [one for one in self._journal().read() if one.stage in (Stage.OPEN, Stage.UNDOING)]
            if left:
                why = f"an earlier apply is not given back yet{_because(left[0])}; run `clockgatectl tune revert` first"
                return Refused(RefusalKind.BUSY, why)
            try:
                plan = self._survey(*asked)
            except ClockgateError as error:
                return Refused(RefusalKind.MOVED, f"it cannot be planned again: {error}")
            if plan.plan_hash != plan_hash:
                now = plan.plan_hash[:12]
                why = f"the node has changed since plan {plan_hash[:12]}, which would be {now} now; plan again"
                return Refused(RefusalKind.MOVED, why)
            tools = self._built()
            return carry_out(
                self._journal(),
                tools.hand,
                plan.changes,
                tools.around,
                plan_hash=plan_hash,
                ignore_leases=ignore_leases,
            )

    def verify(self) -> tuple[Checked, ...]:
        """A verdict for every change in force. Raises JournalError."""
        journal = self._journal()
        if not journal.path.exists():
            return ()
        tools = self._built()
        return check(journal, tools.hand, tools.eyes, host.boot_ns(), may_write=False)

    def watch(self) -> bool:
        """Compare once, set again what may be, and tell in the log what is new; whether anything is in force."""
        try:
            checked = self._watched()
        except JournalError as error:
            _LOG.error("tuning: %s", error)
            self.tally = None
            return True
        self.tally = Tally(len(checked), sum(map(_needs_telling, checked)))
        told = {f"{one.verdict.knob.subject}: {one.verdict.detail}" for one in checked if _needs_telling(one)}
        for sentence in sorted(told - self._told):
            _LOG.warning("tuning: %s", sentence)
        self._told = frozenset(told)
        return bool(checked)

    def news_group(self) -> int | None:
        """Where the kernel tells of changed driver settings."""
        return self._built().news_group()

    def revert(self, *, ignore_leases: bool) -> tuple[Outcome, ...] | Refused:
        """Give everything back, the newest first. Raises JournalError."""
        with sole_apply(self._folder, _PATIENCE_S) as holder:
            if holder is not None:
                return Refused(RefusalKind.BUSY, f"{holder} is applying or giving back; try again when it is done")
            journal = self._journal()
            if not journal.path.exists():
                return ()
            waiting = self._deferred(journal.read(), ignore_leases=ignore_leases)
            if waiting:
                return waiting
            tools = self._built()
            return give_all_back(journal, tools.hand, tools.around.stamps, "the operator asked")

    def _watched(self) -> tuple[Checked, ...]:
        journal = self._journal()
        if not journal.path.exists():
            return ()
        with sole_apply(self._folder) as holder:
            if holder is None and not self._is_recovered:
                self._recover()
            tools = self._built()
            checked = check(journal, tools.hand, tools.eyes, host.boot_ns(), may_write=holder is None)
            # What somebody is giving back at this moment is no mistake yet; what stays of it is told the next time.
            return tuple(one for one in checked if holder is None or one.verdict.code is not VerdictCode.ERROR)

    def _deferred(self, applies: tuple[Transaction, ...], *, ignore_leases: bool) -> tuple[Outcome, ...]:
        """One outcome a change when one of them must not be given back now: order allows no exception."""
        steps = [
            step for apply in reversed(applies) if apply.stage is not Stage.ENDED for step in reversed(apply.steps)
        ]
        leases, clock = self._outside.lease_refusal(), self._outside.clock()
        refusals = (reset_refusal(one.change, leases, clock, ignore_leases=ignore_leases) for one in steps)
        why = next((one for one in refusals if one is not None), None)
        if why is None:
            return ()
        changes = [step.change for step in steps]
        return tuple(Outcome(OutcomeCode.DEFERRED, one.knob, one.found, one.wanted, None, why) for one in changes)

    def _journal(self) -> JournalFile:
        """A fresh one for each use: it remembers what this use has read."""
        return JournalFile(self._folder, self._boot_id)

    def _built(self) -> Tools:
        with self._lock:
            if self._tools is None:
                self._tools = self._make_tools(self.settings, self._folder, self._outside)
            return self._tools


def _because(apply: Transaction) -> str:
    return f" ({apply.detail})" if apply.detail else ""


def _needs_telling(one: Checked) -> bool:
    return one.verdict.code is not VerdictCode.CLEAN
