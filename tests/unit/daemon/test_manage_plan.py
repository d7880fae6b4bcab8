import json
import random
from dataclasses import replace

import pytest
from clockgated.manage.facts import Facts, Interface, TimeDaemon, UnitState, Version
from clockgated.manage.mode import PlanCode
from clockgated.manage.plan import make_plan, plan_as_json, print_plan
from clockgated.manage.planned import Folders, Plan, PlannedDaemon, escape_instance
from clockgated.manage.settings import (
    DelayMechanism,
    ManageSettings,
    Mode,
    NtpSettings,
    PtpSettings,
    Role,
    TimePool,
    TimeServer,
    Timestamping,
    Transport,
    problems,
)
from clockgated.manage.table import read_settings
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.plan_hosts import (
    CHRONY_VERSIONS,
    FOLDERS,
    GRANDMASTER,
    LINUXPTP_VERSIONS,
    NTP_CLIENT,
    NTP_SERVER_OF_A_CLUSTER,
    PTP_AND_NTP,
    PTP_HARDWARE,
    PTP_SOFTWARE,
    host,
    nic,
)

PROVEN = host((4, 3), (3, 1, 1), nic("eth0", phc=0, proven=True), nic("eth1", phc=1, proven=True))
PLAIN = host()
TIMESYNCD = TimeDaemon("systemd-timesyncd", 311, "systemd-timesyncd.service", may_steer=True)


def plan(what: ManageSettings, facts: Facts) -> Plan:
    return make_plan(what, facts, FOLDERS)


def daemon(of: Plan, name: str) -> PlannedDaemon:
    return next(one for one in of.daemons if one.name == name)


def text(of: Plan, ending: str) -> str:
    return next(file.text for file in of.files if file.path.endswith(ending))


def test_chronyd_never_steps_again_in_the_same_boot() -> None:
    chronyd = daemon(plan(NTP_CLIENT, PLAIN), "chronyd")
    assert "-R" in chronyd.restart_argv
    assert "-R" not in chronyd.argv
    assert set(chronyd.argv) < set(chronyd.restart_argv)


@pytest.mark.parametrize(
    ("what", "facts", "name"), [(PTP_SOFTWARE, PLAIN, "ptp4l@eth0"), (PTP_HARDWARE, PROVEN, "phc2sys@eth0")]
)
def test_linuxptp_never_steps_again_in_the_same_boot(what: ManageSettings, facts: Facts, name: str) -> None:
    one = daemon(plan(what, facts), name)
    assert one.restart_argv == (*one.argv, "--first_step_threshold=0")


@pytest.mark.parametrize(
    ("what", "facts", "steering"),
    [
        (NTP_CLIENT, PLAIN, {"chronyd"}),
        (NTP_CLIENT, replace(PLAIN, has_clock_right=False), set()),
        (PTP_SOFTWARE, PLAIN, {"ptp4l@eth0"}),
        (PTP_SOFTWARE, replace(PLAIN, has_clock_right=False), set()),
        (PTP_HARDWARE, PROVEN, {"phc2sys@eth0"}),
        (PTP_HARDWARE, replace(PROVEN, has_clock_right=False), set()),
        (PTP_AND_NTP, PLAIN, {"chronyd"}),
        (PTP_AND_NTP, PROVEN, {"chronyd"}),
        (GRANDMASTER, PROVEN, {"chronyd"}),
        (replace(GRANDMASTER, mode=Mode.PTP), PROVEN, {"phc2sys@eth0"}),
    ],
)
def test_at_most_one_daemon_has_the_right_to_set_the_clock(
    what: ManageSettings, facts: Facts, steering: set[str]
) -> None:
    assert {one.name for one in plan(what, facts).daemons if one.needs_clock_right} == steering


@pytest.mark.parametrize("version", LINUXPTP_VERSIONS)
@pytest.mark.parametrize(
    ("what", "cards", "ending"),
    [
        (PTP_SOFTWARE, (nic("eth0"),), "ptp4l-eth0.conf"),
        (PTP_HARDWARE, (nic("eth0", phc=0, proven=True),), "phc2sys-eth0.conf"),
    ],
    ids=["software", "hardware"],
)
def test_container_tells_servos_that_start_anew_when_refused_to_measure_only(
    version: Version, what: ManageSettings, cards: tuple[Interface, ...], ending: str
) -> None:
    facts = host(None, version, *cards)
    bare = plan(what, replace(facts, has_clock_right=False))
    free = {file.path.rpartition("/")[2] for file in bare.files if "free_running 1" in file.text.splitlines()}
    assert free == ({ending} if version >= (4, 0) else set())
    assert [one.runs_free for one in bare.ptp] == [free == {"ptp4l-eth0.conf"}]
    assert not any("free_running" in file.text for file in plan(what, facts).files)


def test_container_tells_nobody_who_only_feeds_chronyd_to_measure_only() -> None:
    for what in (PTP_AND_NTP, GRANDMASTER):
        made = plan(what, replace(host((4, 3), (4, 4)), has_clock_right=False))
        assert not any("free_running" in file.text for file in made.files)
        assert not any(one.runs_free for one in made.ptp)


def test_container_runs_chronyd_without_clock_control_and_says_so() -> None:
    made = plan(NTP_CLIENT, replace(PLAIN, has_clock_right=False))
    assert "-x" in daemon(made, "chronyd").argv
    assert any("CAP_SYS_TIME" in warning for warning in made.warnings)
    assert "-x" not in daemon(plan(NTP_CLIENT, PLAIN), "chronyd").argv


def test_daemons_start_before_those_that_need_them_and_stop_after() -> None:
    made = plan(PTP_AND_NTP, PROVEN)
    assert [one.name for one in made.daemons] == ["chronyd", "ptp4l@eth0", "phc2sys@eth0"]
    assert [one.stop_order for one in made.daemons] == [2, 1, 0]


def test_chronyd_is_ready_when_its_sockets_are_there() -> None:
    made = plan(PTP_AND_NTP, host((4, 6, 1), (4, 2)))
    paths = daemon(made, "chronyd").ready_when.paths
    assert paths == ("/run/clockgate/chrony/chronyd.sock", "/run/clockgate/chrony/ptp-eth0.sock")
    assert f"refclock SOCK {paths[1]}" in text(made, "chronyd.conf")
    assert f"refclock_sock_address {paths[1]}" in text(made, "ptp4l-eth0.conf")


def test_shared_memory_segment_is_the_same_on_both_sides_and_handed_back() -> None:
    two = replace(PTP_AND_NTP, ptp=PtpSettings(("eth0", "eth1")))
    made = plan(two, PROVEN)
    assert len(set(made.shm_segments)) == 2
    for number, name in zip(made.shm_segments, ("eth0", "eth1"), strict=True):
        assert f"refclock SHM {number} refid PTP" in text(made, "chronyd.conf")
        assert f"ntpshm_segment {number}" in text(made, f"phc2sys-{name}.conf")


def test_segment_that_another_program_holds_is_not_taken() -> None:
    (first,) = plan(PTP_AND_NTP, PLAIN).shm_segments
    (second,) = plan(PTP_AND_NTP, replace(PLAIN, shm_segments=(first,))).shm_segments
    assert first != second


def test_two_instances_take_different_segments() -> None:
    numbers = {
        make_plan(PTP_AND_NTP, PLAIN, Folders(f"/run/clockgate-{name}")).shm_segments for name in ("a", "b", "c")
    }
    assert len(numbers) == 3


def test_chronyds_folder_belongs_to_chronyd_and_is_closed_to_others() -> None:
    made = plan(NTP_CLIENT, PLAIN)
    (folder,) = (one for one in made.folders if one.path == "/run/clockgate/chrony")
    assert folder.owner == "_chrony"
    assert folder.mode & 0o777 & ~0o770 == 0
    paths = [one.path for one in made.folders]
    for path in paths:
        parents = [other for other in paths if path.startswith(f"{other}/")]
        assert all(paths.index(parent) < paths.index(path) for parent in parents)


def test_system_call_filter_is_set_where_the_distribution_sets_it() -> None:
    assert "-F" in daemon(plan(NTP_CLIENT, replace(PLAIN, systemd_runs=True)), "chronyd").argv
    assert "-F" not in daemon(plan(NTP_CLIENT, PLAIN), "chronyd").argv


@pytest.mark.parametrize(
    ("name", "escaped"),
    [("eth0", "eth0"), ("bond0.5", "bond0.5"), ("br-lan", r"br\x2dlan"), (".x", r"\x2ex"), ("wé", r"w\xc3\xa9")],
)
def test_unit_names_carry_the_interface_as_systemd_escapes_it(name: str, escaped: str) -> None:
    assert escape_instance(name) == escaped
    card = nic(name, phc=0, proven=True)
    made = plan(replace(PTP_HARDWARE, ptp=PtpSettings((name,))), host(None, (4, 2), card))
    assert [one.unit_name for one in made.daemons] == [
        f"clockgate-ptp4l@{escaped}.service",
        f"clockgate-phc2sys@{escaped}.service",
    ]


def test_other_time_daemon_leaves_the_clock_observed_with_the_next_step() -> None:
    made = plan(NTP_CLIENT, replace(PLAIN, time_daemons=(TIMESYNCD,)))
    assert (made.mode, made.daemons, made.files, made.take_over) == (Mode.OBSERVE, (), (), ())
    assert made.reasons[0].code is PlanCode.OTHER_TIME_DAEMON


def test_taken_over_units_are_in_the_plan() -> None:
    enabled = UnitState("systemd-timesyncd.service", "enabled", is_active=True)
    facts = replace(PLAIN, time_daemons=(TIMESYNCD,), time_units=(enabled,))
    made = plan(replace(NTP_CLIENT, take_over=True), facts)
    assert made.mode is Mode.NTP
    assert [(record.unit, record.was_enabled) for record in made.take_over] == [("systemd-timesyncd.service", True)]


def test_observing_is_not_disturbed_by_other_time_daemons() -> None:
    made = plan(ManageSettings(Mode.OBSERVE), replace(PLAIN, time_daemons=(TIMESYNCD,)))
    assert made.mode is Mode.OBSERVE
    assert [reason.code for reason in made.reasons] == [PlanCode.ASKED_FOR]


@pytest.mark.parametrize(
    ("what", "facts", "warning"),
    [
        (NTP_SERVER_OF_A_CLUSTER, PLAIN, "pool.example.org is polled every 64 s at worst; a bound grows by 3.2 ms"),
        (NTP_CLIENT, replace(PLAIN, chronyd_is_confined=True), "AppArmor confines chronyd"),
        (replace(PTP_AND_NTP, ntp=NtpSettings()), PLAIN, "no NTP server is set"),
        (
            replace(PTP_HARDWARE, ptp=PtpSettings(("eth0", "eth1"), utc_offset_s=37, fixed_utc_offset=True)),
            PROVEN,
            "ptp.fixed_utc_offset has no effect",
        ),
    ],
)
def test_weakness_of_a_plan_is_a_warning(what: ManageSettings, facts: Facts, warning: str) -> None:
    assert any(one.startswith(warning) for one in plan(what, facts).warnings)


def test_socket_path_that_cannot_be_bound_is_a_warning() -> None:
    made = make_plan(PTP_SOFTWARE, PLAIN, Folders("/run/" + "x" * 100))
    assert any("longer than 107 bytes" in warning for warning in made.warnings)


@pytest.mark.parametrize("path", ["run", "/run/a b", "/run/../etc", "/run/x\n", "/run//x", "/run/#x"])
def test_folder_that_cannot_be_written_into_the_files_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="absolute path without spaces"):
        make_plan(NTP_CLIENT, PLAIN, Folders(run=path))


def test_faulty_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ntp\.servers"):
        make_plan(ManageSettings(Mode.NTP), PLAIN, FOLDERS)


def test_boundary_clock_runs_all_ports_in_one_ptp4l() -> None:
    made = plan(replace(PTP_HARDWARE, ptp=PtpSettings(("eth0", "eth1"))), PROVEN)
    assert [one.name for one in made.daemons] == ["ptp4l@eth0", "phc2sys@eth0"]
    assert "boundary_clock_jbod 1" in text(made, "ptp4l-eth0.conf")
    assert daemon(made, "phc2sys@eth0").argv[-2:] == ("-a", "-r")


def test_printed_plan_shows_every_file_command_reason_and_warning() -> None:
    made = plan(replace(PTP_AND_NTP, take_over=True), replace(PROVEN, time_daemons=(TIMESYNCD,)))
    printed = print_plan(made)
    wanted = [reason.detail for reason in made.reasons]
    wanted += [*made.warnings, *(file.path for file in made.files), *(one.unit_name for one in made.daemons)]
    wanted += [line for file in made.files for line in file.text.splitlines()]
    wanted += [" ".join(one.argv) for one in made.daemons]
    wanted += [record.unit for record in made.take_over]
    assert [part for part in wanted if part not in printed] == []
    assert "daemons: none" in print_plan(plan(ManageSettings(Mode.OBSERVE), PLAIN))


def test_plan_as_json_is_the_plan() -> None:
    made = plan(PTP_AND_NTP, PROVEN)
    value = json.loads(plan_as_json(made))
    assert value["mode"] == "ptp+ntp"
    assert [one["argv"] for one in value["daemons"]] == [list(one.argv) for one in made.daemons]
    assert value["files"][0]["mode"] == "0644"
    assert value["files"][0]["text"] == made.files[0].text


CARDS = st.builds(
    nic,
    st.just("eth0"),
    phc=st.none() | st.integers(0, 3),
    proven=st.none() | st.booleans(),
    driver=st.sampled_from(["ice", "bcmgenet", "mlx5_core"]),
)
HOSTS = st.builds(
    lambda chrony, linuxptp, card, right, systemd: replace(
        host(chrony, linuxptp, card, nic("eth1", phc=5, proven=True), nic("eth2")),
        has_clock_right=right,
        systemd_runs=systemd,
        node_count=12,
        shm_segments=(70, 71, 200),
        time_units=(UnitState("a.service", "enabled", False), UnitState("b.service", "enabled", False)),
    ),
    st.sampled_from(CHRONY_VERSIONS),
    st.sampled_from(LINUXPTP_VERSIONS),
    CARDS,
    st.booleans(),
    st.booleans(),
)
WISHES = st.builds(
    ManageSettings,
    mode=st.sampled_from(Mode),
    take_over=st.booleans(),
    max_drift_ppm=st.floats(1, 100),
    ntp=st.builds(
        NtpSettings,
        servers=st.sampled_from([(), (TimeServer("10.0.0.1"), TimeServer("10.0.0.2", nts=True))]),
        pools=st.sampled_from([(), (TimePool("pool.example.org"),)]),
        serve_networks=st.permutations(["10.0.0.0/24", "10.0.1.0/24"]).map(tuple),
    ),
    ptp=st.builds(
        PtpSettings,
        interfaces=st.sampled_from([(), ("eth0",), ("eth0", "eth1")]),
        transport=st.sampled_from(Transport),
        delay_mechanism=st.sampled_from(DelayMechanism),
        timestamping=st.sampled_from(Timestamping),
        role=st.sampled_from(Role),
    ),
)


@settings(max_examples=60)
@given(wish=WISHES, facts=HOSTS, seed=st.integers())
def test_order_of_facts_never_changes_a_byte(wish: ManageSettings, facts: Facts, seed: int) -> None:
    assume(problems(wish) == ())
    mixer = random.Random(seed)
    other = replace(
        facts,
        interfaces=tuple(mixer.sample(facts.interfaces, len(facts.interfaces))),
        time_units=tuple(mixer.sample(facts.time_units, len(facts.time_units))),
        shm_segments=tuple(mixer.sample(facts.shm_segments, len(facts.shm_segments))),
    )
    assert plan_as_json(make_plan(wish, facts, FOLDERS)) == plan_as_json(make_plan(wish, other, FOLDERS))
    assert print_plan(make_plan(wish, facts, FOLDERS)) == print_plan(make_plan(wish, other, FOLDERS))


@settings(max_examples=60)
@given(wish=WISHES, facts=HOSTS)
def test_every_plan_is_whole(wish: ManageSettings, facts: Facts) -> None:
    assume(problems(wish) == ())
    made = make_plan(wish, facts, FOLDERS)
    assert made.mode is not Mode.AUTO
    assert made.reasons
    assert bool(made.daemons) is (made.mode is not Mode.OBSERVE)
    assert sum(one.needs_clock_right for one in made.daemons) == (bool(made.daemons) and facts.has_clock_right)
    paths = {file.path for file in made.files}
    assert len(paths) == len(made.files)
    for one in made.daemons:
        # Each reads a file of the plan and nothing else of ours.
        assert one.argv[one.argv.index("-f") + 1] in paths
    assert len({one.unit_name for one in made.daemons}) == len(made.daemons)


@given(keys=st.permutations(["mode", "take_over", "ntp", "ptp"]), inner=st.permutations(["servers", "min_sources"]))
def test_order_of_keys_in_the_file_never_changes_a_byte(keys: list[str], inner: list[str]) -> None:
    ntp = {"servers": ["10.0.0.1", "10.0.0.2"], "min_sources": 2}
    table: dict[str, object] = {
        "mode": "ptp+ntp",
        "take_over": True,
        "ntp": {key: ntp[key] for key in inner},
        "ptp": {"interfaces": ["eth0"]},
    }
    first, _ = read_settings(table)
    second, complaints = read_settings({key: table[key] for key in keys})
    assert complaints == ()
    assert plan_as_json(plan(first, PROVEN)) == plan_as_json(plan(second, PROVEN))
