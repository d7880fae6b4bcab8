"""The TCP port: mutual TLS, or without any on a loopback address. Which calls it serves is not decided here."""

import errno
import logging
import socket

import grpc
from clockgate.pem import PemFiles

from clockgated.config_values import TcpAddress
from clockgated.errors import AbsentAddressError, SocketError
from clockgated.service.tls import Certificates

_LOG = logging.getLogger(__name__)

OPTIONS = (
    # A peer that vanished without a word is noticed within a minute and a half; its streams make room.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 30_000),
)
"""For the server of the port."""


def open_port(server: grpc.Server, address: TcpAddress, tls: PemFiles | None) -> Certificates | None:
    """Have `server` listen on `address`; the certificates that it goes by, to be closed with it.

    Raises AbsentAddressError when this machine has no such address, SocketError when the port cannot be had,
    ConfigError when the certificates are not to be used.
    """
    certificates = None if tls is None else Certificates(tls)
    try:
        if certificates is None:
            server.add_insecure_port(str(address))
        else:
            server.add_secure_port(str(address), certificates.credentials())
    except RuntimeError:
        if certificates is not None:
            certificates.close()
        raise _refusal(address) from None
    _LOG.info("serves %s by TCP, %s", address, "with TLS on both sides" if certificates else "to this machine alone")
    return certificates


def _refusal(address: TcpAddress) -> SocketError:
    """Why `address` cannot be had, which grpc does not tell."""
    subject = f'[api] tcp = "{address}": cannot be served'
    if _is_absent(address):
        return AbsentAddressError(
            f"{subject}: this machine does not have that address, or not yet; wanted one of `ip address`"
        )
    return SocketError(f"{subject}; wanted a port that nobody listens on: see `ss -ltnp`")


def _is_absent(address: TcpAddress) -> bool:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address.host, 0))
    except OSError as error:
        return error.errno == errno.EADDRNOTAVAIL
    return False
