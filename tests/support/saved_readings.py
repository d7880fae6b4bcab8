"""A reading as it is found on disk after a restart, and the host at the moment it was saved."""

from clockgated.clock.continuity import Look
from clockgated.clock.model import ClockState, Reading, Reason, ReasonCode, Reference, SourceKind
from clockgated.memory.resume import SavedReading, Steering
from clockgated.units import NS_PER_S, NS_PER_US

BOOT = "boot-1"
STEERING = Steering(freq_ppb=-1500)
READING = Reading(
    state=ClockState.SYNCHRONIZED,
    relative_bound_ns=200 * NS_PER_US,
    utc_bound_ns=300 * NS_PER_US,
    growth_ppb=50_000,
    epoch=4,
    reference=Reference(identity="ntp:192.0.2.1", source_name="192.0.2.1", stratum=3),
    as_of_boot_ns=1000 * NS_PER_S,
    void_after_boot_ns=1005 * NS_PER_S,
    boot_id=BOOT,
    reasons=(Reason(ReasonCode.ISLAND, "x"),),
    assumptions=("a",),
    source_kind=SourceKind.CHRONY,
    offset_ns=-5,
    sequence=900,
)
LOOK = Look(1000 * NS_PER_S, 990 * NS_PER_S, 1_800_000_000 * NS_PER_S, "chronyd[7]")
SAVED = SavedReading(READING, LOOK, STEERING, good_boot_ns=995 * NS_PER_S)
