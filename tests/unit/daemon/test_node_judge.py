from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from clockgate.v1 import node_pb2
from clockgated.config import NodeConfig
from clockgated.node import model
from clockgated.node.facts import (
    Disk,
    FabricLook,
    Gid,
    Gpu,
    GpuLook,
    HostLook,
    KernelEvent,
    NetLink,
    NodeLook,
    NvLink,
    PlatformLook,
    Pressure,
    RdmaPortLook,
    Temperature,
)
from clockgated.node.judge import Judged, Overdue, is_changed, judge
from clockgated.node.model import Finding, FindingCode, HealthState, Severity
from clockgated.tuning.facts import JobProcess, PcieHop
from hypothesis import given
from hypothesis import strategies as st

LIMITS = NodeConfig()
S = 1_000_000_000
NOW = 1000 * S
GIB = 1 << 30
GOOD_GPU = Gpu(
    0,
    uuid="GPU-a",
    pci_address="0000:18:00.0",
    memory_total_bytes=80 * GIB,
    memory_used_bytes=40 * GIB,
    utilization_percent=95,
    temperature_celsius=60,
    slowdown_celsius=90,
    ecc_corrected=3,
    ecc_uncorrected=0,
    pcie_generation=5,
    pcie_width=16,
    pcie_max_generation=5,
    pcie_max_width=16,
    nvlinks=(NvLink(0, True), NvLink(1, True)),
    has_pending_rows=False,
    has_failed_rows=False,
)
GOOD_PORT = RdmaPortLook(
    "mlx5_0",
    1,
    state="ACTIVE",
    phys_state="LinkUp",
    link_layer="InfiniBand",
    rate_gbps=400.0,
    counters={"symbol_error": 5, "link_downed": 1},
)
ROCE_PORT = replace(
    GOOD_PORT,
    device="mlx5_9",
    link_layer="Ethernet",
    gids=(Gid(4, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2"),),
)
GOOD_LINK = NetLink("eth0", "mlx5_core", True, True, carrier_losses=1, counters={"rx_errors": 9, "rx_dropped": 7})
GOOD = NodeLook(
    host=HostLook(
        Pressure(1.0, 0.0, 0.0), 100 * GIB, 50 * GIB, 1.0, 8, oom_kills=4, memory_errors_corrected=1,
        memory_errors_uncorrected=0, clocksource="tsc", taint=1 << 12, temperatures=(Temperature("cpu", 60.0, 100.0),),
    ),
    disks=(Disk("/state", 100 * GIB, 60 * GIB, 1000, 900, is_read_only=False),),
    fabric=FabricLook((GOOD_LINK,), (GOOD_PORT,)),
    platform=PlatformLook(nvidia_devices=("0000:18:00.0",), has_dma_buf=True),
    gpus=GpuLook("580.1", (GOOD_GPU,)),
    kernel=(),
)  # fmt: skip


def with_host(**changes: Any) -> NodeLook:
    assert GOOD.host is not None
    return replace(GOOD, host=replace(GOOD.host, **changes))


def with_gpu(**changes: Any) -> NodeLook:
    return replace(GOOD, gpus=GpuLook("580.1", (replace(GOOD_GPU, **changes),)))


def with_port(base: RdmaPortLook = GOOD_PORT, **changes: Any) -> NodeLook:
    return replace(GOOD, fabric=FabricLook((GOOD_LINK,), (replace(base, **changes),)))


def with_link(**changes: Any) -> NodeLook:
    return replace(GOOD, fabric=FabricLook((replace(GOOD_LINK, **changes),), (GOOD_PORT,)))


def judged(*looks: NodeLook, limits: NodeConfig = LIMITS) -> Judged:
    """The judgement after one look every ten seconds."""
    result: Judged | None = None
    for number, look in enumerate(looks):
        result = judge(result, look, (), NOW + number * 10 * S, limits)
    assert result is not None
    return result


def only(found: Judged) -> Finding:
    assert len(found.health.findings) == 1, found.health.findings
    return found.health.findings[0]


def test_a_good_node_is_healthy_and_silent() -> None:
    health = judged(GOOD, GOOD).health
    assert (health.state, health.findings, health.sequence) == (HealthState.HEALTHY, (), 2)


def test_nothing_known_is_nothing_found() -> None:
    empty = NodeLook(HostLook(), (Disk("/x"),), FabricLook(), PlatformLook(), GpuLook(), None)
    assert judged(NodeLook(), empty).health.findings == ()


@pytest.mark.parametrize(
    ("look", "code", "severity", "subject"),
    [
        (with_host(memory_available_bytes=GIB), FindingCode.MEMORY_LOW, Severity.WARNING, "memory"),
        (with_host(pressure=Pressure(memory_full_percent=30)), FindingCode.MEMORY_PRESSURE, Severity.WARNING, "memory"),
        (with_host(pressure=Pressure(io_full_percent=70)), FindingCode.IO_PRESSURE, Severity.INFO, "disks"),
        (with_host(pressure=Pressure(cpu_some_percent=90)), FindingCode.CPU_PRESSURE, Severity.INFO, "processors"),
        (
            with_host(temperatures=(Temperature("cpu", 98, 100),)),
            FindingCode.TEMPERATURE_HIGH,
            Severity.WARNING,
            "cpu",
        ),
        (with_host(taint=1 << 7), FindingCode.KERNEL_TAINTED, Severity.WARNING, "kernel"),
        (with_host(clocksource="hpet"), FindingCode.CLOCKSOURCE_SLOW, Severity.WARNING, "clocksource"),
        (
            with_host(memory_errors_uncorrected=2),
            FindingCode.MEMORY_ERRORS,
            Severity.WARNING,
            "memory (uncorrected)",
        ),
        (
            replace(GOOD, disks=(Disk("/ckpt", 100 * GIB, 3 * GIB),)),
            FindingCode.DISK_FULL,
            Severity.WARNING,
            "/ckpt (bytes)",
        ),
        (
            replace(GOOD, disks=(Disk("/ckpt", 100 * GIB, 80 * GIB, 1000, 3),)),
            FindingCode.DISK_FULL,
            Severity.CRITICAL,
            "/ckpt (files)",
        ),
        (
            replace(GOOD, disks=(Disk("/ckpt", is_read_only=True),)),
            FindingCode.DISK_READ_ONLY,
            Severity.CRITICAL,
            "/ckpt",
        ),
        (with_port(state="DOWN", phys_state="Polling"), FindingCode.RDMA_PORT_DOWN, Severity.WARNING, "mlx5_0/1"),
        (with_port(ROCE_PORT, state="DOWN"), FindingCode.RDMA_PORT_DOWN, Severity.INFO, "mlx5_9/1"),
        (
            with_port(ROCE_PORT, gids=(Gid(1, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2"),)),
            FindingCode.RDMA_NO_ROUTABLE_GID,
            Severity.WARNING,
            "mlx5_9/1",
        ),
        (
            with_link(pcie=(PcieHop("0000:3b:00.0", 16.0, 8, 16.0, 16),)),
            FindingCode.PCIE_DEGRADED,
            Severity.WARNING,
            "eth0",
        ),
        (
            with_link(pcie=(PcieHop("0000:3b:00.0", 8.0, 16, 16.0, 16),)),
            FindingCode.PCIE_DEGRADED,
            Severity.WARNING,
            "eth0",
        ),
        (
            replace(GOOD, platform=PlatformLook(jobs=(JobProcess(7, "torchrun", 8 << 20),))),
            FindingCode.MEMLOCK_LOW,
            Severity.WARNING,
            "torchrun (process 7)",
        ),
        (
            replace(GOOD, platform=PlatformLook(peermem="loaded", nvidia_devices=("x",))),
            FindingCode.PEERMEM_NOT_REGISTERED,
            Severity.WARNING,
            "nvidia_peermem",
        ),
        (
            replace(GOOD, platform=PlatformLook(acs_redirects=("0000:17:00.0",), nvidia_devices=("x",))),
            FindingCode.ACS_REDIRECTS,
            Severity.INFO,
            "PCIe bridges",
        ),
        (
            replace(GOOD, gpus=GpuLook(trouble="nvmlInit_v2: driver and library have different versions")),
            FindingCode.GPU_DRIVER,
            Severity.CRITICAL,
            "nvidia driver",
        ),
        (replace(GOOD, gpus=GpuLook()), FindingCode.GPU_DRIVER, Severity.INFO, "nvidia driver"),
        (with_gpu(trouble="the GPU has fallen off the bus"), FindingCode.GPU_LOST, Severity.CRITICAL, "gpu 0"),
        (with_gpu(temperature_celsius=89), FindingCode.GPU_TEMPERATURE, Severity.WARNING, "gpu 0"),
        (with_gpu(throttle_reasons=("hw_thermal",)), FindingCode.GPU_THROTTLED, Severity.WARNING, "gpu 0"),
        (with_gpu(throttle_reasons=("sw_power_cap",)), FindingCode.GPU_THROTTLED, Severity.INFO, "gpu 0"),
        (with_gpu(ecc_uncorrected=1), FindingCode.GPU_MEMORY_ERRORS, Severity.WARNING, "gpu 0"),
        (with_gpu(has_pending_rows=True), FindingCode.GPU_ROW_REMAP, Severity.WARNING, "gpu 0"),
        (with_gpu(has_failed_rows=True), FindingCode.GPU_ROW_REMAP, Severity.CRITICAL, "gpu 0"),
        (with_gpu(memory_used_bytes=75 * GIB), FindingCode.GPU_MEMORY_HIGH, Severity.WARNING, "gpu 0"),
        (with_gpu(utilization_percent=5), FindingCode.GPU_IDLE, Severity.INFO, "gpu 0"),
        (with_gpu(pcie_width=8), FindingCode.PCIE_DEGRADED, Severity.WARNING, "gpu 0"),
        (with_gpu(pcie_generation=1), FindingCode.PCIE_DEGRADED, Severity.WARNING, "gpu 0"),
        (with_gpu(nvlinks=(NvLink(0, True), NvLink(1, False))), FindingCode.NVLINK_DOWN, Severity.WARNING, "gpu 0"),
    ],
)
def test_each_fault_is_named_with_its_severity(
    look: NodeLook, code: FindingCode, severity: Severity, subject: str
) -> None:
    finding = only(judged(look))
    assert (finding.code, finding.severity, finding.subject) == (code, severity, subject)
    assert finding.value
    assert finding.wanted
    assert finding.next_step


@pytest.mark.parametrize(
    "look",
    [
        with_gpu(utilization_percent=0, memory_used_bytes=GIB),
        with_gpu(utilization_percent=40, pcie_generation=1),
        with_gpu(nvlinks=(NvLink(0, False), NvLink(1, False))),
        replace(GOOD, disks=(Disk("/big", 10_000 * GIB, 60 * GIB),)),
        replace(GOOD, platform=PlatformLook(jobs=(JobProcess(7, "torchrun", None, is_unlimited=True),))),
        replace(GOOD, platform=PlatformLook(), gpus=GpuLook(trouble="nvmlInit_v2: the driver is not loaded")),
        with_port(ROCE_PORT),
    ],
    ids=["idle and unused", "slow PCIe at rest", "no NVLink at all", "much room", "unlimited", "no device", "RoCE"],
)
def test_what_is_no_fault_is_not_told(look: NodeLook) -> None:
    assert judged(look).health.findings == ()


def test_without_an_active_rdma_port_locked_memory_is_nobodys_concern() -> None:
    look = replace(GOOD, fabric=FabricLook(), platform=PlatformLook(jobs=(JobProcess(7, "torchrun", 8 << 20),)))
    assert judged(look).health.findings == ()


@pytest.mark.parametrize(
    ("later", "code", "severity"),
    [
        (with_host(oom_kills=5), FindingCode.OOM_KILL, Severity.WARNING),
        (with_host(memory_errors_corrected=9), FindingCode.MEMORY_ERRORS, Severity.INFO),
        (with_host(memory_errors_uncorrected=1), FindingCode.MEMORY_ERRORS, Severity.CRITICAL),
        (with_link(carrier_losses=2), FindingCode.LINK_FLAPPED, Severity.WARNING),
        (with_link(counters={"rx_errors": 10, "rx_dropped": 7}), FindingCode.LINK_ERRORS, Severity.WARNING),
        (with_link(counters={"rx_errors": 9, "rx_dropped": 1007}), FindingCode.LINK_DROPS, Severity.WARNING),
        (with_port(counters={"symbol_error": 6}), FindingCode.RDMA_PORT_ERRORS, Severity.WARNING),
        (with_port(gids=(Gid(0, "fe80::1"),)), FindingCode.RDMA_GIDS_CHANGED, Severity.WARNING),
        (with_gpu(ecc_uncorrected=2), FindingCode.GPU_MEMORY_ERRORS, Severity.CRITICAL),
        (replace(GOOD, gpus=GpuLook("580.1", ())), FindingCode.GPU_LOST, Severity.CRITICAL),
    ],
)
def test_what_changes_from_one_look_to_the_next_is_told_and_passes(
    later: NodeLook, code: FindingCode, severity: Severity
) -> None:
    finding = only(judged(GOOD, later))
    assert (finding.code, finding.severity) == (code, severity)
    still_there = {FindingCode.GPU_LOST}
    standing = {(FindingCode.MEMORY_ERRORS, Severity.CRITICAL), (FindingCode.GPU_MEMORY_ERRORS, Severity.CRITICAL)}
    after = judged(GOOD, later, *[later] * 61).health.findings
    if code in still_there:
        assert after[0].severity is Severity.CRITICAL
    elif (code, severity) in standing:
        # Errors since boot stay told, as no longer rising.
        assert [one.severity for one in after] == [Severity.WARNING]
    else:
        assert after == ()


def test_a_few_drops_a_second_are_not_told() -> None:
    assert judged(GOOD, with_link(counters={"rx_errors": 9, "rx_dropped": 907})).health.findings == ()


def test_a_counter_that_falls_is_a_device_that_came_up_again() -> None:
    assert judged(GOOD, with_link(carrier_losses=0), with_link(carrier_losses=0)).health.findings == ()


def test_a_roce_port_that_was_active_is_missed_when_it_is_down() -> None:
    finding = only(judged(with_port(ROCE_PORT), with_port(ROCE_PORT, state="DOWN")))
    assert (finding.code, finding.severity) == (FindingCode.RDMA_PORT_DOWN, Severity.WARNING)


def test_ports_of_one_kind_at_different_rates_are_named() -> None:
    slow = replace(GOOD_PORT, device="mlx5_1", rate_gbps=200.0)
    finding = only(judged(replace(GOOD, fabric=FabricLook((), (GOOD_PORT, slow)))))
    assert finding.code is FindingCode.RDMA_RATES_DIFFER
    assert finding.value == "200 Gb/s: mlx5_1/1; 400 Gb/s: mlx5_0/1"


@pytest.mark.parametrize(
    ("code", "severity"),
    [(79, Severity.CRITICAL), (31, Severity.INFO), (63, Severity.WARNING), (9999, Severity.WARNING)],
)
def test_an_xid_names_its_gpu_and_weighs_by_its_number(code: int, severity: Severity) -> None:
    event = KernelEvent("xid", "0000:18:00", "NVRM: Xid (PCI:0000:18:00): ...", NOW - S, code=code)
    finding = only(judged(replace(GOOD, kernel=(event,))))
    assert (finding.subject, finding.severity) == (f"gpu 0 Xid {code}", severity)


def test_an_xid_that_log_and_library_tell_of_is_one_finding() -> None:
    logged = KernelEvent("xid", "0000:18:00", "NVRM: Xid (PCI:0000:18:00): 79, fallen", NOW - S, code=79)
    told = KernelEvent("xid", "0000:18:00", "the driver reported Xid 79", NOW - S, code=79)
    gpus = GpuLook("580.1", (GOOD_GPU,), errors=(told,))
    assert only(judged(replace(GOOD, gpus=gpus))).subject == "gpu 0 Xid 79"
    assert "fallen" in only(judged(replace(GOOD, gpus=gpus, kernel=(logged,)))).value


def test_old_messages_of_the_kernel_are_past() -> None:
    event = KernelEvent("hung_task", "dd", "task dd blocked", NOW - 601 * S)
    assert judged(replace(GOOD, kernel=(event,))).health.findings == ()
    assert only(judged(replace(GOOD, kernel=(replace(event, seen_boot_ns=NOW),)))).subject == "hung_task dd"


def test_a_part_that_hangs_is_a_finding_and_its_last_facts_stay() -> None:
    found = judge(judged(GOOD), GOOD, [Overdue("gpus", NOW - 20 * S)], NOW, LIMITS)
    finding = only(found)
    assert (finding.code, finding.subject, finding.value) == (FindingCode.LOOK_OVERDUE, "gpus", "no answer for 20 s")


def test_ignored_subjects_are_not_told() -> None:
    look = with_port(state="DOWN")
    assert judged(look, limits=NodeConfig(ignored=("mlx5_*/1",))).health.findings == ()
    assert only(judged(look, limits=NodeConfig(ignored=("mlx5_1/*",)))).subject == "mlx5_0/1"


def test_without_gpus_in_the_configuration_nothing_is_said_of_them() -> None:
    assert judged(replace(GOOD, gpus=GpuLook()), limits=NodeConfig(gpus=False)).health.findings == ()


def test_the_worst_finding_comes_first_and_makes_the_state() -> None:
    look = replace(with_gpu(trouble="lost"), host=replace(with_host().host or HostLook(), clocksource="hpet"))
    health = judged(look).health
    assert [one.severity for one in health.findings] == [Severity.CRITICAL, Severity.WARNING]
    assert health.state is HealthState.UNHEALTHY
    assert judged(with_host(clocksource="hpet")).health.state is HealthState.DEGRADED


def test_a_finding_keeps_the_time_of_its_first_look() -> None:
    bad = with_host(clocksource="hpet")
    assert only(judged(GOOD, bad, bad, bad)).since_boot_ns == NOW + 10 * S
    assert only(judged(bad, GOOD, bad)).since_boot_ns == NOW + 20 * S


def test_another_figure_of_the_same_finding_is_no_change() -> None:
    hot, hotter = with_gpu(temperature_celsius=88), with_gpu(temperature_celsius=89)
    assert not is_changed(judged(hot).health, judged(hotter).health)
    assert is_changed(judged(hot).health, judged(GOOD).health)


def test_code_and_subject_are_unique_in_one_judgement() -> None:
    look = replace(
        with_host(memory_available_bytes=1, pressure=Pressure(99, 99, 99)),
        disks=(Disk("/a", 100, 0, 10, 0, is_read_only=True),) * 2,
    )
    keys = [(one.code, one.subject) for one in judged(look).health.findings]
    assert len(keys) == len(set(keys))


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=20))
def test_rises_add_up_to_what_was_counted(values: list[int]) -> None:
    found = judged(*(with_host(oom_kills=value) for value in values))
    rise = found.history.rises.get("oom_kills")
    expected = sum(max(0, after - before) for before, after in pairwise(values))
    assert (rise.amount if rise else 0) == expected


@pytest.mark.parametrize(
    ("own", "enum", "prefix"),
    [
        (model.HealthState, node_pb2.HealthState, "HEALTH_STATE_"),
        (model.Severity, node_pb2.Severity, "SEVERITY_"),
        (model.FindingCode, node_pb2.FindingCode, "FINDING_CODE_"),
    ],
)
def test_node_numbers_equal_those_of_the_api(own: Any, enum: Any, prefix: str) -> None:
    wire = {name.removeprefix(prefix): number for name, number in enum.items() if number}
    assert {member.name: member.value for member in own} == wire
