from dataclasses import replace

import pytest
from clockgated.manage.facts import Interface, Tool, Version
from clockgated.manage.feed import Feed, Group
from clockgated.manage.options import LINUXPTP, TABLES, Rendered, legal
from clockgated.manage.ports import Port
from clockgated.manage.render_linuxptp import PtpPlaces, phc2sys_arguments, render_phc2sys, render_ptp4l
from clockgated.manage.settings import DelayMechanism, PtpSettings, Role, Transport
from hypothesis import given
from hypothesis import strategies as st
from support.plan_hosts import LINUXPTP_VERSIONS, nic

PLACES = PtpPlaces("/run/clockgate", "eth0")
CARD = nic("eth0", phc=0, proven=True)


def group(*cards: Interface, hardware: bool = True, feed: Feed | None = None) -> Group:
    return Group(tuple(Port(card.name, card) for card in cards or (CARD,)), hardware, feed)


def render(
    version: Version, ptp: PtpSettings | None = None, of: Group | None = None, *, fixed: bool = False
) -> Rendered:
    return render_ptp4l(ptp or PtpSettings(), Tool("/usr/sbin/ptp4l", version), of or group(), PLACES, fixed=fixed)


def values(rendered: Rendered) -> dict[str, str]:
    lines = [line for line in rendered.text.splitlines() if not line.startswith(("#", "["))]
    found = dict(line.split(" ", 1) for line in lines)
    assert len(found) == len(lines), "an option is written twice"
    return found


@pytest.mark.parametrize(
    ("version", "client", "master"),
    [
        ((3, 1, 1), "slaveOnly", "masterOnly"),
        ((4, 0), "clientOnly", "serverOnly"),
        ((4, 4), "clientOnly", "serverOnly"),
    ],
)
def test_roles_are_spelled_as_the_release_spells_them(version: Version, client: str, master: str) -> None:
    roles = {"slaveOnly", "clientOnly", "masterOnly", "serverOnly"}
    grandmaster = PtpSettings(role=Role.GRANDMASTER)
    assert values(render(version)).keys() & roles == {client}
    assert values(render(version, grandmaster, fixed=True)).keys() & roles == {master}
    assert values(render(version, grandmaster)).keys() & roles == set()


def test_grandmaster_announces_its_rank_and_class() -> None:
    found = values(render((4, 2), PtpSettings(role=Role.GRANDMASTER, priority1=90, clock_class=6, utc_offset_s=37)))
    assert (found["priority1"], found["clockClass"], found["utc_offset"]) == ("90", "6", "37")


@pytest.mark.parametrize(
    ("driver", "hardware", "expected"),
    [("ice", True, "50"), ("igb", True, "10"), ("mlx5_core", True, "10"), ("ice", False, "10")],
)
@pytest.mark.parametrize("version", LINUXPTP_VERSIONS)
def test_transmit_stamps_get_the_time_their_driver_needs(
    version: Version, driver: str, hardware: bool, expected: str
) -> None:
    # Written always: the default of 3.1.1 is 1 ms, which a busy host misses.
    card = replace(CARD, driver=driver)
    assert values(render(version, of=group(card, hardware=hardware)))["tx_timestamp_timeout"] == expected


def test_transmit_timeout_of_the_operator_wins() -> None:
    found = values(render((4, 2), PtpSettings(tx_timestamp_timeout_ms=7), group(replace(CARD, driver="ice"))))
    assert found["tx_timestamp_timeout"] == "7"


@pytest.mark.parametrize(
    ("version", "written", "is_lost"), [((3, 1, 1), None, False), ((4, 0), None, True), ((4, 2), "0", False)]
)
def test_card_that_stamps_only_version_2_0_gets_it_where_possible(
    version: Version, written: str | None, is_lost: bool
) -> None:
    # 3.1.1 announces 2.0 anyway; 4.0 and 4.1 announce 2.1 and cannot be told otherwise.
    rendered = render(version, of=group(replace(CARD, driver="bcmgenet")))
    assert values(rendered).get("ptp_minor_version") == written
    assert any("PTP version 2.0" in lost.detail for lost in rendered.losses) is is_lost


def test_minor_version_is_left_alone_otherwise() -> None:
    assert "ptp_minor_version" not in values(render((4, 4)))
    assert values(render((4, 4), PtpSettings(minor_version=0)))["ptp_minor_version"] == "0"


@pytest.mark.parametrize("transport", list(Transport))
def test_transport_domain_and_intervals_are_written(transport: Transport) -> None:
    ptp = PtpSettings(transport=transport, domain=24, log_sync_interval=-3, log_announce_interval=0)
    found = values(render((3, 1, 1), ptp))
    assert (found["network_transport"], found["domainNumber"]) == (str(transport), "24")
    # A summary over several samples would hide each of them.
    assert found["summary_interval"] == found["logSyncInterval"] == "-3"
    assert found["logAnnounceInterval"] == "0"


def test_peer_delay_has_an_interval_of_its_own() -> None:
    found = values(render((3, 1, 1), PtpSettings(delay_mechanism=DelayMechanism.P2P, log_delay_request_interval=2)))
    assert (found["delay_mechanism"], found["logMinPdelayReqInterval"]) == ("P2P", "2")
    assert "logMinDelayReqInterval" not in found


def test_several_hardware_clocks_are_declared_as_such() -> None:
    two = group(CARD, nic("eth1", phc=1, proven=True))
    same = group(CARD, nic("eth1", phc=0, proven=True))
    assert values(render((4, 2), of=two))["boundary_clock_jbod"] == "1"
    assert "boundary_clock_jbod" not in values(render((4, 2), of=same))
    assert render((4, 2), of=two).text.endswith("[eth0]\n[eth1]\n")


def test_instances_share_no_socket() -> None:
    found = values(render((4, 0)))
    assert found["uds_address"] == "/run/clockgate/ptp4l-eth0.sock"
    assert found["uds_ro_address"] == "/run/clockgate/ptp4l-eth0-ro.sock"


def test_servo_is_limited_and_steps_the_system_clock_at_start_only() -> None:
    ptp = PtpSettings(max_frequency_ppm=200, first_step_us=10)
    software = values(render((3, 1, 1), ptp, group(hardware=False)))
    hardware = values(render((3, 1, 1), ptp))
    assert software["max_frequency"] == hardware["max_frequency"] == "200000"
    assert software["first_step_threshold"] == "0.000010000"
    assert float(software["step_threshold"]) == 0
    # A hardware clock that a link loss has reset may be put right at any time.
    assert float(hardware["step_threshold"]) > 0


SHM = Feed("PTP0", segment=70)
SOCK = Feed("PTP0", socket="/run/x/ptp.sock")


@pytest.mark.parametrize(
    ("version", "feed", "servo", "key", "value"),
    [
        ((3, 1, 1), SHM, "ntpshm", "ntpshm_segment", "70"),
        ((4, 2), SOCK, "refclock_sock", "refclock_sock_address", "/run/x/ptp.sock"),
    ],
)
def test_program_whose_clock_is_the_system_clock_feeds_chronyd(
    version: Version, feed: Feed, servo: str, key: str, value: str
) -> None:
    ptp4l = values(render(version, of=group(hardware=False, feed=feed)))
    phc2sys = values(
        render_phc2sys(PtpSettings(), Tool("x", version), group(feed=feed), PLACES, fixed=False),
    )
    for found in (ptp4l, phc2sys):
        assert (found["clock_servo"], found[key]) == (servo, value)
        # Leap seconds and sanity are chronyd's business; refclock_sock does not switch them off by itself.
        assert (found["kernel_leap"], found["sanity_freq_limit"]) == ("0", "0")
    # With hardware stamps ptp4l steers the card's clock and phc2sys does the feeding.
    assert values(render(version, of=group(feed=feed)))["clock_servo"] == "pi"


@pytest.mark.parametrize(
    ("ptp", "clock", "ntp_steers", "expected"),
    [
        (PtpSettings(), "/dev/ptp0", False, "-s /dev/ptp0 -c CLOCK_REALTIME -w"),
        (PtpSettings(), "/dev/ptp0", True, "-s /dev/ptp0 -c CLOCK_REALTIME -w"),
        (PtpSettings(), None, False, "-a -r"),
        (
            PtpSettings(utc_offset_s=37, fixed_utc_offset=True),
            "/dev/ptp0",
            False,
            "-s /dev/ptp0 -c CLOCK_REALTIME -w -O -37",
        ),
        (PtpSettings(role=Role.GRANDMASTER), "/dev/ptp0", False, "-a -r -r"),
        (PtpSettings(role=Role.GRANDMASTER), "/dev/ptp0", True, "-s CLOCK_REALTIME -c /dev/ptp0 -w"),
    ],
)
def test_phc2sys_compares_the_right_clocks(
    ptp: PtpSettings, clock: str | None, ntp_steers: bool, expected: str
) -> None:
    assert " ".join(phc2sys_arguments(ptp, clock, ntp_steers=ntp_steers)) == expected


PTP = st.builds(
    PtpSettings,
    domain=st.integers(0, 127),
    transport=st.sampled_from(Transport),
    delay_mechanism=st.sampled_from(DelayMechanism),
    role=st.sampled_from(Role),
    clock_class=st.none() | st.integers(0, 255),
    minor_version=st.none() | st.integers(0, 1),
    utc_offset_s=st.none() | st.integers(0, 100),
)


@given(
    ptp=PTP,
    version=st.sampled_from(LINUXPTP_VERSIONS),
    card=st.sampled_from(["ice", "bcmgenet", "mlx5_core"]).map(lambda driver: replace(CARD, driver=driver)),
    hardware=st.booleans(),
    is_fed=st.booleans(),
    free=st.booleans(),
)
def test_every_rendered_option_is_legal(
    ptp: PtpSettings, version: Version, card: Interface, hardware: bool, *, is_fed: bool, free: bool
) -> None:
    feed = (SOCK if legal(LINUXPTP, version, "clock_servo=refclock_sock") else SHM) if is_fed else None
    one = group(card, hardware=hardware, feed=feed)
    tool = Tool("x", version)
    for rendered in (
        render_ptp4l(ptp, tool, one, PLACES, fixed=not is_fed, free=free),
        render_phc2sys(ptp, tool, one, PLACES, fixed=not is_fed, free=free),
    ):
        for name, value in values(rendered).items():
            assert legal(LINUXPTP, version, name), name
            if f"{name}={value}" in TABLES[LINUXPTP]:
                assert legal(LINUXPTP, version, f"{name}={value}")
