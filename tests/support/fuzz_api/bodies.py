"""Bodies of requests made from descriptors: extremes, unknown enum values, repetition, what no encoder would write.

Pure: equal generators make equal bodies. Encoded by hand, since a library refuses to write most of this.
"""

import struct
from random import Random

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_MOST_BYTES = 70_000  # the daemon takes 65,536
_INTEGERS = (0, 1, 2, -1, 127, 128, 10**9, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), 2**64 - 1)
_DOUBLES = (0.0, -0.0, 0.2, -1.0, 1e-320, 1e308, float("inf"), -float("inf"), float("nan"))
_TEXTS = (
    b"", b"train", b"tcp", b"auto", b"none", b"*", b"../../etc/passwd", b"/dev/zero", b"clockgate.v1.Clock", b"\0",
    b"\x1b[2J\n\r\t", b"%s%n", b"\xff\xfe", b"\xed\xa0\x80", "\u202e\ufeffÄ".encode(), b"clockgate/v1/clock.proto",
)  # fmt: skip
_OF_TYPE = {
    FieldDescriptor.TYPE_DOUBLE: _FIXED64, FieldDescriptor.TYPE_FIXED64: _FIXED64,
    FieldDescriptor.TYPE_SFIXED64: _FIXED64, FieldDescriptor.TYPE_FLOAT: _FIXED32,
    FieldDescriptor.TYPE_FIXED32: _FIXED32, FieldDescriptor.TYPE_SFIXED32: _FIXED32,
    FieldDescriptor.TYPE_STRING: _BYTES, FieldDescriptor.TYPE_BYTES: _BYTES, FieldDescriptor.TYPE_MESSAGE: _BYTES,
}  # fmt: skip


def body(random: Random, message: Descriptor) -> bytes:
    """One body for a method that takes `message`; more or less of one."""
    kind = random.random()
    if kind < 0.1:
        return random.randbytes(random.choice((0, 1, 2, 10, 1000, _MOST_BYTES)))
    made = _message(random, message, depth=0)
    if kind < 0.2 and made:
        return _damaged(random, made)
    if kind < 0.25:
        made += _nested(random)
    elif kind < 0.3:
        made = made * (1 + 5000 // (1 + len(made)))
    return made[:_MOST_BYTES]


def _message(random: Random, message: Descriptor, depth: int) -> bytes:
    made = b""
    for field in message.fields:
        # Mostly one of each: a request that lacks a field is refused before the rest of it is looked at.
        for _ in range(random.choice((0, 1, 1, 1, 1, 2, 300 if depth else 3))):
            made += _field(random, field, depth)
    if random.random() < 0.1:
        made += _varint(random.choice((0, 1, 15, 19_000, 2**29 - 1, 2**32)) << 3 | random.randrange(8))
        made += random.randbytes(random.randrange(12))
    return made


def _field(random: Random, field: FieldDescriptor, depth: int) -> bytes:
    wire = _OF_TYPE.get(field.type, _VARINT)
    if random.random() < 0.05:
        wire = random.randrange(8)
    tag = _varint(field.number << 3 | wire)
    if wire == _VARINT:
        return tag + _varint(_integer(random, field))
    if wire == _FIXED64:
        return tag + struct.pack("<d", random.choice(_DOUBLES))
    if wire == _FIXED32:
        return tag + random.randbytes(4)
    if wire == _BYTES:
        content = _content(random, field, depth)
        # Now and then a length that is not the content's.
        length = len(content) if random.random() < 0.98 else random.choice((0, len(content) + 1, 2**31, 2**64 - 1))
        return tag + _varint(length) + content
    return tag + random.randbytes(random.randrange(9))


def _integer(random: Random, field: FieldDescriptor) -> int:
    if field.enum_type is not None and random.random() < 0.5:
        return random.choice(field.enum_type.values).number
    return random.choice(_INTEGERS) if random.random() < 0.7 else random.getrandbits(64)


def _content(random: Random, field: FieldDescriptor, depth: int) -> bytes:
    if field.message_type is not None and depth < 5:
        return _message(random, field.message_type, depth + 1)
    text = random.choice(_TEXTS)
    return text * random.choice((1, 1, 1, 3, 3000 // (1 + len(text))))


def _nested(random: Random) -> bytes:
    """Groups, or messages in messages of an unknown field, beyond the depth that any parser follows."""
    depth = random.choice((10, 99, 101, 10_000))
    if random.random() < 0.5:
        return _varint(77 << 3 | _GROUP) * depth + _varint(77 << 3 | _END_GROUP) * random.choice((0, depth))
    made = b""
    for _ in range(min(depth, 2000)):
        made = _varint(1 << 3 | _BYTES) + _varint(len(made)) + made
    return made


def _damaged(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed[: random.randrange(len(changed) + 1)] if random.random() < 0.5 else changed)


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
