"""Facts about interfaces: rtnetlink for identity, qdiscs and addresses, ethtool netlink for drivers, else sysfs.

Reads only. The namespace is that of the calling thread; `Roots.sys` must show the same one.
"""

import fnmatch
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from clockgated.errors import ClockgateError
from clockgated.tuning.counters import link_counters
from clockgated.tuning.ethtool import Ethtool, Unanswered
from clockgated.tuning.ethtool_messages import Command
from clockgated.tuning.facts import Channels, Coalesce, Features, Fec, Link, Pause, Qdisc, Queue, Rings
from clockgated.tuning.hwtstamp import read_stamp_config
from clockgated.tuning.model import LinkId
from clockgated.tuning.pcie import hops_above
from clockgated.tuning.roots import Roots, link_name, names_in, number_of, text_of

_ROOT_PARENT = 0xFFFFFFFF
_IFF_UP = 1
_ATTEMPTS = 3


class LinksError(ClockgateError):
    """The kernel did not tell about its interfaces."""


def read_links(roots: Roots, asked: Sequence[str] = ()) -> tuple[Link, ...]:
    """Every interface but loopback, by index. Raises LinksError.

    Drivers are asked only for hardware and for names that fit a pattern of `asked`: a node of containers has
    thousands of virtual interfaces, and each question takes up to a millisecond.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _read_links(roots, asked)
        except (NetlinkError, OSError) as error:
            # A dump is interrupted when interfaces come or go meanwhile.
            if attempt == _ATTEMPTS - 1:
                raise LinksError(f"the interfaces could not be read: {error}; ask again") from None
    return ()


def _read_links(roots: Roots, asked: Sequence[str]) -> tuple[Link, ...]:
    with IPRoute() as route, Ethtool() as ethtool:
        qdiscs: dict[int, list[Qdisc]] = defaultdict(list)
        for one in route.get_qdiscs():
            qdiscs[one["index"]].append(_qdisc(one))
        addresses: dict[int, list[str]] = defaultdict(list)
        for one in route.get_addr():
            if one.get_attr("IFA_ADDRESS") is not None:
                addresses[one["index"]].append(f"{one.get_attr('IFA_ADDRESS')}/{one['prefixlen']}")
        messages = list(route.get_links())
        names: dict[int, str] = {one["index"]: one.get_attr("IFLA_IFNAME") for one in messages}
        found = []
        for one in messages:
            name = one.get_attr("IFLA_IFNAME")
            if name == "lo":
                continue
            is_asked = any(fnmatch.fnmatchcase(name, pattern) for pattern in asked)
            link = _link(one, names, roots, qdiscs=qdiscs[one["index"]], addresses=addresses[one["index"]])
            found.append(_with_drivers_word(link, ethtool) if link.is_hardware or is_asked else link)
    return tuple(sorted(found, key=lambda link: link.link_id.ifindex))


def _link(
    message: Any, names: dict[int, str], roots: Roots, *, qdiscs: Iterable[Qdisc], addresses: Iterable[str]
) -> Link:
    name, index = message.get_attr("IFLA_IFNAME"), message["index"]
    folder = roots.sys / "class/net" / name
    info = message.get_attr("IFLA_LINKINFO")
    kind = info.get_attr("IFLA_INFO_KIND") if info is not None else None
    lower = message.get_attr("IFLA_LINK")
    return Link(
        link_id=LinkId(name, index, message.get_attr("IFLA_PERM_ADDRESS"), link_name(folder / "device/driver")),
        kind=kind,
        is_up=bool(message["flags"] & _IFF_UP) and message.get_attr("IFLA_OPERSTATE") != "DOWN",
        mtu=message.get_attr("IFLA_MTU"),
        speed_mbps=_positive(number_of(folder / "speed")),
        duplex=text_of(folder / "duplex"),
        numa_node=numa_node(folder / "device"),
        # A veth's lower index lies in another namespace and says nothing here.
        parents=(names[lower],) if kind == "vlan" and lower in names else (),
        master=names.get(message.get_attr("IFLA_MASTER")),
        addresses=tuple(addresses),
        qdiscs=tuple(qdiscs),
        queues=_queues(folder / "queues"),
        pcie=hops_above(folder / "device", roots.sys),
        counters=link_counters(name, roots.sys),
    )


def _with_drivers_word(link: Link, ethtool: Ethtool) -> Link:
    name = link.name
    return replace(
        link,
        phc_index=_attribute(ethtool.get(Command.TSINFO_GET, name), "phc_index"),
        rings=_rings(ethtool.get(Command.RINGS_GET, name)),
        channels=_channels(ethtool.get(Command.CHANNELS_GET, name)),
        coalesce=_coalesce(ethtool.get(Command.COALESCE_GET, name)),
        pause=_pause(ethtool.get(Command.PAUSE_GET, name)),
        fec=_fec(ethtool.get(Command.FEC_GET, name)),
        features=_features(ethtool.get(Command.FEATURES_GET, name)),
        eee_enabled=_switch(_attribute(ethtool.get(Command.EEE_GET, name), "enabled")),
        stamp_config=read_stamp_config(name),
    )


def numa_node(device: Path) -> int | None:
    """The NUMA node of the first device that tells, from `device` upwards; None: none does."""
    try:
        here = device.resolve(strict=True)
    except OSError:
        return None
    for folder in (here, *here.parents):
        node = number_of(folder / "numa_node")
        if node is not None:
            return node if node >= 0 else None
    return None


def spell_handle(number: int) -> str:
    """A handle or parent of a qdisc as people write it: MAJOR:MINOR in hexadecimal."""
    return "root" if number == _ROOT_PARENT else f"{number >> 16:x}:{number & 0xFFFF:x}"


def _qdisc(message: Any) -> Qdisc:
    return Qdisc(
        kind=message.get_attr("TCA_KIND"),
        parent=spell_handle(message["parent"]),
        handle=spell_handle(message["handle"]),
    )


def _queues(folder: Path) -> tuple[Queue, ...]:
    return tuple(Queue(name, text_of(folder / name / "rps_cpus")) for name in names_in(folder) if name[:3] == "rx-")


def _rings(answer: dict[str, Any] | Unanswered) -> Rings | None:
    if isinstance(answer, Unanswered):
        return None
    return Rings(answer.get("rx"), answer.get("rx_max"), answer.get("tx"), answer.get("tx_max"))


def _channels(answer: dict[str, Any] | Unanswered) -> Channels | None:
    if isinstance(answer, Unanswered):
        return None
    names = ("combined", "combined_max", "rx", "rx_max", "tx", "tx_max")
    return Channels(*(answer.get(name) for name in names))


def _coalesce(answer: dict[str, Any] | Unanswered) -> Coalesce | None:
    if isinstance(answer, Unanswered):
        return None
    adaptive = (_switch(answer.get("adaptive_rx")), _switch(answer.get("adaptive_tx")))
    return Coalesce(answer.get("rx_usecs"), answer.get("tx_usecs"), *adaptive)


def _pause(answer: dict[str, Any] | Unanswered) -> Pause | None:
    if isinstance(answer, Unanswered):
        return None
    counts = answer.get("stats") or {}
    autoneg, rx, tx = (_switch(answer.get(name)) for name in ("autoneg", "rx", "tx"))
    return Pause(autoneg, rx, tx, counts.get("rx_frames"), counts.get("tx_frames"))


def _fec(answer: dict[str, Any] | Unanswered) -> Fec | None:
    if isinstance(answer, Unanswered):
        return None
    counts = answer.get("stats") or {}
    totals = (_first_u64(counts.get(name)) for name in ("corrected", "uncorrectable"))
    return Fec(tuple(answer.get("modes") or ()), *totals)


def _features(answer: dict[str, Any] | Unanswered) -> Features | None:
    if isinstance(answer, Unanswered):
        return None
    return Features(*(frozenset(answer.get(name) or ()) for name in ("active", "wanted", "hw")))


def _first_u64(data: bytes | None) -> int | None:
    return int.from_bytes(data[:8], sys.byteorder) if data and len(data) >= 8 else None


def _attribute(answer: dict[str, Any] | Unanswered, name: str) -> int | None:
    return None if isinstance(answer, Unanswered) else answer.get(name)


def _switch(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _positive(value: int | None) -> int | None:
    return value if value is not None and value > 0 else None
