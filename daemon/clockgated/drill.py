"""Faults on purpose, between measurement and state. The clock and the time source are never touched."""

import threading
from dataclasses import dataclass, replace

from clockgated.clock.continuity import Continuity
from clockgated.clock.model import Evidence, Reason, ReasonCode, Silence
from clockgated.units import NS_PER_MS


@dataclass(frozen=True)
class Freeze:
    """The source seems to have stopped answering."""


@dataclass(frozen=True)
class Offset:
    """The clock seems to be off by `offset_ns`, positive: ahead. The bound grows by its magnitude."""

    offset_ns: int


@dataclass(frozen=True)
class Step:
    """The wall clock seems to have been set by `jump_ns`, once."""

    jump_ns: int


Fault = Freeze | Offset | Step


@dataclass(frozen=True)
class ActiveFault:
    """A fault and the CLOCK_BOOTTIME, ns, at which it ends by itself. A Step ends when the next cycle has seen it."""

    fault: Fault
    ends_boot_ns: int


class DrillBoard:
    """The one fault that may be active. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: ActiveFault | None = None

    def start(self, fault: Fault, ends_boot_ns: int) -> None:
        """Make `fault` the active one, in the place of any other, until `ends_boot_ns` (a Step: until seen once)."""
        with self._lock:
            self._active = ActiveFault(fault, ends_boot_ns)

    def clear(self) -> None:
        """End the active fault, if any."""
        with self._lock:
            self._active = None

    def active(self, now_boot_ns: int) -> ActiveFault | None:
        """The fault that the next cycle will see, without using it up."""
        with self._lock:
            if self._active is not None and _is_over(self._active, now_boot_ns):
                self._active = None
            return self._active

    def take(self, now_boot_ns: int) -> ActiveFault | None:
        """The fault for this cycle; a Step is handed out once. For cycle.py only."""
        active = self.active(now_boot_ns)
        if active is not None and isinstance(active.fault, Step):
            with self._lock:
                # Compared by identity: a fault started in between is not the one handed out here.
                if self._active is active:
                    self._active = None
        return active


def describe(fault: Fault) -> str:
    """One sentence for a person."""
    match fault:
        case Freeze():
            return "drill: the time source is taken as silent"
        case Offset(offset_ns):
            return f"drill: the clock is taken as off by {offset_ns / NS_PER_MS:+.6g} ms"
        case Step(jump_ns):
            return f"drill: the wall clock is taken as set by {jump_ns / NS_PER_MS:+.6g} ms"


def distort(
    measurement: Evidence | Silence, continuity: Continuity, fault: Fault | None
) -> tuple[Evidence | Silence, Continuity]:
    """What the state machine gets to see under `fault`. Real trouble is never hidden by a pretended one."""
    match fault:
        case Freeze():
            reason = Reason(ReasonCode.SOURCE_UNREACHABLE, describe(fault))
            return Silence(measurement.kind, measurement.as_of_boot_ns, reason), continuity
        case Offset(offset_ns) if isinstance(measurement, Evidence):
            return _shifted(measurement, offset_ns), continuity
        case Step():
            stepped = Reason(ReasonCode.CLOCK_STEPPED, describe(fault))
            # Nothing happened to the clock, so whatever the source measures next is as good as ever.
            is_known = continuity.is_known_to_source or not continuity.is_broken
            breaks = (*continuity.breaks, stepped)
            return measurement, replace(continuity, breaks=breaks, is_known_to_source=is_known)
    return measurement, continuity


def _is_over(active: ActiveFault, now_boot_ns: int) -> bool:
    return not isinstance(active.fault, Step) and now_boot_ns >= active.ends_boot_ns


def _shifted(evidence: Evidence, offset_ns: int) -> Evidence:
    return replace(
        evidence,
        offset_ns=None if evidence.offset_ns is None else evidence.offset_ns + offset_ns,
        bound_ns=None if evidence.bound_ns is None else evidence.bound_ns + abs(offset_ns),
        utc_bound_ns=None if evidence.utc_bound_ns is None else evidence.utc_bound_ns + abs(offset_ns),
        estimate_95_ns=None if evidence.estimate_95_ns is None else evidence.estimate_95_ns + abs(offset_ns),
    )
