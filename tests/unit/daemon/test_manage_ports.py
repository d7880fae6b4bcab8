from dataclasses import replace

import pytest
from clockgated.manage.facts import Facts, Interface, Tool
from clockgated.manage.feed import groups_by_clock, one_group, with_feeds
from clockgated.manage.ports import Ports, resolve_ports, stamping_device
from clockgated.manage.settings import PtpSettings, Timestamping
from hypothesis import given
from hypothesis import strategies as st
from support.plan_hosts import host, nic

PHYSICAL = replace(nic("eth1", phc=1, proven=True), master="bond0")
BOND = Interface("bond0", operstate="up", is_bond=True, active_port="eth1", has_software_stamps=True)
VLAN = Interface("bond0.5", operstate="up", lower="bond0", has_software_stamps=True)


def facts(*interfaces: Interface, linuxptp: tuple[int, ...] = (3, 1, 1)) -> Facts:
    return host((4, 3), linuxptp, *interfaces)


def resolve(ptp: PtpSettings, *interfaces: Interface) -> Ports:
    return resolve_ports(ptp, facts(*interfaces))


def test_proven_hardware_is_used_without_being_asked_for() -> None:
    ports = resolve(PtpSettings(("eth0",)), nic("eth0", phc=4, proven=True))
    assert ports.hardware
    assert ports.is_proven
    assert ports.ports[0].phc == "/dev/ptp4"
    assert ports.warnings == ()


def test_software_is_used_quietly_where_nothing_is_proven() -> None:
    ports = resolve(PtpSettings(("eth0",)), nic("eth0", phc=4))
    assert not ports.hardware
    assert ports.warnings == ()


def test_unproven_hardware_is_used_only_when_asked_for_and_with_a_warning() -> None:
    ports = resolve(PtpSettings(("eth0",), timestamping=Timestamping.HARDWARE), nic("eth0", phc=4))
    assert ports.hardware
    assert not ports.is_proven
    assert "no trial has proven" in ports.warnings[0]


@pytest.mark.parametrize(
    ("card", "why"),
    [
        (nic("eth0"), "no hardware timestamps"),
        (replace(nic("eth0", phc=4), phc_ticks=False), "/dev/ptp4 of eth0 stands still"),
        (replace(nic("eth0", phc=4), phc_ticks=True, tx_stamp_arrives=False), "no transmit timestamp arrived"),
    ],
)
def test_hardware_that_failed_its_trial_is_never_used(card: Interface, why: str) -> None:
    ports = resolve(PtpSettings(("eth0",), timestamping=Timestamping.HARDWARE), card)
    assert not ports.hardware
    assert why in ports.warnings[0]
    assert "software timestamps are used instead" in ports.warnings[0]


def test_one_port_without_hardware_takes_all_ports_to_software() -> None:
    cards = (nic("eth0", phc=0, proven=True), nic("eth1"))
    assert not resolve(PtpSettings(("eth0", "eth1")), *cards).hardware
    assert resolve(PtpSettings(("eth0",)), *cards).hardware


def test_port_that_cannot_stamp_at_all_is_refused() -> None:
    ports = resolve(PtpSettings(("eth0",)), replace(nic("eth0"), has_software_stamps=False))
    assert ports.ports == ()
    assert "neither in proven hardware nor in software" in str(ports.refusal)


def test_missing_interface_is_refused_with_those_that_are_there() -> None:
    refusal = resolve(PtpSettings(("eth9",)), nic("eth1"), nic("eth0")).refusal
    assert refusal is not None
    assert "eth9" in refusal
    assert "present: eth0, eth1" in refusal


@pytest.mark.parametrize(
    ("interfaces", "chosen"),
    [
        ((nic("eth0"), nic("eth1", phc=0, proven=True)), "eth1"),
        ((replace(nic("eth0"), speed_mbps=1000), nic("eth1")), "eth1"),
        ((nic("eth1"), nic("eth0")), "eth0"),
        ((replace(nic("eth0"), operstate="down"), nic("eth1")), "eth1"),
        ((replace(nic("docker0"), driver=None), nic("eth1")), "eth1"),
        ((PHYSICAL, BOND, VLAN), "bond0"),
    ],
    ids=["proven", "faster", "first-by-name", "up", "physical", "bond-rather-than-its-port"],
)
def test_best_interface_is_chosen_when_none_is_named(interfaces: tuple[Interface, ...], chosen: str) -> None:
    (port,) = resolve(PtpSettings(), *interfaces).ports
    assert port.interface == chosen


def test_host_without_an_interface_to_use_is_refused() -> None:
    assert "ptp.interfaces" in str(resolve(PtpSettings(), replace(nic("eth0"), operstate="down")).refusal)


def test_bond_is_stamped_by_its_active_port() -> None:
    ports = resolve(PtpSettings(("bond0",)), PHYSICAL, BOND)
    assert ports.hardware
    assert (ports.ports[0].interface, ports.ports[0].phc) == ("bond0", "/dev/ptp1")


def test_bond_without_an_active_port_is_refused() -> None:
    assert "no active port" in str(resolve(PtpSettings(("bond0",)), PHYSICAL, replace(BOND, active_port=None)).refusal)


def test_vlan_over_a_bond_keeps_hardware_from_linuxptp_4_on() -> None:
    ptp = PtpSettings(("bond0.5",), timestamping=Timestamping.HARDWARE)
    old = resolve_ports(ptp, facts(PHYSICAL, BOND, VLAN))
    new = resolve_ports(ptp, facts(PHYSICAL, BOND, VLAN, linuxptp=(4, 0)))
    assert (old.hardware, new.hardware) == (False, True)
    assert "from linuxptp 4.0 on" in old.warnings[0]
    assert new.ports[0].phc == "/dev/ptp1"


def test_circle_of_interfaces_ends() -> None:
    one = Interface("a", lower="b")
    other = Interface("b", lower="a")
    assert stamping_device(facts(one, other), "a") is None


def test_ports_that_share_a_clock_are_one_reference() -> None:
    cards = [nic(f"eth{number}", phc=clock, proven=True) for number, clock in enumerate((0, 1, 0))]
    ports = resolve(PtpSettings(("eth0", "eth1", "eth2")), *cards)
    groups = groups_by_clock(ports)
    assert [[port.interface for port in group.ports] for group in groups] == [["eth0", "eth2"], ["eth1"]]
    assert [group.clocks for group in groups] == [("/dev/ptp0",), ("/dev/ptp1",)]
    assert one_group(ports)[0].clocks == ("/dev/ptp0", "/dev/ptp1")


@given(
    folder=st.text("abc/", min_size=1, max_size=12),
    count=st.integers(1, 4),
    taken=st.sets(st.integers(0, 255), max_size=40),
    first=st.none() | st.integers(2, 255),
)
def test_segments_are_free_distinct_and_always_the_same(
    folder: str, count: int, taken: set[int], first: int | None
) -> None:
    cards = [nic(f"eth{number}") for number in range(count)]
    ports = resolve(PtpSettings(tuple(card.name for card in cards)), *cards)
    groups = groups_by_clock(ports)

    def numbers() -> list[int | None]:
        fed = with_feeds(groups, Tool("ptp4l", (3, 1, 1)), folder, first, tuple(taken))
        return [group.feed.segment for group in fed if group.feed is not None]

    found = numbers()
    assert len(found) == len(set(found)) == count
    assert not taken & set(found)
    assert all(number is not None and 2 <= number <= 255 for number in found)
    assert first is None or first in taken or found[0] == first
    assert found == numbers()


def test_newer_linuxptp_feeds_through_a_socket() -> None:
    groups = one_group(resolve(PtpSettings(("eth0",)), nic("eth0")))
    (group,) = with_feeds(groups, Tool("ptp4l", (4, 0)), "/run/x/chrony", None, ())
    assert group.feed is not None
    assert (group.feed.socket, group.feed.segment) == ("/run/x/chrony/ptp-eth0.sock", None)
