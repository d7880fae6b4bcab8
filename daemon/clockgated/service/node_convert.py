"""Values of the node room -> messages of clockgate.v1.

Turning a value into a message never fails: what a message cannot carry is left out or replaced.
"""

from collections.abc import Iterable
from typing import Any

from clockgate.v1 import node_pb2

from clockgated.node.facts import (
    Disk,
    Extras,
    FabricLook,
    Gpu,
    GpuLook,
    HostLook,
    LinkExtra,
    NetLink,
    PlatformLook,
    RdmaPortLook,
)
from clockgated.node.model import Finding, NodeHealth
from clockgated.tuning.facts import PcieHop

_INT64_MAX = (1 << 63) - 1
_INT32_MAX = (1 << 31) - 1


def health_message(health: NodeHealth, boot_id: str, now_boot_ns: int) -> node_pb2.NodeHealth:
    """The message for `health`, sent at `now_boot_ns` (CLOCK_BOOTTIME), which sets its age."""
    look = health.look
    return node_pb2.NodeHealth(
        state=node_pb2.HealthState.ValueType(health.state),
        findings=map(_finding, health.findings),
        as_of_boot_ns=health.as_of_boot_ns,
        boot_id=boot_id,
        age_ns=max(0, now_boot_ns - health.as_of_boot_ns),
        sequence=health.sequence,
        host=None if look.host is None else _host(look.host),
        disks=map(_disk, look.disks or ()),
        gpus=map(_gpu, look.gpus.gpus if look.gpus else ()),
    )


def fabric_message(health: NodeHealth, boot_id: str, now_boot_ns: int) -> node_pb2.Fabric:
    """The message for what `health` saw of the fabric, as above."""
    look = health.look
    fabric, platform = look.fabric or FabricLook(), look.platform or PlatformLook()
    gpus, extras = look.gpus or GpuLook(), look.extras or Extras()
    return node_pb2.Fabric(
        as_of_boot_ns=health.as_of_boot_ns,
        boot_id=boot_id,
        age_ns=max(0, now_boot_ns - health.as_of_boot_ns),
        links=[_link(link, extras.links.get(link.name, LinkExtra())) for link in fabric.links],
        rdma_ports=map(_port, fabric.rdma_ports),
        gpus=map(_gpu, gpus.gpus),
        gpu_paths=[
            node_pb2.GpuPath(gpu=one.gpu, other_gpu=one.other_gpu, nvlinks=one.nvlinks, pcie_level=one.pcie_level)
            for one in gpus.paths
        ],
        acs_redirects=map(_text, platform.acs_redirects),
        jobs=[
            node_pb2.JobMemlock(
                pid=job.pid, name=_text(job.name), is_unlimited=job.is_unlimited,
                **_known(memlock_bytes=job.memlock_bytes),
            )
            for job in platform.jobs
        ],
        peers=[
            node_pb2.PeerPath(
                peer=_text(path.peer), sent=path.sent, received=path.received,
                **_known(median_us=path.median_us, p95_us=path.p95_us, jitter_us=path.jitter_us),
            )
            for path in extras.peers
        ],
        **_known(
            gpu_driver_version=gpus.driver_version, peermem=platform.peermem, has_dma_buf=platform.has_dma_buf
        ),
    )  # fmt: skip


def _finding(finding: Finding) -> node_pb2.Finding:
    return node_pb2.Finding(
        code=node_pb2.FindingCode.ValueType(finding.code),
        severity=node_pb2.Severity.ValueType(finding.severity),
        subject=_text(finding.subject),
        value=_text(finding.value),
        wanted=_text(finding.wanted),
        next_step=_text(finding.next_step),
        since_boot_ns=finding.since_boot_ns,
    )


def _host(host: HostLook) -> node_pb2.HostFacts:
    return node_pb2.HostFacts(
        clocksource=_text(host.clocksource),
        temperatures=[
            node_pb2.Temperature(
                sensor=_text(one.sensor), celsius=one.celsius, **_known(critical_celsius=one.critical_celsius)
            )
            for one in host.temperatures
        ],
        **_known(
            cpu_some_percent=host.pressure.cpu_some_percent,
            memory_full_percent=host.pressure.memory_full_percent,
            io_full_percent=host.pressure.io_full_percent,
            memory_total_bytes=host.memory_total_bytes,
            memory_available_bytes=host.memory_available_bytes,
            load_5min=host.load_5min,
            oom_kills=host.oom_kills,
            memory_errors_corrected=host.memory_errors_corrected,
            memory_errors_uncorrected=host.memory_errors_uncorrected,
        ),
        **_small(cpu_count=host.cpu_count),
    )


def _disk(disk: Disk) -> node_pb2.Disk:
    return node_pb2.Disk(
        path=_text(disk.path),
        **_known(
            total_bytes=disk.total_bytes,
            free_bytes=disk.free_bytes,
            free_files=disk.free_files,
            is_read_only=disk.is_read_only,
        ),
    )


def _gpu(gpu: Gpu) -> node_pb2.Gpu:
    return node_pb2.Gpu(
        index=gpu.index,
        uuid=_text(gpu.uuid),
        name=_text(gpu.name),
        pci_address=_text(gpu.pci_address),
        throttle_reasons=gpu.throttle_reasons,
        nvlinks=[
            node_pb2.NvLink(link=one.link, is_up=one.is_up, peer_pci_address=_text(one.peer_pci_address))
            for one in gpu.nvlinks
        ],
        **_known(
            memory_total_bytes=gpu.memory_total_bytes,
            memory_used_bytes=gpu.memory_used_bytes,
            utilization_percent=gpu.utilization_percent,
            temperature_celsius=gpu.temperature_celsius,
            slowdown_celsius=gpu.slowdown_celsius,
            power_milliwatts=gpu.power_milliwatts,
            power_limit_milliwatts=gpu.power_limit_milliwatts,
            ecc_corrected=gpu.ecc_corrected,
            ecc_uncorrected=gpu.ecc_uncorrected,
            has_pending_rows=gpu.has_pending_rows,
            has_failed_rows=gpu.has_failed_rows,
        ),
        **_small(
            pcie_generation=gpu.pcie_generation,
            pcie_width=gpu.pcie_width,
            pcie_max_generation=gpu.pcie_max_generation,
            pcie_max_width=gpu.pcie_max_width,
            numa_node=gpu.numa_node,
        ),
    )


def _link(link: NetLink, extra: LinkExtra) -> node_pb2.NetworkLink:
    return node_pb2.NetworkLink(
        name=_text(link.name),
        driver=_text(link.driver),
        is_up=link.is_up,
        duplex=_text(link.duplex),
        pcie=_hops(link.pcie),
        qdiscs=map(_text, extra.qdiscs),
        fec_modes=map(_text, extra.fec_modes),
        **_known(
            has_carrier=link.has_carrier,
            speed_mbps=link.speed_mbps,
            carrier_losses=link.carrier_losses,
            rx_bytes=link.counters.get("rx_bytes"),
            tx_bytes=link.counters.get("tx_bytes"),
            rx_errors=link.counters.get("rx_errors"),
            tx_errors=link.counters.get("tx_errors"),
            rx_drops=link.rx_drops,
            tx_drops=link.counters.get("tx_dropped"),
            fec_corrected=extra.fec_corrected,
            fec_uncorrectable=extra.fec_uncorrectable,
        ),
        **_small(mtu_bytes=link.mtu_bytes, numa_node=link.numa_node),
    )


def _port(port: RdmaPortLook) -> node_pb2.RdmaPort:
    return node_pb2.RdmaPort(
        device=_text(port.device),
        port=min(port.port, _INT32_MAX),
        state=_text(port.state),
        phys_state=_text(port.phys_state),
        link_layer=_text(port.link_layer),
        firmware=_text(port.firmware),
        gids=[
            node_pb2.RdmaGid(index=one.index, gid=_text(one.gid), type=_text(one.type), link=_text(one.link))
            for one in port.gids
        ],
        counters={_text(name): value for name, value in port.counters.items() if value <= _INT64_MAX},
        pcie=_hops(port.pcie),
        **_known(rate_gbps=port.rate_gbps),
        **_small(lid=port.lid, sm_lid=port.sm_lid, numa_node=port.numa_node),
    )


def _hops(hops: Iterable[PcieHop]) -> list[node_pb2.PcieLink]:
    return [
        node_pb2.PcieLink(
            device=_text(hop.device),
            **_known(speed_gts=hop.speed_gts, possible_speed_gts=hop.possible_speed_gts),
            **_small(width=hop.width, possible_width=hop.possible_width),
        )
        for hop in hops
    ]


def _known(**values: float | str | None) -> dict[str, Any]:
    """Those that are known and fit 64 bits."""
    return {
        name: _text(value) if isinstance(value, str) else value
        for name, value in values.items()
        if value is not None and (isinstance(value, str) or abs(value) <= _INT64_MAX)
    }


def _small(**values: int | None) -> dict[str, Any]:
    """Those that are known and fit 32 bits."""
    return {name: value for name, value in values.items() if value is not None and abs(value) <= _INT32_MAX}


def _text(text: str) -> str:
    """`text` without lone surrogates, which odd bytes become and protobuf refuses."""
    return text.encode(errors="replace").decode()
