"""The TCP port: mutual TLS, or without any on a loopback address. Which calls it serves is not decided here."""

import logging

import grpc

from clockgated.config import ApiConfig
from clockgated.errors import SocketError
from clockgated.service.tls import Certificates

_LOG = logging.getLogger(__name__)

OPTIONS = (
    # A peer that vanished without a word is noticed within a minute and a half; its streams make room.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 30_000),
)
"""For the server of the port."""


def open_port(server: grpc.Server, config: ApiConfig) -> Certificates | None:
    """Have `server` listen on `config.tcp`; the certificates that it goes by, to be closed with it.

    Raises SocketError when the port cannot be had, ConfigError when the certificates are not to be used.
    """
    certificates = None if config.tls is None else Certificates(config.tls)
    try:
        if certificates is None:
            server.add_insecure_port(str(config.tcp))
        else:
            server.add_secure_port(str(config.tcp), certificates.credentials())
    except RuntimeError:
        if certificates is not None:
            certificates.close()
        raise SocketError(
            f'[api] tcp = "{config.tcp}": cannot be served; wanted an address of this machine and a port that nobody '
            "listens on: see `ss -ltnp`"
        ) from None
    _LOG.info("serves %s by TCP, %s", config.tcp, "with TLS on both sides" if certificates else "to this machine alone")
    return certificates
