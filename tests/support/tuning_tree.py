"""A made-up /proc, /sys and root below a temporary folder, and facts made from plain values."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from clockgated.tuning.facts import Facts, Link, PathTime, Qdisc, SysctlFact
from clockgated.tuning.model import Change, Finding, LinkId, Plan, Refusal
from clockgated.tuning.planner import make_plan
from clockgated.tuning.profile import Profile, load
from clockgated.tuning.roots import Roots

SYSCTLS = {
    "net.core.rmem_max": "4194304",
    "net.core.wmem_max": "4194304",
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.ipv4.tcp_wmem": "4096 16384 4194304",
    "net.ipv4.tcp_mem": "2000000 3000000 4000000",
    "net.ipv4.tcp_congestion_control": "cubic",
    "net.ipv4.tcp_available_congestion_control": "reno cubic bbr",
    "net.ipv4.tcp_mtu_probing": "0",
    "net.ipv4.tcp_slow_start_after_idle": "1",
    "net.ipv4.tcp_notsent_lowat": "4294967295",
    "net.ipv4.tcp_timestamps": "1",
    "net.ipv4.tcp_sack": "1",
    "net.ipv4.tcp_no_metrics_save": "0",
    "net.core.netdev_max_backlog": "1000",
    "net.core.netdev_budget": "300",
    "net.core.netdev_budget_usecs": "8000",
    "net.core.busy_poll": "0",
    "net.core.busy_read": "0",
    "net.core.somaxconn": "4096",
    "net.ipv4.neigh.default.gc_thresh1": "128",
    "net.ipv4.neigh.default.gc_thresh2": "512",
    "net.ipv4.neigh.default.gc_thresh3": "1024",
    "net.ipv4.ip_local_port_range": "32768 60999",
    "net.ipv4.ip_forward": "0",
    "kernel.numa_balancing": "1",
    "vm.zone_reclaim_mode": "0",
    "vm.nr_hugepages": "0",
}
GIB = 1 << 30
ABSENT = object()


class Tree:
    """Writes files below three roots; slashes lead from the root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.roots = Roots(proc=folder / "proc", sys=folder / "sys", root=folder / "root")

    def write(self, path: str, text: str | bytes) -> Path:
        """A file at `path`, which begins with proc/, sys/ or root/."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def process(self, pid: int, name: str, *, cmdline: str = "", limits: str = "") -> None:
        """A running process."""
        self.write(f"proc/{pid}/comm", f"{name}\n")
        self.write(f"proc/{pid}/cmdline", cmdline)
        self.write(f"proc/{pid}/limits", limits)


def link(name: str = "eth0", **changes: Any) -> Link:
    """A hardware link of 100 Gb/s that is up."""
    start = Link(
        link_id=LinkId(name, 2, "02:00:00:00:00:01", "mlx5_core"),
        is_up=True,
        mtu=1500,
        speed_mbps=100_000,
        qdiscs=(Qdisc("pfifo_fast", "root", "0:0"),),
    )
    return replace(start, **changes)


def facts(*links: Link, sysctls: dict[str, Any] | None = None, rtt_us: int | None = 200, **changes: Any) -> Facts:
    """Facts of a node with those links (one by default); a sysctl of ABSENT is left out."""
    values = {key: value for key, value in (SYSCTLS | (sysctls or {})).items() if value is not ABSENT}
    start = Facts(
        netns=4026531840,
        boot_id="boot",
        as_of_boot_ns=1,
        links=links or (link(),),
        sysctls={key: value if isinstance(value, SysctlFact) else SysctlFact(value) for key, value in values.items()},
        path=None if rtt_us is None else PathTime(rtt_us, "told"),
    )
    start = replace(start, host=replace(start.host, ram_bytes=512 * GIB))
    return replace(start, **changes)


def profile(name: str = "tcp", **changes: Any) -> Profile:
    """A built-in profile with changes."""
    return replace(load(name, Path("/nonexistent")), **changes)


def plan_for(
    seen: Facts, used: Profile | None = None, earlier: dict[str, int] | None = None, age_s: float = 100
) -> Plan:
    """The plan for those facts."""
    return make_plan(seen, used or profile(), "test", earlier, age_s)


def change(plan: Plan, subject: str) -> Change | None:
    """The change of that subject."""
    return next((one for one in plan.changes if one.knob.subject == subject), None)


def refusal(plan: Plan, subject: str) -> Refusal | None:
    """The refusal of that subject."""
    return next((one for one in plan.refusals if one.subject == subject), None)


def findings(plan: Plan, code: str) -> list[Finding]:
    """The findings of that code."""
    return [one for one in plan.findings if one.code == code]
