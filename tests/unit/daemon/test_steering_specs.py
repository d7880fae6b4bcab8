from dataclasses import replace

import pytest
from clockgated.manage.plan import make_plan
from clockgated.manage.planned import Plan
from clockgated.steering.specs import specs_of, watched
from clockgated.units import NS_PER_S
from support.plan_hosts import FOLDERS, GRANDMASTER, NTP_CLIENT, PTP_AND_NTP, PTP_HARDWARE, host, nic

PROVEN = host((4, 3), (3, 1, 1), nic("eth0", phc=0, proven=True))


def test_each_daemon_becomes_a_spec_in_start_order() -> None:
    plan = make_plan(PTP_AND_NTP, PROVEN, FOLDERS)
    specs = specs_of(plan)
    assert [spec.name for spec in specs] == ["chronyd", "ptp4l@eth0", "phc2sys@eth0"]
    for spec, daemon in zip(specs, plan.daemons, strict=True):
        assert (spec.argv, spec.later_argv, spec.unit) == (daemon.argv, daemon.restart_argv, daemon.unit_name)
        assert spec.drop_clock_right is not daemon.needs_clock_right
        assert (spec.ready_paths, spec.stop_order) == (daemon.ready_when.paths, daemon.stop_order)
    assert specs[2].ready_after_ns == 10 * NS_PER_S


def test_without_the_clock_right_chronyd_is_kept_from_the_clock_by_force() -> None:
    (spec,) = specs_of(make_plan(NTP_CLIENT, replace(PROVEN, has_clock_right=False), FOLDERS))
    assert spec.drop_clock_right
    assert "-x" in spec.argv
    (spec,) = specs_of(make_plan(NTP_CLIENT, PROVEN, FOLDERS))
    assert not spec.drop_clock_right


def changed(plan: Plan, path_part: str) -> Plan:
    files = tuple(replace(one, text=one.text + "#\n") if path_part in one.path else one for one in plan.files)
    return replace(plan, files=files)


def test_a_changed_file_changes_the_specs_of_those_who_read_it_and_of_no_other() -> None:
    plan = make_plan(PTP_AND_NTP, PROVEN, FOLDERS)
    before = {spec.name: spec.digest for spec in specs_of(plan)}
    after = {spec.name: spec.digest for spec in specs_of(changed(plan, "ptp4l-eth0.conf"))}
    assert {name for name in before if before[name] != after[name]} == {"ptp4l@eth0"}


@pytest.mark.parametrize(
    ("answered", "talked", "armed"),
    [
        (set(), set(), set()),
        ({"chronyd"}, {"chronyd"}, {"chronyd"}),
        # Lines prove nothing about answers; phc2sys has nothing but lines.
        (set(), {"chronyd", "ptp4l@eth0", "phc2sys@eth0"}, {"phc2sys@eth0"}),
        ({"ptp4l@eth0"}, set(), {"ptp4l@eth0"}),
    ],
)
def test_silence_is_held_against_those_only_that_spoke_before(
    answered: set[str], talked: set[str], armed: set[str]
) -> None:
    specs = specs_of(make_plan(PTP_AND_NTP, PROVEN, FOLDERS))
    assert all(spec.stale_after_ns for spec in specs)
    watching = watched(specs, answered, talked)
    assert {spec.name for spec in watching if spec.stale_after_ns is not None} == armed
    assert [spec.digest for spec in watching] == [spec.digest for spec in specs]


def test_a_phc2sys_that_is_silent_by_nature_is_never_taken_for_hung() -> None:
    two = host((4, 3), (3, 1, 1), nic("eth0", phc=0, proven=True), nic("eth1", phc=1, proven=True))
    ptp = replace(PTP_HARDWARE, ptp=replace(PTP_HARDWARE.ptp, interfaces=("eth0", "eth1")))
    stale = {spec.name: spec.stale_after_ns for spec in specs_of(make_plan(ptp, two, FOLDERS))}
    assert stale["phc2sys@eth0"] is None
    assert stale["ptp4l@eth0"] == 10 * NS_PER_S
    assert specs_of(make_plan(GRANDMASTER, PROVEN, FOLDERS))[-1].stale_after_ns == 10 * NS_PER_S
