"""Looks at interfaces, RDMA ports and what lets them reach GPU memory. Reads files of /sys and /proc only."""

import re
from pathlib import Path

from clockgated.node.facts import FabricLook, Gid, NetLink, PlatformLook, RdmaPortLook
from clockgated.tuning.host_facts import read_host
from clockgated.tuning.pcie import hops_above
from clockgated.tuning.roots import Roots, link_name, names_in, number_of, text_of

_IFF_UP = 1
_MOST_VIRTUAL_LINKS = 64
"""A node of containers has thousands: they would fill the report and the time of a look."""
_COUNTERS = (
    "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_missed_errors", "rx_crc_errors",
)  # fmt: skip
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_NVIDIA_VENDOR = 0x10DE
_PROCESSOR_CLASSES = (0x0300, 0x0302)  # VGA and 3D controllers: audio and switches of the same vendor are others


def look_fabric(roots: Roots) -> FabricLook:
    """Interfaces and ports now."""
    return FabricLook(look_links(roots.sys), look_rdma_ports(roots.sys))


def look_platform(roots: Roots) -> PlatformLook:
    """Modules, bridges and jobs now. Goes through all processes: for once a minute."""
    host = read_host(roots)
    return PlatformLook(
        peermem=host.peermem,
        acs_redirects=host.acs_redirects,
        jobs=host.jobs,
        has_dma_buf=_has_dma_buf(roots),
        nvidia_devices=_nvidia_devices(roots.sys / "bus/pci/devices"),
    )


def look_links(sys: Path) -> tuple[NetLink, ...]:
    """Every interface with a device, and the first of the virtual ones, by name; never loopback."""
    folder = sys / "class/net"
    names = [name for name in names_in(folder) if name != "lo" and (folder / name).is_dir()]
    real = [name for name in names if (folder / name / "device").exists()]
    virtual = [name for name in names if name not in set(real)]
    return tuple(_link(name, sys) for name in sorted(real + virtual[:_MOST_VIRTUAL_LINKS]))


def look_rdma_ports(sys: Path) -> tuple[RdmaPortLook, ...]:
    """Every port of every RDMA device, by name."""
    folder = sys / "class/infiniband"
    return tuple(
        _port(folder / device, int(port), sys)
        for device in names_in(folder)
        for port in sorted(filter(str.isdecimal, names_in(folder / device / "ports")), key=int)
    )


def words_after_number(text: str | None) -> str:
    """The words of sysfs's "4: ACTIVE"."""
    return (text or "").partition(": ")[2]


def _link(name: str, sys: Path) -> NetLink:
    folder = sys / "class/net" / name
    is_up = bool((number_of(folder / "flags") or 0) & _IFF_UP)
    # Drivers answer -1 for a speed that they do not know, and the kernel refuses to tell of an interface that is down.
    speed_mbps, carrier = number_of(folder / "speed"), number_of(folder / "carrier")
    counters = {kind: number_of(folder / "statistics" / kind) for kind in _COUNTERS}
    return NetLink(
        name,
        driver=link_name(folder / "device/driver") or "",
        is_up=is_up,
        has_carrier=None if carrier is None or not is_up else carrier == 1,
        mtu_bytes=number_of(folder / "mtu"),
        speed_mbps=speed_mbps if speed_mbps is not None and speed_mbps > 0 else None,
        duplex=_known(text_of(folder / "duplex")),
        carrier_losses=number_of(folder / "carrier_down_count"),
        counters={kind: value for kind, value in counters.items() if value is not None},
        numa_node=_numa_node(folder / "device"),
        pcie=hops_above(folder / "device", sys),
    )


def _port(device: Path, port: int, sys: Path) -> RdmaPortLook:
    folder = device / "ports" / str(port)
    rate = re.match(r"\d+(?:\.\d+)?", text_of(folder / "rate") or "")
    return RdmaPortLook(
        device.name,
        port,
        state=words_after_number(text_of(folder / "state")),
        phys_state=words_after_number(text_of(folder / "phys_state")),
        link_layer=text_of(folder / "link_layer") or "",
        rate_gbps=float(rate[0]) if rate else None,
        firmware=text_of(device / "fw_ver") or "",
        lid=number_of(folder / "lid") or None,
        sm_lid=number_of(folder / "sm_lid") or None,
        gids=_gids(folder),
        counters={
            name: value
            for place in ("counters", "hw_counters")
            for name in names_in(folder / place)
            if name != "lifespan" and (value := number_of(folder / place / name)) is not None and value >= 0
        },
        numa_node=_numa_node(device / "device"),
        pcie=hops_above(device / "device", sys),
    )


def _gids(port: Path) -> tuple[Gid, ...]:
    """The addresses that are set. The kernel refuses to tell the type of an empty place, which is no error."""
    found = []
    for name in sorted(filter(str.isdecimal, names_in(port / "gids")), key=int):
        gid = text_of(port / "gids" / name)
        if gid and gid != _NO_GID:
            kind, link = (text_of(port / "gid_attrs" / what / name) or "" for what in ("types", "ndevs"))
            found.append(Gid(int(name), gid, kind, link))
    return tuple(found)


def _known(text: str | None) -> str:
    return "" if text is None or text == "unknown" else text


def _numa_node(device: Path) -> int | None:
    number = number_of(device / "numa_node")
    return None if number is None or number < 0 else number


def _has_dma_buf(roots: Roots) -> bool | None:
    """Whether NVIDIA's modules share GPU memory as dma-buf: the open ones do. None without a driver."""
    version = text_of(roots.proc / "driver/nvidia/version")
    return None if version is None else "Open Kernel Module" in version


def _nvidia_devices(folder: Path) -> tuple[str, ...]:
    found = []
    for address in names_in(folder):
        kind = (number_of(folder / address / "class") or 0) >> 8
        if kind in _PROCESSOR_CLASSES and number_of(folder / address / "vendor") == _NVIDIA_VENDOR:
            found.append(address)
    return tuple(found)
