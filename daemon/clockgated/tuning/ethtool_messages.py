"""The messages of the kernel's ethtool netlink family that tuning needs, as pyroute2 classes.

Numbers and orders are those of linux/ethtool_netlink.h. pyroute2 itself covers few of them, differently in each version
from 0.7.2 to 0.9, and raises on bits that it does not know; these classes behave alike in all of them. Each `nla_map`
names attributes by their place, from 0; attributes beyond its end arrive as UNKNOWN and are passed over.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from pyroute2.netlink import NLA_F_NESTED, genlmsg, nla

_Map = tuple[tuple[str, str], ...]


class Command(IntEnum):
    """Requests: ETHTOOL_MSG_*_GET and _SET."""

    FEATURES_GET = 11
    RINGS_GET = 15
    RINGS_SET = 16
    CHANNELS_GET = 17
    CHANNELS_SET = 18
    COALESCE_GET = 19
    PAUSE_GET = 21
    EEE_GET = 23
    EEE_SET = 24
    TSINFO_GET = 25
    FEC_GET = 29
    TSCONFIG_GET = 46


FLAG_STATS = 1 << 2
"""In a request's header: statistics are wanted too."""


class Header(nla):  # type: ignore[misc]  # pyroute2 carries no type information
    """Which device: by name, or by index."""

    nla_flags = NLA_F_NESTED
    nla_map = (("-", "none"), ("dev_index", "uint32"), ("dev_name", "asciiz"), ("flags", "uint32"))


class Bitset(nla):  # type: ignore[misc]
    """Named bits, in the verbose form: one BIT for each that is set (with NOMASK) or that is told about."""

    nla_flags = NLA_F_NESTED
    nla_map = (("-", "none"), ("nomask", "flag"), ("size", "uint32"), ("bits", "bits"))

    class bits(nla):  # type: ignore[misc]  # noqa: N801, D106 - pyroute2 finds it by the name in nla_map
        nla_flags = NLA_F_NESTED
        nla_map = (("-", "none"), ("bit", "bit"))

        class bit(nla):  # type: ignore[misc]  # noqa: N801, D106
            nla_flags = NLA_F_NESTED
            nla_map = (("-", "none"), ("index", "uint32"), ("name", "asciiz"), ("value", "flag"))


class FrameCounts(nla):  # type: ignore[misc]
    """Statistics of pause frames."""

    nla_flags = NLA_F_NESTED
    nla_map = (("-", "none"), ("pad", "none"), ("tx_frames", "uint64"), ("rx_frames", "uint64"))


class FecCounts(nla):  # type: ignore[misc]
    """Statistics of forward error correction; each an array whose first entry is the total."""

    nla_flags = NLA_F_NESTED
    nla_map = (("-", "none"), ("pad", "none"), ("corrected", "cdata"), ("uncorrectable", "cdata"))


class Message(genlmsg):  # type: ignore[misc]
    """What all messages share. The nested classes are found by the names in `nla_map`."""

    prefix = ""
    devheader = Header
    bitset = Bitset
    framecounts = FrameCounts
    feccounts = FecCounts


def _after_header(*names_and_kinds: tuple[str, str]) -> _Map:
    return (("-", "none"), ("header", "devheader"), *names_and_kinds)


def _all(kind: str, names: str) -> list[tuple[str, str]]:
    return [(name, kind) for name in names.split()]


class Features(Message):
    """Offloads: what the hardware can, what is wanted, what is on, what cannot be changed."""

    nla_map = _after_header(*_all("bitset", "hw wanted active nochange"))


class Rings(Message):
    """Descriptor rings, entries."""

    nla_map = _after_header(
        *_all("uint32", "rx_max rx_mini_max rx_jumbo_max tx_max rx rx_mini rx_jumbo tx rx_buf_len"),
        *_all("uint8", "tcp_data_split"),
    )


class Channels(Message):
    """Queues."""

    nla_map = _after_header(*_all("uint32", "rx_max tx_max other_max combined_max rx tx other combined"))


class Coalesce(Message):
    """Interrupt moderation: microseconds and frames."""

    nla_map = _after_header(
        *_all("uint32", "rx_usecs rx_frames rx_usecs_irq rx_frames_irq tx_usecs tx_frames tx_usecs_irq tx_frames_irq"),
        ("stats_block_usecs", "uint32"),
        *_all("uint8", "adaptive_rx adaptive_tx"),
    )


class Pause(Message):
    """Link-level flow control (802.3x)."""

    nla_map = _after_header(*_all("uint8", "autoneg rx tx"), ("stats", "framecounts"))


class Eee(Message):
    """Energy-efficient Ethernet."""

    nla_map = _after_header(
        *_all("bitset", "modes_ours modes_peer"),
        *_all("uint8", "active enabled tx_lpi_enabled"),
        ("tx_lpi_timer", "uint32"),
    )


class StampInfo(Message):
    """What the driver says about time stamps."""

    nla_map = _after_header(*_all("bitset", "timestamping tx_types rx_filters"), ("phc_index", "uint32"))


class Fec(Message):
    """Forward error correction of the link."""

    nla_map = _after_header(("modes", "bitset"), ("auto", "uint8"), ("active", "uint32"), ("stats", "feccounts"))


class StampConfig(Message):
    """How time stamps are configured; kernels from 6.14 on answer."""

    nla_map = _after_header(("provider", "none"), *_all("bitset", "tx_types rx_filters"))


CLASSES: dict[Command, type[Message]] = {
    Command.FEATURES_GET: Features,
    Command.RINGS_GET: Rings,
    Command.RINGS_SET: Rings,
    Command.CHANNELS_GET: Channels,
    Command.CHANNELS_SET: Channels,
    Command.COALESCE_GET: Coalesce,
    Command.PAUSE_GET: Pause,
    Command.EEE_GET: Eee,
    Command.EEE_SET: Eee,
    Command.TSINFO_GET: StampInfo,
    Command.FEC_GET: Fec,
    Command.TSCONFIG_GET: StampConfig,
}


def request(command: Command, device: str, values: Sequence[tuple[str, Any]] = (), flags: int = 0) -> Message:
    """A request about the interface `device`."""
    header: list[tuple[str, Any]] = [("dev_name", device)]
    if flags:
        header.append(("flags", flags))
    message = CLASSES[command]()
    message["cmd"], message["version"] = int(command), 1
    message["attrs"] = [("header", {"attrs": header}), *values]
    return message


def plain(message: Any) -> dict[str, Any]:
    """The attributes of an answer by name: numbers, texts, nested dicts, and bitsets as tuples of names.

    A bit without a name is called by its number; attributes that the class does not know are left out.
    """
    found: dict[str, Any] = {}
    for name, value, *_ in message["attrs"]:
        if name in ("UNKNOWN", "-", "pad"):
            continue
        found[name] = _bit_names(value) if isinstance(value, Bitset) else _plain_value(value)
    return found


def _plain_value(value: Any) -> Any:
    return plain(value) if isinstance(value, nla) else value


def _bit_names(bitset: Any) -> tuple[str, ...]:
    lists_set_bits_alone = bitset.get_attr("nomask") is not None
    found: list[str] = []
    for bits in bitset.get_attrs("bits"):
        for bit in bits.get_attrs("bit"):
            if lists_set_bits_alone or bit.get_attr("value") is not None:
                name = bit.get_attr("name")
                found.append(str(bit.get_attr("index")) if name is None else str(name))
    return tuple(sorted(found))
