"""Knobs of interfaces, through netlink: MTU, queueing disciplines, rings, queues, energy saving. See `hand`.

An interface is found by its identity each time. Of queueing disciplines only the kernel's default ones are replaced, by
trees under a handle of our own, and given back by deleting that tree: the kernel then puts its default there again.
"""

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from clockgated.tuning.ethtool import Ethtool, Unanswered
from clockgated.tuning.ethtool_messages import Command
from clockgated.tuning.file_hand import trouble_of
from clockgated.tuning.identity import find
from clockgated.tuning.model import Area, Knob, LinkId
from clockgated.tuning.outcome import Trouble, TroubleCode
from clockgated.tuning.roots import link_name

_ROOT = 0xFFFFFFFF  # TC_H_ROOT
_MAJOR = 0xFFFF0000
_OUR_HANDLE = 0xC10C0000
"""Of the trees that tuning makes; the kernel gives out 8000: and above, people like small ones."""

_COMMANDS = {
    Area.RINGS: (Command.RINGS_GET, Command.RINGS_SET),
    Area.CHANNELS: (Command.CHANNELS_GET, Command.CHANNELS_SET),
    Area.EEE: (Command.EEE_GET, Command.EEE_SET),
}


class LinkHand:
    """See `hand.Hand`. `sys` shows the drivers of the interfaces of this process's namespace."""

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._sys = sys

    def read(self, knob: Knob) -> str | Trouble:
        """What the interface is set to."""
        link = self._found(knob)
        if isinstance(link, Trouble):
            return link
        if knob.area in _COMMANDS:
            return _read_ethtool(link, knob)
        try:
            with IPRoute() as route:
                return _read_mtu(route, link) if knob.area is Area.MTU else _read_qdisc(route, link)
        except (NetlinkError, OSError) as error:
            return _trouble(error, knob)

    def write(self, knob: Knob, value: str) -> Trouble | None:
        """Ask the kernel to set it."""
        link = self._found(knob)
        if isinstance(link, Trouble):
            return link
        if knob.area in _COMMANDS:
            return _write_ethtool(link, knob, value)
        try:
            with IPRoute() as route:
                if knob.area is Area.QDISC:
                    return _write_qdisc(route, link, value)
                route.link("set", index=link.ifindex, mtu=int(value))
        except (NetlinkError, OSError) as error:
            return _trouble(error, knob)
        return None

    def _found(self, knob: Knob) -> LinkId | Trouble:
        if knob.link is None:
            return Trouble(TroubleCode.FAILED, f"{knob.subject}: names no interface")
        try:
            present = present_links(self._sys)
        except (NetlinkError, OSError) as error:
            return _trouble(error, knob)
        link = find(knob.link, present)
        return link or Trouble(TroubleCode.GONE, f"interface {knob.link.name} is gone, or another one is in its place")


def present_links(sys: Path = Path("/sys")) -> tuple[LinkId, ...]:
    """Every interface of this namespace. Raises NetlinkError or OSError."""
    with IPRoute() as route:
        return tuple(
            LinkId(
                name := one.get_attr("IFLA_IFNAME"),
                one["index"],
                one.get_attr("IFLA_PERM_ADDRESS"),
                link_name(sys / "class/net" / name / "device/driver"),
            )
            for one in route.get_links()
        )


def _read_mtu(route: IPRoute, link: LinkId) -> str | Trouble:
    answers = route.link("get", index=link.ifindex)
    mtu = answers[0].get_attr("IFLA_MTU") if answers else None
    return Trouble(TroubleCode.FAILED, f"{link.name}: the kernel told no MTU") if mtu is None else str(mtu)


def _read_ethtool(link: LinkId, knob: Knob) -> str | Trouble:
    with Ethtool() as ethtool:
        answer = ethtool.get(_COMMANDS[knob.area][0], link.name)
    if isinstance(answer, Unanswered):
        return _refused(answer, knob)
    value = answer.get(knob.key)
    if value is None:
        return Trouble(TroubleCode.UNSUPPORTED, f"{knob.subject}: the driver of {link.name} has none")
    return ("on" if value else "off") if knob.area is Area.EEE else str(value)


def _write_ethtool(link: LinkId, knob: Knob, value: str) -> Trouble | None:
    number = int(value == "on") if knob.area is Area.EEE else int(value)
    with Ethtool() as ethtool:
        answer = ethtool.set(_COMMANDS[knob.area][1], link.name, [(knob.key, number)])
    return None if answer is None else _refused(answer, knob)


def _read_qdisc(route: IPRoute, link: LinkId) -> str | Trouble:
    """The kinds that packets wait in: one word, unless the queues of the link differ."""
    tree = _tree(route, link)
    if not tree:
        return Trouble(TroubleCode.UNSUPPORTED, f"{link.name} has no queueing discipline")
    return " ".join(sorted({one.get_attr("TCA_KIND") for one in _leaves(tree)}))


def _write_qdisc(route: IPRoute, link: LinkId, kind: str) -> Trouble | None:
    tree = _tree(route, link)
    root = next((one for one in tree if one["parent"] == _ROOT), None)
    if root is None or root["handle"] not in (0, _OUR_HANDLE):
        return Trouble(
            TroubleCode.FAILED, f"{link.name}: its queueing discipline is an administrator's, not the default"
        )
    if root["handle"] == _OUR_HANDLE:
        route.tc("delete", root.get_attr("TCA_KIND"), link.ifindex, parent=_ROOT)
        tree = _tree(route, link)
        root = next((one for one in tree if one["parent"] == _ROOT), None)
    if root is None or {one.get_attr("TCA_KIND") for one in _leaves(tree)} == {kind}:
        return None
    if root.get_attr("TCA_KIND") != "mq":
        route.tc("replace", kind, link.ifindex, handle=_OUR_HANDLE, parent=_ROOT)
        return None
    # The queues of a default mq have no handle by which they could be replaced.
    route.tc("replace", "mq", link.ifindex, handle=_OUR_HANDLE, parent=_ROOT)
    for leaf in _leaves(_tree(route, link)):
        route.tc("replace", kind, link.ifindex, parent=leaf["parent"])
    return None


def _tree(route: IPRoute, link: LinkId) -> list[Any]:
    """The disciplines of what is sent; those of what arrives hang below other parents."""
    return [
        one
        for one in route.get_qdiscs(link.ifindex)
        if one["parent"] == _ROOT or one["parent"] & _MAJOR != _ROOT & _MAJOR
    ]


def _leaves(tree: Sequence[Any]) -> list[Any]:
    root = next((one for one in tree if one["parent"] == _ROOT), None)
    if root is None or root.get_attr("TCA_KIND") != "mq":
        return [] if root is None else [root]
    return [one for one in tree if one is not root and one["parent"] & _MAJOR == root["handle"] & _MAJOR]


def _refused(answer: Unanswered, knob: Knob) -> Trouble:
    trouble = trouble_of(OSError(answer.code, answer.detail), knob.subject)
    # ENOENT is the family, not the interface: that one is known to be there.
    return Trouble(TroubleCode.UNSUPPORTED, trouble.detail) if answer.code == errno.ENOENT else trouble


def _trouble(error: Exception, knob: Knob) -> Trouble:
    code = getattr(error, "code", None) or getattr(error, "errno", None) or 0
    if knob.area is Area.QDISC and code == errno.ENOENT:
        detail = f"{knob.subject}: this kernel has no such discipline; set fair_queueing = false in the profile"
        return Trouble(TroubleCode.UNSUPPORTED, detail)
    return trouble_of(OSError(code, str(error)), knob.subject)
