"""What status shows of the time daemon's own words."""

from pathlib import Path

from clockgated.clock.details import chrony_details, ptp_details
from clockgated.clock.model import ClockState
from clockgated.clock.report import ChronyReport, LeapStatus, SourceLine, Tracking
from clockgated.service.convert import detail_messages
from clockgated.sources.chrony_csv import parse
from hypothesis import given
from hypothesis import strategies as st
from support.ptp_text import a_report
from support.readings import reading

RECORDED = Path(__file__).parents[2] / "support/recorded/chrony_4.3"
ANY = st.integers(-(10**30), 10**30)
WALL_NS = 1_800_000_000_000_000_000

TRACKINGS = st.builds(
    Tracking,
    ref_id=st.text(),
    source_name=st.text(),
    stratum=ANY,
    ref_wall_ns=st.none() | ANY,
    offset_ns=ANY,
    residual_ppb=ANY,
    skew_ppb=ANY,
    root_delay_ns=ANY,
    root_dispersion_ns=ANY,
    update_interval_ns=ANY,
    leap_status=st.sampled_from(LeapStatus),
    last_offset_ns=st.none() | ANY,
)
LINES = st.builds(
    SourceLine,
    name=st.text(),
    is_refclock=st.booleans(),
    is_selected=st.booleans(),
    stratum=ANY,
    poll_log2_s=ANY,
    reach=st.integers(0, 255),
    is_combined=st.booleans(),
    oldest_sample_s=st.none() | ANY,
)


def shown(report: ChronyReport, wall_ns: int = WALL_NS) -> dict[str, str]:
    return {one.name: one.value for one in chrony_details(report, wall_ns)}


def test_details_of_chronyd_are_what_tracking_and_sources_show() -> None:
    report = parse((RECORDED / "client_with_stats.csv").read_bytes())
    assert isinstance(report, ChronyReport)
    assert report.tracking.ref_wall_ns is not None
    said = shown(report, report.tracking.ref_wall_ns + 12_500_000_000)
    assert said["leap status"] == "normal"
    assert said["last update"] == "12 s ago"
    assert {"root delay", "root dispersion", "skew", "residual frequency", "update interval"} <= set(said)
    (selected,) = [line for line in report.sources if line.is_selected]
    assert said[f"source {selected.name}"].startswith(f"selected, stratum {selected.stratum}, poll ")
    assert f"reach {selected.reach:03o}" in said[f"source {selected.name}"]


def test_a_reference_that_was_never_updated_is_said_to_be_so() -> None:
    report = parse((RECORDED / "unsynchronised.csv").read_bytes())
    assert isinstance(report, ChronyReport)
    assert shown(report)["last update"] == "never"


def test_signs_are_words() -> None:
    said = {one.name: one.value for one in ptp_details(a_report(offset_ns=-2_500, path_delay_ns=900))}
    assert said["offset from master"] == "2.5 µs behind"
    assert said["path delay"] == "900 ns"
    assert said["port state"] == "SLAVE"


@given(TRACKINGS, st.lists(LINES, max_size=3), ANY)
def test_any_report_has_details(tracking: Tracking, lines: list[SourceLine], wall_ns: int) -> None:
    details = chrony_details(ChronyReport(tracking, tuple(lines), None), wall_ns)
    messages = detail_messages(reading(state=ClockState.UNKNOWN, details=details))
    assert len(messages) == len(details)
