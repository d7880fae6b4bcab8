"""The metrics of the clock and of the daemon that keeps it. Pure."""

from clockgated.metrics.family import Family, Kind

_GAUGE, _COUNTER, _HISTOGRAM = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM

BUILD_INFO = Family("clockgate_build_info", _GAUGE, "Version of the daemon as a label; the value is 1.", ("version",))
BOOT_INFO = Family("clockgate_boot_info", _GAUGE, "Identity of this boot as a label; the value is 1.", ("boot_id",))

STATE = Family("clockgate_clock_state", _GAUGE, "Whether the clock is in this state (1) or not (0).", ("state",))
USABLE = Family("clockgate_clock_usable", _GAUGE, "Whether the bound of the clock may be used now (1) or not (0).")
REASON = Family("clockgate_clock_reason", _GAUGE, "Whether this reason holds (1) or not (0).", ("reason",))
SOURCE = Family(
    "clockgate_clock_source", _GAUGE, "Whether the reading comes from this kind of source (1).", ("source",)
)
RELATIVE_BOUND = Family(
    "clockgate_clock_relative_bound_seconds",
    _GAUGE,
    "Half-width of the interval around the clock that has the reference's time, grown to now; absent when unknown.",
)
UTC_BOUND = Family(
    "clockgate_clock_utc_bound_seconds", _GAUGE, "As the relative bound, against UTC; absent when that is not knowable."
)
GROWTH = Family("clockgate_clock_bound_growth_ratio", _GAUGE, "Seconds of bound that a second of age adds.")
OFFSET = Family(
    "clockgate_clock_offset_seconds", _GAUGE, "Estimated offset, positive when the clock is ahead; absent when unknown."
)
ESTIMATE = Family(
    "clockgate_clock_error_estimate_95_seconds",
    _GAUGE,
    "The error stays below this 95 % of the time as far as noise tells; absent where the source allows no estimate.",
)
AGE = Family("clockgate_clock_reading_age_seconds", _GAUGE, "Age of the newest reading, suspend included.")
VOID_IN = Family(
    "clockgate_clock_reading_remaining_seconds",
    _GAUGE,
    "Time for which the newest reading may be used; negative after.",
)
EPOCH = Family(
    "clockgate_clock_epoch", _GAUGE, "Rises when continuity of the clock breaks; comparable within one boot."
)
STRATUM = Family("clockgate_clock_stratum", _GAUGE, "NTP stratum of this node; absent when unsynchronised.")
TRACEABLE = Family(
    "clockgate_clock_traceability", _GAUGE, "Whether the chain of references ends at external time.", ("traceability",)
)
REFERENCE_INFO = Family(
    "clockgate_clock_reference_info",
    _GAUGE,
    "What the clock follows, as labels; the value is 1.",
    ("identity", "source_name", "ref_id"),
)

CYCLES = Family("clockgate_cycles_total", _COUNTER, "Measuring cycles by what became of them.", ("outcome",))
CYCLE_LATENESS = Family("clockgate_cycle_lateness_seconds", _HISTOGRAM, "How late measuring cycles began.")
CYCLE_DURATION = Family("clockgate_cycle_duration_seconds", _HISTOGRAM, "How long measuring cycles took.")
CPU = Family("clockgate_process_cpu_seconds_total", _COUNTER, "Processor time that the daemon used.")

DAEMON_RUNNING = Family(
    "clockgate_time_daemon_running", _GAUGE, "Whether a time daemon of ours runs (1) or not (0).", ("daemon",)
)
DAEMON_EXITS = Family(
    "clockgate_time_daemon_exits_total", _COUNTER, "Ends of time daemons that nobody asked for.", ("daemon",)
)
DAEMON_CRASH_LOOP = Family(
    "clockgate_time_daemon_crash_loop",
    _GAUGE,
    "Whether a time daemon ends again and again (1) or not (0).",
    ("daemon",),
)

LEASES = Family("clockgate_leases", _GAUGE, "Open leases of jobs, which forbid a step of the clock.")
LEASES_MOST = Family("clockgate_leases_limit", _GAUGE, "Leases that may be open at once.")
STREAMS = Family("clockgate_streams", _GAUGE, "Open streams of each server.", ("server",))
STREAMS_REFUSED = Family(
    "clockgate_streams_refused_total", _COUNTER, "Streams that were turned away at the ceiling.", ("server",)
)
TUNING_APPLIED = Family("clockgate_tuning_settings", _GAUGE, "Settings of network and host that are in force.")
TUNING_DRIFT = Family(
    "clockgate_tuning_drifted_settings", _GAUGE, "Settings in force that were not as applied at the last comparison."
)

ALL = (
    BUILD_INFO, BOOT_INFO, STATE, USABLE, REASON, SOURCE, RELATIVE_BOUND, UTC_BOUND, GROWTH, OFFSET, ESTIMATE, AGE,
    VOID_IN, EPOCH, STRATUM, TRACEABLE, REFERENCE_INFO, CYCLES, CYCLE_LATENESS, CYCLE_DURATION, CPU, DAEMON_RUNNING,
    DAEMON_EXITS, DAEMON_CRASH_LOOP, LEASES, LEASES_MOST, STREAMS, STREAMS_REFUSED, TUNING_APPLIED, TUNING_DRIFT,
)  # fmt: skip
