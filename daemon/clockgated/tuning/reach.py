"""Proof that the node can still be reached: echoes from gateways and hosts, connections to ports. Changes nothing.

An echo over a link whose MTU changes fills that MTU and may not be cut to pieces: two ends of unequal MTU let small
packets pass and swallow large ones.
"""

import contextlib
import os
import select
import socket
import time
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from clockgated.tuning.confirm import Target
from clockgated.tuning.rtt import echo_request, reply_sequence

_SMALL_BYTES = 48
_LARGEST_PACKET = 1 << 16
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE = 10, 23, 3  # linux/in.h, linux/in6.h
# Protocol, bytes of IP and ICMP headers, and the option by which a packet is neither cut nor held back.
_FAMILIES = {
    socket.AF_INET: (socket.IPPROTO_ICMP, 28, (socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)),
    socket.AF_INET6: (socket.IPPROTO_ICMPV6, 48, (socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)),
}
_NUMERIC = socket.AI_NUMERICHOST
_TRIES, _WAIT_S = 3, 0.4
_CONNECT_S = 1.0
_LARGEST_PORT = 65535
_AT_ONCE = 16


def gateways() -> tuple[Target, ...]:
    """The default gateways of this network namespace; none when there is none, or the kernel does not tell."""
    found: dict[str, Target] = {}
    try:
        with IPRoute() as route:
            for family in (socket.AF_INET, socket.AF_INET6):
                for one in route.get_default_routes(family=family):
                    address, index = one.get_attr("RTA_GATEWAY"), one.get_attr("RTA_OIF")
                    if address is not None:
                        found[address] = Target(f"gateway {address}", address, ifindex=index or 0)
    except (NetlinkError, OSError):
        return ()
    return tuple(found.values())


def configured(hosts: Iterable[str]) -> tuple[Target, ...]:
    """The hosts of the configuration: an address, or address:port ([address]:port for IPv6)."""
    return tuple(_target(text) for text in hosts)


def resolved(targets: Iterable[Target]) -> tuple[Target, ...]:
    """The targets by numeric address, looked up now: a name server may be out of reach after the change.

    A name that is not known is left out. Blocks for as long as the resolver does.
    """
    found = []
    for one in targets:
        try:
            address = socket.getaddrinfo(one.address, None, type=socket.SOCK_STREAM)[0][4][0]
        except (OSError, UnicodeError):
            continue
        found.append(replace(one, address=str(address)))
    return tuple(found)


def reached(targets: Sequence[Target], full_size: AbstractSet[int] = frozenset()) -> frozenset[str]:
    """The names of the targets that answer now; their addresses are numeric.

    `full_size` are the links whose echoes have to fill the MTU. All are asked at once; it takes about a second when one
    is silent.
    """
    if not targets:
        return frozenset()
    with ThreadPoolExecutor(min(_AT_ONCE, len(targets)), thread_name_prefix="reach") as askers:
        answers = list(askers.map(lambda one: _answers(one, full_size), targets))
    return frozenset(one.name for one, is_there in zip(targets, answers, strict=True) if is_there)


def _target(text: str) -> Target:
    host, colon, port = text.rpartition(":")
    # A larger number would be cut to 16 bits, and another port be asked.
    is_port = port.isdecimal() and len(port) <= 5 and int(port) <= _LARGEST_PORT
    if colon and is_port and (host.endswith("]") or ":" not in host):
        return Target(text, host.strip("[]"), int(port))
    return Target(text, text.strip("[]"))


def _answers(target: Target, full_size: AbstractSet[int]) -> bool:
    if target.port is not None:
        return _connects(target.address, target.port)
    try:
        # The scope of a link-local address is the link on the way to it.
        address = f"{target.address}%{target.ifindex}" if target.address.lower().startswith("fe80") else target.address
        family, _, _, _, there = socket.getaddrinfo(address, None, type=socket.SOCK_RAW, flags=_NUMERIC)[0]
        index = target.ifindex or _way_to(str(there[0]))
        return _echoes(family, there, index if index in full_size else 0)
    except (NetlinkError, OSError, UnicodeError):
        return False


def _connects(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=_CONNECT_S):
            return True
    except (OSError, UnicodeError):
        return False


def _way_to(address: str) -> int:
    """The link by which `address` is reached; 0 when there is none. Raises NetlinkError or OSError."""
    with IPRoute() as route:
        answers = route.route("get", dst=address)
        return (answers[0].get_attr("RTA_OIF") or 0) if answers else 0


def _echoes(family: socket.AddressFamily, there: tuple[Any, ...], full_ifindex: int) -> bool:
    """Whether an echo comes back; it fills the MTU of link `full_ifindex` unless that is 0.

    Raises NetlinkError or OSError.
    """
    size, (protocol, overhead, option) = _SMALL_BYTES, _FAMILIES[family]
    with socket.socket(family, socket.SOCK_RAW, protocol) as handle:
        if full_ifindex:
            size = max(0, _mtu_of(full_ifindex) - overhead)
            handle.setsockopt(*option)
        handle.connect(there)
        identity = int.from_bytes(os.urandom(2), "big")
        for sequence in range(_TRIES):
            # A link that comes up again swallows a few, or has no neighbour yet.
            with contextlib.suppress(OSError):
                handle.send(echo_request(family, identity, sequence, bytes(size)))
            if _comes_back(handle, family, identity):
                return True
    return False


def _mtu_of(ifindex: int) -> int:
    with IPRoute() as route:
        mtu: int = route.link("get", index=ifindex)[0].get_attr("IFLA_MTU")
        return mtu


def _comes_back(handle: socket.socket, family: socket.AddressFamily, identity: int) -> bool:
    due_s = time.monotonic() + _WAIT_S
    while (left_s := due_s - time.monotonic()) > 0:
        if not select.select([handle], [], [], left_s)[0]:
            return False
        # An error is that of an echo sent before: nobody there, or too large.
        with contextlib.suppress(OSError):
            if reply_sequence(family, handle.recv(_LARGEST_PACKET), identity) is not None:
                return True
    return False
