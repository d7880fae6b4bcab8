from dataclasses import replace

import pytest
from clockgated.manage.facts import Facts, Tool
from clockgated.manage.options import CHRONY, TABLES, Rendered, legal
from clockgated.manage.render_chrony import ChronyPlaces, decimal, render_chrony
from clockgated.manage.settings import LocalReference, ManageSettings, Mode, NtpSettings, TimePool, TimeServer
from hypothesis import given
from hypothesis import strategies as st
from support.plan_hosts import CHRONY_FEATURES, CHRONY_VERSIONS, NTP_CLIENT, NTP_SERVER_OF_A_CLUSTER, host, nic

PLACES = ChronyPlaces("/run/clockgate/chrony", "/var/lib/clockgate/chrony")
PROVEN = host((4, 3), None, nic("eth0", phc=0, proven=True), nic("eth1", phc=1))


def render(settings: ManageSettings, facts: Facts) -> Rendered:
    assert facts.chronyd is not None
    return render_chrony(settings, facts, facts.chronyd, PLACES)


def lines(settings: ManageSettings, facts: Facts) -> list[str]:
    return render(settings, facts).text.splitlines()


def ntp(**changes: object) -> ManageSettings:
    return replace(NTP_CLIENT, ntp=replace(NTP_CLIENT.ntp, **changes))  # type: ignore[arg-type]


def test_promised_drift_is_what_chronyd_assumes() -> None:
    assert "maxclockerror 12.5" in lines(replace(NTP_CLIENT, max_drift_ppm=12.5), host())


def test_clock_is_stepped_at_start_only_and_large_offsets_are_ignored_for_ever() -> None:
    text = lines(ntp(step_at_start_ms=50, step_updates=2, max_change_s=3), host())
    assert "makestep 0.05 2" in text
    assert "maxchange 3 2 -1" in text


def test_no_step_at_all_on_demand() -> None:
    assert not any(line.startswith("makestep") for line in lines(ntp(step_updates=0), host()))


def test_container_gets_nothing_that_would_set_the_clock() -> None:
    text = lines(NTP_CLIENT, replace(host(), has_clock_right=False))
    assert not any(line.startswith(("makestep", "rtcsync")) for line in text)
    assert "maxclockerror 50" in text


def test_hardware_stamps_only_where_proven() -> None:
    assert [line for line in lines(NTP_CLIENT, PROVEN) if line.startswith("hwtimestamp")] == ["hwtimestamp eth0"]
    assert not any(line.startswith("hwtimestamp") for line in lines(NTP_CLIENT, host()))


@pytest.mark.parametrize(
    ("wish", "facts", "is_interleaved"),
    [(None, PROVEN, True), (None, host(), False), (False, PROVEN, False), (True, host(), True)],
)
def test_interleaved_mode_follows_hardware_unless_it_is_set(
    wish: bool | None, facts: Facts, is_interleaved: bool
) -> None:
    (line,) = (line for line in lines(ntp(servers=(TimeServer("a", xleave=wish),)), facts) if line[:6] == "server")
    assert ("xleave" in line.split()) is is_interleaved


@pytest.mark.parametrize(
    ("version", "leap_list", "has_zone", "expected"),
    [
        ((4, 5), "/x/leap-seconds.list", True, "leapsectz right/UTC"),
        ((4, 6), "/x/leap-seconds.list", True, "leapseclist /x/leap-seconds.list"),
        ((4, 6), None, True, "leapsectz right/UTC"),
    ],
)
def test_leap_seconds_come_from_what_is_installed_and_known(
    version: tuple[int, ...], leap_list: str | None, has_zone: bool, expected: str
) -> None:
    facts = replace(host(version), leap_list=leap_list, has_leap_zone=has_zone)
    assert [line for line in lines(NTP_CLIENT, facts) if line.startswith("leapsec")] == [expected]


def test_missing_leap_table_is_a_loss() -> None:
    rendered = render(NTP_CLIENT, replace(host(), leap_list=None, has_leap_zone=False))
    assert "leapsec" not in rendered.text
    assert "TAI offset stays unset" in rendered.losses[0].detail


def test_smearing_servers_forbid_a_leap_table() -> None:
    rendered = render(ntp(smeared_leaps=True), replace(host(), leap_list=None, has_leap_zone=False))
    assert "leapsec" not in rendered.text
    assert rendered.losses == ()


def test_node_serves_time_only_when_networks_are_named() -> None:
    assert "port 0" in lines(NTP_CLIENT, host())
    text = lines(ntp(serve_networks=("10.0.0.0/8",), serve_port=1123), host())
    assert "port 1123" in text
    assert "allow 10.0.0.0/8" in text


def test_local_reference_is_written_with_its_danger() -> None:
    text = lines(ntp(local=LocalReference()), host())
    place = text.index("local stratum 10 orphan")
    assert "not traceable" in text[place - 1]
    assert text[place - 1].startswith("#")


def test_server_that_cannot_be_authenticated_is_left_out() -> None:
    settings = ntp(servers=(TimeServer("a", nts=True), TimeServer("b")), pools=(TimePool("c", nts=True),))
    without = replace(host(), chronyd=Tool("/usr/sbin/chronyd", (4, 3), CHRONY_FEATURES - {"NTS"}))
    rendered = render(settings, without)
    assert [line.split()[1] for line in rendered.text.splitlines() if line.startswith(("server", "pool"))] == ["b"]
    assert {"the server a is left out", "the pool c is left out"} <= {
        lost.detail.rpartition(": ")[2] for lost in rendered.losses
    }


@pytest.mark.parametrize("user", [None, "_chrony", "chrony"])
def test_chronyd_runs_as_its_user_or_as_root_where_there_is_none(user: str | None) -> None:
    assert f"user {user or 'root'}" in lines(NTP_CLIENT, replace(host(), chrony_user=user))


def test_sockets_and_files_stay_in_the_given_folders() -> None:
    text = render(NTP_SERVER_OF_A_CLUSTER, host((4, 9))).text
    paths = [word for line in text.splitlines() for word in line.split() if word.startswith("/")]
    own = ("/run/clockgate/chrony/", "/var/lib/clockgate/chrony", "/etc/clockgate/", "/usr/share/zoneinfo/")
    assert paths
    assert all(path.startswith(own) for path in paths)
    assert "cmdport 0" in text.splitlines()


@given(value=st.floats(0, 1e6))
def test_numbers_have_no_exponent_and_no_error_that_matters(value: float) -> None:
    text = decimal(value)
    assert "e" not in text
    assert abs(float(text) - value) <= 1e-9


HOSTS = st.sampled_from(["10.0.0.1", "2001:db8::7", "ntp.example.net"])
OPTIONAL_S = st.none() | st.floats(0, 1000)
SERVERS = st.builds(
    TimeServer,
    HOSTS,
    port=st.none() | st.integers(1, 65535),
    iburst=st.booleans(),
    xleave=st.none() | st.booleans(),
    nts=st.booleans(),
    nts_port=st.none() | st.just(4461),
    prefer=st.booleans(),
    trust=st.booleans(),
)
NTP = st.builds(
    NtpSettings,
    servers=st.lists(SERVERS, max_size=3).map(tuple),
    pools=st.lists(st.builds(TimePool, HOSTS, nts=st.booleans()), max_size=2).map(tuple),
    local=st.none()
    | st.builds(LocalReference, activate_s=OPTIONAL_S, wait_synced_s=OPTIONAL_S, wait_unsynced_s=OPTIONAL_S),
    serve_networks=st.sampled_from([(), ("10.0.0.0/24",)]),
    min_sources=st.integers(1, 3),
    smeared_leaps=st.booleans(),
    key_file=st.none() | st.just("/etc/keys"),
    nts_trusted_certificates=st.none() | st.just("/etc/ca"),
)


@given(
    settings=NTP,
    version=st.sampled_from(CHRONY_VERSIONS),
    features=st.sets(st.sampled_from(sorted(CHRONY_FEATURES))).map(frozenset),
    has_right=st.booleans(),
)
def test_every_rendered_option_is_legal(
    settings: NtpSettings, version: tuple[int, ...], features: frozenset[str], has_right: bool
) -> None:
    tool = Tool("/usr/sbin/chronyd", version, features)
    facts = replace(PROVEN, chronyd=tool, has_clock_right=has_right)
    for line in lines(ManageSettings(Mode.NTP, ntp=settings), facts):
        if line.startswith("#"):
            continue
        directive, *words = line.split()
        assert legal(CHRONY, version, directive, features), line
        for word in words:
            # A word that is an option of this directive in any release must be one in this release.
            if f"{directive}.{word}" in TABLES[CHRONY]:
                assert legal(CHRONY, version, f"{directive}.{word}", features), line
