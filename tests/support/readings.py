"""Published readings for tests of what serves and shows them."""

from dataclasses import replace
from typing import Any

from clockgated.clock.model import ClockState, Reading, Reference, SourceKind, Traceability

GOOD = Reading(
    state=ClockState.SYNCHRONIZED,
    relative_bound_ns=40_000,
    utc_bound_ns=90_000,
    growth_ppb=50_000,
    epoch=3,
    reference=Reference("ntp:192.0.2.1", "ntp.example.net", 2, "C0000201", Traceability.YES),
    as_of_boot_ns=100_000_000_000,
    void_after_boot_ns=105_000_000_000,
    boot_id="4b2e0c1c-0000-4000-8000-000000000001",
    reasons=(),
    assumptions=("the oscillator drifts by at most 50 ppm",),
    source_kind=SourceKind.CHRONY,
    offset_ns=-1_200,
    sequence=7,
    estimate_95_ns=2_000,
)


def reading(**changes: Any) -> Reading:
    """A good reading with `changes`."""
    return replace(GOOD, **changes)
