"""Looks at interfaces, RDMA ports and what lets them reach GPU memory. Reads files of /sys and /proc only."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from clockgated import host
from clockgated.node.facts import FabricLook, Gid, NetLink, PlatformLook, RdmaPortLook
from clockgated.tuning.host_facts import read_acs_bridges, read_jobs, read_peermem
from clockgated.tuning.pcie import hops_above
from clockgated.tuning.roots import Roots, link_name, names_in, number_of, text_of
from clockgated.units import NS_PER_S

_IFF_UP = 1
_MOST_VIRTUAL_LINKS = 64
"""A node of containers has thousands: they would fill the report and the time of a look."""
_COUNTERS = (
    "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_missed_errors", "rx_crc_errors",
)  # fmt: skip
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_PAGE_BYTES = 4096
_GIDS_LAST_NS = 60 * NS_PER_S
_NVIDIA_VENDOR = 0x10DE
_PROCESSOR_CLASSES = (0x0300, 0x0302)  # VGA and 3D controllers: audio and switches of the same vendor are others


class FabricWatch:
    """Looks at interfaces and ports. Their tables of GIDs, hundreds of files each, are read anew once a minute."""

    def __init__(self, roots: Roots, gids_last_ns: int = _GIDS_LAST_NS) -> None:
        self._sys = roots.sys
        self._gids_last_ns = gids_last_ns
        self._gids: dict[Path, tuple[int, tuple[Gid, ...]]] = {}

    def look(self) -> FabricLook:
        """Interfaces and ports now."""
        return FabricLook(look_links(self._sys), look_rdma_ports(self._sys, self._gids_of))

    def _gids_of(self, port: Path) -> tuple[Gid, ...]:
        now_boot_ns = host.boot_ns()
        known = self._gids.get(port)
        if known is None or now_boot_ns - known[0] >= self._gids_last_ns:
            known = self._gids[port] = (now_boot_ns, read_gids(port))
        return known[1]


def look_platform(roots: Roots) -> PlatformLook:
    """Modules, bridges and jobs now. Goes through all processes: for once a minute."""
    return PlatformLook(
        peermem=read_peermem(roots),
        acs_redirects=read_acs_bridges(roots),
        jobs=read_jobs(roots),
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


def look_rdma_ports(sys: Path, gids_of: Callable[[Path], tuple[Gid, ...]]) -> tuple[RdmaPortLook, ...]:
    """Every port of every RDMA device, by name; `gids_of` tells the addresses of the folder of a port."""
    folder = sys / "class/infiniband"
    return tuple(
        _port(folder / device, int(port), sys, gids_of)
        for device in names_in(folder)
        for port in sorted(filter(str.isdecimal, names_in(folder / device / "ports")), key=int)
    )


def read_gids(port: Path) -> tuple[Gid, ...]:
    """The addresses that are set. The kernel refuses to tell the type of an empty place, which is no error."""
    found = []
    for name in sorted(filter(str.isdecimal, names_in(port / "gids")), key=int):
        gid = _text(f"{port}/gids/{name}")
        if gid and gid != _NO_GID:
            kind, link = (_text(f"{port}/gid_attrs/{what}/{name}") or "" for what in ("types", "ndevs"))
            found.append(Gid(int(name), gid, kind, link))
    return tuple(found)


def words_after_number(text: str | None) -> str:
    """The words of sysfs's "4: ACTIVE"."""
    return (text or "").partition(": ")[2]


def _link(name: str, sys: Path) -> NetLink:
    folder = sys / "class/net" / name
    is_up = bool((number_of(folder / "flags") or 0) & _IFF_UP)
    # Drivers answer -1 for a speed that they do not know, and the kernel refuses to tell of an interface that is down.
    speed_mbps, carrier = number_of(folder / "speed"), number_of(folder / "carrier")
    counters = {kind: _number(f"{folder}/statistics/{kind}") for kind in _COUNTERS}
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


def _port(device: Path, port: int, sys: Path, gids_of: Callable[[Path], tuple[Gid, ...]]) -> RdmaPortLook:
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
        gids=gids_of(folder),
        counters={
            name: value
            for place in ("counters", "hw_counters")
            for name in names_in(folder / place)
            if name != "lifespan" and (value := _number(f"{folder}/{place}/{name}")) is not None and value >= 0
        },
        numa_node=_numa_node(device / "device"),
        pcie=hops_above(device / "device", sys),
    )


def _text(path: str) -> str | None:
    """A file of sysfs, which is a page at most. Several times as fast as `text_of`: there are thousands of them."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(handle, _PAGE_BYTES).decode(errors="replace").strip()
    except OSError:
        return None
    finally:
        os.close(handle)


def _number(path: str) -> int | None:
    try:
        return int(_text(path) or "")
    except ValueError:
        return None


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
