from dataclasses import replace
from pathlib import Path

import pytest
from clockgated.tuning.choose import choose
from clockgated.tuning.facts import Channels, Cpus, Facts, Irq, Owners, Queue, RdmaPort, Rings, StampConfig
from clockgated.tuning.model import (
    Area,
    Change,
    Counter,
    ExitCode,
    LinkId,
    Owner,
    OwnerKind,
    RefusalCode,
    plan_exit,
)  # fmt: skip
from clockgated.tuning.planner import RULES
from clockgated.tuning.profile import BUILT_IN
from clockgated.tuning.rules.base import Stance
from clockgated.tuning.values import numbers
from hypothesis import given
from hypothesis import strategies as st
from support.tuning_tree import SYSCTLS, change, facts, link, plan_for, profile, refusal

IDLE = "net.ipv4.tcp_slow_start_after_idle"
ADMIN = Owner(OwnerKind.ADMIN_FILE, "/etc/sysctl.d/60-site.conf:3", "1")
DOCS = Path(__file__).parents[3] / "docs"


def owned(owners: Owners) -> Facts:
    return replace(facts(), owners=owners)


def test_a_key_in_an_administrators_file_is_left_and_the_line_named() -> None:
    plan = plan_for(owned(Owners(sysctls={IDLE: ADMIN})))
    assert change(plan, IDLE) is None
    refused = refusal(plan, IDLE)
    assert refused is not None
    assert refused.code is RefusalCode.CONFLICT
    assert refused.owner == ADMIN
    assert (refused.found, refused.wanted) == ("1", "0")
    assert plan_exit(plan) == ExitCode.CONFLICT


def test_a_pattern_in_an_administrators_file_counts_too() -> None:
    plan = plan_for(owned(Owners(sysctls={"net.ipv4.tcp_*": ADMIN})))
    assert change(plan, IDLE) is None


def test_a_profile_may_override_an_owner_by_name() -> None:
    found = change(plan_for(owned(Owners(sysctls={IDLE: ADMIN})), profile(override=(IDLE,))), IDLE)
    assert found is not None
    assert found.owner == ADMIN


def test_a_packages_file_is_named_and_does_not_block() -> None:
    vendor = Owner(OwnerKind.VENDOR_FILE, "/usr/lib/sysctl.d/50-x.conf:1", "1")
    found = change(plan_for(owned(Owners(sysctls={IDLE: vendor}))), IDLE)
    assert found is not None
    assert found.owner == vendor


def test_tuned_owns_what_its_profile_sets() -> None:
    tuned = Owner(OwnerKind.TUNED, "tuned profile x (/usr/lib/tuned/x/tuned.conf)", "1")
    running = Owners(tuned_profile="x", tuned_sysctls={IDLE: tuned})
    refused = refusal(plan_for(owned(running)), IDLE)
    assert refused is not None
    assert refused.owner == tuned
    assert change(plan_for(owned(replace(running, tuned_profile=None))), IDLE) is not None


def test_networkmanager_owns_the_mtu_of_its_connection() -> None:
    manager = Owner(OwnerKind.NETWORK_MANAGER, "/etc/NetworkManager/system-connections/lan.nmconnection", "1500")
    refused = refusal(plan_for(owned(Owners(network_manager={"2.mtu": manager})), profile(mtu_bytes=9000)), "eth0 mtu")
    assert refused is not None
    assert refused.owner == manager


def test_nothing_that_no_rule_names_is_ever_touched() -> None:
    # The administrator switched forwarding on at run time while a file says 0: a plan about buffers must not undo it.
    forwarding = {"net.ipv4.ip_forward": Owner(OwnerKind.ADMIN_FILE, "/etc/sysctl.d/x.conf:1", "0")}
    seen = replace(facts(rtt_us=50_000, sysctls={"net.ipv4.ip_forward": "1"}), owners=Owners(sysctls=forwarding))
    for name in BUILT_IN:
        plan = plan_for(seen, profile(name))
        touched = [one.knob for one in plan.changes] + [one.knob for one in plan.refusals]
        assert not [knob for knob in touched if knob is not None and knob.key == "net.ipv4.ip_forward"]


def busy_node() -> Facts:
    queues = tuple(Queue(f"rx-{n}", "0") for n in range(2))
    nic = link(
        rings=Rings(512, 8192, 512, 8192), channels=Channels(combined=1, combined_max=8), eee_enabled=True,
        stamp_config=StampConfig(1, 1), queues=queues, counters=(Counter("eth0.rx_missed_errors", 9),),
    )  # fmt: skip
    seen = facts(nic, rtt_us=50_000, irqs=tuple(Irq(n, f"eth0-{n}", "eth0", "0-3") for n in (40, 41)))
    return replace(seen, host=replace(seen.host, neighbours=900, cpus=Cpus(count=4, governors={0: "powersave"})))


def test_harmless_changes_come_first_and_what_hangs_on_queues_last() -> None:
    plan = plan_for(busy_node(), profile(mtu_bytes=9000), earlier={"eth0.rx_missed_errors": 1})
    areas = list(dict.fromkeys(one.knob.area for one in plan.changes))
    assert areas == [
        Area.SYSCTL, Area.SYSFS, Area.MTU, Area.EEE, Area.RINGS, Area.CHANNELS, Area.QDISC, Area.IRQ,
    ]  # fmt: skip


def test_every_change_says_why_and_what_may_cut_the_node_off_is_confirmed() -> None:
    plan = plan_for(busy_node(), profile(mtu_bytes=9000), earlier={"eth0.rx_missed_errors": 1})
    assert all(one.why.sentence for one in plan.changes)
    assert {one.knob.area for one in plan.changes if one.needs_confirm} == {
        Area.MTU, Area.EEE, Area.RINGS, Area.CHANNELS, Area.QDISC,
    }  # fmt: skip
    assert {one.knob.area for one in plan.changes if one.resets_link} == {Area.EEE, Area.RINGS, Area.CHANNELS}


def test_the_hash_moves_with_the_node_and_not_with_its_counters() -> None:
    seen = busy_node()
    first = plan_for(seen)
    counted = replace(seen, host=replace(seen.host, tcp_counters=(Counter("tcp.RetransSegs", 9),)), as_of_boot_ns=99)
    assert plan_for(counted).plan_hash == first.plan_hash
    moved = replace(seen, sysctls=facts(sysctls={IDLE: "0"}).sysctls)
    assert plan_for(moved).plan_hash != first.plan_hash


def test_what_is_in_force_already_is_not_planned_again() -> None:
    seen = busy_node()
    plan = plan_for(seen)
    values = SYSCTLS | {one.knob.key: one.wanted for one in plan.changes if one.knob.area is Area.SYSCTL}
    again = plan_for(replace(seen, sysctls=facts(sysctls=values).sysctls))
    assert not [one for one in again.changes if one.knob.area is Area.SYSCTL]


def test_the_exit_code_is_that_of_the_gravest() -> None:
    assert plan_exit(plan_for(facts(), profile("none"))) == ExitCode.CLEAN
    assert plan_exit(plan_for(facts(rtt_us=None))) == ExitCode.DRIFT
    assert plan_exit(plan_for(facts(), profile("none", sysctl={"net.x": "1"}))) == ExitCode.UNSUPPORTED
    spoiled = profile("none", sysctl={"net.ipv4.tcp_mtu_probing": "9"})
    assert plan_exit(plan_for(facts(), spoiled)) == ExitCode.ERROR


def test_profile_none_changes_nothing_on_any_node() -> None:
    assert plan_for(busy_node(), profile("none"), earlier={"eth0.rx_missed_errors": 1}).changes == ()


def test_links_are_chosen_by_pattern() -> None:
    veth = link("veth0", link_id=LinkId("veth0", 9), kind="veth")
    seen = facts(link(), veth)
    assert {one.knob.link.name for one in plan_for(seen).changes if one.knob.link} == {"eth0"}
    chosen = plan_for(seen, profile(links=("ve*",)))
    assert {one.knob.link.name for one in chosen.changes if one.knob.link} == {"veth0"}


triples = st.lists(st.integers(1, 2**31 - 1), min_size=3, max_size=3).map(sorted)


@given(triples, triples, st.integers(1, 500_000), st.integers(1, 800_000))
def test_buffers_are_never_lowered_whatever_is_found(rmem: list[int], wmem: list[int], rtt_us: int, mbps: int) -> None:
    found = {"net.ipv4.tcp_rmem": " ".join(map(str, rmem)), "net.ipv4.tcp_wmem": " ".join(map(str, wmem))}
    for one in plan_for(facts(link(speed_mbps=mbps), rtt_us=rtt_us, sysctls=found)).changes:
        if one.knob.key in found:
            before, after = numbers(one.found), numbers(one.wanted)
            assert before is not None
            assert after is not None
            assert before[:2] == after[:2]
            assert before[2] < after[2]


@given(st.dictionaries(st.sampled_from(sorted(SYSCTLS)), st.text(max_size=20)), st.sampled_from(BUILT_IN))
def test_any_values_found_give_a_plan(found: dict[str, str], name: str) -> None:
    plan = plan_for(replace(busy_node(), sysctls=facts(sysctls=dict(found)).sysctls), profile(name))
    assert all(isinstance(one, Change) for one in plan.changes)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (facts(), "tcp"),
        (facts(rtt_us=20_000), "wan"),
        (facts(link(is_up=False)), "none"),
        (facts(link("v0", kind="veth")), "none"),
    ],
)
def test_auto_follows_the_fabric(seen: Facts, name: str) -> None:
    assert choose(seen)[0] == name


def test_auto_prefers_rdma_that_is_up() -> None:
    def with_port(state: str, layer: str) -> Facts:
        return replace(facts(), host=replace(facts().host, rdma_ports=(RdmaPort("mlx5_0", 1, state, layer),)))

    assert choose(with_port("ACTIVE", "InfiniBand"))[0] == "ib"
    assert choose(with_port("ACTIVE", "Ethernet"))[0] == "roce"
    assert choose(with_port("DOWN", "InfiniBand"))[0] == "tcp"


def test_the_manual_has_every_rule_with_its_stance_and_reason() -> None:
    manual = (DOCS / "tuning.md").read_text()
    for rule in RULES:
        assert f"| {rule.name} | {rule.stance} | {rule.reason} |" in manual, rule.name


def test_no_rule_ever_forces_a_choice_of_the_collectives() -> None:
    assert {rule.stance for rule in RULES if "NCCL" in rule.name} == {Stance.NEVER}
