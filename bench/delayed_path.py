"""A path of a given rate and delay between two network namespaces, in user space over /dev/net/tun. Needs root.

Run inside a namespace of its own: it makes a tun device for each end, moves them away, and carries packets between
them until it is killed. There is no loss: what exceeds the rate waits.
"""

import argparse
import ctypes
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 1, 0x1000
_SIOCETHTOOL, _ETHTOOL_GSET, _ETHTOOL_SSET = 0x8946, 1, 2
# struct ethtool_cmd of linux/ethtool.h: its size, and where the two halves of the speed lie.
_ETHTOOL_CMD_BYTES, _SPEED, _SPEED_HIGH = 44, 12, 28
_BATCH, _LONGEST_PACKET = 64, 1 << 16


@dataclass
class Direction:
    """Packets on their way from `source` to `sink`, each with the CLOCK_MONOTONIC instant, ns, when it arrives."""

    source: int
    sink: int
    waiting: deque[tuple[int, bytes]] = field(default_factory=deque)
    free_ns: int = 0


def main() -> int:
    """Carry packets until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ends", nargs=2, metavar="NAMESPACE", help="where the devices go; both are called tun0")
    parser.add_argument("--rtt-ms", type=float, required=True)
    parser.add_argument("--mbps", type=int, required=True, help="rate of the path, which the devices also tell")
    parser.add_argument("--mtu", type=int, default=9000)
    options = parser.parse_args()
    tuns = [make_end(place, number, options) for number, place in enumerate(options.ends, start=1)]
    print("ready", flush=True)
    carry(tuns, round(options.rtt_ms / 2 * 1e6), options.mbps)
    return 0


def make_end(place: str, number: int, options: argparse.Namespace) -> int:
    """A tun device 10.99.0.`number`/24 in namespace `place`; returns its descriptor."""
    name = f"end{number}"
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    tell_speed(name, options.mbps)
    for words in (
        f"ip link set {name} netns {place}",
        f"ip -n {place} link set {name} name tun0",
        f"ip -n {place} link set tun0 mtu {options.mtu} txqueuelen 20000",
        f"ip -n {place} addr add 10.99.0.{number}/24 dev tun0",
        f"ip -n {place} link set tun0 up",
    ):
        subprocess.run(words.split(), check=True)
    return descriptor


def tell_speed(device: str, mbps: int) -> None:
    """Have `device` say that it runs at that rate, as a driver would: a plan is made from it."""
    buffer = ctypes.create_string_buffer(_ETHTOOL_CMD_BYTES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for command in (_ETHTOOL_GSET, _ETHTOOL_SSET):
            struct.pack_into("=I", buffer, 0, command)
            if command == _ETHTOOL_SSET:
                struct.pack_into("=H", buffer, _SPEED, mbps & 0xFFFF)
                struct.pack_into("=H", buffer, _SPEED_HIGH, mbps >> 16)
            fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sP16x", device.encode(), ctypes.addressof(buffer)))


def carry(tuns: list[int], delay_ns: int, mbps: int) -> None:
    """Carry packets between two descriptors for ever."""
    ways = {tuns[0]: Direction(tuns[0], tuns[1]), tuns[1]: Direction(tuns[1], tuns[0])}
    poll = select.epoll()
    for one in tuns:
        poll.register(one, select.EPOLLIN)
    while True:
        due_ns = min((way.waiting[0][0] for way in ways.values() if way.waiting), default=None)
        wait_s = 1.0 if due_ns is None else max(0.0, (due_ns - time.monotonic_ns()) / 1e9)
        # epoll counts milliseconds: the last one is waited for by looking again.
        for descriptor, _ in poll.poll(0 if wait_s < 0.001 else wait_s):
            take(ways[descriptor], delay_ns, mbps)
        for way in ways.values():
            deliver(way)


def take(way: Direction, delay_ns: int, mbps: int) -> None:
    """Read what was sent and give each packet its arrival time."""
    for _ in range(_BATCH):
        try:
            packet = os.read(way.source, _LONGEST_PACKET)
        except BlockingIOError:
            return
        way.free_ns = max(way.free_ns, time.monotonic_ns()) + len(packet) * 8000 // mbps
        way.waiting.append((way.free_ns + delay_ns, packet))


def deliver(way: Direction) -> None:
    """Write what has arrived by now."""
    now_ns = time.monotonic_ns()
    while way.waiting and way.waiting[0][0] <= now_ns:
        try:
            os.write(way.sink, way.waiting[0][1])
        except BlockingIOError:
            return
        way.waiting.popleft()


if __name__ == "__main__":
    sys.exit(main())
