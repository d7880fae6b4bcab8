"""Metadata that no gRPC library sends: its client is answered or dropped, and the log is not filled."""

import socket
import time
from pathlib import Path

import pytest
from clockgated.config import ApiConfig
from clockgated.drill import DrillBoard
from clockgated.publish import Publisher
from clockgated.service.server import Api
from support.readings import reading

_HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/clockgate.v1.Clock/GetReading"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
    (b"\xe8M\x1b", b"x"),
)
_DATA, _HEADERS_FRAME, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """RFC 9113, section 4.1."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    """RFC 7541, section 6.2.2, both without Huffman coding."""
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


def test_a_name_that_is_no_text_writes_no_traceback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = ApiConfig(tmp_path / "c.sock", tmp_path / "admin/a.sock", 3)
    api = Api(config, Publisher(reading()), DrillBoard())
    request = frame(_HEADERS_FRAME, _END_HEADERS, 1, b"".join(literal(*header) for header in _HEADERS))
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(config.socket))
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS, 0, 0, b""))
        client.sendall(request + frame(_DATA, _END_STREAM, 1, bytes(5)))
        heard, until = b"", time.monotonic() + 10
        while b"grpc-status" not in heard and time.monotonic() < until:
            heard += client.recv(4096)
    api.stop()
    assert not [record for record in caplog.records if record.exc_info], "a traceback for a client's odd metadata"
