"""Numbers of the machine around the clock, from a judgement of it. Pure."""

from collections.abc import Iterable

from clockgated.metrics import families_node as families
from clockgated.metrics.family import Numbers
from clockgated.metrics.snapshot import Snapshot
from clockgated.node.facts import Extras, FabricLook, Gpu, GpuLook, HostLook
from clockgated.node.history import RDMA_ERRORS
from clockgated.node.model import HealthState, NodeHealth, Severity
from clockgated.units import NS_PER_S

_US_PER_S = 1_000_000
_RDMA_WORD_BYTES = 4  # port_rcv_data and port_xmit_data count in those
_BYTES_PER_GBIT, _BYTES_PER_MBIT = 125_000_000, 125_000


def node_numbers(seen: Snapshot) -> Iterable[Numbers]:
    """Everything in families_node; nothing before the first look."""
    health = seen.node
    if health is None:
        return
    look = health.look
    yield from _findings(health, seen.now_boot_ns)
    yield from _host(look.host or HostLook())
    yield families.DISK_FREE.each(((disk.path,), disk.free_bytes) for disk in look.disks or ())
    yield from _gpus((look.gpus or GpuLook()).gpus)
    yield from _rdma(look.fabric or FabricLook())
    yield from _links(look.fabric or FabricLook())
    peers = (look.extras or Extras()).peers
    yield families.PEER_RTT.each(((one.peer,), _over(one.median_us, _US_PER_S)) for one in peers)
    yield families.PEER_JITTER.each(((one.peer,), _over(one.jitter_us, _US_PER_S)) for one in peers)


def _findings(health: NodeHealth, now_boot_ns: int) -> Iterable[Numbers]:
    words = [severity.name.lower() for severity in Severity]
    seen = [one.severity.name.lower() for one in health.findings]
    yield families.HEALTH.states([state.name.lower() for state in HealthState], [health.state.name.lower()])
    yield families.FINDING.each(
        ((one.code.name.lower(), one.severity.name.lower(), one.subject), 1) for one in health.findings
    )
    yield families.FINDINGS.each(((word,), seen.count(word)) for word in words)
    yield families.LOOK_AGE.one(max(0, now_boot_ns - health.as_of_boot_ns) / NS_PER_S)


def _host(host: HostLook) -> Iterable[Numbers]:
    pressure = host.pressure
    yield families.PRESSURE.each(
        (
            (("cpu", "some"), _over(pressure.cpu_some_percent, 100)),
            (("memory", "full"), _over(pressure.memory_full_percent, 100)),
            (("io", "full"), _over(pressure.io_full_percent, 100)),
        )
    )
    yield families.MEMORY_AVAILABLE.one(host.memory_available_bytes)
    yield families.OOM_KILLS.one(host.oom_kills)
    yield families.MEMORY_ERRORS.each(
        ((("corrected",), host.memory_errors_corrected), (("uncorrected",), host.memory_errors_uncorrected))
    )


def _gpus(gpus: tuple[Gpu, ...]) -> Iterable[Numbers]:
    keyed = [((str(gpu.index), gpu.uuid), gpu) for gpu in gpus]
    yield families.GPU_INFO.each(((*key, gpu.name, gpu.pci_address), 1) for key, gpu in keyed)
    yield families.GPU_UTILIZATION.each((key, _over(gpu.utilization_percent, 100)) for key, gpu in keyed)
    yield families.GPU_MEMORY_USED.each((key, gpu.memory_used_bytes) for key, gpu in keyed)
    yield families.GPU_MEMORY.each((key, gpu.memory_total_bytes) for key, gpu in keyed)
    yield families.GPU_TEMPERATURE.each((key, gpu.temperature_celsius) for key, gpu in keyed)
    yield families.GPU_POWER.each((key, _over(gpu.power_milliwatts, 1000)) for key, gpu in keyed)
    yield families.GPU_ECC.each(
        ((*key, kind), value)
        for key, gpu in keyed
        for kind, value in (("corrected", gpu.ecc_corrected), ("uncorrected", gpu.ecc_uncorrected))
    )
    yield families.GPU_THROTTLED.each(((*key, reason), 1) for key, gpu in keyed for reason in gpu.throttle_reasons)
    yield families.NVLINKS_UP.each((key, sum(one.is_up for one in gpu.nvlinks)) for key, gpu in keyed if gpu.nvlinks)


def _rdma(fabric: FabricLook) -> Iterable[Numbers]:
    keyed = [((port.device, str(port.port)), port) for port in fabric.rdma_ports]
    yield families.RDMA_ACTIVE.each((key, port.state == "ACTIVE") for key, port in keyed)
    yield families.RDMA_RATE.each((key, _times(port.rate_gbps, _BYTES_PER_GBIT)) for key, port in keyed)
    for family, name in ((families.RDMA_RECEIVED, "port_rcv_data"), (families.RDMA_SENT, "port_xmit_data")):
        yield family.each((key, _times(port.counters.get(name), _RDMA_WORD_BYTES)) for key, port in keyed)
    yield families.RDMA_ERRORS.each(
        ((*key, name), port.counters.get(name)) for key, port in keyed for name in RDMA_ERRORS
    )


def _links(fabric: FabricLook) -> Iterable[Numbers]:
    keyed = [((link.name,), link) for link in fabric.links]
    yield families.LINK_CARRIER.each((key, link.has_carrier) for key, link in keyed)
    yield families.LINK_SPEED.each((key, _times(link.speed_mbps, _BYTES_PER_MBIT)) for key, link in keyed)
    yield families.LINK_RECEIVED.each((key, link.counters.get("rx_bytes")) for key, link in keyed)
    yield families.LINK_SENT.each((key, link.counters.get("tx_bytes")) for key, link in keyed)
    yield families.LINK_ERRORS.each(
        ((*key, word), link.counters.get(name))
        for key, link in keyed
        for word, name in (("received", "rx_errors"), ("sent", "tx_errors"))
    )
    yield families.LINK_DROPS.each(
        ((*key, word), value)
        for key, link in keyed
        for word, value in (("received", link.rx_drops), ("sent", link.counters.get("tx_dropped")))
    )
    yield families.LINK_LOSSES.each((key, link.carrier_losses) for key, link in keyed)


def _over(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
