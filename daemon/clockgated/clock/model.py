"""The values that the daemon computes with.

One sign throughout: a positive offset means that the local clock is ahead of its reference. Numbers of the enums are
those of clockgate.v1 (a test compares them).
"""

from dataclasses import dataclass
from enum import IntEnum


class ClockState(IntEnum):
    """What the clock may be used for; a bound is usable in SYNCHRONIZED and HOLDOVER only."""

    UNKNOWN = 1
    ACQUIRING = 2
    SYNCHRONIZED = 3
    HOLDOVER = 4
    FREE_RUNNING = 5
    DISRUPTED = 6


class Traceability(IntEnum):
    """Whether the chain of references is known to end at external time."""

    UNKNOWN = 1
    YES = 2
    NO = 3


class SourceKind(IntEnum):
    """What a reading was derived from."""

    CHRONY = 1
    KERNEL = 2
    RECORDED = 3
    PTP = 4


class ReasonCode(IntEnum):
    """One cause of a state; clock.proto says what each means."""

    STARTING = 1
    SOURCE_UNREACHABLE = 2
    SOURCE_GARBLED = 3
    SOURCE_UNSYNCHRONISED = 4
    LOCAL_REFERENCE = 5
    ISLAND = 6
    NO_SELECTED_SOURCE = 7
    REFERENCE_STALE = 8
    REFERENCE_IN_FUTURE = 9
    SKEW_TOO_LARGE = 10
    STRATUM_OUT_OF_RANGE = 11
    BOUND_OVER_LIMIT = 12
    SETTLING = 13
    HOLDOVER_HORIZON = 14
    CLOCK_STEPPED = 15
    SUSPENDED = 16
    STEERING_CHANGED = 17
    KERNEL_BOUND_NOT_TRUSTED = 18
    KERNEL_UNSYNCHRONISED = 19
    LEAP_IN_PROGRESS = 20
    DRILL = 21
    PORT_NOT_SLAVE = 22
    GRANDMASTER_LOST = 23
    GRANDMASTER_CHANGED = 24
    INGRESS_STALE = 25
    STEERING_DENIED = 26
    PHC_FROZEN = 27
    SERVO_PINNED = 28
    UTC_OFFSET_INVALID = 29
    TAI_SLIP = 30
    LEAP_PENDING = 31
    FOREIGN_ADJUSTER = 41
    TWO_GRANDMASTERS = 42
    WITNESS_DISAGREES = 43
    OTHER_TIME_DAEMON = 44
    GRANDMASTER_CLASS = 45
    GRANDMASTER_ACCURACY_UNKNOWN = 46
    SERVO_SILENT = 47
    REFCLOCK_NOT_SELECTED = 48
    LEFTOVER_FREQUENCY = 49
    STEP_FORBIDDEN_BY_LEASE = 50
    TIME_DAEMON_DOWN = 51
    TIME_DAEMON_CRASH_LOOP = 52
    TIME_DAEMON_MISSING = 53
    NOT_STEERED = 54


@dataclass(frozen=True)
class Reason:
    """One cause, for machines (`code`) and for people (`detail`: subject, value seen, value wanted)."""

    code: ReasonCode
    detail: str


@dataclass(frozen=True)
class Detail:
    """One thing that the time daemon says about itself, in words for people."""

    name: str
    value: str


@dataclass(frozen=True)
class Reference:
    """What the clock follows. `identity` is equal on two nodes exactly when they follow the same reference."""

    identity: str | None = None
    source_name: str = ""
    stratum: int | None = None
    ref_id: str = ""
    traceability: Traceability = Traceability.UNKNOWN


@dataclass(frozen=True)
class Evidence:
    """What one measurement claims, in our units and sign, before any state is decided.

    `bound_ns` is half the width, at `as_of_boot_ns`, of the interval that contains the reference's time; None when the
    source gives none. `faults` are the gates that are not true; a clock can only be SYNCHRONIZED on evidence without.
    `remarks` are reasons that do not close a gate. `steering_id` names the process that steers the clock, when known.
    `growth_ppb` is how fast the source itself lets its bound grow, when it says so; `steering_ppb` how fast, on top of
    that, a servo may move the clock by what it learns after this measurement. `update_id` is another text after every
    update of the reference, so that two measurements can tell whether the source looked at the clock between them;
    None when the source does not tell. `is_provisional`: it rests on too few samples to take the place of an older
    bound that still holds. `is_combined`: the update was made of several sources, which may have sampled anew since.
    `oldest_sample_ns` is the age, rather too long than too short, of the oldest
    sample on which the claim rests, and `last_offset_ns` what the last update found the clock to be off by; each is
    None when the source does not tell. `estimate_95_ns` is for people alone: what the error stays under 95 % of the
    time as far as noise tells; None when the source allows no such statement.
    """

    kind: SourceKind
    as_of_boot_ns: int
    bound_ns: int | None
    utc_bound_ns: int | None
    offset_ns: int | None
    reference: Reference
    faults: tuple[Reason, ...] = ()
    remarks: tuple[Reason, ...] = ()
    assumptions: tuple[str, ...] = ()
    leap_in_progress: bool = False
    steering_id: str | None = None
    growth_ppb: int | None = None
    steering_ppb: int = 0
    update_id: str | None = None
    is_provisional: bool = False
    is_combined: bool = False
    oldest_sample_ns: int | None = None
    last_offset_ns: int | None = None
    estimate_95_ns: int | None = None
    details: tuple[Detail, ...] = ()


@dataclass(frozen=True)
class Silence:
    """A measurement that gave nothing to compute with: the source is silent, refused, or garbled."""

    kind: SourceKind
    as_of_boot_ns: int
    reason: Reason


@dataclass(frozen=True)
class Reading:
    """The published value. Immutable; expires at `void_after_boot_ns`. Bounds are those at `as_of_boot_ns`.

    `estimate_95_ns` is for people and plots, `details` for people; no verdict uses them.
    """

    state: ClockState
    relative_bound_ns: int | None
    utc_bound_ns: int | None
    growth_ppb: int
    epoch: int
    reference: Reference
    as_of_boot_ns: int
    void_after_boot_ns: int
    boot_id: str
    reasons: tuple[Reason, ...]
    assumptions: tuple[str, ...]
    source_kind: SourceKind
    offset_ns: int | None
    sequence: int
    estimate_95_ns: int | None = None
    details: tuple[Detail, ...] = ()
