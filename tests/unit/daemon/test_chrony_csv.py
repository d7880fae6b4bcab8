from itertools import product
from pathlib import Path

import pytest
from clockgated.clock.model import Reason, ReasonCode
from clockgated.clock.report import ChronyReport, LeapStatus, SourceLine, Tracking, Upstream
from clockgated.sources.chrony_csv import parse
from hypothesis import example, given
from hypothesis import strategies as st

RECORDED = Path(__file__).parents[2] / "support" / "recorded" / "chrony_4.3"

TRACKING = (
    "C0000201,192.0.2.1,2,1796071948.405353379,-0.000003167,0.000000471,0.000001065,"
    "-0.040,0.014,1.025,0.000011988,0.000072772,64.2,Normal"
)
SOURCE = "^,*,192.0.2.1,1,6,377,11,0.000001010,0.000001481,0.000006056"
STATS = "192.0.2.1,14,8,832,-0.001,0.112,0.000001010,0.000002300"
NTPDATA_HEAD = "192.0.2.1,C0000201,123,192.0.2.9,C0000209,Normal,4,Server,1,6,64,-25,0.000000030,0.000000,0.000000"
NTPDATA_TAIL = (
    "1796071939.930555882,-0.000001481,0.000011988,0.000000062,0.000060741,0.00,"
    "111,111,1111,No,No,Kernel,Kernel,11,11,11"
)


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def ntpdata(ref_id: str = "47505300", name: str = "GPS", more: int = 1) -> str:
    return ",".join([NTPDATA_HEAD, ref_id, name, NTPDATA_TAIL, *["11"] * more])


def report(*lines: str) -> ChronyReport:
    result = parse(text(*lines))
    assert isinstance(result, ChronyReport), result
    return result


def refusal(output: bytes) -> Reason:
    result = parse(output)
    assert isinstance(result, Reason), result
    return result


def with_field(line: str, index: int, value: str) -> str:
    fields = line.split(",")
    fields[index] = value
    return ",".join(fields)


def test_every_value_is_turned_into_our_units_and_sign() -> None:
    assert report(TRACKING, SOURCE, ntpdata()) == ChronyReport(
        tracking=Tracking(
            ref_id="C0000201",
            source_name="192.0.2.1",
            stratum=2,
            ref_wall_ns=1796071948_405353379,
            offset_ns=3167,
            residual_ppb=14,
            skew_ppb=1025,
            root_delay_ns=11988,
            root_dispersion_ns=72772,
            update_interval_ns=64_200_000_000,
            leap_status=LeapStatus.NORMAL,
            last_offset_ns=471,
        ),
        sources=(SourceLine("192.0.2.1", False, True, 1, 6, 0o377),),
        upstreams=(Upstream("192.0.2.1", 1, "47505300"),),
    )


def test_the_oldest_sample_is_the_newest_and_the_span_of_all_and_never_too_young() -> None:
    assert report(TRACKING, SOURCE, STATS, ntpdata()).sources == (
        SourceLine("192.0.2.1", False, True, 1, 6, 0o377, oldest_sample_s=11 + 832 + 2),
    )
    assert report(TRACKING, SOURCE, ntpdata()).sources[0].oldest_sample_s is None


def test_sources_that_take_part_in_the_estimate_are_told_from_others() -> None:
    lines = [with_field(SOURCE, 1, state) for state in ("*", "+", "-", "?", "x", "~")]
    assert [source.is_combined for source in report(TRACKING, *lines).sources] == [False, True, *[False] * 4]


def test_a_source_without_samples_has_no_oldest_one() -> None:
    other = with_field(with_field(SOURCE, 1, "?"), 2, "192.0.2.2")
    unreached = with_field(other, 6, "4294967295")
    nothing = "192.0.2.2,0,0,0,0.000,2000.000,0.000000000,4.000000000"
    assert report(TRACKING, SOURCE, unreached, STATS, nothing).sources[1].oldest_sample_s is None


def test_two_clocks_of_one_name_both_count_as_old_as_the_older() -> None:
    clock, stats = with_field(with_field(SOURCE, 0, "#"), 2, "PPS"), with_field(STATS, 0, "PPS")
    read = report(TRACKING, clock, with_field(clock, 6, "90"), stats, with_field(stats, 3, "5"))
    assert [source.oldest_sample_s for source in read.sources] == [11 + 832 + 2, 90 + 832 + 2]


def test_a_followed_source_without_statistics_is_garbled_and_another_is_not() -> None:
    other = with_field(SOURCE, 2, "192.0.2.2")
    assert "192.0.2.2" in refusal(text(TRACKING, SOURCE, with_field(other, 1, "+"), STATS)).detail
    assert report(TRACKING, SOURCE, with_field(other, 1, "-"), STATS).sources[1].oldest_sample_s is None


def test_a_clock_that_chronyd_calls_slow_has_a_negative_offset() -> None:
    slow = with_field(TRACKING, 4, "0.250000000")
    assert report(slow).tracking.offset_ns == -250_000_000


def test_recorded_answers_of_chrony_4_3_are_read() -> None:
    client = parse((RECORDED / "client_of_island.csv").read_bytes())
    assert isinstance(client, ChronyReport)
    assert client.upstreams == (Upstream("127.0.0.1", 8, "7F7F0101"),)
    local = parse((RECORDED / "local_reference.csv").read_bytes())
    assert isinstance(local, ChronyReport)
    assert (local.tracking.ref_id, local.sources, local.upstreams) == ("7F7F0101", (), ())
    dated = parse((RECORDED / "client_with_stats.csv").read_bytes())
    assert isinstance(dated, ChronyReport)
    assert dated.sources == (SourceLine("127.0.0.1", False, True, 8, -2, 0o377, oldest_sample_s=8),)
    assert dated.upstreams == client.upstreams
    reset = parse((RECORDED / "after_reset.csv").read_bytes())
    assert isinstance(reset, ChronyReport)
    assert (reset.tracking.ref_wall_ns, reset.sources[0].oldest_sample_s) == (None, None)
    fresh = parse((RECORDED / "unsynchronised.csv").read_bytes())
    assert isinstance(fresh, ChronyReport)
    assert fresh.tracking.leap_status is LeapStatus.UNSYNCHRONISED
    assert fresh.tracking.ref_wall_ns is None


@pytest.mark.parametrize("more", [0, 1, 5])
def test_ntpdata_of_every_chrony_version_is_read(more: int) -> None:
    assert report(TRACKING, SOURCE, ntpdata(more=more)).upstreams == (Upstream("192.0.2.1", 1, "47505300"),)


def test_commas_in_the_name_of_a_reference_clock_do_not_shift_columns() -> None:
    # 2C is a comma, so the name of 502C2C31 is "P,,1".
    tracking = with_field(with_field(TRACKING, 1, "P,,1"), 0, "502C2C31")
    source = "#,*,P,,1,0,4,377,11,0.000001010,0.000001481,0.000006056"
    stats = "P,,1,14,8,832,-0.001,0.112,0.000001010,0.000002300"
    read = report(tracking, source, stats, ntpdata("502C2C31", "P,,1"))
    assert read.tracking.source_name == "P,,1"
    assert read.tracking.skew_ppb == 1025
    assert read.sources == (SourceLine("P,,1", True, True, 0, 4, 0o377, oldest_sample_s=845),)
    assert read.upstreams == (Upstream("192.0.2.1", 1, "502C2C31"),)


def test_unreached_and_unresolved_sources_are_read() -> None:
    unresolved = "^,?,0:1::,0,6,0,4294967295,0.000000000,0.000000000,0.000000000"
    assert report(TRACKING, SOURCE, unresolved).sources[1] == SourceLine("0:1::", False, False, 0, 6, 0)


@pytest.mark.parametrize(
    ("word", "leap_status"),
    [
        ("Normal", LeapStatus.NORMAL),
        ("Insert second", LeapStatus.INSERT),
        ("Delete second", LeapStatus.DELETE),
        ("Not synchronised", LeapStatus.UNSYNCHRONISED),
        ("Invalid", LeapStatus.INVALID),
    ],
)
def test_every_leap_text_is_known(word: str, leap_status: LeapStatus) -> None:
    assert report(with_field(TRACKING, 13, word)).tracking.leap_status is leap_status


def test_refused_ntpdata_leaves_a_report_without_upstreams() -> None:
    read = report(TRACKING, SOURCE, "501 Not authorised")
    assert read.sources
    assert read.upstreams is None


@pytest.mark.parametrize("line", ["506 Cannot talk to daemon", "501 Not authorised", "510 No command access from here"])
def test_errors_on_stdout_mean_unreachable(line: str) -> None:
    reason = refusal(text(line))
    assert reason.code is ReasonCode.SOURCE_UNREACHABLE
    assert line in reason.detail


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"\n",
        TRACKING.encode(),
        text(TRACKING)[:-20] + b"\n",
        text(TRACKING).replace(b"\n", b"\r\n"),
        text(TRACKING).replace(b"Normal", b"Nor\0mal"),
        text(TRACKING).replace(b"Normal", b"Nor\xffmal"),
        b"7" * (1 << 20) + b"\n",
        text(TRACKING, TRACKING + ",1"),
        text(TRACKING + ",1"),
        text(",".join(TRACKING.split(",")[:-1])),
        text(TRACKING, SOURCE + ",1"),
        text(TRACKING, SOURCE.rpartition(",")[0]),
        text(TRACKING, SOURCE, "506 Cannot talk to daemon", ntpdata()),
        text(TRACKING, SOURCE, ntpdata(more=2)),
        text(TRACKING, SOURCE, ntpdata(), SOURCE),
        text(TRACKING, SOURCE, STATS, SOURCE),
        text(TRACKING, SOURCE, ntpdata(), STATS),
        text(TRACKING, SOURCE, STATS.rpartition(",")[0]),
        text(TRACKING, SOURCE, with_field(STATS, 3, "-1")),
        text(TRACKING, SOURCE, with_field(STATS, 4, "nan")),
        text(TRACKING, with_field(SOURCE, 6, "-1")),
        text(SOURCE, TRACKING),
        text(with_field(SOURCE, 1, "!")),
        text(TRACKING, with_field(SOURCE, 5, "388")),
        text(TRACKING, with_field(SOURCE, 4, "99")),
    ],
    ids=lambda output: output[:30].decode("latin-1"),
)
def test_what_is_no_report_is_garbled(output: bytes) -> None:
    reason = refusal(output)
    assert reason.code is ReasonCode.SOURCE_GARBLED
    assert len(reason.detail) < 300


@pytest.mark.parametrize(
    ("index", "value"), list(product((3, 4, 9, 10, 11, 12), ("nan", "inf", "-inf", "1e9", "", "0x1")))
)
def test_numbers_that_are_no_plain_decimals_are_garbled(index: int, value: str) -> None:
    assert refusal(text(with_field(TRACKING, index, value))).code is ReasonCode.SOURCE_GARBLED


@pytest.mark.parametrize("index", [9, 10, 11])
def test_negative_distances_are_garbled(index: int) -> None:
    assert refusal(text(with_field(TRACKING, index, "-0.000001000"))).code is ReasonCode.SOURCE_GARBLED


@given(st.binary(max_size=2000))
@example(b"\n\n")
@example(b"506 \n")
def test_no_bytes_make_the_parser_raise(output: bytes) -> None:
    assert isinstance(parse(output), ChronyReport | Reason)


@given(st.data())
def test_no_damaged_report_makes_the_parser_raise(data: st.DataObject) -> None:
    whole = text(TRACKING, SOURCE, STATS, ntpdata())
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 40)))
    middle = data.draw(st.one_of(st.binary(max_size=8), st.sampled_from([b",", b"\n", b"nan", b"-", b"9" * 30])))
    assert isinstance(parse(whole[:start] + middle + whole[end:]), ChronyReport | Reason)
