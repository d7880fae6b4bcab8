"""The ethtool messages: what is encoded is decoded, and what a newer kernel adds is passed over."""

import errno
import struct

import pytest
from clockgated.tuning import ethtool_messages
from clockgated.tuning.ethtool import Ethtool, Unanswered
from clockgated.tuning.ethtool_messages import CLASSES, Command, Features, plain, request
from pyroute2.netlink import nlmsg
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.generic import GenericNetlinkSocket


def attribute(kind: int, payload: bytes, nested: bool = False) -> bytes:
    head = struct.pack("=HH", 4 + len(payload), kind | (0x8000 if nested else 0))
    return head + payload + b"\0" * (-len(payload) % 4)


def decoded(cls: type[nlmsg], attributes: bytes) -> dict[str, object]:
    body = struct.pack("=BBH", 1, 1, 0) + attributes
    data = struct.pack("=IHHII", 16 + len(body), 21, 0, 1, 0) + body
    message = cls(data)
    message.decode()
    return plain(message)


def bit(index: int, name: bytes | None, is_set: bool = True) -> bytes:
    payload = attribute(1, struct.pack("=I", index))
    payload += b"" if name is None else attribute(2, name + b"\0")
    payload += attribute(3, b"") if is_set else b""
    return attribute(1, payload, nested=True)


def test_a_request_names_the_device_and_carries_values() -> None:
    message = request(Command.CHANNELS_SET, "eth0", [("rx", 2), ("tx", 3)])
    message["header"]["type"] = 21
    message.encode()
    again = CLASSES[Command.CHANNELS_SET](bytes(message.data))
    again.decode()
    shown = plain(again)
    assert (shown["header"]["dev_name"], shown["rx"], shown["tx"]) == ("eth0", 2, 3)
    assert again["cmd"] == 18


def test_bits_that_nobody_knew_are_called_by_their_number() -> None:
    bits = attribute(3, bit(0, b"tx-scatter-gather") + bit(73, None) + bit(5, b"off", is_set=False), nested=True)
    shown = decoded(Features, attribute(4, bits, nested=True))
    assert shown["active"] == ("73", "tx-scatter-gather")


def test_with_nomask_every_listed_bit_is_set() -> None:
    bits = attribute(1, b"") + attribute(3, bit(121, b"800000baseNEW_Full", is_set=False), nested=True)
    assert decoded(Features, attribute(3, bits, nested=True))["wanted"] == ("800000baseNEW_Full",)


def test_attributes_of_a_newer_kernel_are_passed_over() -> None:
    shown = decoded(CLASSES[Command.RINGS_GET], attribute(6, struct.pack("=I", 1024)) + attribute(99, b"\1\2\3\4"))
    assert shown == {"rx": 1024}


def test_a_kernel_without_the_family_answers_everything_with_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_family(*_: object, **__: object) -> None:
        raise NetlinkError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(GenericNetlinkSocket, "bind", no_family)
    with Ethtool() as ethtool:
        for command in Command:
            answer = ethtool.get(command, "eth0")
            assert isinstance(answer, Unanswered)
            assert answer.is_unsupported
        assert ethtool.set(Command.RINGS_SET, "eth0", [("rx", 1)]) is not None


def test_every_command_has_a_class_whose_second_attribute_is_the_header() -> None:
    assert set(CLASSES) == set(Command)
    assert all(cls.nla_map[1] == ("header", "devheader") for cls in CLASSES.values())
    assert ethtool_messages.FLAG_STATS == 4
