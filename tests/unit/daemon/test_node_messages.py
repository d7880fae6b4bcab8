"""From a look at the node to the message, and from the message to what people and scripts see."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from clockgate.v1 import node_pb2
from clockgated.ctl import fabric_view, health_view, node_commands
from clockgated.ctl.tune import plain
from clockgated.node.facts import FabricLook, Gpu, GpuLook, NetLink, NodeLook, RdmaPortLook
from clockgated.node.model import HealthState, NodeHealth
from clockgated.service.node_convert import fabric_message, health_message
from support.node_looks import HEALTH, LOOK
from support.readings import GOOD

NOW = GOOD.as_of_boot_ns + 7_000_000_000


def empty_fields(message: Any, path: str = "") -> Iterator[str]:
    """Fields that are absent or empty, anywhere below; of a list the first message is looked at."""
    for field in message.DESCRIPTOR.fields:
        value, here = getattr(message, field.name), f"{path}{field.name}"
        is_empty = hasattr(value, "__len__") and not len(value)
        if is_empty or (field.has_presence and not message.HasField(field.name)):
            yield here
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from empty_fields(value[0] if hasattr(value, "__len__") else value, f"{here}.")


def test_no_field_of_health_is_forgotten() -> None:
    message = health_message(HEALTH, "boot", NOW)
    assert list(empty_fields(message)) == []
    assert (message.age_ns, message.boot_id, message.sequence) == (7_000_000_000, "boot", 3)
    assert message.state == node_pb2.HEALTH_STATE_DEGRADED
    assert message.findings[0].code == node_pb2.FINDING_CODE_GPU_THROTTLED


def test_no_field_of_the_fabric_is_forgotten() -> None:
    message = fabric_message(HEALTH, "boot", NOW)
    assert list(empty_fields(message)) == []
    assert message.links[0].rx_drops == 5
    assert dict(message.rdma_ports[0].counters)["symbol_error"] == 7


def test_an_unknown_figure_is_absent_and_zero_is_present() -> None:
    look = NodeLook(fabric=FabricLook((NetLink("a"), NetLink("b", counters={"rx_errors": 0})), (RdmaPortLook("m", 1),)))
    message = fabric_message(replace(HEALTH, look=look), "boot", NOW)
    assert not message.links[0].HasField("rx_errors")
    assert message.links[1].HasField("rx_errors")
    assert not message.rdma_ports[0].HasField("rate_gbps")
    assert not message.HasField("has_dma_buf")


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, 1 << 200])
def test_what_a_message_cannot_carry_is_left_out(value: int) -> None:
    look = NodeLook(
        fabric=FabricLook((NetLink("a\udcff", mtu_bytes=value, counters={"rx_bytes": value}),), ()),
        gpus=GpuLook(gpus=(Gpu(0, memory_used_bytes=value, pcie_width=value),)),
    )
    link = fabric_message(replace(HEALTH, look=look), "boot", NOW).links[0]
    assert (link.name, link.HasField("rx_bytes"), link.HasField("mtu_bytes")) == ("a?", False, False)
    assert not health_message(replace(HEALTH, look=look), "boot", NOW).gpus[0].HasField("memory_used_bytes")


def test_a_person_reads_finding_and_next_step() -> None:
    text = health_view.render(health_message(HEALTH, "boot", NOW))
    assert text.startswith("DEGRADED")
    assert "WARNING  GPU_THROTTLED  gpu 0: hw_thermal" in text
    assert "next: cool it" in text
    assert "gpu 0           H200, 90 % busy" in text
    assert "\x1b" not in text
    assert "\x1b[33mDEGRADED" in health_view.render(health_message(HEALTH, "boot", NOW), in_colour=True)


def test_an_old_judgement_says_so() -> None:
    text = health_view.render(health_message(HEALTH, "boot", NOW + 100_000_000_000))
    assert "clockgated does not look any more" in text.splitlines()[0]


def test_a_person_reads_the_fabric_as_ibstat_and_others_show_it() -> None:
    text = fabric_view.render(fabric_message(HEALTH, "boot", NOW))
    for part in (
        "eth0: up, mlx5, 100000 Mb/s full, MTU 9000, qdisc fq, FEC RS, NUMA node 1",
        "PCIe 0000:18:00.0 16 GT/s x8 (could 32 x16)",
        "mlx5_0/1: ACTIVE, LinkUp, InfiniBand, 400 Gb/s, LID 26, SM LID 1, firmware 28.1, NUMA node 1",
        "GID 3 fe80:0000:0000:0000:0000:0000:0000:0001 RoCE v2 eth0",
        "GPUs (driver 580.1):",
        "1 of 2 NVLinks up",
        "gpu 0 - gpu 1: 18 NVLinks, PCIe: node",
        "nvidia_peermem: registered",
        "torchrun (process 7) may lock: 8192 KiB",
        "p: 10 of 10 echoes, median 250 µs, 95 % below 300 µs, jitter 20 µs",
    ):
        assert part in text


@pytest.mark.parametrize("render", [health_view.render, fabric_view.render])
def test_names_of_devices_cannot_play_with_the_terminal(render: Any) -> None:
    look = replace(
        LOOK,
        fabric=FabricLook((NetLink("e\x1b[31m"),), ()),
        gpus=GpuLook(gpus=(Gpu(0, name="x\x1b[2J", pci_address="\x07"),)),
    )
    make = health_message if render is health_view.render else fabric_message
    text = render(make(replace(HEALTH, look=look), "boot", NOW))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_bare_node_is_shown_without_empty_lines() -> None:
    bare = replace(HEALTH, findings=(), look=NodeLook())
    assert "" not in health_view.render(health_message(bare, "boot", NOW)).splitlines()
    assert fabric_view.render(fabric_message(bare, "boot", NOW)) == "links:"


def test_scripts_get_names_of_the_api_and_null_for_what_is_absent() -> None:
    shown = json.loads(json.dumps(plain(fabric_message(HEALTH, "boot", NOW))))
    assert shown["rdma_ports"][0]["counters"] == {"port_rcv_data": 10, "port_xmit_data": 20, "symbol_error": 7}
    shown = plain(health_message(replace(HEALTH, look=NodeLook(gpus=GpuLook(gpus=(Gpu(0),)))), "boot", NOW))
    assert shown["state"] == "HEALTH_STATE_DEGRADED"
    assert shown["gpus"][0]["memory_used_bytes"] is None


@pytest.mark.parametrize(
    ("state", "fail_on", "code"),
    [
        (HealthState.HEALTHY, "warning", 0),
        (HealthState.DEGRADED, "warning", 1),
        (HealthState.UNHEALTHY, "warning", 1),
        (HealthState.HEALTHY, "critical", 0),
        (HealthState.DEGRADED, "critical", 0),
        (HealthState.UNHEALTHY, "critical", 1),
    ],
)
def test_the_exit_code_says_whether_the_node_is_fit(state: HealthState, fail_on: str, code: int) -> None:
    health: NodeHealth = replace(HEALTH, state=state)
    assert node_commands.exit_code(health_message(health, "boot", NOW), fail_on) == code
