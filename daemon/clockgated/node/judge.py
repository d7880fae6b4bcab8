"""What was seen and what is remembered -> findings, the worst first. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from clockgated.config import NodeConfig
from clockgated.node.facts import NodeLook
from clockgated.node.history import History, remember
from clockgated.node.judge_fabric import judge_fabric, judge_platform
from clockgated.node.judge_gpus import judge_gpus, judge_xids
from clockgated.node.judge_host import judge_disks, judge_host, judge_kernel
from clockgated.node.model import Finding, FindingCode, NodeHealth, Severity, state_of
from clockgated.units import NS_PER_S


@dataclass(frozen=True)
class Overdue:
    """A part of the node that was asked `since_boot_ns` and has not answered."""

    part: str
    since_boot_ns: int


@dataclass(frozen=True)
class Judged:
    """A judgement and what the next one needs to know."""

    health: NodeHealth
    history: History


def judge(
    before: Judged | None, look: NodeLook, overdue: Iterable[Overdue], now_boot_ns: int, limits: NodeConfig
) -> Judged:
    """Judge `look`, which began at `now_boot_ns` (CLOCK_BOOTTIME), after `before`."""
    hold_ns = round(limits.finding_hold_s * NS_PER_S)
    history = remember(
        before.history if before else History(), look, now_boot_ns, hold_ns=hold_ns,
        drops_per_s=limits.link_drops_per_s,
    )  # fmt: skip
    found = [*_overdue(overdue, now_boot_ns), *_found(look, history, now_boot_ns, limits)]
    kept = [one for one in found if not any(fnmatchcase(one.subject, pattern) for pattern in limits.ignored)]
    # Code and subject name a finding: of two the worse is told.
    kept = list({(one.code, one.subject): one for one in sorted(kept, key=lambda one: one.severity)}.values())
    since = {(one.code, one.subject): one.since_boot_ns for one in (before.health.findings if before else ())}
    findings = tuple(
        sorted(
            (replace(one, since_boot_ns=since.get((one.code, one.subject), now_boot_ns)) for one in kept),
            key=lambda one: (-one.severity, one.code, one.subject),
        )
    )
    sequence = before.health.sequence + 1 if before else 1
    return Judged(NodeHealth(state_of(findings), findings, now_boot_ns, sequence, look), history)


def is_changed(before: NodeHealth, now: NodeHealth) -> bool:
    """Whether somebody who watches is to be told: another finding, not another figure."""
    return _told(before) != _told(now)


def _told(health: NodeHealth) -> Mapping[tuple[FindingCode, str], Severity]:
    return {(one.code, one.subject): one.severity for one in health.findings}


def _found(look: NodeLook, history: History, now_boot_ns: int, limits: NodeConfig) -> Iterable[Finding]:
    hold_ns = round(limits.finding_hold_s * NS_PER_S)
    events, gpus = look.kernel or (), look.gpus.gpus if look.gpus else ()
    ports = look.fabric.rdma_ports if look.fabric else ()
    if look.host:
        yield from judge_host(look.host, history, limits)
    yield from judge_disks(look.disks or (), limits)
    yield from judge_kernel(events, now_boot_ns, hold_ns)
    if look.fabric:
        yield from judge_fabric(look.fabric, history)
    if look.platform:
        yield from judge_platform(look.platform, has_active_rdma=any(port.state == "ACTIVE" for port in ports))
    if look.gpus and limits.gpus:
        devices = look.platform.nvidia_devices if look.platform else ()
        yield from judge_gpus(look.gpus, devices, history, limits)
    # The kernel log says more of an error than the library does: of two findings on one it is the later one.
    errors = look.gpus.errors if look.gpus else ()
    yield from judge_xids((*errors, *events), gpus, now_boot_ns, hold_ns)


def _overdue(overdue: Iterable[Overdue], now_boot_ns: int) -> Iterable[Finding]:
    for one in overdue:
        waited_s = (now_boot_ns - one.since_boot_ns) / NS_PER_S
        yield Finding(
            FindingCode.LOOK_OVERDUE, Severity.WARNING, one.part, f"no answer for {waited_s:.0f} s",
            "an answer at once",
            "a driver or file system hangs: look for tasks in state D with `ps -eo state,pid,wchan:30,cmd | grep ^D`",
        )  # fmt: skip
