"""The doors of a daemon under test: both unix sockets, and TCP with TLS where openssl can make certificates."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from clockgate import dial
from support.certificates import authority
from support.daemon import Clockgated, clockgated, toml
from support.ports import free_port
from support.tools import find_tool

_READING = '{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1", "stratum": 2}\n'
MAX_STREAMS = 8


@dataclass(frozen=True)
class Door:
    """One way in. `socket_address` is for connections without gRPC: a path, or a port of the loopback."""

    name: str
    address: dial.Address
    tls: dial.Tls
    socket_address: str | int

    def channel(self) -> grpc.Channel:
        """A channel with a connection of its own; close it."""
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 200))
        return dial.open_channel(self.address, self.tls, options)

    def connect(self) -> socket.socket:
        """A plain connection; close it."""
        if isinstance(self.socket_address, int):
            return socket.create_connection(("127.0.0.1", self.socket_address), timeout=5)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(5)
        made.connect(self.socket_address)
        return made


@contextmanager
def opened(folder: Path, python: Path) -> Iterator[tuple[Clockgated, tuple[Door, ...]]]:
    """A daemon of the runtime `python` on a recorded reading, below `folder`, and its doors."""
    (folder / "recorded.jsonl").write_text(_READING, encoding="utf-8")
    port, tls, lines = free_port(), dial.Tls(), ""
    if find_tool("openssl"):
        ca = authority(folder / "ca")
        server, client = ca.issue("node1"), ca.issue("trainer")
        tls = dial.Tls(ca.certificate, client.certificate, client.key)
        files = {"tls_certificate": server.certificate, "tls_key": server.key, "tls_client_ca": ca.certificate}
        lines = "".join(f'{key} = "{path}"\n' for key, path in files.items())
    api = f'[api]\nmax_streams = {MAX_STREAMS}\ntcp = "127.0.0.1:{port}"\n{lines}'
    text = toml(
        folder,
        clock='source = "recorded"\npoll_interval_s = 0.1\nsync_cycles = 1',
        extra=f'[recorded]\nfile = "{folder / "recorded.jsonl"}"',
    ).replace("[api]\n", api)
    with ExitStack() as stack:
        daemon = stack.enter_context(clockgated(folder, text, python=python))
        read, admin = str(daemon.socket), str(daemon.admin_socket)
        yield (
            daemon,
            (
                Door("read socket", dial.parse_address(read), dial.Tls(), read),
                Door("admin socket", dial.parse_address(admin), dial.Tls(), admin),
                Door("TCP with TLS" if lines else "TCP", dial.parse_address(f"localhost:{port}"), tls, port),
            ),
        )
