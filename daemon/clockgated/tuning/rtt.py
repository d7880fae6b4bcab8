"""Round-trip time to the job's peers by ICMP echo: what buffers are sized from. Needs CAP_NET_RAW."""

import contextlib
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from clockgated.tuning.facts import PathTime

PROBES = 10
"""Echoes to each peer."""
_SPACING_S = 0.02
_PATIENCE_S = 1.0
_LONGEST_S = 3.0
_MOST_PEERS = 32
_ECHO, _ECHO_REPLY = {socket.AF_INET: 8, socket.AF_INET6: 128}, {socket.AF_INET: 0, socket.AF_INET6: 129}
_ICMP = {socket.AF_INET: socket.IPPROTO_ICMP, socket.AF_INET6: socket.IPPROTO_ICMPV6}


def measure(peers: Sequence[str]) -> PathTime | None:
    """The 95th percentile over ten probes to each of `peers`, 20 ms apart; None when nobody answers.

    Peers are asked side by side, at most 32 of them, evenly spread over the list. It takes 0.2 s, and 1.2 s when one is
    silent; names that do not resolve within 3 s count as silent.
    """
    answers = probe_all(peers)
    times_us = [one for times in answers.values() for one in times or ()]
    if not times_us:
        return None
    answered = sum(bool(times) for times in answers.values())
    source = f"ICMP echo, {answered} of {len(answers)} peers, {len(times_us)} answers"
    return PathTime(percentile_95(times_us), source)


def probe_all(peers: Sequence[str]) -> Mapping[str, Sequence[int] | None]:
    """Round-trip times, microseconds, in the order of sending, for the peers that are asked; see `measure`.

    Empty for one that is silent; None for a name without an address, and where no echo may be sent from.
    """
    asked = peers[:: -(-len(peers) // _MOST_PEERS)] if peers else []
    found: dict[str, list[int] | None] = {}

    def probe(peer: str) -> None:
        found[peer] = _probe(peer)

    # A thread that hangs in name resolution ends by itself. Python waits for those of an executor before it exits.
    threads = [threading.Thread(target=probe, args=(peer,), name="rtt", daemon=True) for peer in asked]
    for thread in threads:
        thread.start()
    due_s = time.monotonic() + _LONGEST_S
    for thread in threads:
        thread.join(max(0.0, due_s - time.monotonic()))
    return {peer: found.get(peer) for peer in asked}


def percentile_95(values: Sequence[int]) -> int:
    """The 95th percentile, rounded up to a value that was seen. `values` must not be empty."""
    ordered = sorted(values)
    return ordered[-(-95 * len(ordered) // 100) - 1]


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def echo_request(family: socket.AddressFamily, identity: int, sequence: int, data: bytes = b"") -> bytes:
    """An echo request with `data`; the kernel fills in the checksum of ICMPv6."""
    packet = struct.pack("!BBHHH", _ECHO[family], 0, 0, identity, sequence) + data
    return packet if family == socket.AF_INET6 else packet[:2] + struct.pack("!H", checksum(packet)) + packet[4:]


def reply_sequence(family: socket.AddressFamily, packet: bytes, identity: int) -> int | None:
    """The sequence number in an echo reply of ours; None for any other packet. IPv4 packets bring their IP header."""
    start = (packet[0] & 0xF) * 4 if family == socket.AF_INET and packet else 0
    if len(packet) < start + 8:
        return None
    kind, _, _, whose, sequence = struct.unpack_from("!BBHHH", packet, start)
    return sequence if kind == _ECHO_REPLY[family] and whose == identity else None


def _probe(peer: str) -> list[int] | None:
    try:
        family, _, _, _, address = socket.getaddrinfo(peer, None, type=socket.SOCK_RAW)[0]
        handle = socket.socket(family, socket.SOCK_RAW, _ICMP[family])
    except (OSError, KeyError, UnicodeError):  # UnicodeError: no name of a host
        return None
    with handle:
        return _exchange(handle, family, address)


def _exchange(handle: socket.socket, family: socket.AddressFamily, address: Any) -> list[int]:
    # Raw sockets hear the answers to everybody's requests.
    identity = secrets.randbits(16)
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    sent_mono_ns: dict[int, int] = {}
    times_us: dict[int, int] = {}
    end_mono_ns = time.monotonic_ns() + round((PROBES * _SPACING_S + _PATIENCE_S) * 1e9)
    next_mono_ns = time.monotonic_ns()
    while len(times_us) < PROBES and (now_mono_ns := time.monotonic_ns()) < end_mono_ns:
        if len(sent_mono_ns) < PROBES and now_mono_ns >= next_mono_ns:
            sequence = len(sent_mono_ns)
            sent_mono_ns[sequence], next_mono_ns = now_mono_ns, now_mono_ns + round(_SPACING_S * 1e9)
            # An unreachable peer is one that does not answer.
            with contextlib.suppress(OSError):
                handle.sendto(echo_request(family, identity, sequence), address)
        if poller.poll(_SPACING_S * 1000 / 4):
            with contextlib.suppress(OSError):
                sequence_seen = reply_sequence(family, handle.recv(2048), identity)
                if sequence_seen in sent_mono_ns:
                    times_us.setdefault(sequence_seen, (time.monotonic_ns() - sent_mono_ns[sequence_seen]) // 1000)
    return [times_us[sequence] for sequence in sorted(times_us)]
