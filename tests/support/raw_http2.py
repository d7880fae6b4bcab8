"""HTTP/2 by hand, RFC 9113 and 7541, as no library would speak it: for clients that mean no good."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE = 4


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    """A SETTINGS frame; `window` is the initial window of every stream, bytes."""
    window = values.get("window")
    return frame(SETTINGS, payload=b"" if window is None else struct.pack(">HI", INITIAL_WINDOW_SIZE, window))


def call_headers(stream: int, path: str) -> bytes:
    """The HEADERS frame that opens a gRPC call of `path`."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "te": "trailers",
        "content-type": "application/grpc",
    }  # fmt: skip
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
    return frame(HEADERS, END_HEADERS, stream, block)


def message(stream: int, body: bytes = b"", *, flag: int = 0) -> bytes:
    """The DATA frame with one gRPC message, the last of its call; `flag` 1 says that it is compressed."""
    return frame(DATA, END_STREAM, stream, struct.pack(">BI", flag, len(body)) + body)


def connected(path: Path, **values: int) -> socket.socket:
    """A connection to the unix socket at `path` that has said hello; `values` as for `settings`."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(20)
    made.connect(str(path))
    made.sendall(PREFACE + settings(**values))
    return made


def frames(connection: socket.socket) -> Iterator[tuple[int, int, int, bytes]]:
    """What the other side sends: kind, flags, stream and payload of each frame, until it closes. Grants no window.

    An end that leaves unread what was sent to it ends in a reset, after all that it said itself.
    """
    with connection.makefile("rb") as file, contextlib.suppress(ConnectionResetError):
        while len(head := file.read(9)) == 9:
            size = int.from_bytes(head[:3], "big")
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            yield kind, flags, stream, file.read(size)


def _text(text: str) -> bytes:
    # Below 127 bytes the length is one byte; without Huffman coding.
    return bytes((len(text),)) + text.encode()
