"""What one scrape is made of: values that the daemon holds in memory anyway. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from clockgated.beats import Beat
from clockgated.clock.model import Reading
from clockgated.node.model import NodeHealth
from clockgated.supervise.base import ChildStatus


@dataclass(frozen=True)
class Streams:
    """The streams of one server."""

    open: int
    refused: int


@dataclass(frozen=True)
class Snapshot:
    """Everything at `now_boot_ns`, CLOCK_BOOTTIME. None is unknown; `cpu_ns` is the processor time of the daemon."""

    reading: Reading
    now_boot_ns: int
    version: str
    cpu_ns: int = 0
    beat: Beat = field(default_factory=Beat)
    children: tuple[ChildStatus, ...] = ()
    leases: int = 0
    leases_limit: int = 0
    streams: Mapping[str, Streams] = field(default_factory=dict)
    tuning_applied: int | None = None
    tuning_drifted: int | None = None
    node: NodeHealth | None = None
