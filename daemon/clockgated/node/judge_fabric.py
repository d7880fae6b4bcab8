"""What is wrong with interfaces, RDMA ports and what lets them reach GPU memory. Pure."""

from collections import defaultdict
from collections.abc import Iterable

from clockgated.node.facts import FabricLook, PlatformLook, RdmaPortLook
from clockgated.node.history import RDMA_ERRORS, History
from clockgated.node.model import Finding, FindingCode, Severity
from clockgated.tuning.facts import PcieHop

_ETHERNET = "Ethernet"
_LEAST_MEMLOCK_BYTES = 512 << 20
"""Below about that UCX gives RDMA up, and NCCL cannot register its buffers."""


def judge_fabric(look: FabricLook, history: History) -> Iterable[Finding]:
    """Findings about interfaces and ports."""
    for link in look.links:
        yield from _link(link.name, history)
        yield from judge_pcie(link.name, link.pcie)
    for port in look.rdma_ports:
        yield from _port(port, history)
        yield from _addresses(port, history)
    devices = {port.device: port.pcie for port in look.rdma_ports}
    for device, hops in devices.items():
        yield from judge_pcie(device, hops)
    yield from _rates(look.rdma_ports)


def judge_platform(look: PlatformLook, *, has_active_rdma: bool) -> Iterable[Finding]:
    """Findings about what RDMA needs of the machine."""
    if not has_active_rdma:
        return
    for job in look.jobs:
        if not job.is_unlimited and job.memlock_bytes is not None and job.memlock_bytes < _LEAST_MEMLOCK_BYTES:
            yield Finding(
                FindingCode.MEMLOCK_LOW, Severity.WARNING, f"{job.name} (process {job.pid})",
                f"may lock {job.memlock_bytes >> 10} KiB", "unlimited",
                "set LimitMEMLOCK=infinity in its unit or scheduler; limits.conf does not reach services",
            )  # fmt: skip
    if not look.nvidia_devices:
        return
    if look.peermem == "loaded" and not look.has_dma_buf:
        yield Finding(
            FindingCode.PEERMEM_NOT_REGISTERED, Severity.WARNING, "nvidia_peermem", "loaded, not registered",
            "registered", "load it after the RDMA drivers: `modprobe -r nvidia_peermem; modprobe nvidia_peermem`",
        )  # fmt: skip
    if look.acs_redirects:
        yield Finding(
            FindingCode.ACS_REDIRECTS, Severity.INFO, "PCIe bridges", ", ".join(look.acs_redirects),
            "none that redirect",
            "turn ACS off in the firmware unless virtual machines need it; see `lspci -vvv | grep ACSCtl`",
        )  # fmt: skip


def judge_pcie(subject: str, hops: Iterable[PcieHop]) -> Iterable[Finding]:
    """The first link above a device that runs below what both of its ends could."""
    for hop in hops:
        is_narrow = hop.width is not None and hop.possible_width is not None and hop.width < hop.possible_width
        is_slow = None not in (hop.speed_gts, hop.possible_speed_gts) and hop.speed_gts < hop.possible_speed_gts  # type: ignore[operator]
        if is_narrow or is_slow:
            yield Finding(
                FindingCode.PCIE_DEGRADED, Severity.WARNING, subject,
                f"{_number(hop.speed_gts)} GT/s x{_number(hop.width)} at {hop.device}",
                f"{_number(hop.possible_speed_gts)} GT/s x{_number(hop.possible_width)}",
                "reseat the card and its riser, then look at the slot's setting in the firmware",
            )  # fmt: skip
            return


def is_routable(gid: str) -> bool:
    """Whether an address is neither empty nor link-local."""
    return bool(gid) and not gid.lower().startswith("fe80:")


def _link(name: str, history: History) -> Iterable[Finding]:
    lost = history.rises.get(f"{name}.carrier_losses")
    if lost is not None:
        yield Finding(
            FindingCode.LINK_FLAPPED, Severity.WARNING, name, f"lost its link {lost.amount} times lately",
            "a steady link",
            "look at cable, transceiver and switch port: `ethtool -m`, `journalctl -k`",
        )  # fmt: skip
    errors = history.rises.get(f"{name}.errors")
    if errors is not None:
        yield Finding(
            FindingCode.LINK_ERRORS, Severity.WARNING, name, f"{errors.amount} errors lately", "none",
            "look which with `ethtool -S`; CRC errors mean cable or transceiver",
        )  # fmt: skip
    drops = history.rises.get(f"{name}.drops")
    if drops is not None:
        yield Finding(
            FindingCode.LINK_DROPS, Severity.WARNING, name, f"{drops.amount} packets dropped lately", "a few",
            "see what `clockgatectl tune plan` wants for rings and backlog",
        )  # fmt: skip


def _port(port: RdmaPortLook, history: History) -> Iterable[Finding]:
    if port.state != "ACTIVE":
        was_active = port.subject in history.active_ports
        # Unused Ethernet ports are common; an InfiniBand port without its subnet manager is not in use by choice.
        severity = Severity.INFO if port.link_layer == _ETHERNET and not was_active else Severity.WARNING
        step = "start the subnet manager" if port.state == "INIT" else "look at cable, transceiver and switch port"
        yield Finding(
            FindingCode.RDMA_PORT_DOWN, severity, port.subject,
            f"{port.state or 'unknown'}, {port.phys_state or 'unknown'}",
            "ACTIVE, LinkUp", f"{step}; an unused port can be named in [node] ignored",
        )  # fmt: skip
    rises = [(name, history.rises.get(f"{port.subject}.{name}")) for name in RDMA_ERRORS]
    seen = [f"{name} +{rise.amount}" for name, rise in rises if rise is not None]
    if seen:
        yield Finding(
            FindingCode.RDMA_PORT_ERRORS, Severity.WARNING, port.subject, ", ".join(seen) + " lately", "none",
            "look at cable and transceiver; on RoCE also at flow control (PFC) of host and switch",
        )  # fmt: skip


def _addresses(port: RdmaPortLook, history: History) -> Iterable[Finding]:
    if port.subject in history.gids_changed_boot_ns:
        yield Finding(
            FindingCode.RDMA_GIDS_CHANGED, Severity.WARNING, port.subject, "its GID table changed lately",
            "a table that stays while jobs run",
            "restart jobs that were running; never configure NCCL_IB_GID_INDEX, which counts on a fixed table",
        )  # fmt: skip
    v2 = [one for one in port.gids if one.type == "RoCE v2"]
    if port.link_layer == _ETHERNET and port.state == "ACTIVE" and not any(is_routable(one.gid) for one in v2):
        seen = ", ".join(one.gid for one in v2) or "no RoCE v2 address"
        yield Finding(
            FindingCode.RDMA_NO_ROUTABLE_GID, Severity.WARNING, port.subject, seen,
            "a RoCE v2 GID that is not fe80::/10",
            "give the interface of the port an IP address",
        )  # fmt: skip


def _rates(ports: Iterable[RdmaPortLook]) -> Iterable[Finding]:
    by_rate: dict[str, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    for port in ports:
        if port.state == "ACTIVE" and port.rate_gbps is not None:
            by_rate[port.link_layer][port.rate_gbps].append(port.subject)
    for layer, rates in by_rate.items():
        if len(rates) > 1:
            parts = [f"{rate:g} Gb/s: {', '.join(names)}" for rate, names in sorted(rates.items())]
            yield Finding(
                FindingCode.RDMA_RATES_DIFFER, Severity.INFO, layer, "; ".join(parts), "one rate",
                "see whether a cable trained at a lower rate; else keep slower ports out with NCCL_IB_HCA",
            )  # fmt: skip


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
