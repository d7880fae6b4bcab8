"""What is refused although the kernel would take it, and which spellings are one value."""

import pytest
from clockgated.tuning.model import Area, Change, Knob, LinkId
from clockgated.tuning.same import is_same
from clockgated.tuning.validate import problem
from hypothesis import given
from hypothesis import strategies as st
from support.tuning import change

LINK = LinkId("eth0", 2)


def link_change(area: Area, key: str, wanted: str, found: str = "1") -> Change:
    return change(Knob(1, area, key, LINK), found, wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        "4096 131072 65536",  # the largest below the default: the kernel takes it
        "4096 131072",  # two numbers: the kernel takes it
        "4096 131072 6291456 1",  # a fourth: forgotten without a word
        "4096 131072 2147483648",  # above INT_MAX
        "4096 131072 -2126493856",  # an overflow: oracle/bpftune 36
        "0 131072 6291456",
        "abc",  # redhat-performance/tuned 860
        "",
    ],
)
def test_a_buffer_triple_that_makes_no_sense_is_refused(wanted: str) -> None:
    refusal = problem(change("net.ipv4.tcp_rmem", "4096 131072 6291456", wanted))

    assert refusal is not None
    assert "net.ipv4.tcp_rmem" in refusal
    assert "wanted" in refusal


@pytest.mark.parametrize(
    ("key", "wanted"), [("net.ipv4.tcp_mtu_probing", "9"), ("net.ipv4.tcp_slow_start_after_idle", "7")]
)
def test_a_mode_that_does_not_exist_is_refused(key: str, wanted: str) -> None:
    assert problem(change(key, "1", wanted)) is not None


def test_a_misspelt_congestion_control_is_refused_with_a_suggestion() -> None:
    refusal = problem(change("net.ipv4.tcp_congestion_control", "cubic", "brr"), ("reno", "bbr", "cubic"))

    assert refusal is not None
    assert "bbr" in refusal


def test_good_values_pass() -> None:
    assert problem(change("net.ipv4.tcp_rmem", "4096 131072 6291456", "4096 131072 67108864")) is None
    assert problem(change("net.ipv4.tcp_congestion_control", "cubic", "bbr"), ("bbr", "cubic")) is None
    assert problem(link_change(Area.MTU, "mtu", "9000")) is None
    assert problem(link_change(Area.QDISC, "root", "fq", "pfifo_fast")) is None
    assert problem(link_change(Area.IRQ, "eth0-TxRx-0", "0-3,8", "0-7")) is None
    assert problem(link_change(Area.SYSFS, "class/net/eth0/queues/rx-0/rps_cpus", "ff", "0")) is None


@pytest.mark.parametrize(
    ("area", "wanted"),
    [
        (Area.MTU, "67"),
        (Area.MTU, "65536"),
        (Area.RINGS, "0"),
        (Area.CHANNELS, "many"),
        (Area.QDISC, "htb"),
        (Area.EEE, "1"),
        (Area.IRQ, "0-"),
        (Area.SYSFS, "two words"),
    ],
)
def test_a_link_setting_out_of_range_is_refused(area: Area, wanted: str) -> None:
    assert problem(link_change(area, "key", wanted)) is not None


def test_a_key_without_a_rule_of_its_own_keeps_its_shape() -> None:
    assert problem(change("net.ipv4.tcp_foo", "1 2", "3 4")) is None
    assert problem(change("net.ipv4.tcp_foo", "1 2", "3")) is not None
    assert problem(change("net.ipv4.tcp_foo", "1 2", "3 x")) is not None


@given(st.text(max_size=60))
def test_no_value_makes_the_check_fail_and_none_with_a_line_end_passes(wanted: str) -> None:
    for area in Area:
        refusal = problem(link_change(area, "net.ipv4.tcp_rmem", wanted))
        assert refusal is not None or "\n" not in wanted


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [("0-3", "0,1,2,3", True), ("0-3", "0-2", False), ("0", "0,0", True), ("x", "x", True), ("x", "y", False)],
)
def test_lists_of_processors_are_compared_by_what_they_name(one: str, other: str, is_one: bool) -> None:
    assert is_same(Knob(1, Area.IRQ, "eth0-0"), one, other) is is_one


@pytest.mark.parametrize(
    ("one", "other", "is_one"), [("f", "00000000,0000000f", True), ("f", "e", False), ("1,00000000", "100000000", True)]
)
def test_masks_are_compared_by_what_they_name(one: str, other: str, is_one: bool) -> None:
    assert is_same(Knob(1, Area.SYSFS, "class/net/eth0/queues/rx-0/rps_cpus"), one, other) is is_one


def test_nothing_is_the_same_as_an_unknown_value() -> None:
    assert not is_same(Knob(1, Area.IRQ, "eth0-0"), None, None)


@pytest.mark.parametrize(
    ("found", "wanted", "is_fit"),
    [("950000", "-1", True), ("950000", "-2", False), ("1", "--5", False), ("-5", "-20", True), ("1", "-0", True)],
)
def test_a_negative_number_is_for_keys_that_hold_one(found: str, wanted: str, *, is_fit: bool) -> None:
    assert (problem(change("kernel.sched_rt_runtime_us", found, wanted)) is None) is is_fit
    assert problem(change("net.ipv4.tcp_rmem", "4096 131072 6291456", "--5 1 2")) is not None
