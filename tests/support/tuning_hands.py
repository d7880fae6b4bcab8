"""Reads and writes real knobs of links, in the network namespace that it is started in. Prints what it saw as JSON.

Expects a veth eth0 there, and the inode of another namespace as its argument; makes two taps of its own, which have
the kernel's default queueing disciplines.
"""

import fcntl
import json
import os
import struct
import subprocess
import sys
from typing import Any

from clockgated.tuning.host_hand import HostHand
from clockgated.tuning.link_hand import present_links
from clockgated.tuning.model import Area, Knob, LinkId
from clockgated.tuning.outcome import Trouble
from clockgated.tuning.reach import configured, gateways, reached
from clockgated.tuning.roots import Roots
from pyroute2 import IPRoute

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI, _IFF_MULTI_QUEUE = 0x400454CA, 2, 0x1000, 0x100


def tap(name: str, queues: int) -> list[int]:
    """A tap that is up, with as many queues; it lives as long as the descriptors."""
    flags = _IFF_TAP | _IFF_NO_PI | (_IFF_MULTI_QUEUE if queues > 1 else 0)
    descriptors = [os.open("/dev/net/tun", os.O_RDWR) for _ in range(queues)]
    for one in descriptors:
        fcntl.ioctl(one, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return descriptors


def qdiscs(link: LinkId) -> list[list[Any]]:
    """Kind, handle and parent of every discipline of `link`."""
    with IPRoute() as route:
        return sorted(
            [one.get_attr("TCA_KIND"), one["handle"], one["parent"]] for one in route.get_qdiscs(link.ifindex)
        )


def spelled(found: str | Trouble | None) -> str | None:
    """A value, or the code of a trouble."""
    return f"!{found.code}" if isinstance(found, Trouble) else found


def main() -> int:
    """Try everything; the caller judges."""
    keep = [tap("tap0", 1), tap("tap1", 2)]
    hand, netns = HostHand(), Roots().netns_inode
    links = {one.name: one for one in present_links()}
    seen: dict[str, Any] = {}

    def through(name: str, knob: Knob, *values: str) -> None:
        """Read, write each value and read it again; the last one brings back what was there."""
        seen[name] = [spelled(hand.read(knob))]
        for value in values:
            trouble = hand.write(knob, value)
            seen[name].append(spelled(trouble) or spelled(hand.read(knob)))

    through("mtu", Knob(netns, Area.MTU, "mtu", links["eth0"]), "1400", "70000", "1500")
    through("channels", Knob(netns, Area.CHANNELS, "rx", links["eth0"]), "2", "999", "1")
    through("rings", Knob(netns, Area.RINGS, "rx", links["eth0"]), "2048")
    through("eee", Knob(netns, Area.EEE, "enabled", links["eth0"]), "off")
    for name in ("tap0", "tap1"):
        before = qdiscs(links[name])
        through(name, Knob(netns, Area.QDISC, "root", links[name]), "pfifo", "no-such-kind", "pfifo_fast")
        seen[f"{name} as it was"] = qdiscs(links[name]) == before
    subprocess.run(["tc", "qdisc", "replace", "dev", "tap0", "root", "handle", "1:", "htb"], check=True)
    through("an administrator's", Knob(netns, Area.QDISC, "root", links["tap0"]), "pfifo")

    through("sysctl", Knob(netns, Area.SYSCTL, "net.ipv4.tcp_slow_start_after_idle"), "0", "1")
    through("read-only", Knob(netns, Area.SYSCTL, "net.core.rmem_max"), "8388608")
    through("absent here", Knob(netns, Area.SYSCTL, "net.core.netdev_max_backlog"), "1")
    through("unknown word", Knob(netns, Area.SYSCTL, "net.ipv4.tcp_congestion_control"), "brr")
    through("another namespace", Knob(int(sys.argv[1]), Area.SYSCTL, "net.ipv4.tcp_slow_start_after_idle"), "0")

    subprocess.run(["ip", "route", "add", "default", "via", "10.77.0.2"], check=True)
    targets = (*gateways(), *configured(["10.77.0.2", "10.77.0.99", "10.77.0.2:9", "::1"]))
    seen["reached"] = sorted(reached(targets))
    seen["reached in full size"] = sorted(reached(targets, {links["eth0"].ifindex}))
    subprocess.run(["ip", "link", "set", "eth0", "mtu", "9000"], check=True)
    seen["reached in a size that the other end does not take"] = sorted(reached(targets, {links["eth0"].ifindex}))
    subprocess.run(["ip", "link", "set", "eth0", "mtu", "1500"], check=True)
    through("another link", Knob(netns, Area.MTU, "mtu", LinkId("eth0", 99)), "1400")
    key = "class/net/eth0/queues/rx-0/rps_cpus"
    through("file of a link", Knob(netns, Area.SYSFS, key, links["eth0"]), "1", "0")
    subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)
    subprocess.run(["ip", "link", "set", "eth0", "name", "fast0"], check=True)
    through("renamed", Knob(netns, Area.MTU, "mtu", links["eth0"]), "1400")
    through("file of a renamed link", Knob(netns, Area.SYSFS, key, links["eth0"]), "1")
    json.dump(seen, sys.stdout)
    del keep
    return 0


if __name__ == "__main__":
    sys.exit(main())
