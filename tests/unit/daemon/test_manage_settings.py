import tomllib
from dataclasses import replace

import pytest
from clockgated.manage.settings import (
    DelayMechanism,
    LocalReference,
    ManageSettings,
    Mode,
    NtpSettings,
    PtpSettings,
    Role,
    TimePool,
    TimeServer,
    Transport,
    problems,
)
from clockgated.manage.table import read_settings
from hypothesis import given
from hypothesis import strategies as st
from support.plan_hosts import GRANDMASTER, NTP_CLIENT, NTP_SERVER_OF_A_CLUSTER, PTP_AND_NTP, PTP_HARDWARE

FULL = """
mode = "ptp+ntp"
take_over = true
max_drift_ppm = 30
[ntp]
servers = ["10.0.0.1", { host = "ntp.example.net", nts = true, min_poll_log2 = 3 }]
pools = [{ host = "pool.example.org", max_sources = 2 }]
serve_networks = ["10.0.0.0/24"]
step_at_start_ms = 50
[ntp.local]
stratum = 9
wait_synced_s = 60
[ptp]
interfaces = ["eth0", "eth1"]
transport = "L2"
delay_mechanism = "P2P"
role = "grandmaster"
"""


def ntp(**changes: object) -> ManageSettings:
    return replace(NTP_CLIENT, ntp=replace(NTP_CLIENT.ntp, **changes))  # type: ignore[arg-type]


def ptp(**changes: object) -> ManageSettings:
    return replace(PTP_HARDWARE, ptp=replace(PTP_HARDWARE.ptp, **changes))  # type: ignore[arg-type]


def test_defaults_are_the_shipped_ones_and_have_no_fault() -> None:
    shipped = ManageSettings()
    assert (shipped.mode, shipped.take_over) == (Mode.AUTO, False)
    assert problems(shipped) == ()


@pytest.mark.parametrize("settings", [NTP_CLIENT, NTP_SERVER_OF_A_CLUSTER, PTP_AND_NTP, PTP_HARDWARE, GRANDMASTER])
def test_settings_of_the_other_tests_have_no_fault(settings: ManageSettings) -> None:
    assert problems(settings) == ()


@pytest.mark.parametrize(
    ("settings", "key", "wanted"),
    [
        (replace(NTP_CLIENT, max_drift_ppm=float("nan")), "max_drift_ppm is nan", "from 0.001"),
        (replace(NTP_CLIENT, ntp=NtpSettings()), "ntp.servers", "name a server"),
        (replace(GRANDMASTER, ntp=NtpSettings()), "ptp.role", "name the server that the grandmaster follows"),
        (ntp(servers=(TimeServer("a b"),)), "ntp.servers[0].host is 'a b'", "host name or an address"),
        (ntp(servers=(TimeServer("x\nallow all"),)), "ntp.servers[0].host", "host name"),
        (ntp(servers=(TimeServer("x", min_poll_log2=6, max_poll_log2=4),)), "min_poll_log2 6", "swap them"),
        (ntp(servers=(TimeServer("x", port=70000),)), "ntp.servers[0].port is 70000", "1 to 65535"),
        (ntp(servers=(TimeServer("x", key=7),)), "ntp.key_file is not set", "name the file"),
        (ntp(servers=(TimeServer("x", key=7, nts=True),), key_file="/k"), "both key and nts", "one way"),
        (ntp(pools=(TimePool("x", max_sources=0),)), "ntp.pools[0].max_sources is 0", "1 to 16"),
        (ntp(local=LocalReference(stratum=16)), "ntp.local.stratum is 16", "1 to 15"),
        (ntp(local=LocalReference(wait_synced_s=-1)), "ntp.local.wait_synced_s is -1", "from 0"),
        (ntp(serve_networks=("10.0.0.1/24",)), "'10.0.0.1/24'", "10.0.0.0/24"),
        (ntp(key_file="keys"), "ntp.key_file is 'keys'", "absolute path"),
        (ntp(nts_server_key="/k"), "belong together", "both or neither"),
        (ptp(interfaces=("eth0 [x]",)), "'eth0 [x]'", "network interface"),
        (ptp(interfaces=("eth0", "eth0")), "['eth0', 'eth0']", "once"),
        (ptp(domain=256), "ptp.domain is 256", "0 to 255"),
        (ptp(hybrid=True, transport=Transport.L2), "ptp.hybrid", "UDPv4 or UDPv6"),
        (ptp(hybrid=True, delay_mechanism=DelayMechanism.P2P), "ptp.hybrid", "E2E"),
        (ptp(fixed_utc_offset=True), "ptp.utc_offset_s is not", "seconds from UTC to TAI"),
        (ptp(minor_version=2), "ptp.minor_version is 2", "0 to 1"),
        (ptp(shm_segment=1), "ptp.shm_segment is 1", "2 to 255"),
    ],
)
def test_fault_names_key_value_and_what_is_wanted(settings: ManageSettings, key: str, wanted: str) -> None:
    (fault,) = problems(settings)
    assert key in fault
    assert wanted in fault


@pytest.mark.parametrize("host", ["10.0.0.1", "2001:db8::7", "::1", "fe80::1%eth0", "ntp-1.example.net", "localhost"])
def test_addresses_and_names_are_hosts(host: str) -> None:
    assert problems(ntp(servers=(TimeServer(host),))) == ()


@given(host=st.text(max_size=30))
def test_no_host_can_smuggle_a_second_word_into_the_file(host: str) -> None:
    if problems(ntp(servers=(TimeServer(host),))) == ():
        assert host.split() == [host]
        assert "#" not in host


def test_table_gives_the_settings_that_it_says() -> None:
    settings, complaints = read_settings(tomllib.loads(FULL))
    assert complaints == ()
    assert settings == ManageSettings(
        Mode.PTP_NTP,
        take_over=True,
        max_drift_ppm=30.0,
        ntp=NtpSettings(
            servers=(TimeServer("10.0.0.1"), TimeServer("ntp.example.net", nts=True, min_poll_log2=3)),
            pools=(TimePool("pool.example.org", max_sources=2),),
            serve_networks=("10.0.0.0/24",),
            step_at_start_ms=50.0,
            local=LocalReference(stratum=9, wait_synced_s=60.0),
        ),
        ptp=PtpSettings(
            interfaces=("eth0", "eth1"),
            transport=Transport.L2,
            delay_mechanism=DelayMechanism.P2P,
            role=Role.GRANDMASTER,
        ),
    )


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"mod": "ntp"}, "mod is not a setting; did you mean 'mode'?"),
        ({"ntp": {"servers": [{"hots": "x"}]}}, "ntp.servers[0].hots is not a setting"),
        ({"ntp": {"servers": [{"nts": True}]}}, "ntp.servers[0].host is missing"),
        ({"ntp": {"servers": "10.0.0.1"}}, "ntp.servers is '10.0.0.1': give a list"),
        ({"ntp": {"servers": [3]}}, "ntp.servers[0] is 3: give a host name or a table with host"),
        ({"ntp": {"serve_networks": [3]}}, "ntp.serve_networks[0] is 3: give a text"),
        ({"mode": "gps"}, "mode is 'gps': give one of 'observe', 'ntp', 'ptp', 'ptp+ntp', 'auto'"),
        ({"take_over": 1}, "take_over is 1: give true or false"),
        ({"ptp": {"domain": True}}, "ptp.domain is True: give a whole number"),
        ({"max_drift_ppm": True}, "max_drift_ppm is True: give a number"),
        ({"max_drift_ppm": "fast"}, "max_drift_ppm is 'fast': give a number"),
        ({"ntp": 5}, "ntp is 5: give a table"),
        ({"ptp": {"domain": 300}}, "ptp.domain is 300: give a value from 0 to 255"),
    ],
)
def test_complaint_about_a_table_names_the_key(table: dict[str, object], complaint: str) -> None:
    _, complaints = read_settings(table)
    assert any(one.startswith(complaint) for one in complaints), complaints


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
KEYS = st.sampled_from(["mode", "ntp", "ptp", "servers", "host", "local", "interfaces", "domain", "take_over", "x"])
INNER = PLAIN | st.lists(PLAIN, max_size=2) | st.dictionaries(KEYS, PLAIN, max_size=2)
VALUES = INNER | st.lists(INNER, max_size=2) | st.dictionaries(KEYS, INNER, max_size=3)


@given(table=st.dictionaries(KEYS, VALUES, max_size=4))
def test_no_table_makes_the_reader_raise(table: dict[str, object]) -> None:
    settings, complaints = read_settings(table)
    assert complaints or isinstance(settings, ManageSettings)
