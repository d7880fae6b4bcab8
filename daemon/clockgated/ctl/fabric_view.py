"""The fabric of a node for a person: what ip, ibstat, show_gids and nvidia-smi topo tell. Pure."""

from collections.abc import Iterable

from clockgate.v1 import node_pb2

from clockgated.ctl.health_view import gpu_line
from clockgated.ctl.status import printable

_LINK_COUNTERS = ("rx_errors", "tx_errors", "rx_drops", "tx_drops", "carrier_losses", "fec_uncorrectable")


def render(fabric: node_pb2.Fabric) -> str:
    """Links, RDMA ports, GPUs, and what lets them reach each other."""
    lines = ["links:", *(line for link in fabric.links for line in _link(link))]
    lines += ["RDMA ports:", *(line for port in fabric.rdma_ports for line in _port(port))] if fabric.rdma_ports else []
    lines += _gpus(fabric)
    lines += ["for RDMA:", *_rdma(fabric)] if fabric.rdma_ports or fabric.gpus else []
    if fabric.peers:
        lines += ["peers:", *map(_peer, fabric.peers)]
    return "\n".join(map(printable, lines))


def _link(link: node_pb2.NetworkLink) -> list[str]:
    state = "down" if not link.is_up else "no link" if link.HasField("has_carrier") and not link.has_carrier else "up"
    parts = [state, *([link.driver] if link.driver else ["virtual"])]
    parts += [f"{link.speed_mbps} Mb/s {link.duplex}".strip()] if link.HasField("speed_mbps") else []
    parts += [f"MTU {link.mtu_bytes}"] if link.HasField("mtu_bytes") else []
    parts += [f"qdisc {' '.join(link.qdiscs)}"] if link.qdiscs else []
    parts += [f"FEC {' '.join(link.fec_modes)}"] if link.fec_modes else []
    parts += [f"NUMA node {link.numa_node}"] if link.HasField("numa_node") else []
    counted = [f"{name} {getattr(link, name)}" for name in _LINK_COUNTERS if getattr(link, name)]
    return [f"  {link.name}: {', '.join(parts)}", *_pcie(link.pcie), *_indented(", ".join(counted))]


def _port(port: node_pb2.RdmaPort) -> list[str]:
    parts = [port.state or "unknown", port.phys_state, port.link_layer]
    parts += [f"{port.rate_gbps:g} Gb/s"] if port.HasField("rate_gbps") else []
    parts += [f"LID {port.lid}"] if port.HasField("lid") else []
    parts += [f"SM LID {port.sm_lid}"] if port.HasField("sm_lid") else []
    parts += [f"firmware {port.firmware}"] if port.firmware else []
    parts += [f"NUMA node {port.numa_node}"] if port.HasField("numa_node") else []
    lines = [f"  {port.device}/{port.port}: {', '.join(part for part in parts if part)}", *_pcie(port.pcie)]
    for gid in port.gids:
        lines += _indented(" ".join(part for part in (f"GID {gid.index}", gid.gid, gid.type, gid.link) if part))
    return lines


def _gpus(fabric: node_pb2.Fabric) -> list[str]:
    if not fabric.gpus:
        return []
    version = f" (driver {fabric.gpu_driver_version})" if fabric.HasField("gpu_driver_version") else ""
    lines = [f"GPUs{version}:"]
    for gpu in fabric.gpus:
        joints = [f"PCIe generation {gpu.pcie_generation} x{gpu.pcie_width}"] if gpu.HasField("pcie_width") else []
        up = sum(link.is_up for link in gpu.nvlinks)
        joints += [f"{up} of {len(gpu.nvlinks)} NVLinks up"] if gpu.nvlinks else []
        lines += [f"  gpu {gpu.index} {gpu.pci_address}: {gpu_line(gpu)}", *_indented(", ".join(joints))]
    for path in fabric.gpu_paths:
        parts = [f"{path.nvlinks} NVLinks"] if path.nvlinks else []
        parts += [f"PCIe: {path.pcie_level}"] if path.pcie_level else []
        lines.append(f"  gpu {path.gpu} - gpu {path.other_gpu}: {', '.join(parts) or 'unknown'}")
    return lines


def _rdma(fabric: node_pb2.Fabric) -> list[str]:
    lines = [f"  nvidia_peermem: {fabric.peermem if fabric.HasField('peermem') else 'not loaded'}"]
    dma_buf = ("yes" if fabric.has_dma_buf else "no") if fabric.HasField("has_dma_buf") else "unknown"
    lines.append(f"  GPU memory as dma-buf: {dma_buf}")
    lines.append(f"  PCIe bridges that redirect (ACS): {', '.join(fabric.acs_redirects) or 'none seen'}")
    for job in fabric.jobs:
        known = f"{job.memlock_bytes >> 10} KiB" if job.HasField("memlock_bytes") else "unknown"
        lines.append(f"  {job.name} (process {job.pid}) may lock: {'unlimited' if job.is_unlimited else known}")
    return lines


def _peer(path: node_pb2.PeerPath) -> str:
    if not path.sent:
        return f"  {path.peer}: could not be asked (no address, or no right to send echoes)"
    if not path.received:
        return f"  {path.peer}: silent, {path.sent} echoes sent"
    jitter = f", jitter {path.jitter_us} µs" if path.HasField("jitter_us") else ""
    return (
        f"  {path.peer}: {path.received} of {path.sent} echoes, median {path.median_us} µs, "
        f"95 % below {path.p95_us} µs{jitter}"
    )


def _pcie(hops: Iterable[node_pb2.PcieLink]) -> list[str]:
    told = [
        f"{hop.device} {hop.speed_gts:g} GT/s x{hop.width} (could {hop.possible_speed_gts:g} x{hop.possible_width})"
        for hop in hops
        if hop.HasField("speed_gts") and hop.HasField("width")
    ]
    return _indented("PCIe " + "; ".join(told)) if told else []


def _indented(text: str) -> list[str]:
    return [f"      {text}"] if text else []
