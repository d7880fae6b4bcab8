"""What a plan is made from: the node as one immutable value. None is unknown or absent, never zero. Pure.

Gathered by `gather`, read by the rules. Counters count up from boot, or from when an interface came up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from clockgated.tuning.model import Counter, LinkId, Owner

GOVERNOR = "governor"
"""The name under which the frequency governor of all CPUs is looked up among the owners."""


@dataclass(frozen=True)
class Rings:
    """Descriptor rings, entries; the limits are the driver's."""

    rx: int | None = None
    rx_max: int | None = None
    tx: int | None = None
    tx_max: int | None = None


@dataclass(frozen=True)
class Channels:
    """Queues; drivers have either combined ones or separate ones for both directions."""

    combined: int | None = None
    combined_max: int | None = None
    rx: int | None = None
    rx_max: int | None = None
    tx: int | None = None
    tx_max: int | None = None


@dataclass(frozen=True)
class Coalesce:
    """Interrupt moderation, microseconds and frames."""

    rx_usecs: int | None = None
    tx_usecs: int | None = None
    adaptive_rx: bool | None = None
    adaptive_tx: bool | None = None


@dataclass(frozen=True)
class Pause:
    """Link-level flow control, and how many pause frames there were."""

    autoneg: bool | None = None
    rx: bool | None = None
    tx: bool | None = None
    rx_frames: int | None = None
    tx_frames: int | None = None


@dataclass(frozen=True)
class Fec:
    """Forward error correction of the link: configured modes and what it corrected, or could not (blocks)."""

    modes: tuple[str, ...] = ()
    corrected: int | None = None
    uncorrectable: int | None = None


@dataclass(frozen=True)
class Features:
    """Offloads by the kernel's names. `wanted` differs from `active` where the driver turned one down."""

    active: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    hardware: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StampConfig:
    """How a device stamps packets now, as the numbers of linux/net_tstamp.h: 0 is off for both."""

    tx_type: int
    rx_filter: int

    @property
    def is_on(self) -> bool:
        """Whether anything stamps in hardware."""
        return bool(self.tx_type or self.rx_filter)


@dataclass(frozen=True)
class Qdisc:
    """One queueing discipline. `parent` is "root" or MAJOR:MINOR in hexadecimal, `handle` MAJOR: likewise."""

    kind: str
    parent: str
    handle: str = ""


@dataclass(frozen=True)
class Queue:
    """Steering of one receive queue: the RPS mask as the kernel writes it; None when unreadable."""

    name: str
    rps_cpus: str | None


@dataclass(frozen=True)
class PcieHop:
    """The PCIe link above one device: what it runs at and what both of its ends could, GT/s and lanes."""

    device: str
    speed_gts: float | None = None
    width: int | None = None
    possible_speed_gts: float | None = None
    possible_width: int | None = None


@dataclass(frozen=True)
class Link:
    """One interface. `kind` is the kernel's (veth, bond, vlan, wireguard, ...), None for hardware.

    `parents` are the links below a VLAN, `master` the bond or bridge above. `speed_mbps` is None where the driver does
    not tell. `addresses` are CIDR texts. `unavailable` lists what the driver does not offer.
    """

    link_id: LinkId
    kind: str | None = None
    is_up: bool = False
    mtu: int | None = None
    speed_mbps: int | None = None
    duplex: str | None = None
    numa_node: int | None = None
    phc_index: int | None = None
    parents: tuple[str, ...] = ()
    master: str | None = None
    addresses: tuple[str, ...] = ()
    rings: Rings | None = None
    channels: Channels | None = None
    coalesce: Coalesce | None = None
    pause: Pause | None = None
    fec: Fec | None = None
    features: Features | None = None
    eee_enabled: bool | None = None
    stamp_config: StampConfig | None = None
    qdiscs: tuple[Qdisc, ...] = ()
    queues: tuple[Queue, ...] = ()
    pcie: tuple[PcieHop, ...] = ()
    counters: tuple[Counter, ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return self.link_id.name

    @property
    def is_hardware(self) -> bool:
        """Whether a driver of a device stands behind it."""
        return self.kind is None and self.link_id.driver is not None

    @property
    def is_tunnel(self) -> bool:
        """Whether packets are wrapped into others, which costs MTU."""
        return self.kind in ("wireguard", "tun", "vxlan", "gre", "gretap", "ipip", "sit", "geneve", "ip6tnl", "xfrm")

    def counter(self, name: str) -> int | None:
        """The counter of that name."""
        return next((one.value for one in self.counters if one.name == name), None)


@dataclass(frozen=True)
class Irq:
    """One interrupt of an interface. `action` (eth0-TxRx-3) is its identity; numbers change."""

    number: int
    action: str
    link: str
    affinity: str | None = None
    effective: str | None = None


@dataclass(frozen=True)
class RdmaPort:
    """One port of an RDMA device, as sysfs tells: `state` and `link_layer` in its words."""

    device: str
    port: int
    state: str
    link_layer: str
    rate_gbps: float | None = None


@dataclass(frozen=True)
class Cpus:
    """Processors. `by_node` maps NUMA nodes to their CPUs; `governors` maps CPUs to their cpufreq governor."""

    count: int = 1
    by_node: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    governors: Mapping[int, str] = field(default_factory=dict)
    energy_preferences: Mapping[int, str] = field(default_factory=dict)
    governors_offered: frozenset[str] = frozenset()
    smt_active: bool | None = None
    is_virtual: bool = False


@dataclass(frozen=True)
class JobProcess:
    """A process that may pin memory for RDMA. Limit in bytes; None is unlimited only when `is_unlimited`."""

    pid: int
    name: str
    memlock_bytes: int | None
    is_unlimited: bool = False


@dataclass(frozen=True)
class Host:
    """The machine apart from its links."""

    kernel: str = ""
    ram_bytes: int | None = None
    page_bytes: int = 4096
    cpus: Cpus = field(default_factory=Cpus)
    thp: str | None = None
    is_iommu_on: bool | None = None
    softnet_dropped: int | None = None
    softnet_squeezed: int | None = None
    tcp_counters: tuple[Counter, ...] = ()
    tcp_pages_in_use: int | None = None
    neighbours: int | None = None
    jobs: tuple[JobProcess, ...] = ()
    rdma_ports: tuple[RdmaPort, ...] = ()
    peermem: str | None = None
    acs_redirects: tuple[str, ...] = ()
    nccl_settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SysctlFact:
    """One key of /proc/sys as it is: its value in normal spelling, and whether it can be written from here."""

    value: str
    is_writable: bool = True


@dataclass(frozen=True)
class Owners:
    """Who else sets things. `sysctls` holds, for every key in any sysctl file, the entry that wins at boot.

    `tuned` is the active profile, and with `tuned_sysctls` what it sets. `network_manager` lists the links that it
    manages.
    """

    sysctls: Mapping[str, Owner] = field(default_factory=dict)
    tuned_profile: str | None = None
    tuned_sysctls: Mapping[str, Owner] = field(default_factory=dict)
    network_manager: Mapping[str, Owner] = field(default_factory=dict)
    irqbalance_runs: bool = False


@dataclass(frozen=True)
class PathTime:
    """Round-trip time to the job's peers: the 95th percentile, microseconds, and where it comes from."""

    rtt_us: int
    source: str


@dataclass(frozen=True)
class Facts:
    """Everything. `is_initial_netns` tells whether node-wide network keys are to be found here."""

    netns: int
    boot_id: str
    as_of_boot_ns: int
    is_initial_netns: bool = True
    links: tuple[Link, ...] = ()
    sysctls: Mapping[str, SysctlFact] = field(default_factory=dict)
    irqs: tuple[Irq, ...] = ()
    host: Host = field(default_factory=Host)
    owners: Owners = field(default_factory=Owners)
    path: PathTime | None = None

    def sysctl(self, key: str) -> str | None:
        """The value of a sysctl; None when there is no such key here."""
        fact = self.sysctls.get(key)
        return None if fact is None else fact.value
