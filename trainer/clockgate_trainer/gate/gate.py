"""The verbs that the training loop uses: begin and settle a step's vote, agree on anything else.

Every rank calls the same verbs in the same order. A rank acts only on what all ranks got from the same vote; what it
sees alone (its clock, a signal, its parent's death) becomes part of its next row or ends it.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from types import FrameType

from clockgate.v1 import clock_pb2

from clockgate_trainer.errors import ConfigError, PeerLostError
from clockgate_trainer.gate.address import resolve_address, resolve_tls
from clockgate_trainer.gate.audit import Receipt, audit
from clockgate_trainer.gate.ballot import Ballot, Vote
from clockgate_trainer.gate.clocks import boot_ns, mono_ns, wall_ns
from clockgate_trainer.gate.decide import decide
from clockgate_trainer.gate.limits import demand_seconds, make_limits
from clockgate_trainer.gate.model import (
    ABSENT,
    PROTOCOL_VERSION,
    Decision,
    Flags,
    Kind,
    Limits,
    Row,
    StepVerdict,
)
from clockgate_trainer.gate.pace import Pace
from clockgate_trainer.gate.policy import NS_PER_S, OnUnknown
from clockgate_trainer.gate.sidecar import ClockSide, NullSidecar, Sidecar
from clockgate_trainer.gate.telling import EventLogger, decision_fields, reason_names

__all__ = ["ClockGate", "GateSettings", "OnEvent", "reason_names"]

# How long the check at launch waits for a daemon's first answer before it votes without one.
_FIRST_ANSWER_S = 2.0
_AGENT_VARIABLE = "TORCHELASTIC_RUN_ID"
# SIGUSR2 does what SIGTERM does, for schedulers that can announce an end by a user signal only.
_SIGNALS = {
    signal.SIGUSR1: Flags.SAVE_AND_GO_ON,
    signal.SIGUSR2: Flags.SAVE_AND_EXIT,
    signal.SIGTERM: Flags.SAVE_AND_EXIT,
}

OnEvent = Callable[[str, Mapping[str, object]], None]


@dataclass(frozen=True)
class GateSettings:
    """What the operator chose; equal on all ranks.

    `vote_timeout_s` bounds the wait for other ranks in one vote; the first step's vote gets `first_step_extra_s` more
    (compilation). `hold_timeout_s` bounds one HOLD, by rank 0's monotonic clock.
    """

    limits: Limits
    on_unknown: OnUnknown
    vote_timeout_s: float = 120.0
    first_step_extra_s: float = 0.0
    hold_timeout_s: float = 300.0
    poll_interval_s: float = 0.1


@dataclass(frozen=True)
class _Pending:
    """A step's vote that was begun and is not settled; `row` is what this rank sent."""

    row: Row
    ballot: Ballot


class ClockGate:
    """One rank's gate. Not for use from several threads.

    `on_event("gate", fields)` is called for every decision that is handed out, `on_event("hold", fields)` when a wait
    begins and whenever its cause changes; other events (a lease refused, a slow rank, a skewed clock) come with `level`
    and `detail`. The verbs raise PeerLostError and DesyncError; after either the rank can
    only leave (see `gate.exit`).
    """

    def __init__(self, vote: Vote, sidecar: ClockSide, settings: GateSettings, on_event: OnEvent) -> None:
        self._vote = vote
        self._sidecar = sidecar
        self._settings = settings
        self._on_event = on_event
        self._pending: _Pending | None = None
        self._first_step = True
        self._accusation = ABSENT
        self._pace = Pace()
        self._begun_mono_ns = 0
        self._own_work_ns = ABSENT
        self._asked_by_loop = False
        self._requests: deque[Flags] = deque()
        self._leaving = False
        self._signals_installed = False
        self._detail = ""
        # A rank alone on a terminal may outlive the shell that started it; a rank of a job may not outlive its agent.
        watched = vote.world_size > 1 or _AGENT_VARIABLE in os.environ
        self._parent = os.getppid() if watched else None

    @classmethod
    def connect(
        cls,
        *,
        job: str = "training",
        max_sync_delay_ms: float = 50.0,
        warn_sync_delay_ms: float | None = None,
        time_sync_check: str = "auto",
        on_unknown: str | None = None,
        hold_timeout_s: float = 300.0,
        vote_timeout_s: float = 120.0,
        clock_daemon: str | None = None,
        on_event: OnEvent | None = None,
    ) -> "ClockGate":
        """A gate for a training loop of one's own. A collective: all ranks call it, after init_process_group if any.

        The arguments mean what the flags of clockgate-train of these names mean, and have their defaults. `job` names
        the lease on the node; without `on_event` Python's logging hears what a person should know. Raises ConfigError
        on every rank that was given a value that makes no sense, and on all ranks when `time_sync_check` is "true" and
        the daemon of one does not answer. `close` it at the end.
        """
        # torch takes seconds to import; a gate around a vote of another kind does without.
        from clockgate_trainer.gate.vote import open_vote  # noqa: PLC0415

        limits = make_limits(max_sync_delay_ms, warn_sync_delay_ms)
        demand_seconds("hold_timeout_s", hold_timeout_s, low_s=0)
        demand_seconds("vote_timeout_s", vote_timeout_s, low_s=1)
        if time_sync_check not in ("auto", "true", "false"):
            raise ConfigError(f"time_sync_check is {time_sync_check!r}: wanted auto, true or false")
        choice = on_unknown or ("hold" if time_sync_check == "true" else "warn")
        if choice not in {known.value for known in OnUnknown}:
            raise ConfigError(f"on_unknown is {choice!r}: wanted warn, hold or stop")
        settings = GateSettings(limits, OnUnknown(choice), vote_timeout_s, hold_timeout_s=hold_timeout_s)
        vote = open_vote(vote_timeout_s)
        side: ClockSide = NullSidecar()
        if time_sync_check != "false":
            first_here = os.environ.get("LOCAL_RANK", "0") == "0"
            address = resolve_address(clock_daemon, os.environ)
            tls = resolve_tls(address, os.environ)
            side = Sidecar(address, limits, job=job, rank=vote.rank, with_lease=first_here, tls=tls)
        gate = cls(vote, side, settings, on_event or EventLogger(leads=vote.rank == 0))
        if time_sync_check == "true":
            gate._demand_daemons()
        return gate

    def _demand_daemons(self) -> None:
        """Raise ConfigError on all ranks when the daemon of one has never answered. A collective."""
        self._sidecar.await_answer(_FIRST_ANSWER_S)
        never = 1 << clock_pb2.REASON_CODE_DAEMON_NEVER_REACHED
        rows = self.agree(Kind.EVAL, 0).rows
        silent = tuple(rank for rank, row in enumerate(rows) if row.reasons & never)
        if silent:
            self.close()
            raise ConfigError(
                f"the clock daemon of rank {', '.join(map(str, silent))} does not answer: start clockgated, or name "
                'its socket with clock_daemon, or train without it with time_sync_check="false"',
                ranks=silent,
            )

    def launch_check(self) -> Decision:
        """Vote before anything expensive is loaded; waits out a HOLD. PROCEED, WARN, or STOP when the wait is over."""
        self._sidecar.ask(0)
        self._sidecar.await_answer(_FIRST_ANSWER_S)
        self._demand_idle("launch_check")
        self._pending = self._send(self._audited_row(Kind.STEP, 0, flags=self._take_flags()))
        return self._settle(extra_s=0.0)

    def begin(
        self, step: int, *, batch: int = ABSENT, cursor_digest: int = ABSENT, last_step_ns: int | None = None
    ) -> None:
        """Start the vote on `step`; returns at once. Called just before the forward of the last micro-batch.

        `batch` is micro-batch size << 32 | accumulation steps. `last_step_ns` is how long this rank itself worked on
        the step before, waits for other ranks left out (ABSENT on the first); None: the time from `begin` to `settle`.
        """
        self._demand_idle("begin")
        row = self._audited_row(Kind.STEP, step, flags=self._take_flags())
        work_ns = self._own_work_ns if last_step_ns is None else last_step_ns
        row = replace(row, batch=batch, cursor_digest=cursor_digest, step_duration_ns=work_ns)
        self._pending = self._send(row)
        self._begun_mono_ns = mono_ns()
        if not self._asked_by_loop:
            self._sidecar.ask(step + 1)

    def ask_ahead(self, step: int) -> None:
        """Have the daemon asked for `step`, the next one, now; returns at once. For a loop that calls it every step.

        Asking costs some milliseconds of Python in other threads. Where the host is about to wait for the device that
        is free; right after `begin`, which asks when nobody calls this, it delays the forward's kernels.
        """
        self._asked_by_loop = True
        self._sidecar.ask(step)

    def settle(self) -> Decision:
        """Await the vote that `begin` started, before the first gradient leaves; waits out a HOLD.

        Returns PROCEED, WARN or STOP, never HOLD. Flags of the decision are those of the vote and of every poll
        during a HOLD.
        """
        extra_s = self._settings.first_step_extra_s if self._first_step else 0.0
        self._own_work_ns = mono_ns() - self._begun_mono_ns
        decision = self._settle(extra_s=extra_s)
        self._first_step = False
        for finding in self._pace.observe(decision):
            level = "INFO" if finding.event.endswith("_over") else "WARNING"
            self._on_event(finding.event, {"level": level, "step": decision.step, **asdict(finding)})
        return decision

    def agree(
        self, kind: Kind, step: int, *, content_digest: int = ABSENT, flags: Flags = Flags.NONE, extra_s: float = 0.0
    ) -> Decision:
        """Vote on SAVE, COMMIT, EVAL or EXIT and wait for the result, `extra_s` longer than --vote_timeout.

        HOLD is not waited out here: only a step waits for a clock. After a vote on EXIT, SIGTERM is ignored: the
        first rank that ends makes the agent send it to the others.
        """
        self._demand_idle("agree")
        row = self._row(kind, step, flags=flags | self._lasting_flags())
        pending = self._send(replace(row, content_digest=content_digest))
        decision, wait_ns = self._collect(pending, extra_s)
        if kind is Kind.EXIT and self._signals_installed:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._report("gate", decision, pending.ballot, wait_ns=wait_ns)
        return decision

    def request(self, flag: Flags) -> None:
        """Put `flag` into the next step's row. Safe in a signal handler. SAVE_AND_EXIT stays in every later row."""
        self._requests.append(flag)

    @property
    def asked_to_leave(self) -> bool:
        """Whether a signal has asked this rank to save and exit, for work between steps that need not be finished.

        The next step's row tells the others in any case.
        """
        return self._leaving or any(flag & Flags.SAVE_AND_EXIT for flag in tuple(self._requests))

    def install_signals(self) -> None:
        """SIGUSR1: save and go on; SIGTERM and SIGUSR2: save and exit. Main thread only.

        The launcher starts ranks with the user signals blocked, so that none is lost or kills before this call: they
        are unblocked here.
        """
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        self._signals_installed = True
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def close(self) -> None:
        """Let go of the daemon and of the other ranks. May be called twice."""
        self._sidecar.close()
        self._vote.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.request(_SIGNALS[signal.Signals(number)])

    def _settle(self, *, extra_s: float) -> Decision:
        if self._pending is None:
            raise RuntimeError("settle without begin: call begin just before the last forward of the step")
        pending, self._pending = self._pending, None
        decision, wait_ns = self._collect(pending, extra_s)
        if decision.step_verdict is not StepVerdict.HOLD:
            self._report("gate", decision, pending.ballot, wait_ns=wait_ns)
            return decision
        return self._hold(pending, decision, wait_ns)

    def _hold(self, pending: _Pending, decision: Decision, wait_ns: int) -> Decision:
        """Poll-vote until the cluster no longer holds; rank 0 counts the budget and tells the others."""
        held_since_mono_ns = mono_ns()
        budget_ns = int(self._settings.hold_timeout_s * NS_PER_S)
        flags, polls = decision.flags, 0
        told: tuple[object, ...] = ()
        while decision.step_verdict is StepVerdict.HOLD:
            if told != (decision.reasons, decision.blamed_ranks):
                told = (decision.reasons, decision.blamed_ranks)
                self._report("hold", decision, pending.ballot, held_ns=mono_ns() - held_since_mono_ns, polls=polls)
            self._sidecar.ask(decision.step)
            time.sleep(self._settings.poll_interval_s)
            spent = self._vote.rank == 0 and mono_ns() - held_since_mono_ns > budget_ns
            row = self._audited_row(
                Kind.HOLD_POLL, decision.step, flags=self._take_flags() | (Flags.BUDGET_SPENT if spent else Flags.NONE)
            )
            sent = pending.row
            row = replace(
                row, batch=sent.batch, cursor_digest=sent.cursor_digest, step_duration_ns=sent.step_duration_ns
            )
            pending = self._send(row)
            decision, _ = self._collect(pending, 0.0)
            flags |= decision.flags
            polls += 1
        decision = replace(decision, kind=Kind.STEP, flags=flags)
        held_ns = mono_ns() - held_since_mono_ns
        self._report("gate", decision, pending.ballot, wait_ns=wait_ns, held_ns=held_ns, polls=polls)
        return decision

    def _send(self, row: Row) -> _Pending:
        self._check_parent()
        return _Pending(row, self._vote.start(row))

    def _collect(self, pending: _Pending, extra_s: float) -> tuple[Decision, int]:
        """The decision of a vote, and how long this rank waited for it, ns."""
        asked_mono_ns = mono_ns()
        limit_ns = int((self._settings.vote_timeout_s + extra_s) * NS_PER_S)
        rows = pending.ballot.collect(asked_mono_ns + limit_ns, self._check_parent)
        waited_ns = mono_ns() - asked_mono_ns
        found = self._audit(rows, pending.ballot)
        if found != ABSENT:
            self._accusation = found
        return decide(rows, self._settings.limits), waited_ns

    def _audit(self, rows: tuple[Row, ...], ballot: Ballot) -> int:
        """What this rank can prove against another rank's clock after a vote, for its next row."""
        if ballot.received_mono_ns is None or ballot.received_wall_ns is None:
            return ABSENT
        local = self._sidecar.verdict(boot_ns(), self._settings.on_unknown)
        receipt = Receipt(ballot.started_mono_ns, ballot.received_mono_ns, ballot.received_wall_ns, local)
        found = audit(rows, self._vote.rank, receipt, self._settings.limits)
        return ABSENT if found is None else found.to_wire()

    def _audited_row(self, kind: Kind, step: int, *, flags: Flags) -> Row:
        """A row of a vote that carries accusations in place of a digest; each is made once."""
        accusation, self._accusation = self._accusation, ABSENT
        return replace(self._row(kind, step, flags=flags), content_digest=accusation)

    def _row(self, kind: Kind, step: int, *, flags: Flags) -> Row:
        local = self._sidecar.verdict(boot_ns(), self._settings.on_unknown)
        self._detail = local.detail
        return Row(
            version=PROTOCOL_VERSION,
            kind=kind,
            step=step,
            step_verdict=local.step,
            save_verdict=local.save,
            reasons=local.reasons,
            relative_bound_ns=_wire(local.relative_bound_ns),
            utc_bound_ns=_wire(local.utc_bound_ns),
            reference_hash=_wire(local.reference_hash),
            epoch=_wire(local.epoch),
            sent_wall_ns=wall_ns(),
            step_duration_ns=ABSENT,
            flags=flags,
            batch=ABSENT,
            cursor_digest=ABSENT,
            content_digest=ABSENT,
        )

    def _take_flags(self) -> Flags:
        """Flags for a row that the loop acts on. One at a time: a handler may append meanwhile."""
        flags = Flags.NONE
        while self._requests:
            flags |= self._requests.popleft()
        self._leaving = self._leaving or bool(flags & Flags.SAVE_AND_EXIT)
        return flags | self._lasting_flags()

    def _lasting_flags(self) -> Flags:
        return Flags.SAVE_AND_EXIT if self._leaving else Flags.NONE

    def _demand_idle(self, verb: str) -> None:
        if self._pending is not None:
            raise RuntimeError(f"{verb} during the vote on step {self._pending.row.step}: settle it first")

    def _check_parent(self) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            raise PeerLostError(
                f"rank {self._vote.rank}: the process that started it ({self._parent}) is gone; start the job again"
            )

    def _report(
        self, name: str, decision: Decision, ballot: Ballot, *, wait_ns: int = 0, held_ns: int = 0, polls: int = 0
    ) -> None:
        for notice in self._sidecar.take_notices():
            self._on_event(notice.event, {"level": notice.level, "step": decision.step, "detail": notice.detail})
        received_mono_ns = ballot.received_mono_ns
        vote_ns = None if received_mono_ns is None else received_mono_ns - ballot.started_mono_ns
        fields = decision_fields(
            decision, vote_ns=vote_ns, wait_ns=wait_ns, held_ns=held_ns, polls=polls, detail=self._detail
        )
        self._on_event(name, fields)


def _wire(value: int | None) -> int:
    return ABSENT if value is None else value
