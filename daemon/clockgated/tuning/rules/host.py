"""The host: processors, memory, PCIe, RDMA. Most belongs to firmware, boot or the administrator: reported only."""

from collections.abc import Iterable

from clockgated.tuning.model import Area, Change, Input, Knob, Refusal, RefusalCode, Risk, Why
from clockgated.tuning.rules.base import Outcome, Rule, Situation, Stance, number, raise_sysctl, set_sysctl, tell
from clockgated.tuning.values import MIB

_MEMLOCK_NEEDED = 500 * MIB
_FORCED = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_GID_INDEX")


def _governor(situation: Situation) -> Iterable[Outcome]:
    cpus = situation.facts.host.cpus
    if not situation.profile.governor or cpus.is_virtual or not cpus.governors:
        return
    links = [link for link in situation.tuned_links() if link.numa_node is not None]
    near = {cpu for link in links for cpu in situation.local_cpus(link)} or set(cpus.governors)
    for cpu, found in sorted(cpus.governors.items()):
        if cpu not in near or found == "performance" or cpus.energy_preferences.get(cpu) == "performance":
            continue
        key = f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"
        why = Why(
            "packets wait for a CPU that has to speed up first",
            "performance on the CPUs near the links",
            (Input("cpu", cpu),),
        )
        knob = Knob(situation.facts.netns, Area.SYSFS, key)
        if cpus.governors_offered and "performance" not in cpus.governors_offered:
            yield Refusal(
                RefusalCode.UNSUPPORTED,
                key,
                why,
                "the driver offers no such governor",
                knob=knob,
                found=found,
                wanted="performance",
            )
            continue
        yield Change(knob, found, "performance", why, Risk.NODE)


def _nothing(situation: Situation) -> Iterable[Outcome]:
    return ()


def _smt(situation: Situation) -> Iterable[Outcome]:
    if situation.facts.host.cpus.smt_active:
        yield tell("SMT_ON", "smt", "two threads share each core; that is the firmware's to change")


def _iommu(situation: Situation) -> Iterable[Outcome]:
    if situation.facts.host.is_iommu_on:
        yield tell(
            "IOMMU_ON",
            "iommu",
            "DMA is translated; for peer-to-peer GPUs pass-through (iommu=pt) is preferred, a boot option",
        )


def _numa_balancing(situation: Situation) -> Iterable[Outcome]:
    if situation.profile.numa_balancing_off and len(situation.facts.host.cpus.by_node) > 1:
        why = Why(
            "processes are pinned, so moving their pages only costs",
            "0 on nodes with several NUMA nodes and pinned processes",
            (Input("numa_nodes", len(situation.facts.host.cpus.by_node)),),
        )
        yield from set_sysctl(situation, "kernel.numa_balancing", "0", why, risk=Risk.NODE)


def _zone_reclaim(situation: Situation) -> Iterable[Outcome]:
    if number(situation, "vm.zone_reclaim_mode"):
        yield tell(
            "ZONE_RECLAIM_ON",
            "vm.zone_reclaim_mode",
            "reclaiming near memory costs data loaders their page cache",
            next_step="`sysctl -w vm.zone_reclaim_mode=0`; it is never changed here",
        )


def _huge_page_policy(situation: Situation) -> Iterable[Outcome]:
    found = situation.facts.host.thp
    if found is not None and found != "madvise":
        yield tell(
            "THP_MODE",
            "transparent_hugepage",
            f"{found}; madvise is the safe setting, always can stall in compaction",
            Input("found", found),
        )


def _huge_pages(situation: Situation) -> Iterable[Outcome]:
    wanted, consumer = situation.profile.hugepages, situation.profile.hugepages_consumer
    found = number(situation, "vm.nr_hugepages")
    if wanted is not None and consumer is not None:
        why = Why(
            f"{consumer} maps them; the kernel may give fewer, so the count is read again",
            "what the profile says",
            (Input("hugepages", wanted, "pages"),),
        )
        yield from raise_sysctl(situation, "vm.nr_hugepages", wanted, why, risk=Risk.NODE)
    elif found:
        yield tell(
            "HUGE_PAGES_UNNAMED",
            "vm.nr_hugepages",
            "memory is set aside, and no consumer is named; collectives do not use it",
            Input("pages", found),
        )


def _memlock(situation: Situation) -> Iterable[Outcome]:
    if not situation.facts.host.rdma_ports and not situation.profile.rdma:
        return
    for job in situation.facts.host.jobs:
        if not job.is_unlimited and job.memlock_bytes is not None and job.memlock_bytes < _MEMLOCK_NEEDED:
            yield tell(
                "MEMLOCK_LOW",
                f"pid {job.pid} {job.name}",
                "RDMA has to pin its buffers, and fails with ENOMEM at this limit",
                Input("memlock", job.memlock_bytes, "bytes"),
                Input("wanted", _MEMLOCK_NEEDED, "bytes"),
                next_step="LimitMEMLOCK=infinity in the job's unit; limits.conf does not reach services",
            )


def _acs(situation: Situation) -> Iterable[Outcome]:
    for device in situation.facts.host.acs_redirects:
        yield tell(
            "ACS_REDIRECTS",
            f"pci {device}",
            "ACS sends peer-to-peer traffic up to the root: GPUs hang or slow down",
            next_step="disable ACS in the firmware, unless this host passes devices to virtual machines",
        )


def _pcie(situation: Situation) -> Iterable[Outcome]:
    for link in situation.facts.links:
        for hop in link.pcie:
            slow = (
                hop.speed_gts is not None
                and hop.possible_speed_gts is not None
                and hop.speed_gts < hop.possible_speed_gts
            )
            narrow = hop.width is not None and hop.possible_width is not None and hop.width < hop.possible_width
            if slow or narrow:
                yield tell(
                    "PCIE_DEGRADED",
                    f"{link.name} pci {hop.device}",
                    "the PCIe link runs below what both of its ends can do",
                    Input("speed", hop.speed_gts or 0, "GT/s"),
                    Input("possible_speed", hop.possible_speed_gts or 0, "GT/s"),
                    Input("width", hop.width or 0, "lanes"),
                    Input("possible_width", hop.possible_width or 0, "lanes"),
                    next_step="reseat the card or the riser; look at `dmesg` for AER errors",
                )


def _peer_memory(situation: Situation) -> Iterable[Outcome]:
    if situation.facts.host.peermem == "loaded":
        yield tell(
            "PEERMEM_UNREGISTERED",
            "nvidia_peermem",
            "the module is loaded and has not registered: GPU memory goes through the host",
            next_step="load it after the RDMA drivers: `modprobe -r nvidia_peermem; modprobe nvidia_peermem`",
        )


def _rdma(situation: Situation) -> Iterable[Outcome]:
    ports = situation.facts.host.rdma_ports
    if situation.profile.rdma and not ports:
        yield tell(
            "RDMA_NO_DEVICE",
            "rdma",
            "the profile needs an RDMA device, and there is none",
            next_step="look at `lspci` and `dmesg`: card or driver is missing",
        )
    for port in ports:
        if port.state not in ("ACTIVE", ""):
            yield tell(
                "RDMA_PORT_DOWN",
                f"{port.device} port {port.port}",
                f"the port is {port.state}",
                Input("rate", port.rate_gbps or 0, "Gb/s"),
                next_step="check cable, switch port and subnet manager",
            )


def _collectives(situation: Situation) -> Iterable[Outcome]:
    for key, value in situation.facts.host.nccl_settings:
        if key in _FORCED and value:
            yield tell(
                "NCCL_FORCED",
                f"/etc/nccl.conf {key}",
                "forces a choice that the library makes better, and that has to be equal on every rank",
                Input(key, value),
                next_step=f"remove {key}, unless it is a recorded work-around of one version",
            )


TABLE: tuple[Rule, ...] = (
    Rule("CPU governor", Stance.SET, "performance on the CPUs near the links; not in virtual machines", _governor),
    Rule(
        "C-states",
        Stance.NEVER,
        "a latency request belongs to a running job and ends with it; nothing lasting is set",
        _nothing,
    ),
    Rule("SMT", Stance.REPORT, "firmware", _smt),
    Rule("IOMMU", Stance.REPORT, "boot option", _iommu),
    Rule(
        "kernel.numa_balancing",
        Stance.SET,
        "0 on several NUMA nodes where a profile says that processes are pinned",
        _numa_balancing,
    ),
    Rule("vm.zone_reclaim_mode", Stance.NEVER, "costs data loaders their page cache", _zone_reclaim),
    Rule("transparent huge pages", Stance.REPORT, "experts disagree; madvise is the safe setting", _huge_page_policy),
    Rule("vm.nr_hugepages", Stance.SET, "only for a consumer that a profile names", _huge_pages),
    Rule("memlock", Stance.REPORT, "the limit of the job's own process counts", _memlock),
    Rule("PCIe ACS", Stance.NEVER, "disabling it breaks the isolation of virtual machines", _acs),
    Rule("relaxed ordering", Stance.NEVER, "the library detects it by itself", _nothing),
    Rule("PCIe link", Stance.REPORT, "against what both ends can do, not against a table", _pcie),
    Rule("nvidia_peermem", Stance.REPORT, "loaded and registered are two states", _peer_memory),
    Rule("RDMA ports", Stance.REPORT, "no device and a port that is down are told apart", _rdma),
    Rule("NCCL ALGO, PROTO, GID_INDEX", Stance.NEVER, "forced choices hang or corrupt when ranks differ", _collectives),
)
