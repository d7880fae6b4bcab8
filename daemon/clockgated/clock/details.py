"""What a time daemon says about itself, in words for people: what chronyc and pmc would show. No verdict uses it."""

from clockgated.clock.model import Detail
from clockgated.clock.ptp_report import PtpReport
from clockgated.clock.report import ChronyReport, LeapStatus, SourceLine
from clockgated.units import NS_PER_MS, NS_PER_S, NS_PER_US, PPB_PER_PPM

_UNITS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "µs"), (1, "ns"))
_LARGEST_NS = 10**18
_USUAL_POLLS = 24
_LEAP = {
    LeapStatus.NORMAL: "normal",
    LeapStatus.INSERT: "a second is inserted at the end of the UTC day",
    LeapStatus.DELETE: "a second is left out at the end of the UTC day",
    LeapStatus.UNSYNCHRONISED: "not synchronised",
    LeapStatus.INVALID: "invalid",
}


def chrony_details(report: ChronyReport, wall_ns: int) -> tuple[Detail, ...]:
    """What chronyd's tracking and sources show. `wall_ns` is CLOCK_REALTIME, by which chronyd dates its reference."""
    tracking = report.tracking
    updated = "never" if tracking.ref_wall_ns is None else f"{max(0, wall_ns - tracking.ref_wall_ns) // NS_PER_S} s ago"
    return (
        Detail("leap status", _LEAP[tracking.leap_status]),
        Detail("last update", updated),
        *([] if tracking.last_offset_ns is None else [Detail("last offset", _signed(tracking.last_offset_ns))]),
        Detail("root delay", _length(tracking.root_delay_ns)),
        Detail("root dispersion", _length(tracking.root_dispersion_ns)),
        Detail("skew", f"{tracking.skew_ppb / PPB_PER_PPM:.3f} ppm"),
        Detail("residual frequency", f"{tracking.residual_ppb / PPB_PER_PPM:+.3f} ppm"),
        Detail("update interval", _length(tracking.update_interval_ns)),
        *(Detail(f"source {line.name}", _source(line)) for line in report.sources),
    )


def ptp_details(report: PtpReport) -> tuple[Detail, ...]:
    """What ptp4l's data sets show: port, path, grandmaster, and what it says about UTC."""
    utc = "valid" if report.is_utc_offset_valid else "not vouched for"
    return (
        Detail("port state", report.port_state.value),
        Detail("grandmaster", report.grandmaster_id if report.is_grandmaster_present else "none"),
        Detail("grandmaster quality", f"class {report.grandmaster_class}, accuracy {report.grandmaster_accuracy:#04x}"),
        Detail("offset from master", _signed(report.offset_ns)),
        Detail("path delay", _length(report.path_delay_ns)),
        Detail("steps removed", str(report.steps_removed)),
        Detail("sync interval", _length(report.sync_interval_ns)),
        Detail("UTC offset", f"{report.utc_offset_s} s, {utc}"),
    )


def _source(line: SourceLine) -> str:
    role = "selected" if line.is_selected else "combined" if line.is_combined else "not selected"
    kind = "reference clock, " if line.is_refclock else ""
    oldest = f", oldest sample {line.oldest_sample_s} s" if line.oldest_sample_s is not None else ""
    polls = f"{2.0**line.poll_log2_s:g} s" if abs(line.poll_log2_s) <= _USUAL_POLLS else f"2^{line.poll_log2_s} s"
    return f"{role}, {kind}stratum {line.stratum}, poll {polls}, reach {line.reach:03o}{oldest}"


def _signed(offset_ns: int) -> str:
    return "0 ns" if offset_ns == 0 else f"{_length(abs(offset_ns))} {'ahead' if offset_ns > 0 else 'behind'}"


def _length(size_ns: int) -> str:
    if abs(size_ns) > _LARGEST_NS:
        return "beyond all measure"
    factor, unit = next(((factor, unit) for factor, unit in _UNITS if abs(size_ns) >= factor), _UNITS[-1])
    return f"{size_ns / factor:.4g} {unit}"
