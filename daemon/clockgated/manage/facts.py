"""What the planner knows about the host. Gathered by `probe`, read by everything else in this room; None is unknown."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

Version = tuple[int, ...]

_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+)")
_FEATURE = re.compile(r"\+([A-Z0-9]+)\b")


@dataclass(frozen=True)
class Tool:
    """One installed program. `features` are chronyd's compiled-in ones (NTS, SCFILTER, PRIVDROP, ...)."""

    path: str
    version: Version
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Interface:
    """One network interface.

    `phc_ticks` and `tx_stamp_arrives` are results of trials, not of what the driver claims: a driver may announce
    hardware timestamps and an index for a clock that stands still. `lower` carries a VLAN, `active_port` the traffic of
    a bond, and `master` is the bond or bridge that this interface is a port of. `driver` is None for virtual ones.
    """

    name: str
    operstate: str = "unknown"
    speed_mbps: int | None = None
    driver: str | None = None
    phc_index: int | None = None
    has_hardware_stamps: bool = False
    has_software_stamps: bool = False
    phc_ticks: bool | None = None
    tx_stamp_arrives: bool | None = None
    lower: str | None = None
    active_port: str | None = None
    master: str | None = None
    is_bond: bool = False

    @property
    def is_proven(self) -> bool:
        """Whether both trials of the hardware passed."""
        return self.phc_index is not None and self.phc_ticks is True and self.tx_stamp_arrives is True


@dataclass(frozen=True)
class TimeDaemon:
    """A running process that is not ours and may write the clock.

    `may_steer` is False when it has no right to set the clock (as in a container), None when that could not be read.
    """

    program: str
    pid: int
    unit: str | None = None
    may_steer: bool | None = None


@dataclass(frozen=True)
class UnitState:
    """One systemd unit of a foreign time daemon; `file_state` as systemctl spells it (enabled, masked, ...)."""

    unit: str
    file_state: str
    is_active: bool

    @property
    def is_masked(self) -> bool:
        """Whether the unit cannot be started at all."""
        return self.file_state in ("masked", "masked-runtime")

    @property
    def is_enabled(self) -> bool:
        """Whether the unit would come back at the next boot."""
        return self.file_state in ("enabled", "enabled-runtime", "linked", "linked-runtime", "alias")


@dataclass(frozen=True)
class Facts:
    """The host as one immutable value. The order of its tuples never changes a plan.

    `node_count` is the size of the cluster as far as somebody stated it. `shm_segments` are the numbers of NTP
    shared-memory segments that others hold. `is_root`: only root can give folders to chronyd's own user and bind the
    ports of PTP. `leap_list` is the path of a leap-seconds.list, `has_leap_zone` whether
    the time zone right/UTC is installed. `chronyd_is_confined` tells that AppArmor enforces a profile for chronyd.
    """

    chronyd: Tool | None = None
    ptp4l: Tool | None = None
    phc2sys: Tool | None = None
    interfaces: tuple[Interface, ...] = ()
    time_daemons: tuple[TimeDaemon, ...] = ()
    time_units: tuple[UnitState, ...] = ()
    is_root: bool = True
    has_clock_right: bool = True
    systemd_runs: bool = False
    node_count: int | None = None
    chrony_user: str | None = None
    chronyd_is_confined: bool = False
    has_leap_zone: bool = False
    leap_list: str | None = None
    shm_segments: tuple[int, ...] = ()


def parse_version(text: str) -> Version | None:
    """The first dotted version number in `text`; None when there is none. Suffixes such as -pre1 are dropped."""
    found = _VERSION.search(text)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def parse_features(text: str) -> frozenset[str]:
    """The compiled-in features that `chronyd -v` lists with a plus sign."""
    return frozenset(_FEATURE.findall(text))


def spell_version(version: Version) -> str:
    """The version as people write it."""
    return ".".join(str(part) for part in version)


def find_interface(interfaces: Iterable[Interface], name: str) -> Interface | None:
    """The interface of that name."""
    return next((interface for interface in interfaces if interface.name == name), None)
