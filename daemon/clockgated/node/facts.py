"""What is seen of the machine, as frozen values. None is unknown or absent, never zero. Pure.

Units are in the names; counters count up from boot, or from when their device came up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from clockgated.tuning.facts import JobProcess, PcieHop


@dataclass(frozen=True)
class Pressure:
    """Share of the last 60 s in percent, in which some (`cpu`) or all (the others) tasks waited."""

    cpu_some_percent: float | None = None
    memory_full_percent: float | None = None
    io_full_percent: float | None = None


@dataclass(frozen=True)
class Temperature:
    """One sensor of the kernel; `critical_celsius` is its lowest point of the kinds hot and critical."""

    sensor: str
    celsius: float
    critical_celsius: float | None = None


@dataclass(frozen=True)
class HostLook:
    """The machine apart from its devices. `taint` is the kernel's bit set, `clocksource` what it reads time from."""

    pressure: Pressure = field(default_factory=Pressure)
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    load_5min: float | None = None
    cpu_count: int | None = None
    oom_kills: int | None = None
    memory_errors_corrected: int | None = None
    memory_errors_uncorrected: int | None = None
    clocksource: str = ""
    taint: int | None = None
    temperatures: tuple[Temperature, ...] = ()


@dataclass(frozen=True)
class Disk:
    """The file system of one folder. `free_files` is None where there is no limit."""

    path: str
    total_bytes: int | None = None
    free_bytes: int | None = None
    total_files: int | None = None
    free_files: int | None = None
    is_read_only: bool | None = None


@dataclass(frozen=True)
class NetLink:
    """One interface; `has_carrier` is None while it is not set up. `driver` is empty for a virtual one."""

    name: str
    driver: str = ""
    is_up: bool = False
    has_carrier: bool | None = None
    mtu_bytes: int | None = None
    speed_mbps: int | None = None
    duplex: str = ""
    carrier_losses: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    numa_node: int | None = None
    pcie: tuple[PcieHop, ...] = ()

    @property
    def rx_drops(self) -> int | None:
        """Received and dropped, by the kernel or for want of buffers of the device."""
        seen = [self.counters[name] for name in ("rx_dropped", "rx_missed_errors") if name in self.counters]
        return sum(seen) if seen else None


@dataclass(frozen=True)
class Gid:
    """One address of an RDMA port: groups of hexadecimal digits, its type in the kernel's words, its interface."""

    index: int
    gid: str
    type: str = ""
    link: str = ""


@dataclass(frozen=True)
class RdmaPortLook:
    """One port of an RDMA device, in sysfs's words. `counters` keep their names there."""

    device: str
    port: int
    state: str = ""
    phys_state: str = ""
    link_layer: str = ""
    rate_gbps: float | None = None
    firmware: str = ""
    lid: int | None = None
    sm_lid: int | None = None
    gids: tuple[Gid, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    numa_node: int | None = None
    pcie: tuple[PcieHop, ...] = ()

    @property
    def subject(self) -> str:
        """How findings and metrics name it."""
        return f"{self.device}/{self.port}"


@dataclass(frozen=True)
class FabricLook:
    """What joins this node with others."""

    links: tuple[NetLink, ...] = ()
    rdma_ports: tuple[RdmaPortLook, ...] = ()


@dataclass(frozen=True)
class PlatformLook:
    """What lets RDMA reach memory. `nvidia_devices` are PCI addresses of NVIDIA's processors, driver or not."""

    peermem: str | None = None
    acs_redirects: tuple[str, ...] = ()
    jobs: tuple[JobProcess, ...] = ()
    has_dma_buf: bool | None = None
    nvidia_devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class NvLink:
    """One NVLink of a GPU and the PCI address at its other end."""

    link: int
    is_up: bool
    peer_pci_address: str = ""


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVIDIA's library tells; what a model does not have is None. `trouble` is why it does not answer."""

    index: int
    uuid: str = ""
    name: str = ""
    pci_address: str = ""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization_percent: float | None = None
    temperature_celsius: float | None = None
    slowdown_celsius: float | None = None
    power_milliwatts: int | None = None
    power_limit_milliwatts: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_max_generation: int | None = None
    pcie_max_width: int | None = None
    nvlinks: tuple[NvLink, ...] = ()
    has_pending_rows: bool | None = None
    has_failed_rows: bool | None = None
    numa_node: int | None = None
    trouble: str | None = None

    @property
    def subject(self) -> str:
        """How findings name it."""
        return f"gpu {self.index}"


@dataclass(frozen=True)
class GpuPath:
    """How two GPUs are joined: NVLinks that both share, and the closest common point on PCIe (empty: unknown)."""

    gpu: int
    other_gpu: int
    nvlinks: int = 0
    pcie_level: str = ""


@dataclass(frozen=True)
class GpuLook:
    """All GPUs. `trouble` is why the library, which is there, cannot be used; `errors` are Xids since it was opened."""

    driver_version: str | None = None
    gpus: tuple[Gpu, ...] = ()
    paths: tuple[GpuPath, ...] = ()
    trouble: str | None = None
    errors: tuple["KernelEvent", ...] = ()


@dataclass(frozen=True)
class KernelEvent:
    """One message of the kernel that tells of trouble. `kind` is xid, hung_task, hardware or file_system.

    `subject` is what it is about; `code` is the number of an Xid; `count` says how often it came.
    """

    kind: str
    subject: str
    text: str
    seen_boot_ns: int
    code: int | None = None
    count: int = 1


@dataclass(frozen=True)
class LinkExtra:
    """What only rtnetlink and the driver of an interface tell."""

    qdiscs: tuple[str, ...] = ()
    fec_modes: tuple[str, ...] = ()
    fec_corrected: int | None = None
    fec_uncorrectable: int | None = None


@dataclass(frozen=True)
class PeerPath:
    """Echoes to one peer. Times in microseconds; None without answers."""

    peer: str
    sent: int = 0
    received: int = 0
    median_us: int | None = None
    p95_us: int | None = None
    jitter_us: int | None = None


@dataclass(frozen=True)
class Extras:
    """What is only looked up when somebody asks for the fabric."""

    links: Mapping[str, LinkExtra] = field(default_factory=dict)
    peers: tuple[PeerPath, ...] = ()


@dataclass(frozen=True)
class NodeLook:
    """Everything that was seen; a part is None until it answered for the first time."""

    host: HostLook | None = None
    disks: tuple[Disk, ...] | None = None
    fabric: FabricLook | None = None
    platform: PlatformLook | None = None
    gpus: GpuLook | None = None
    kernel: tuple[KernelEvent, ...] | None = None
    extras: Extras | None = None
