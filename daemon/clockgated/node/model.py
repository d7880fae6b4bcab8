"""What is said about the machine: findings, their severity, and the judgement that they add up to. Pure.

Numbers of the enums are those of clockgate.v1 (a test compares them).
"""

from dataclasses import dataclass
from enum import IntEnum

from clockgated.node.facts import NodeLook


class HealthState(IntEnum):
    """The worst severity among the findings."""

    HEALTHY = 1
    DEGRADED = 2
    UNHEALTHY = 3


class Severity(IntEnum):
    """How much a finding matters."""

    INFO = 1
    WARNING = 2
    CRITICAL = 3


class FindingCode(IntEnum):
    """What was found; node.proto says what each means."""

    LOOK_OVERDUE = 1
    MEMORY_LOW = 2
    MEMORY_PRESSURE = 3
    IO_PRESSURE = 4
    CPU_PRESSURE = 5
    OOM_KILL = 6
    DISK_FULL = 7
    DISK_READ_ONLY = 8
    TEMPERATURE_HIGH = 9
    MEMORY_ERRORS = 10
    KERNEL_TAINTED = 11
    KERNEL_MESSAGE = 12
    CLOCKSOURCE_SLOW = 13
    LINK_FLAPPED = 14
    LINK_ERRORS = 15
    LINK_DROPS = 16
    PCIE_DEGRADED = 17
    RDMA_PORT_DOWN = 18
    RDMA_PORT_ERRORS = 19
    RDMA_RATES_DIFFER = 20
    RDMA_GIDS_CHANGED = 21
    RDMA_NO_ROUTABLE_GID = 22
    MEMLOCK_LOW = 23
    PEERMEM_NOT_REGISTERED = 24
    ACS_REDIRECTS = 25
    GPU_DRIVER = 26
    GPU_LOST = 27
    GPU_TEMPERATURE = 28
    GPU_THROTTLED = 29
    GPU_MEMORY_ERRORS = 30
    GPU_ROW_REMAP = 31
    GPU_MEMORY_HIGH = 32
    GPU_IDLE = 33
    NVLINK_DOWN = 34
    GPU_XID = 35


@dataclass(frozen=True)
class Finding:
    """One thing that was found: what it is about, what was seen, what would be good, what to do.

    `since_boot_ns` is CLOCK_BOOTTIME of the look that found it first; 0 until that is known.
    """

    code: FindingCode
    severity: Severity
    subject: str
    value: str
    wanted: str
    next_step: str
    since_boot_ns: int = 0


@dataclass(frozen=True)
class NodeHealth:
    """One judgement, of what was seen at `as_of_boot_ns` (CLOCK_BOOTTIME, read before the look).

    `extras_boot_ns` is when drivers and peers were last asked; None before.
    """

    state: HealthState
    findings: tuple[Finding, ...]
    as_of_boot_ns: int
    sequence: int
    look: NodeLook
    extras_boot_ns: int | None = None


def state_of(findings: tuple[Finding, ...]) -> HealthState:
    """The state that `findings` add up to."""
    worst = max((one.severity for one in findings), default=Severity.INFO)
    return HealthState(worst)
