"""What chronyd reports, in our units and our sign; made by sources/chrony_csv.py, judged by bound.py."""

from dataclasses import dataclass
from enum import Enum, auto


class LeapStatus(Enum):
    """chronyd's leap status. UNSYNCHRONISED beside a real reference id means a leap second in progress."""

    NORMAL = auto()
    INSERT = auto()
    DELETE = auto()
    UNSYNCHRONISED = auto()
    INVALID = auto()


@dataclass(frozen=True)
class Tracking:
    """chronyd's view of the system clock. `ref_wall_ns` is None when the reference was never updated.

    `offset_ns` is what is left to correct of all that the updates found, `last_offset_ns` what the last one found.
    """

    ref_id: str
    source_name: str
    stratum: int
    ref_wall_ns: int | None
    offset_ns: int
    residual_ppb: int
    skew_ppb: int
    root_delay_ns: int
    root_dispersion_ns: int
    update_interval_ns: int
    leap_status: LeapStatus
    last_offset_ns: int | None = None


@dataclass(frozen=True)
class SourceLine:
    """One configured source. `reach` is the register of the last eight polls, 0 when none was answered.

    `is_combined`: beside the selected source this one takes part in the estimate. `oldest_sample_s` is the age, rather
    too long than too short, of the oldest sample that chronyd computes with; None when it does not say.
    """

    name: str
    is_refclock: bool
    is_selected: bool
    stratum: int
    poll_log2_s: int
    reach: int
    is_combined: bool = False
    oldest_sample_s: int | None = None


@dataclass(frozen=True)
class Upstream:
    """The reference id that a server last sent about itself: the only trace of an island one hop up."""

    address: str
    stratum: int
    ref_id: str


@dataclass(frozen=True)
class ChronyReport:
    """The reports of one call. `upstreams` is None when chronyd refuses that report to this user."""

    tracking: Tracking
    sources: tuple[SourceLine, ...]
    upstreams: tuple[Upstream, ...] | None
