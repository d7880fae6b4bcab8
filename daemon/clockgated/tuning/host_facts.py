"""Facts about the machine apart from its links: sysctls, processors, memory, RDMA ports, jobs. Reads files only."""

import re
from collections.abc import Iterable, Mapping

from clockgated.tuning.counters import node_counters
from clockgated.tuning.facts import Cpus, Host, Irq, JobProcess, RdmaPort, SysctlFact
from clockgated.tuning.roots import Roots, is_writable, link_name, names_in, number_of, raw_text_of, text_of

SYSCTLS = (
    "net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_mem",
    "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_available_congestion_control", "net.core.default_qdisc",
    "net.ipv4.tcp_mtu_probing", "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_timestamps", "net.ipv4.tcp_sack", "net.ipv4.tcp_no_metrics_save", "net.core.netdev_max_backlog",
    "net.core.netdev_budget", "net.core.netdev_budget_usecs", "net.core.busy_poll", "net.core.busy_read",
    "net.core.somaxconn", "net.ipv4.neigh.default.gc_thresh1", "net.ipv4.neigh.default.gc_thresh2",
    "net.ipv4.neigh.default.gc_thresh3", "net.ipv4.ip_local_port_range", "net.ipv4.ip_forward",
    "kernel.numa_balancing", "vm.zone_reclaim_mode", "vm.nr_hugepages",
)  # fmt: skip
"""Every key that a rule looks at."""

NODE_WIDE = frozenset({
    "net.core.netdev_max_backlog", "net.core.netdev_budget", "net.core.netdev_budget_usecs", "net.core.busy_poll",
    "net.core.busy_read", "net.core.default_qdisc", "net.ipv4.tcp_mem", "net.ipv4.neigh.default.gc_thresh1",
    "net.ipv4.neigh.default.gc_thresh2", "net.ipv4.neigh.default.gc_thresh3",
})  # fmt: skip
"""Keys of the node as a whole: they do not exist in any other network namespace than the first."""

_JOB_WORDS = ("clockgate-train", "clockgate_trainer", "torchrun", "torch.distributed.run")
_ACS_CAPABILITY, _ACS_REDIRECTS = 0x000D, 0b1100  # P2P request and completion redirect
_EXTENDED_START, _MOST_CAPABILITIES = 0x100, 64


def read_sysctls(roots: Roots, keys: Iterable[str]) -> dict[str, SysctlFact]:
    """Those of `keys` that are there."""
    found = {}
    for key in keys:
        path = roots.sysctl(key)
        value = text_of(path)
        if value is not None:
            found[key] = SysctlFact(value, is_writable(path))
    return found


def read_host(roots: Roots) -> Host:
    """The machine."""
    proc, counters = roots.proc, node_counters(roots)
    softnet = {one.name: one.value for one in counters if one.name.startswith("softnet.")}
    arp = raw_text_of(proc / "net/arp")
    return Host(
        kernel=text_of(proc / "sys/kernel/osrelease") or "",
        ram_bytes=_ram_bytes(raw_text_of(proc / "meminfo") or ""),
        cpus=read_cpus(roots),
        thp=selected(text_of(roots.sys / "kernel/mm/transparent_hugepage/enabled") or ""),
        is_iommu_on=bool(names_in(roots.sys / "class/iommu")) if (roots.sys / "class").is_dir() else None,
        softnet_dropped=softnet.get("softnet.dropped"),
        softnet_squeezed=softnet.get("softnet.squeezed"),
        tcp_counters=tuple(one for one in counters if one.name.startswith("tcp.")),
        tcp_pages_in_use=_tcp_pages(raw_text_of(proc / "net/sockstat") or ""),
        neighbours=None if arp is None else max(0, len(arp.splitlines()) - 1),
        jobs=read_jobs(roots),
        rdma_ports=tuple(_rdma_ports(roots)),
        peermem=read_peermem(roots),
        acs_redirects=read_acs_bridges(roots),
        nccl_settings=tuple(parse_settings(raw_text_of(roots.root / "etc/nccl.conf") or "")),
    )


def read_cpus(roots: Roots) -> Cpus:
    """Processors and their frequency governors."""
    folder = roots.sys / "devices/system/cpu"
    numbers = [int(name[3:]) for name in names_in(folder) if re.fullmatch(r"cpu\d+", name)]
    governors, preferences, offered = {}, {}, set()
    for number in sorted(numbers):
        policy = folder / f"cpu{number}/cpufreq"
        if governor := text_of(policy / "scaling_governor"):
            governors[number] = governor
            offered |= set((text_of(policy / "scaling_available_governors") or "").split())
        if preference := text_of(policy / "energy_performance_preference"):
            preferences[number] = preference
    nodes = roots.sys / "devices/system/node"
    by_node = {
        int(name[4:]): parse_cpu_list(text_of(nodes / name / "cpulist") or "")
        for name in names_in(nodes)
        if re.fullmatch(r"node\d+", name)
    }
    smt = text_of(folder / "smt/active")
    flags = re.search(r"^flags\s*:(.*)$", raw_text_of(roots.proc / "cpuinfo") or "", re.MULTILINE)
    return Cpus(
        count=max(1, len(numbers)),
        by_node=by_node,
        governors=governors,
        energy_preferences=preferences,
        governors_offered=frozenset(offered),
        smt_active=None if smt is None else smt == "1",
        is_virtual=flags is not None and "hypervisor" in flags[1].split(),
    )


def read_jobs(roots: Roots) -> tuple[JobProcess, ...]:
    """Running jobs, and what each may lock."""
    return tuple(_jobs(roots))


def read_peermem(roots: Roots) -> str | None:
    """Whether network cards reach GPU memory by nvidia_peermem ("registered"), or it is only there ("loaded")."""
    if names_in(roots.sys / "kernel/mm/memory_peers"):
        return "registered"
    return "loaded" if (roots.sys / "module/nvidia_peermem").is_dir() else None


def read_acs_bridges(roots: Roots) -> tuple[str, ...]:
    """Addresses of PCI bridges that redirect traffic between devices below them."""
    return tuple(_acs_bridges(roots))


def read_irqs(roots: Roots, devices: Mapping[str, frozenset[str]]) -> tuple[Irq, ...]:
    """The interrupts of interfaces: those whose action names the interface or one of its devices (by `devices`)."""
    found = []
    for line in (raw_text_of(roots.proc / "interrupts") or "").splitlines():
        matched = re.match(r"\s*(\d+):", line)
        action = line.split()[-1] if line.split() else ""
        link = next((name for name, words in devices.items() if _belongs(action, name, words)), None)
        if matched and link is not None:
            folder = roots.proc / "irq" / matched[1]
            affinity, effective = (text_of(folder / name) for name in ("smp_affinity_list", "effective_affinity_list"))
            found.append(Irq(int(matched[1]), action, link, affinity, effective))
    return tuple(found)


def device_names(roots: Roots, link: str) -> frozenset[str]:
    """Names under which drivers may register the interrupts of `link` besides its own: its device's (virtio3)."""
    name = link_name(roots.sys / "class/net" / link / "device")
    return frozenset() if name is None else frozenset({name})


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The text "0-3,8" as numbers; what is no number is passed over."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdecimal() and (not dash or last.isdecimal()):
            found += range(int(first), min(int(last or first), int(first) + 65535) + 1)
    return tuple(found)


def selected(text: str) -> str | None:
    """The word in brackets of "always [madvise] never"."""
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else None


def parse_memlock(limits: str) -> tuple[int | None, bool]:
    """The soft limit of locked memory in a /proc/PID/limits, bytes, and whether it is unlimited."""
    found = re.search(r"^Max locked memory\s+(\S+)", limits, re.MULTILINE)
    if found is None:
        return None, False
    return (int(found[1]), False) if found[1].isdecimal() else (None, found[1] == "unlimited")


def redirects_peer_traffic(config: bytes) -> bool | None:
    """Whether a PCI bridge's configuration space says that ACS redirects peer-to-peer traffic; None without ACS."""
    place = _EXTENDED_START
    for _ in range(_MOST_CAPABILITIES):
        head = int.from_bytes(config[place : place + 4], "little")
        if len(config) < place + 8 or head in (0, 0xFFFFFFFF):
            return None
        if head & 0xFFFF == _ACS_CAPABILITY:
            return bool(int.from_bytes(config[place + 6 : place + 8], "little") & _ACS_REDIRECTS)
        place = head >> 20
        if place < _EXTENDED_START:
            return None
    return None


def parse_settings(text: str) -> list[tuple[str, str]]:
    """KEY=VALUE lines without comments."""
    lines = (line.partition("#")[0].partition("=") for line in text.splitlines())
    return [(key.strip(), value.strip()) for key, equals, value in lines if equals and key.strip()]


def _belongs(action: str, name: str, words: frozenset[str]) -> bool:
    return any(re.search(rf"(?:^|[-@:]){re.escape(word)}(?:$|[-@:.])", action) is not None for word in {name, *words})


def _ram_bytes(meminfo: str) -> int | None:
    found = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _tcp_pages(sockstat: str) -> int | None:
    found = re.search(r"^TCP:.*\bmem (\d+)", sockstat, re.MULTILINE)
    return int(found[1]) if found else None


def _first_number(text: str | None) -> float | None:
    found = re.match(r"\d+(?:\.\d+)?", text or "")
    return float(found[0]) if found else None


def _jobs(roots: Roots) -> Iterable[JobProcess]:
    for pid in names_in(roots.proc):
        if not pid.isdecimal():
            continue
        words = (raw_text_of(roots.proc / pid / "cmdline") or "").split("\0")
        name = next((word for word in words[:4] if word.rpartition("/")[2] in _JOB_WORDS or word in _JOB_WORDS), None)
        if name is not None:
            limit, is_unlimited = parse_memlock(raw_text_of(roots.proc / pid / "limits") or "")
            yield JobProcess(int(pid), name.rpartition("/")[2], limit, is_unlimited)


def _rdma_ports(roots: Roots) -> Iterable[RdmaPort]:
    for device in names_in(roots.sys / "class/infiniband"):
        folder = roots.sys / "class/infiniband" / device / "ports"
        for port in filter(str.isdecimal, names_in(folder)):
            state = (text_of(folder / port / "state") or "").partition(": ")[2]
            yield RdmaPort(
                device, int(port), state, text_of(folder / port / "link_layer") or "",
                _first_number(text_of(folder / port / "rate")),
            )  # fmt: skip


def _acs_bridges(roots: Roots) -> Iterable[str]:
    folder = roots.sys / "bus/pci/devices"
    for device in names_in(folder):
        if (number_of(folder / device / "class") or 0) >> 8 == 0x0604:
            try:
                config = (folder / device / "config").read_bytes()
            except OSError:
                continue
            if redirects_peer_traffic(config):
                yield device
