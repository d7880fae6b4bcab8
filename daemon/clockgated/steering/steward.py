"""Carries one plan out after the other and keeps its daemons running; one step a call, on the caller's thread."""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from clockgated import host
from clockgated.clock.model import Reason, ReasonCode
from clockgated.clock.witness import KernelLook
from clockgated.manage.carry_out import free_segment, last_segments, write_plan
from clockgated.manage.facts import TimeDaemon
from clockgated.manage.handover import Handover
from clockgated.manage.planned import Folders, Plan
from clockgated.manage.rivals import find_time_daemons
from clockgated.manage.takeover import is_rival
from clockgated.sources.kernel import read_look
from clockgated.steering.backends import OpenRunner, Runner, has_leftovers, open_runner, runs_units
from clockgated.steering.leftover import leftover_frequency, leftover_notice, reset_frequency
from clockgated.steering.notices import status_notices
from clockgated.steering.prepare import Prepared
from clockgated.steering.signs import SignsOfLife
from clockgated.steering.specs import specs_of, watched
from clockgated.supervise.base import ChildSpec
from clockgated.supervise.supervisor import SuperviseStatus, Supervisor
from clockgated.units import NS_PER_MS, NS_PER_S

_log = logging.getLogger(__name__)
# A stop of clockgated has to be over within 2 s, at three daemons at most one after the other. They need some 10 ms.
_LAST_GRACE_NS = 300 * NS_PER_MS
_LAST_STEP_S = 0.02
_RIVAL_LOOK_NS = 60 * NS_PER_S
# Long enough to be seen by whoever looks after a change of mode, short enough not to stay for ever.
_LEFTOVER_TOLD_NS = 600 * NS_PER_S
_NOTHING_RUNS = SuperviseStatus((), (), ())


@dataclass(frozen=True)
class Told:
    """What a step found. `needs_plan`: the host is not any more as it was planned for, or the plan failed."""

    status: SuperviseStatus = _NOTHING_RUNS
    reasons: tuple[Reason, ...] = ()
    needs_plan: bool = False
    runs_anything: bool = False


def _rivals_beside(own_pids: Collection[int]) -> tuple[TimeDaemon, ...]:
    return tuple(one for one in find_time_daemons(Path("/proc"), own_pids) if is_rival(one))


@dataclass(frozen=True)
class HostHooks:
    """What a steward does to the host beyond files and programs; others serve tests."""

    open_runner: OpenRunner = open_runner
    rivals_beside: Callable[[Collection[int]], tuple[TimeDaemon, ...]] = _rivals_beside
    read_kernel: Callable[[], KernelLook | None] = read_look
    reset_frequency: Callable[[], None] = reset_frequency


@dataclass
class _Running:
    """The backend once there is one, and the programs that it is to run."""

    runner: Runner
    supervisor: Supervisor
    specs: tuple[ChildSpec, ...] = ()
    segments_to_free: set[int] = field(default_factory=set)
    next_rival_look_mono_ns: int = 0
    rivals: tuple[TimeDaemon, ...] = ()


class Steward:
    """See the head of this file. `may_step` says whether, as far as jobs go, the clock may be stepped just now."""

    def __init__(
        self,
        folders: Folders,
        boot_id: str,
        signs: SignsOfLife,
        *,
        may_step: Callable[[], bool],
        handover: Handover,
        hooks: HostHooks = HostHooks(),
    ) -> None:
        self._folders = folders
        self._boot_id = boot_id
        self._signs = signs
        self._may_step = may_step
        self._handover = handover
        self._hooks = hooks
        self._running: _Running | None = None
        self._gives_back = False
        self._trouble: Reason | None = None
        self._leftover: tuple[Reason, int] | None = None
        self._needs_plan = False

    def carry_out(self, prepared: Prepared) -> None:
        """Make `prepared` what runs from the next step on. What fails is told; what ran before then goes on."""
        self._gives_back, self._needs_plan = prepared.gives_back, False
        plan = prepared.plan
        try:
            running = self._running or self._opened(plan)
            if running is not None:
                self._switch(running, prepared)
            self._trouble = None
        except OSError as error:
            detail = f"the plan cannot be carried out: {error}; it is tried again"
            _log.error("%s", detail)
            self._trouble, self._needs_plan = Reason(ReasonCode.TIME_DAEMON_DOWN, detail), True

    def step(self) -> Told:
        """Advance everything that is due. Blocks for as long as systemctl does, where units are used."""
        now_ns = host.mono_ns()
        running, status = self._running, _NOTHING_RUNS
        if running is not None:
            seen = self._signs.seen_mono_ns()
            running.supervisor.want(watched(running.specs, self._signs.answered(), seen))
            status = running.supervisor.step(now_ns, seen, may_step_clock=self._may_step())
            self._free_segments(running, status)
            self._look_for_rivals(running, status, now_ns)
        if self._gives_back and (running is None or not running.runner.backend.names()):
            self._give_back()
        return Told(status, self._reasons(status, now_ns), self._needs_plan, running is not None)

    def end(self) -> None:
        """Leave: children are ended within a second, in their order; units go on without us."""
        running = self._running
        if running is None:
            return
        backend = running.runner.backend
        if running.runner.outlives_us:
            _log.info("the time daemons go on as units of systemd")
        else:
            orders = {spec.name: spec.stop_order for spec in running.specs}
            for name in sorted(backend.names(), key=lambda name: orders.get(name, 0)):
                backend.stop(name, _LAST_GRACE_NS)
                deadline_ns = host.mono_ns() + 2 * _LAST_GRACE_NS
                while name in backend.names() and host.mono_ns() < deadline_ns:
                    backend.poll(host.mono_ns())
                    time.sleep(_LAST_STEP_S)
        running.supervisor.close()
        if not running.runner.outlives_us:
            running.segments_to_free |= set(last_segments(self._folders))
            self._free_segments(running, _NOTHING_RUNS)

    def _opened(self, plan: Plan) -> _Running | None:
        """The backend, once something is to run or to be ended. Raises OSError."""
        if not plan.daemons and not has_leftovers(self._folders):
            return None
        with_units = runs_units(plan)
        runner = self._hooks.open_runner(self._folders, self._boot_id, self._signs.on_line, with_units)
        _log.info("time daemons run as %s", "units of systemd" if runner.outlives_us else "children of this process")
        running = _Running(runner, Supervisor(runner.backend))
        running.segments_to_free |= set(last_segments(self._folders))
        self._running = running
        return running

    def _switch(self, running: _Running, prepared: Prepared) -> None:
        plan, names = prepared.plan, running.runner.backend.names()
        before = set(last_segments(self._folders))
        if plan.daemons and {one.name for one in plan.daemons} != set(names):
            self._check_leftover(prepared)
        write_plan(plan, self._folders, names)
        running.segments_to_free = (running.segments_to_free | before) - set(plan.shm_segments)
        running.specs = specs_of(plan)
        running.rivals, running.next_rival_look_mono_ns = (), host.mono_ns() + _RIVAL_LOOK_NS

    def _check_leftover(self, prepared: Prepared) -> None:
        look = self._hooks.read_kernel()
        if leftover_frequency(look) is None:
            return
        was_reset = False
        if prepared.facts.has_clock_right:
            try:
                self._hooks.reset_frequency()
                was_reset = True
            except OSError as error:
                _log.warning("the leftover frequency of the kernel cannot be reset: %s", error)
        notice = leftover_notice(look, was_reset=was_reset)
        if notice is not None:
            _log.warning("%s", notice.detail)
            self._leftover = notice, host.mono_ns() + _LEFTOVER_TOLD_NS

    def _free_segments(self, running: _Running, status: SuperviseStatus) -> None:
        if status.leaving:
            return
        for number in tuple(running.segments_to_free):
            try:
                if free_segment(number):
                    running.segments_to_free.discard(number)
            except OSError as error:
                _log.warning("%s", error)
                running.segments_to_free.discard(number)

    def _look_for_rivals(self, running: _Running, status: SuperviseStatus, now_ns: int) -> None:
        if not running.specs or now_ns < running.next_rival_look_mono_ns:
            return
        running.next_rival_look_mono_ns = now_ns + _RIVAL_LOOK_NS
        found = self._hooks.rivals_beside({child.pid for child in status.children if child.pid is not None})
        for one in set(found) - set(running.rivals):
            _log.warning("%s", _rival_notice(one).detail)
        running.rivals = found

    def _give_back(self) -> None:
        self._gives_back, self._needs_plan = False, True
        try:
            complaints = self._handover.give_back()
        except OSError as error:
            complaints = (str(error),)
        if complaints:
            detail = f"a time daemon that was taken over cannot be given back: {complaints[0]}; it is tried again"
            self._trouble = Reason(ReasonCode.OTHER_TIME_DAEMON, detail)

    def _reasons(self, status: SuperviseStatus, now_ns: int) -> tuple[Reason, ...]:
        running = self._running
        reasons = [] if self._trouble is None else [self._trouble]
        if running is not None:
            down = {child.name for child in status.children if not child.running}
            missing = {one.name for one in running.specs if one.name in down and not Path(one.argv[0]).exists()}
            reasons += [*status_notices(status, missing), *map(_rival_notice, running.rivals)]
        if self._leftover is not None and now_ns < self._leftover[1]:
            reasons.append(self._leftover[0])
        return tuple(reasons)


def _rival_notice(rival: TimeDaemon) -> Reason:
    owner = rival.unit or "no unit"
    detail = (
        f"{rival.program} (pid {rival.pid}, {owner}) was started beside our time daemons and may steer the clock too"
    )
    return Reason(ReasonCode.OTHER_TIME_DAEMON, f"{detail}: stop it, or set take_over = true and reload clockgated")
