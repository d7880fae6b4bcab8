"""Makes the set of running programs equal the wanted one, a step a cycle, and kills what hangs.

Programs that are no longer wanted are gone before a new one starts: while the node changes from one way of steering
its clock to another, two daemons never steer at once. Programs start in the order given, each when the one before it
is ready, and end by their stop order; one that runs already is not held back.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clockgated.supervise.base import Backend, ChildSpec, ChildStatus
from clockgated.supervise.policy import Watch, is_stale, watched
from clockgated.units import NS_PER_S

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SuperviseStatus:
    """How all programs fare after a step. `leaving` are names that are not wanted and not gone yet.

    `hung_kills` counts, per name, the runs that were killed because they gave no evidence.
    """

    children: tuple[ChildStatus, ...]
    leaving: tuple[str, ...]
    hung_kills: tuple[tuple[str, int], ...]

    @property
    def crash_loops(self) -> tuple[str, ...]:
        """Names that keep ending."""
        return tuple(child.name for child in self.children if child.crash_loop)

    @property
    def is_settled(self) -> bool:
        """Whether exactly what is wanted runs."""
        return not self.leaving and all(child.running for child in self.children)


class Supervisor:
    """Owns one backend. Everything happens in `step`, on the caller's thread; nothing in here blocks or raises."""

    def __init__(self, backend: Backend, grace_ns: int = 5 * NS_PER_S) -> None:
        self._backend = backend
        self._grace_ns = grace_ns
        self._wanted: tuple[ChildSpec, ...] = ()
        self._watches: dict[str, Watch] = {}
        self._hung_kills: dict[str, int] = {}
        self._stop_orders: dict[str, int] = {}

    def want(self, specs: Sequence[ChildSpec]) -> None:
        """Replace the wanted set, from the next step on. Raises ValueError when two specs share a name."""
        names = [spec.name for spec in specs]
        if len(set(names)) != len(names):
            raise ValueError(f"child names {names}: each may appear once")
        self._wanted = tuple(specs)
        self._stop_orders |= {spec.name: spec.stop_order for spec in specs}

    def step(
        self, now_mono_ns: int, evidence_mono_ns: Mapping[str, int], *, may_step_clock: bool = True
    ) -> SuperviseStatus:
        """Advance everything that is due. `evidence_mono_ns` tells, per name, when it last gave a sign of life.

        A sign of life is an answer or a line of output, whatever it says: a daemon without a source is not hung.
        Without `may_step_clock`, because a job holds a lease, what has to be started is started so that it only slews.
        """
        wanted = {spec.name: spec for spec in self._wanted}
        unwanted = [name for name in self._backend.names() if name not in wanted]
        first_order = min((self._stop_orders.get(name, 0) for name in unwanted), default=0)
        for name in unwanted:
            if self._stop_orders.get(name, 0) == first_order:
                self._backend.stop(name, self._grace_ns)
        is_held_back = bool(unwanted)
        for spec in self._wanted:
            if not is_held_back or spec.name in self._backend.names():
                self._backend.start(spec, may_step=may_step_clock)
                self._watch(spec, evidence_mono_ns.get(spec.name), now_mono_ns)
            is_held_back = is_held_back or not self._is_ready(spec, now_mono_ns)
        self._backend.poll(now_mono_ns)
        return self._status(wanted)

    def close(self) -> None:
        """Leave the programs to their fate as the backend sees it; see `Backend.close`."""
        self._backend.close()

    def _watch(self, spec: ChildSpec, evidence_mono_ns: int | None, now_mono_ns: int) -> None:
        status = self._backend.status(spec.name)
        if not status.running or status.pid is None or status.start_time_ticks is None:
            self._watches.pop(spec.name, None)
            return
        run = (status.pid, status.start_time_ticks)
        watch = watched(self._watches.get(spec.name), run, evidence_mono_ns, now_mono_ns)
        self._watches[spec.name] = watch
        if is_stale(watch, spec.stale_after_ns):
            silent_s = watch.silent_ns / NS_PER_S
            why = f"alive but silent for {silent_s:.1f} s: taken for hung and killed"
            _log.warning("%s: process %d: %s", spec.name, status.pid, why)
            self._hung_kills[spec.name] = self._hung_kills.get(spec.name, 0) + 1
            self._backend.restart(spec.name, why)
            # Counted once per kill, also when the kernel needs more than a cycle to end the process.
            del self._watches[spec.name]

    def _is_ready(self, spec: ChildSpec, now_mono_ns: int) -> bool:
        status = self._backend.status(spec.name)
        if not status.running or status.since_mono_ns is None:
            return False
        if spec.ready_paths:
            return all(Path(path).exists() for path in spec.ready_paths)
        return now_mono_ns - status.since_mono_ns >= spec.ready_after_ns

    def _status(self, wanted: Mapping[str, ChildSpec]) -> SuperviseStatus:
        leaving = tuple(name for name in self._backend.names() if name not in wanted)
        children = tuple(self._backend.status(name) for name in wanted)
        return SuperviseStatus(children, leaving, tuple(sorted(self._hung_kills.items())))
