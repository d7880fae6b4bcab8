"""Where a daemon is and how it is called: what clockgatectl and the trainer share.

An address is the path of a unix socket, or host:port. Nothing is asked in the clear beyond this machine.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

from clockgate.pem import PemError, PemFiles, read_pem

CA_VARIABLE = "CLOCKGATE_TLS_CA"
CERTIFICATE_VARIABLE = "CLOCKGATE_TLS_CERTIFICATE"
KEY_VARIABLE = "CLOCKGATE_TLS_KEY"
NAME_VARIABLE = "CLOCKGATE_TLS_NAME"

_ABSTRACT = "unix-abstract:"
_LONGEST_PATH = 107  # sockaddr_un.sun_path is 108 bytes, one of them the final NUL
_WANTED = "wanted the path of a socket, unix:PATH, or HOST:PORT"


class DialError(ValueError):
    """An address that leads nowhere, or that must not be called like this. The message names value and wanted."""


@dataclass(frozen=True)
class Address:
    """A gRPC target. `path` is the socket's, None for TCP and for abstract sockets; `is_local`: on this machine."""

    target: str
    path: Path | None
    is_local: bool

    def __str__(self) -> str:
        return self.target if self.path is None else str(self.path)


@dataclass(frozen=True)
class Tls:
    """What a client brings for TLS: files, and the name that the server's certificate has to be for.

    Without `name` that is the host of the address.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    name: str | None = None


def tls_of(environ: Mapping[str, str], given: Tls | None = None) -> Tls:
    """What was `given`, and for the rest what the environment says; an empty variable says nothing."""
    given = given or Tls()

    def path(one: Path | None, variable: str) -> Path | None:
        return one or (Path(environ[variable]) if environ.get(variable) else None)

    return Tls(
        path(given.ca, CA_VARIABLE),
        path(given.certificate, CERTIFICATE_VARIABLE),
        path(given.key, KEY_VARIABLE),
        given.name or environ.get(NAME_VARIABLE) or None,
    )


def parse_address(text: str) -> Address:
    """What `text` means: unix:PATH, a path (anything with a slash before any colon, or without a colon), or host:port
    with or without a scheme of gRPC's. Raises DialError.
    """
    scheme, colon, rest = text.partition(":")
    if text.startswith(_ABSTRACT):
        return Address(text, None, is_local=True)
    if colon and scheme == "unix":
        return _socket("/" + rest.lstrip("/") if rest.startswith("//") else rest)
    if not colon or "/" in scheme:
        return _socket(text)
    endpoint = rest.rpartition("/")[2] if scheme in ("dns", "ipv4", "ipv6") else text
    return Address(text, None, is_local=is_loopback(_host(endpoint)))


def is_loopback(host: str) -> bool:
    """Whether `host` can only be this machine, without asking anybody."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def credentials(address: Address, tls: Tls) -> grpc.ChannelCredentials | None:
    """How to call `address`: None for without TLS, which is for this machine only. Raises DialError."""
    if address.path is not None or address.target.startswith(_ABSTRACT):
        return None
    files = {CA_VARIABLE: tls.ca, CERTIFICATE_VARIABLE: tls.certificate, KEY_VARIABLE: tls.key}
    missing = [variable for variable, path in files.items() if path is None]
    if address.is_local and len(missing) == len(files):
        return None
    if tls.ca is None or tls.certificate is None or tls.key is None:
        raise DialError(
            f'"{address}" is asked with TLS, as everything beyond this machine, which takes a CA, a certificate and '
            f"its key: set {', '.join(missing)}"
        )
    try:
        pem = read_pem(PemFiles(tls.certificate, tls.key, tls.ca))
    except PemError as error:
        raise DialError(str(error)) from None
    return grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)


def open_channel(address: Address, tls: Tls, options: tuple[tuple[str, object], ...] = ()) -> grpc.Channel:
    """A channel to `address`; nothing is sent before the first call. Raises DialError as `credentials` does."""
    trusted = credentials(address, tls)
    if trusted is None:
        return grpc.insecure_channel(address.target, options=options)
    name = () if tls.name is None else (("grpc.ssl_target_name_override", tls.name),)
    return grpc.secure_channel(address.target, trusted, options=(*options, *name))


def _socket(path: str) -> Address:
    if not path or "\0" in path:
        raise DialError(f'"{path}": {_WANTED}')
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        raise DialError(f"{path!a}: not UTF-8; {_WANTED}") from None
    if length > _LONGEST_PATH:
        raise DialError(f'"{path}": {length} bytes long; a socket\'s path has at most {_LONGEST_PATH}')
    return Address(f"unix:{path}", Path(path), is_local=True)


def _host(endpoint: str) -> str:
    """The host of "host:port" or "[v6]:port". Raises DialError."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", endpoint)
    if found is None or not 1 <= int(found[3]) <= 65535:
        raise DialError(f'"{endpoint}": {_WANTED}, with a port from 1 to 65535')
    return found[1] or found[2]
