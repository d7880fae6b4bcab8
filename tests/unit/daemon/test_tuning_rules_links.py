"""Rules about queues, interfaces and the host on made-up facts."""

from dataclasses import replace

import pytest
from clockgated.tuning.facts import (
    Channels,
    Coalesce,
    Cpus,
    Facts,
    Features,
    Fec,
    Irq,
    JobProcess,
    Pause,
    PcieHop,
    Qdisc,
    Queue,
    RdmaPort,
    Rings,
    StampConfig,
)  # fmt: skip
from clockgated.tuning.model import Counter, LinkId, Plan, RefusalCode, Risk
from clockgated.tuning.rules.queues import cpu_mask
from support.tuning_tree import change, facts, findings, link, plan_for, profile, refusal

TWO_NODES = Cpus(count=8, by_node={0: (0, 1, 2, 3), 1: (4, 5, 6, 7)})


def on_host(seen: Facts, **changes: object) -> Facts:
    return replace(seen, host=replace(seen.host, **changes))  # type: ignore[arg-type]


def only(plan: Plan, subject: str) -> str:
    found = change(plan, subject)
    assert found is not None, [one.knob.subject for one in plan.changes]
    return found.wanted


# Queues


def test_rings_double_only_while_packets_are_lost() -> None:
    nic = link(rings=Rings(1024, 8192, 1024, 8192), counters=(Counter("eth0.rx_missed_errors", 50),))
    assert change(plan_for(facts(nic)), "eth0 rings.rx") is None
    grown = change(plan_for(facts(nic), earlier={"eth0.rx_missed_errors": 10}), "eth0 rings.rx")
    assert grown is not None
    assert (grown.wanted, grown.resets_link, grown.needs_confirm, grown.risk) == ("2048", True, True, Risk.LINK)
    full = replace(nic, rings=Rings(8192, 8192, 1024, 8192))
    assert change(plan_for(facts(full), earlier={"eth0.rx_missed_errors": 10}), "eth0 rings.rx") is None


def test_channels_rise_to_the_cpus_near_the_link_and_never_fall() -> None:
    nic = link(numa_node=1, channels=Channels(combined=2, combined_max=63))
    plan = plan_for(on_host(facts(nic), cpus=TWO_NODES))
    assert only(plan, "eth0 channels.combined") == "4"
    many = plan_for(on_host(facts(replace(nic, channels=Channels(combined=8, combined_max=63))), cpus=TWO_NODES))
    assert change(many, "eth0 channels.combined") is None
    assert findings(many, "MORE_QUEUES_THAN_CPUS")


def test_counters_that_tell_about_a_link_stand_beside_its_changes() -> None:
    nic = link(counters=(Counter("eth0.tx_dropped", 3),), channels=Channels(combined=1, combined_max=8))
    plan = plan_for(on_host(facts(nic), cpus=TWO_NODES, softnet_squeezed=7))
    evidence = {one.knob.subject: one.evidence for one in plan.changes}
    assert evidence["eth0 qdisc.root"] == (Counter("eth0.tx_dropped", 3),)
    assert evidence["eth0 channels.combined"] == (Counter("softnet.squeezed", 7),)


def test_links_of_rdma_alone_keep_their_channels() -> None:
    nic = link(channels=Channels(combined=1, combined_max=8))
    plan = plan_for(on_host(facts(nic), cpus=TWO_NODES), profile("roce"))
    assert change(plan, "eth0 channels.combined") is None


def test_fq_replaces_the_kernels_own_pfifo_fast_alone() -> None:
    assert only(plan_for(facts()), "eth0 qdisc.root") == "fq"
    queues = (Qdisc("mq", "root", "0:0"), Qdisc("pfifo_fast", "0:1", "0:0"), Qdisc("pfifo_fast", "0:2", "0:0"))
    assert only(plan_for(facts(link(qdiscs=queues))), "eth0 qdisc.root") == "fq"
    for kind in ("htb", "mqprio", "taprio", "fq_codel", "noqueue"):
        assert change(plan_for(facts(link(qdiscs=(Qdisc(kind, "root", "8001:0"),)))), "eth0 qdisc.root") is None
    by_hand = plan_for(facts(link(qdiscs=(Qdisc("pfifo_fast", "root", "8001:0"),))))
    refused = refusal(by_hand, "eth0 qdisc")
    assert refused is not None
    assert refused.code is RefusalCode.CONFLICT


def nic_with_irqs() -> Facts:
    queues = tuple(Queue(f"rx-{n}", "0") for n in range(4))
    irqs = tuple(Irq(40 + n, f"eth0-TxRx-{n}", "eth0", "0-7") for n in range(4))
    irqs += (Irq(39, "eth0-config", "eth0", "0-7"),)
    return on_host(facts(link(numa_node=1, queues=queues), irqs=irqs), cpus=TWO_NODES)


def test_each_queue_gets_a_cpu_near_the_link() -> None:
    plan = plan_for(nic_with_irqs())
    assert [only(plan, f"eth0 irq.eth0-TxRx-{n}") for n in range(4)] == ["4", "5", "6", "7"]
    assert change(plan, "eth0 irq.eth0-config") is None


def test_with_irqbalance_interrupts_are_left_to_it() -> None:
    seen = nic_with_irqs()
    plan = plan_for(replace(seen, owners=replace(seen.owners, irqbalance_runs=True)))
    refused = refusal(plan, "eth0 irq")
    assert refused is not None
    assert refused.code is RefusalCode.CONFLICT
    assert "--policyscript" in refused.next_step


def test_receive_steering_is_set_only_where_a_profile_asks() -> None:
    seen = on_host(facts(link(numa_node=1, queues=(Queue("rx-0", "00"),))), cpus=TWO_NODES)
    subject = "class/net/eth0/queues/rx-0/rps_cpus"
    assert change(plan_for(seen), subject) is None
    assert only(plan_for(seen, profile(receive_steering=True)), subject) == "f0"


def test_masks_are_spelled_as_the_kernel_does() -> None:
    assert cpu_mask(range(4)) == "f"
    assert cpu_mask([0, 32]) == "1,00000001"
    assert cpu_mask([64]) == "1,00000000,00000000"


# Interfaces


def test_pause_frames_that_rise_without_drops_are_told() -> None:
    nic = link(pause=Pause(True, True, True, rx_frames=5000), counters=(Counter("eth0.rx_dropped", 0),))
    plan = plan_for(facts(nic), earlier={"eth0.rx_pause_frames": 1000, "eth0.rx_dropped": 0})
    (told,) = findings(plan, "PAUSED_BY_PEER")
    assert "4000 times" in told.why.sentence
    assert not findings(plan_for(facts(nic), earlier={"eth0.rx_pause_frames": 5000}), "PAUSED_BY_PEER")


def test_global_pause_beside_roce_is_told() -> None:
    nic = link(pause=Pause(True, True, True))
    assert findings(plan_for(facts(nic), profile("roce")), "PAUSE_BESIDE_PFC")
    assert not findings(plan_for(facts(nic), profile("tcp")), "PAUSE_BESIDE_PFC")


def test_the_mtu_changes_only_to_what_a_profile_says_was_agreed() -> None:
    assert change(plan_for(facts()), "eth0 mtu") is None
    found = change(plan_for(facts(), profile(mtu_bytes=9000)), "eth0 mtu")
    assert found is not None
    assert (found.wanted, found.needs_confirm) == ("9000", True)


def test_a_tunnel_wider_than_what_carries_it_is_told() -> None:
    tunnel = link("wg0", link_id=LinkId("wg0", 3), kind="wireguard", mtu=1420, speed_mbps=None)
    (told,) = findings(plan_for(facts(link(mtu=1280), tunnel)), "TUNNEL_TOO_WIDE")
    assert "mtu 1200" in told.next_step
    assert not findings(plan_for(facts(link(mtu=1500), tunnel)), "TUNNEL_TOO_WIDE")


def test_two_interfaces_in_one_subnet_are_told() -> None:
    first = link("ens1", link_id=LinkId("ens1", 2), addresses=("192.0.2.11/24", "fe80::1/64"))
    second = link("ens2", link_id=LinkId("ens2", 3), addresses=("192.0.2.12/24", "fe80::2/64"))
    (told,) = findings(plan_for(facts(first, second)), "ONE_SUBNET_TWICE")
    assert told.subject == "ens1 ens2"
    other = replace(second, addresses=("198.51.100.12/24",))
    assert not findings(plan_for(facts(first, other)), "ONE_SUBNET_TWICE")


def test_eee_goes_off_on_ports_that_carry_time_alone() -> None:
    nic = link(eee_enabled=True, stamp_config=StampConfig(1, 12))
    assert only(plan_for(facts(nic)), "eth0 eee.enabled") == "off"
    assert change(plan_for(facts(replace(nic, stamp_config=StampConfig(0, 0)))), "eth0 eee.enabled") is None


@pytest.mark.parametrize(
    ("nic", "code"),
    [
        (link(features=Features(frozenset(), frozenset(), frozenset({"rx-gro"}))), "OFFLOAD_OFF"),
        (link(features=Features(frozenset({"rx-lro"})), master="br0"), "LRO_WHILE_FORWARDING"),
        (link(coalesce=Coalesce(0, 0, False, False)), "INTERRUPT_STORM"),
        (link(stamp_config=StampConfig(1, 12)), "STAMPING_FROZEN"),
        (link(stamp_config=StampConfig(1, 12)), "CQE_COMPRESSION"),
        (link(pcie=(PcieHop("0000:01:00.0", 16.0, 8, 16.0, 16),)), "PCIE_DEGRADED"),
    ],
)
def test_what_only_a_person_can_judge_is_told(nic: object, code: str) -> None:
    assert findings(plan_for(facts(nic)), code)  # type: ignore[arg-type]
    assert not findings(plan_for(facts(link())), code)


def test_blocks_that_could_not_be_corrected_are_told_while_they_rise() -> None:
    nic = link(fec=Fec(("RS",), 10, 7))
    assert findings(plan_for(facts(nic), earlier={"eth0.fec_uncorrectable": 5}), "FEC_UNCORRECTABLE")
    assert not findings(plan_for(facts(nic), earlier={"eth0.fec_uncorrectable": 7}), "FEC_UNCORRECTABLE")


def test_a_fast_card_below_a_slow_port_is_no_fault() -> None:
    fine = link(pcie=(PcieHop("0000:01:00.0", 16.0, 16, 16.0, 16), PcieHop("old", None, None, None, None)))
    assert not findings(plan_for(facts(fine)), "PCIE_DEGRADED")


# The host


def test_the_governor_is_set_on_the_cpus_near_the_link() -> None:
    cpus = replace(TWO_NODES, governors=dict.fromkeys(range(8), "schedutil"), energy_preferences={5: "performance"})
    plan = plan_for(on_host(facts(link(numa_node=1)), cpus=cpus))
    changed = [one.knob.key for one in plan.changes if one.knob.key.endswith("scaling_governor")]
    assert changed == [f"devices/system/cpu/cpu{n}/cpufreq/scaling_governor" for n in (4, 6, 7)]
    virtual = plan_for(on_host(facts(link(numa_node=1)), cpus=replace(cpus, is_virtual=True)))
    assert not [one for one in virtual.changes if one.knob.key.endswith("scaling_governor")]


def test_numa_balancing_goes_off_where_processes_are_pinned() -> None:
    seen = on_host(facts(), cpus=TWO_NODES)
    assert change(plan_for(seen), "kernel.numa_balancing") is None
    assert only(plan_for(seen, profile(numa_balancing_off=True)), "kernel.numa_balancing") == "0"


def test_huge_pages_need_a_consumer_by_name() -> None:
    asked = profile(hugepages=512, hugepages_consumer="libfabric")
    assert only(plan_for(facts(), asked), "vm.nr_hugepages") == "512"
    assert change(plan_for(facts(sysctls={"vm.nr_hugepages": "1024"}), asked), "vm.nr_hugepages") is None
    assert findings(plan_for(facts(sysctls={"vm.nr_hugepages": "1024"})), "HUGE_PAGES_UNNAMED")


def test_a_job_that_cannot_pin_memory_is_told_on_rdma_alone() -> None:
    seen = on_host(facts(), jobs=(JobProcess(7, "clockgate-train", 8388608), JobProcess(8, "torchrun", None, True)))
    (told,) = findings(plan_for(seen, profile("roce")), "MEMLOCK_LOW")
    assert told.subject == "pid 7 clockgate-train"
    assert not findings(plan_for(seen, profile("tcp")), "MEMLOCK_LOW")


def test_a_missing_rdma_device_is_told_as_such() -> None:
    assert findings(plan_for(facts(), profile("ib")), "RDMA_NO_DEVICE")
    down = on_host(facts(), rdma_ports=(RdmaPort("mlx5_0", 1, "DOWN", "InfiniBand", 100),))
    plan = plan_for(down, profile("ib"))
    assert not findings(plan, "RDMA_NO_DEVICE")
    assert findings(plan, "RDMA_PORT_DOWN")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"acs_redirects": ("0000:00:01.0",)}, "ACS_REDIRECTS"),
        ({"peermem": "loaded"}, "PEERMEM_UNREGISTERED"),
        ({"thp": "always"}, "THP_MODE"),
        ({"is_iommu_on": True}, "IOMMU_ON"),
        ({"cpus": Cpus(smt_active=True)}, "SMT_ON"),
        ({"nccl_settings": (("NCCL_PROTO", "LL128"),)}, "NCCL_FORCED"),
        ({"nccl_settings": (("NCCL_IB_GID_INDEX", "3"),)}, "NCCL_FORCED"),
    ],
)
def test_what_belongs_to_firmware_or_administrator_is_told(changes: dict[str, object], code: str) -> None:
    assert findings(plan_for(on_host(facts(), **changes)), code)
    assert not findings(plan_for(facts()), code)


def test_a_registered_peermem_and_an_empty_setting_are_fine() -> None:
    seen = on_host(facts(), peermem="registered", nccl_settings=(("NCCL_ALGO", ""), ("NCCL_DEBUG", "WARN")))
    assert not [*findings(plan_for(seen), "PEERMEM_UNREGISTERED"), *findings(plan_for(seen), "NCCL_FORCED")]


def test_zone_reclaim_is_told_and_never_set() -> None:
    plan = plan_for(facts(sysctls={"vm.zone_reclaim_mode": "1"}), profile(sysctl={"vm.zone_reclaim_mode": "0"}))
    assert findings(plan, "ZONE_RECLAIM_ON")
    assert change(plan, "vm.zone_reclaim_mode") is None
