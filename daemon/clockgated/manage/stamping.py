"""Trials of timestamping hardware: whether the clock ticks, and whether a transmit timestamp arrives.

A driver's own word is no proof: some announce hardware timestamps and a clock that stands still. The probe is a
peer-delay request to the link-local PTP address, which bridges do not forward and stations of other domains ignore.
"""

import contextlib
import ctypes
import fcntl
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from clockgated.units import NS_PER_MS, NS_PER_S

_SIOCETHTOOL = 0x8946
_SIOCSHWTSTAMP = 0x89B0
_SIOCGHWTSTAMP = 0x89B1
_ETHTOOL_GET_TS_INFO = 0x41
_TX_HARDWARE, _TX_SOFTWARE, _RX_HARDWARE, _RX_SOFTWARE, _SOFTWARE = 1, 2, 4, 8, 16
_RAW_HARDWARE, _OPT_TSONLY = 64, 2048
_HARDWARE_FLAGS = _TX_HARDWARE | _RX_HARDWARE | _RAW_HARDWARE
_SOFTWARE_FLAGS = _TX_SOFTWARE | _RX_SOFTWARE | _SOFTWARE
_TX_TYPE_ON = 1
_SO_TIMESTAMPING = 37

_ETHERTYPE_PTP = 0x88F7
_PEER_DELAY_ADDRESS = bytes.fromhex("0180c200000e")
_PEER_DELAY_REQUEST = 2
# A domain that no installation uses.
_PROBE_DOMAIN = 127

_TICK_TRIAL_NS = 20 * NS_PER_MS
_STAMP_TIMEOUT_S = 0.2


@dataclass(frozen=True)
class StampInfo:
    """What a driver claims. `phc_index` None: no hardware clock."""

    has_hardware: bool
    has_software: bool
    phc_index: int | None


def stamp_info(interface: str) -> StampInfo | None:
    """The driver's claims about timestamps; None when it does not answer."""
    answer = ctypes.create_string_buffer(struct.pack("=II i III I I III", _ETHTOOL_GET_TS_INFO, *([0] * 10)), 44)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(answer))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            fcntl.ioctl(handle, _SIOCETHTOOL, request)
    except OSError:
        return None
    return parse_stamp_info(answer.raw)


def parse_stamp_info(answer: bytes) -> StampInfo | None:
    """The kernel's struct ethtool_ts_info (44 bytes, native order); None when it is shorter."""
    if len(answer) < 44:
        return None
    _, flags, index, tx_types, _, _, _, rx_filters = struct.unpack_from("=IIiI3II", answer)
    # Bit 0 of either mask stands for "off" and says nothing.
    has_both_ways = tx_types & (1 << _TX_TYPE_ON) and rx_filters > 1
    return StampInfo(
        has_hardware=bool(flags & _HARDWARE_FLAGS == _HARDWARE_FLAGS and has_both_ways),
        has_software=flags & _SOFTWARE_FLAGS == _SOFTWARE_FLAGS,
        phc_index=index if index >= 0 else None,
    )


def phc_ticks(index: int) -> bool | None:
    """Whether /dev/ptpN advances by what the monotonic clock advances, within a half; None when it cannot be read."""
    try:
        device = os.open(f"/dev/ptp{index}", os.O_RDONLY)
    except OSError:
        return None
    try:
        # The kernel's number for a clock behind a file descriptor.
        clock = (~device << 3) | 3
        first_mono_ns, first_phc_ns = time.monotonic_ns(), time.clock_gettime_ns(clock)
        time.sleep(_TICK_TRIAL_NS / NS_PER_S)
        elapsed_ns = time.monotonic_ns() - first_mono_ns
        advanced_ns = time.clock_gettime_ns(clock) - first_phc_ns
    except OSError:
        return None
    finally:
        os.close(device)
    return elapsed_ns // 2 <= advanced_ns <= elapsed_ns * 3 // 2


def tx_stamp_arrives(interface: str, *, hardware: bool = True, timeout_s: float = _STAMP_TIMEOUT_S) -> bool | None:
    """Whether a probe packet's transmit timestamp comes back; None when no probe can be sent.

    Needs CAP_NET_RAW, and CAP_NET_ADMIN for hardware. Stamping is switched on in the card for the trial only.
    """
    wanted = _TX_HARDWARE | _RAW_HARDWARE if hardware else _TX_SOFTWARE | _SOFTWARE
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as handle:
            handle.bind((interface, 0))
            handle.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, wanted | _OPT_TSONLY)
            address: bytes = handle.getsockname()[4]
            with _stamping_on(handle, interface) if hardware else contextlib.nullcontext():
                handle.sendto(probe_frame(address), (interface, _ETHERTYPE_PTP, 0, 0, _PEER_DELAY_ADDRESS))
                return _await_stamp(handle, 2 if hardware else 0, timeout_s)
    except OSError:
        return None


def probe_frame(address: bytes) -> bytes:
    """An Ethernet frame with a PTP 2.0 peer-delay request from the station `address`, in a domain that nobody uses."""
    message_length = 54
    header = struct.pack(
        ">BBHBBHqI8sHHBb",
        _PEER_DELAY_REQUEST,
        2,
        message_length,
        _PROBE_DOMAIN,
        0,
        0,
        0,
        0,
        address[:3] + b"\xff\xfe" + address[3:6],
        1,
        0,
        5,
        0x7F,
    )
    frame = _PEER_DELAY_ADDRESS + address[:6] + struct.pack(">H", _ETHERTYPE_PTP) + header
    return frame.ljust(14 + message_length, b"\0")


def parse_stamp(ancillary: list[tuple[int, int, bytes]], place: int) -> bool:
    """Whether the control messages of an error queue hold a stamp: 0 the kernel's, 2 the hardware's."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPING and len(data) >= 48:
            seconds, nanoseconds = struct.unpack_from("=qq", data, 16 * place)
            return bool(seconds or nanoseconds)
    return False


def _await_stamp(handle: socket.socket, place: int, timeout_s: float) -> bool:
    deadline_ns = time.monotonic_ns() + round(timeout_s * NS_PER_S)
    poller = select.poll()
    poller.register(handle, select.POLLERR)
    while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
        if not poller.poll(left_ns / NS_PER_MS):
            continue
        _, ancillary, _, _ = handle.recvmsg(256, 512, socket.MSG_ERRQUEUE)
        if parse_stamp(ancillary, place):
            return True
    return False


@contextlib.contextmanager
def _stamping_on(handle: socket.socket, interface: str) -> Iterator[None]:
    """Transmit stamping in the card, with the receive filter left as it is, and everything as before afterwards."""
    before = _hardware_setting(handle, interface, _SIOCGHWTSTAMP, (0, 0, 0))
    if before[1] == _TX_TYPE_ON:
        # Somebody uses it, and would not like a change.
        yield
        return
    _hardware_setting(handle, interface, _SIOCSHWTSTAMP, (0, _TX_TYPE_ON, before[2]))
    try:
        yield
    finally:
        _hardware_setting(handle, interface, _SIOCSHWTSTAMP, before)


def _hardware_setting(
    handle: socket.socket, interface: str, request: int, setting: tuple[int, int, int]
) -> tuple[int, int, int]:
    """One exchange of the kernel's struct hwtstamp_config (flags, tx_type, rx_filter). Raises OSError on refusal."""
    block = ctypes.create_string_buffer(struct.pack("=iii", *setting), 12)
    fcntl.ioctl(handle, request, struct.pack("16sP16x", interface.encode(), ctypes.addressof(block)))
    flags, tx_type, rx_filter = struct.unpack("=iii", block.raw)
    return flags, tx_type, rx_filter
