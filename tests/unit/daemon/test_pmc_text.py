import pytest
from clockgated.clock.ptp_report import PortState, PtpReport
from clockgated.sources.pmc_text import PmcAnswer, blocks, parse, ptp_report
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ptp_text import MASTER, OTHER, OWN, a_report, a_round, block

# What a 3.1.1 client behind a lost link says: the offset is that of better days.
LINK_LOST = {
    "portState": "FAULTY", "gmPresent": "false", "ingress_time": "0", "gmIdentity": OWN, "grandmasterIdentity": OWN,
    "master_offset": "-160",
}  # fmt: skip


def problem(raw: bytes) -> str:
    report = ptp_report(parse(raw))
    assert isinstance(report, str), report
    return report


def test_a_round_becomes_a_report_in_our_units_and_sign() -> None:
    assert ptp_report(parse(a_round())) == PtpReport(
        own_clock_id=OWN,
        grandmaster_id=MASTER,
        is_grandmaster_present=True,
        parent_port_id=f"{MASTER}-1",
        port_state=PortState.SLAVE,
        offset_ns=-94,
        ingress_ns=1262304019317079596,
        path_delay_ns=2031,
        steps_removed=1,
        grandmaster_class=6,
        grandmaster_accuracy=0x21,
        sync_interval_ns=1_000_000_000,
        utc_offset_s=37,
        is_utc_offset_valid=True,
        is_ptp_timescale=True,
        is_time_traceable=True,
        leap=0,
    )


def test_no_ingress_is_unknown_and_never_zero() -> None:
    report = ptp_report(parse(a_round(**LINK_LOST)))
    assert isinstance(report, PtpReport)
    assert report.ingress_ns is None
    assert not report.is_grandmaster_present
    assert report.port_state is PortState.FAULTY


@pytest.mark.parametrize(("text", "delay_ns"), [("-17000000.0", -17_000_000), ("-0.5", -1), ("0.1", 1), ("0.0", 0)])
def test_path_delay_is_rounded_away_from_zero_and_keeps_its_sign(text: str, delay_ns: int) -> None:
    current = parse(a_round(meanPathDelay=text)).current
    assert current is not None
    assert current.path_delay_ns == delay_ns


@pytest.mark.parametrize(
    ("log_interval", "interval_ns"), [("-3", 125_000_000), ("-7", 7_812_500), ("1", 2_000_000_000)]
)
def test_sync_interval_is_two_to_the_logarithm_seconds(log_interval: str, interval_ns: int) -> None:
    assert parse(a_round(logSyncInterval=log_interval)).ports[0].sync_interval_ns == interval_ns


@pytest.mark.parametrize(("leap61", "leap59", "leap"), [("0", "0", 0), ("1", "0", 1), ("0", "1", -1)])
def test_leap_flags_become_one_sign(leap61: str, leap59: str, leap: int) -> None:
    properties = parse(a_round(leap61=leap61, leap59=leap59)).time_properties
    assert properties is not None
    assert properties.leap == leap


def test_of_several_ports_the_one_that_receives_time_counts() -> None:
    ports = [
        block("PORT_DATA_SET", {"portIdentity": f"{OWN}-{number}", "portState": state}, port=number)
        for number, state in ((1, "MASTER"), (2, "SLAVE"), (3, "LISTENING"))
    ]
    report = ptp_report(parse(a_round() + "".join(ports).encode()))
    assert isinstance(report, PtpReport)
    assert report.port_state is PortState.SLAVE


def test_without_a_receiving_port_the_first_counts() -> None:
    second = block("PORT_DATA_SET", {"portIdentity": f"{OWN}-2", "portState": "MASTER"}, port=2)
    report = ptp_report(parse(a_round(portState="LISTENING") + second.encode()))
    assert isinstance(report, PtpReport)
    assert report.port_state is PortState.LISTENING


def test_answers_of_other_clocks_are_not_ours() -> None:
    # With a boundary hop the grandmaster answers too, after us, over the same socket.
    remote = a_round(master_offset="0", portState="MASTER").replace(OWN.encode(), OTHER.encode())
    answer = parse(a_round() + remote, own_clock_id=OWN)
    assert answer.clock_ids == (OWN, OTHER)
    assert ptp_report(answer) == a_report()


def test_two_clocks_without_a_wanted_one_give_nothing() -> None:
    remote = a_round().replace(OWN.encode(), OTHER.encode())
    assert "2 clocks answered" in problem(a_round() + remote)
    assert parse(a_round() + remote).time_status is None


def test_an_answer_of_another_clock_alone_gives_nothing() -> None:
    answer = parse(a_round(), own_clock_id=OTHER)
    assert answer.time_status is None
    assert f"wanted {OTHER}" in answer.problems[0]


def test_the_last_of_two_answers_counts() -> None:
    late = block("TIME_STATUS_NP", {"master_offset": "5000000"})
    report = ptp_report(parse(late.encode() + a_round()))
    assert report == a_report()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "no answer"),
        (b"sending: GET TIME_STATUS_NP\n", "no answer"),
        (b"bad command: GET PORT_HWCLOCK_NP\n", "bad command: GET PORT_HWCLOCK_NP"),
        (f"\t{OWN}-0 seq 0 RESPONSE MANAGEMENT_ERROR_STATUS \n".encode(), "refused"),
        (f"\t{OWN}-0 seq 0 RESPONSE MANAGEMENT_ERROR_STATUS TIME_STATUS_NP\n".encode(), "TIME_STATUS_NP was refused"),
        (f"\t{OWN}-1 seq 0 RESPONSE unknown-tlv \n".encode(), "refused"),
        (f"\t{OWN}-1 seq 0 RESPONSE MANAGEMENT empty-tlv \n".encode(), "refused"),
        (block("CURRENT_DATA_SET").encode(), "lacks TIME_STATUS_NP, PARENT_DATA_SET"),
        (a_round(portState="GRANDMOTHER"), "portState is 'GRANDMOTHER'"),
        (a_round(logSyncInterval="127"), "logSyncInterval is 127"),
        (a_round(master_offset="nan"), "master_offset is 'nan'"),
        (a_round(master_offset="9" * 20), "master_offset is"),
        (a_round(meanPathDelay="inf"), "meanPathDelay is 'inf'"),
        (a_round(gm__ClockAccuracy="254"), "gm.ClockAccuracy is '254'"),
        (a_round(gmIdentity="?"), "gmIdentity is '?'"),
        (a_round(gmPresent="maybe"), "gmPresent is 'maybe'"),
        (a_round(gmIdentity=OTHER), "grandmaster changed"),
        (a_round().replace(b"ingress_time ", b"egress_time "), "ingress_time is missing"),
        (a_round()[:-5], "gmIdentity is missing"),
    ],
)
def test_what_cannot_be_used_is_said_in_words(raw: bytes, said: str) -> None:
    assert said in problem(raw)


def test_crlf_and_stray_lines_do_not_matter() -> None:
    raw = b"ptp4l[1.000]: master offset 5 s2 freq +0 path delay 3\r\n" + a_round().replace(b"\n", b"\r\n") + b"\0\n"
    assert ptp_report(parse(raw)) == a_report()


def test_blocks_keep_every_data_set_of_every_version() -> None:
    # Column widths differ between versions, and a data set that we have no type for is kept as it stands.
    raw = (
        f"\t{OWN}-1 seq 65535 RESPONSE MANAGEMENT PORT_HWCLOCK_NP \n\t\tportIdentity     {OWN}-1\n\t\tphcIndex  0\n"
        f"\t\tflags 1\n\t{OWN}-0 seq 0 RESPONSE MANAGEMENT SUBSCRIBE_EVENTS_NP \n\t\tduration          0\n"
        "\t\tNOTIFY_PORT_STATE off\n"
    ).encode()
    first, second = blocks(raw)
    assert (first.data_set, first.port, first.sequence, first.is_error) == ("PORT_HWCLOCK_NP", 1, 65535, False)
    assert first.members == (("portIdentity", f"{OWN}-1"), ("phcIndex", "0"), ("flags", "1"))
    assert second.members[1] == ("NOTIFY_PORT_STATE", "off")


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_parsing_never_raises_on_any_bytes(raw: bytes) -> None:
    answer = parse(raw)
    assert isinstance(answer, PmcAnswer)
    assert isinstance(ptp_report(answer), (PtpReport, str))


@settings(deadline=None)
@given(st.data())
def test_parsing_never_raises_on_a_damaged_round(data: st.DataObject) -> None:
    raw = bytearray(a_round())
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=30))
    report = ptp_report(parse(bytes(raw)))
    assert isinstance(report, (PtpReport, str))


def test_a_flood_is_parsed_in_bounded_time() -> None:
    assert parse(b"\t\t" + b"x" * 1_000_000 + b"\n" + b"\t" * 1_000_000).time_status is None
