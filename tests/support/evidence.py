"""Measurements for tests of what judges them."""

from typing import Any

from clockgated.clock.model import (
    Evidence,
    Reason,
    ReasonCode,
    Reference,
    Silence,
    SourceKind,
    Traceability,
)

SECOND = 1_000_000_000
REFERENCE = Reference("ntp:192.0.2.1", "192.0.2.1", 2, "C0000201", Traceability.YES)


def evidence(as_of_boot_ns: int = 0, **changes: Any) -> Evidence:
    """Evidence whose gates are all true, ±1 ms."""
    values: dict[str, Any] = {
        "kind": SourceKind.CHRONY,
        "as_of_boot_ns": as_of_boot_ns,
        "bound_ns": 1_000_000,
        "utc_bound_ns": 1_000_000,
        "offset_ns": -1_000,
        "reference": REFERENCE,
        "assumptions": ("assumed",),
    }
    return Evidence(**{**values, **changes})


def faulty(as_of_boot_ns: int = 0, code: ReasonCode = ReasonCode.REFERENCE_STALE, **changes: Any) -> Evidence:
    """Evidence with one gate closed."""
    return evidence(as_of_boot_ns, faults=(Reason(code, "a gate is closed"),), **changes)


def silence(as_of_boot_ns: int = 0) -> Silence:
    """No answer."""
    return Silence(SourceKind.CHRONY, as_of_boot_ns, Reason(ReasonCode.SOURCE_UNREACHABLE, "no answer"))
