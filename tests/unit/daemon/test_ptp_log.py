import pytest
from clockgated.sources.ptp_log import (
    Body,
    LogEvent,
    MasterSelected,
    Notice,
    NoticeKind,
    PortChange,
    ServoSample,
    ServoState,
    ServoSummary,
    parse_line,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

FREE, STEP, LOCKED = ServoState.UNLOCKED, ServoState.STEP, ServoState.LOCKED
BIG = 1_700_000_000_000_000_000
DENIED = NoticeKind.STEERING_DENIED


def body(line: str) -> Body | None:
    event = parse_line(line)
    return event.body if event else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("master offset        630 s0 freq      +0 path delay      1688", ServoSample(None, 630, FREE, 0, 1688)),
        (
            "master offset  437000000 s2 freq +1000000 path delay -17000000",
            ServoSample(None, 437_000_000, LOCKED, 1_000_000, -17_000_000),
        ),
        (
            "CLOCK_REALTIME phc offset        12 s2 freq   +1500 delay    900",
            ServoSample("CLOCK_REALTIME", 12, LOCKED, 1500, 900),
        ),
        (
            "CLOCK_REALTIME phc offset -10500000 s2 freq -7000000 delay    900",
            ServoSample("CLOCK_REALTIME", -10_500_000, LOCKED, -7_000_000, 900),
        ),
        (
            f"CLOCK_REALTIME phc offset {BIG} s0 freq      +0 delay   5000",
            ServoSample("CLOCK_REALTIME", BIG, FREE, 0, 5000),
        ),
        (f"CLOCK_REALTIME phc offset -{BIG} s1 freq +0", ServoSample("CLOCK_REALTIME", -BIG, STEP, 0, None)),
        ("eth9 sys offset        40 s2 freq    +10 delay 220000", ServoSample("eth9", 40, LOCKED, 10, 220_000)),
        ("/dev/ptp0 sys offset  4 s3 freq    -10 delay 22", ServoSample("/dev/ptp0", 4, ServoState.STABLE, -10, 22)),
        ("CLOCK_REALTIME pps offset  -7 s2 freq  +1", ServoSample("CLOCK_REALTIME", -7, LOCKED, 1, None)),
        ("rms   25 max   28 freq  +1200 +/-   1", ServoSummary(None, 25, 28, 1200, 1, None)),
        ("rms   25 max   28 freq  +1200 +/-   1 delay  2065 +/-   3", ServoSummary(None, 25, 28, 1200, 1, 2065)),
        (
            "CLOCK_REALTIME rms   25 max   28 freq  -1200 +/-   1 delay   900 +/-   0",
            ServoSummary("CLOCK_REALTIME", 25, 28, -1200, 1, 900),
        ),
        ("port 1: SLAVE to FAULTY on FAULT_DETECTED (FT_UNSPECIFIED)",
         PortChange(1, None, "SLAVE", "FAULTY", "FAULT_DETECTED", "FT_UNSPECIFIED")),
        ("port 1 (eth9): MASTER to FAULTY on FAULT_DETECTED (FT_UNSPECIFIED)",
         PortChange(1, "eth9", "MASTER", "FAULTY", "FAULT_DETECTED", "FT_UNSPECIFIED")),
        ("port 2: UNCALIBRATED to SLAVE on MASTER_CLOCK_SELECTED",
         PortChange(2, None, "UNCALIBRATED", "SLAVE", "MASTER_CLOCK_SELECTED", None)),
        ("selected best master clock 067fbd.fffe.77bd84", MasterSelected("067fbd.fffe.77bd84")),
    ],
)  # fmt: skip
def test_each_form_of_line_becomes_its_event(text: str, expected: Body) -> None:
    assert body(text) == expected
    for prefix in ("ptp4l[12.345]: ", "phc2sys[12.345]: [eth9:1] ", "Nov 30 host ptp4l[77]: [12.345] "):
        assert body(prefix + text) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("failed to adjust the clock: Operation not permitted", DENIED),
        ("failed to step clock: Operation not permitted", DENIED),
        ("failed to set the clock status: Operation not permitted", DENIED),
        ("failed to set clock status and maximum error: Operation not permitted", DENIED),
        ("timed out while polling for tx timestamp", NoticeKind.TX_TIMESTAMP_TIMEOUT),
        ("clockcheck: clock jumped forward or running faster than expected!", NoticeKind.CLOCK_JUMPED),
        ("clockcheck: clock jumped backward or running slower than expected!", NoticeKind.CLOCK_JUMPED),
        ("clockcheck: clock frequency changed unexpectedly!", NoticeKind.FREQUENCY_CHANGED),
        ("clock update suspended due to leap second", NoticeKind.LEAP_SUSPENDED),
        ("foreign master not using PTP timescale", NoticeKind.NOT_PTP_TIMESCALE),
        ("selected local clock 8e2df7.fffe.1670ca as best master", NoticeKind.LOCAL_CLOCK_SELECTED),
        ("Waiting for ptp4l...", NoticeKind.WAITING_FOR_PTP4L),
        ("Lost connection to ptp4l #1", NoticeKind.LOST_PTP4L),
        ("port 1: link down", NoticeKind.LINK_DOWN),
        ("port 1 (eth9): link up", NoticeKind.LINK_UP),
    ],
)
def test_lines_without_figures_are_known_by_their_words(text: str, kind: NoticeKind) -> None:
    for prefix in ("", "ptp4l[12.345]: ", "ptp4l[12.345]: [ptp4l.0] "):
        found = body(prefix + text)
        assert isinstance(found, Notice)
        assert found.kind is kind


def test_stamp_and_program_come_from_the_prefix() -> None:
    event = LogEvent("ptp4l", 1_306_405_000_000, MasterSelected("067fbd.fffe.77bd84"))
    text = "selected best master clock 067fbd.fffe.77bd84"
    assert parse_line(f"ptp4l[1306.405]: {text}\n") == event
    assert parse_line(f"Nov 30 20:55:01 node ptp4l: [1306.405] {text}") == event
    assert parse_line(f"[1306.405] {text}") == LogEvent(None, event.stamp_mono_ns, event.body)
    assert parse_line(text) == LogEvent(None, None, event.body)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ptp4l[1.000]: config item (null).utc_offset is 37",
        "ptp4l[1.000]: config item eth9.delayAsymmetry is 0",
        "ptp4l[1.000]: config item offset",
        "ptp4l[1.000]: port 1: assuming the grand master role",
        "ptp4l[1.000]: failed to step clock: Invalid argument",
        "ptp4l[1.000]: increasing tx_timestamp_timeout may correct this issue, but it is likely caused by a driver bug",
        "phc2sys[1.000]: CLOCK_REALTIME phc offset",
        "phc2sys[1.000]: CLOCK_REALTIME phc offset 12345678901234567890123 s2 freq +0 delay 5",
        "phc2sys[1.000]: CLOCK_REALTIME phc offset 12 s9 freq +0 delay 5",
        "phc2sys[1.000]: CLOCK_REALTIME phc offset 12 s2 freq nan delay 5",
        "rms inf max inf freq nan +/- nan",
    ],
)
def test_other_lines_are_no_event(line: str) -> None:
    assert parse_line(line) is None


@settings(deadline=None)
@given(st.one_of(st.text(max_size=300), st.binary(max_size=300).map(lambda raw: raw.decode("utf-8", "replace"))))
@example("ptp4l[" * 50)
@example("[1.000] " * 50)
def test_parsing_never_raises_on_any_line(line: str) -> None:
    assert parse_line(line) is None or isinstance(parse_line(line), LogEvent)


@settings(deadline=None)
@given(st.text(alphabet="ptp4lrms masteroffset+-/0123456789[]:. ", max_size=200))
def test_parsing_never_raises_on_what_looks_like_a_line(line: str) -> None:
    assert parse_line(line) is None or isinstance(parse_line(line), LogEvent)


@pytest.mark.timeout(5)
@pytest.mark.parametrize("line", ["a " * 500_000, "ptp4l[1.000]: " + "x" * 1_000_000, "a." * 1000, "rms " * 500])
def test_long_lines_take_no_time(line: str) -> None:
    for _ in range(100):
        assert parse_line(line) is None
