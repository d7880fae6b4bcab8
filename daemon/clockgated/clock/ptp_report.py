"""What linuxptp reports, in our units and our sign; made by sources/pmc_text.py, judged by ptp_bound.py."""

from dataclasses import dataclass
from enum import Enum


class PortState(Enum):
    """State of a PTP port, in linuxptp's words."""

    INITIALIZING = "INITIALIZING"
    FAULTY = "FAULTY"
    DISABLED = "DISABLED"
    LISTENING = "LISTENING"
    PRE_MASTER = "PRE_MASTER"
    MASTER = "MASTER"
    PASSIVE = "PASSIVE"
    UNCALIBRATED = "UNCALIBRATED"
    SLAVE = "SLAVE"
    GRAND_MASTER = "GRAND_MASTER"
    NONE = "NONE"


@dataclass(frozen=True)
class PtpReport:
    """One look at a PTP clock: the data sets of one round, of one clock, of the port that receives time.

    `offset_ns` is positive when the local clock is ahead; it is stale unless `ingress_ns`, the local stamp of the last
    Sync in the time of the clock that ptp4l disciplines, is new. `path_delay_ns` is half the round trip.
    `steps_removed` counts the links to the grandmaster. `grandmaster_accuracy` is the code of IEEE 1588, table 5.
    `leap` is +1 or -1 when a second will be inserted or deleted at the end of the UTC day.
    """

    own_clock_id: str
    grandmaster_id: str
    is_grandmaster_present: bool
    parent_port_id: str
    port_state: PortState
    offset_ns: int
    ingress_ns: int | None
    path_delay_ns: int
    steps_removed: int
    grandmaster_class: int
    grandmaster_accuracy: int
    sync_interval_ns: int
    utc_offset_s: int
    is_utc_offset_valid: bool
    is_ptp_timescale: bool
    is_time_traceable: bool
    leap: int


@dataclass(frozen=True)
class SystemOffset:
    """CLOCK_REALTIME against the hardware clock, both brought to UTC as the grandmaster says.

    `offset_ns` is positive when CLOCK_REALTIME is ahead; it is wrong by at most `error_ns` and was true `age_ns` ago.
    """

    offset_ns: int
    error_ns: int
    age_ns: int = 0
