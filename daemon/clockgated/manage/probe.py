"""Gathering the facts of this host: programs, interfaces, other time daemons, rights. Changes nothing.

Reads /proc and /sys, asks programs for their version and systemctl for units, and runs the trials of `stamping`. What
cannot be read is None or absent, never an error.
"""

import os
import pwd
import re
import shutil
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from clockgated.manage.facts import Facts, Interface, Tool, parse_features, parse_version
from clockgated.manage.feed import SHM_KEY_BASE
from clockgated.manage.hostfiles import ask, effective_capabilities, link_name, text_of
from clockgated.manage.rivals import CAP_SYS_TIME, find_time_daemons, read_units
from clockgated.manage.stamping import phc_ticks, stamp_info, tx_stamp_arrives

_CHRONY_USERS = ("_chrony", "chrony")
_SEARCH_PATH = f"{os.defpath}:/usr/sbin:/sbin:/usr/local/sbin"


@dataclass(frozen=True)
class Roots:
    """Where the host is looked at; other roots serve tests."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    run: Path = Path("/run")
    zoneinfo: Path = Path("/usr/share/zoneinfo")


def gather_facts(
    *,
    node_count: int | None = None,
    tool_paths: Mapping[str, str] | None = None,
    own_pids: Collection[int] = (),
    own_segments: Collection[int] = (),
    trials: bool = True,
    roots: Roots | None = None,
) -> Facts:
    """The facts of this host; takes up to a second an interface with hardware timestamps.

    `tool_paths` overrides where programs are found. `own_pids` and `own_segments` are ours and so no rivals, like every
    unit whose name begins with rivals.OWN_UNIT_PREFIX. Without `trials` no probe packet is sent, and nothing counts as
    proven.
    """
    roots = roots or Roots()
    systemd_runs = (roots.run / "systemd/system").is_dir()
    daemons = find_time_daemons(roots.proc, own_pids)
    paths = tool_paths or {}
    leap_list = roots.zoneinfo / "leap-seconds.list"
    return Facts(
        chronyd=find_tool("chronyd", paths.get("chronyd")),
        ptp4l=find_tool("ptp4l", paths.get("ptp4l")),
        phc2sys=find_tool("phc2sys", paths.get("phc2sys")),
        interfaces=tuple(
            look_at_interface(name, roots.sys, trials) for _, name in socket.if_nameindex() if name != "lo"
        ),
        time_daemons=daemons,
        time_units=read_units(daemons) if systemd_runs else (),
        is_root=os.geteuid() == 0,
        has_clock_right=bool(effective_capabilities(roots.proc / "self/status") >> CAP_SYS_TIME & 1),
        systemd_runs=systemd_runs,
        node_count=node_count,
        chrony_user=next((name for name in _CHRONY_USERS if _user_exists(name)), None),
        chronyd_is_confined=_is_confined(roots.sys),
        has_leap_zone=(roots.zoneinfo / "right/UTC").is_file(),
        leap_list=str(leap_list) if leap_list.is_file() else None,
        shm_segments=tuple(
            number for number in parse_segments(text_of(roots.proc / "sysvipc/shm")) if number not in own_segments
        ),
    )


def find_tool(program: str, path: str | None = None) -> Tool | None:
    """The installed program with its version; None when there is none, or it does not tell its version."""
    found = path or find_program(program)
    if found is None:
        return None
    answer = ask(found, "-v")
    version = parse_version(answer)
    return None if version is None else Tool(str(Path(found).absolute()), version, parse_features(answer))


def find_program(program: str) -> str | None:
    """Absolute path of an installed program, which is all that a unit file and a supervisor take; None: not there.

    The folders of system programs are looked into too, because the PATH of a service or of sudo may lack them.
    """
    found = shutil.which(program) or shutil.which(program, path=_SEARCH_PATH)
    return None if found is None else str(Path(found).absolute())


def look_at_interface(name: str, sys: Path, trials: bool) -> Interface:
    """One interface: what sysfs and the driver say, and what the trials showed."""
    folder = sys / "class/net" / name
    info = stamp_info(name)
    operstate = text_of(folder / "operstate").strip() or "unknown"
    is_bond = (folder / "bonding").is_dir()
    phc_index = info.phc_index if info is not None else None
    ticks: bool | None = None
    arrives: bool | None = None
    if trials and info is not None and info.has_hardware and phc_index is not None and operstate == "up":
        ticks = phc_ticks(phc_index)
        arrives = tx_stamp_arrives(name) if ticks else None
    return Interface(
        name=name,
        operstate=operstate,
        speed_mbps=_speed_mbps(folder),
        driver=link_name(folder / "device/driver"),
        phc_index=phc_index,
        has_hardware_stamps=info is not None and info.has_hardware,
        has_software_stamps=info is not None and info.has_software,
        phc_ticks=ticks,
        tx_stamp_arrives=arrives,
        lower=_lower_of_vlan(folder),
        active_port=text_of(folder / "bonding/active_slave").strip() or None,
        master=link_name(folder / "master"),
        is_bond=is_bond,
    )


def parse_segments(table: str) -> tuple[int, ...]:
    """Numbers of the NTP shared-memory segments in /proc/sysvipc/shm."""
    keys = [line.split()[0] for line in table.splitlines()[1:] if line.split()]
    numbers = [int(key) - SHM_KEY_BASE for key in keys if re.fullmatch(r"-?\d+", key)]
    return tuple(sorted(number for number in numbers if 0 <= number <= 255))


def _lower_of_vlan(folder: Path) -> str | None:
    if "DEVTYPE=vlan" not in text_of(folder / "uevent"):
        return None
    return next((entry.name.removeprefix("lower_") for entry in sorted(folder.glob("lower_*"))), None)


def _speed_mbps(folder: Path) -> int | None:
    text = text_of(folder / "speed").strip()
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _is_confined(sys: Path) -> bool:
    profiles = text_of(sys / "kernel/security/apparmor/profiles")
    return any(re.fullmatch(r"(?:\S*/)?chronyd \(enforce\)", line) for line in profiles.splitlines())


def _user_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
