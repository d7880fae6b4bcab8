"""Where the daemon is, how it is called, and what to tell a person when it does not answer."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from clockgate import dial

from clockgated.ctl.status import printable
from clockgated.errors import ClockgateError

DEFAULT_SOCKET = "/run/clockgate/clockgate.sock"
DEFAULT_ADMIN_SOCKET = "/run/clockgate/admin/admin.sock"
ENVIRONMENT_VARIABLE = "CLOCKGATE_ADDRESS"
DEADLINE_S = 2.0

_CHANNEL_OPTIONS = (
    # A restarted daemon is found again within a second; grpc's own limit is two minutes.
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)


class AddressError(ClockgateError):
    """An address that leads nowhere, or TLS files that do not work. The message names value and wanted."""


class UnreachableError(ClockgateError):
    """Nobody answered as a clockgated would. The message names the address and the next step."""


@dataclass(frozen=True)
class Address:
    """Where a daemon is, and what to bring for TLS. As a text: what the person gave."""

    place: dial.Address
    tls: dial.Tls = field(default_factory=dial.Tls)

    def __str__(self) -> str:
        return str(self.place)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say where the read API is, for `chosen`."""
    parser.add_argument(
        "--address",
        metavar="ADDRESS",
        help=f"the daemon's socket, or HOST:PORT; default: ${ENVIRONMENT_VARIABLE}, else {DEFAULT_SOCKET}",
    )
    for option, variable, what in (
        ("--tls-ca", dial.CA_VARIABLE, "the CA of the daemon's certificate"),
        ("--tls-certificate", dial.CERTIFICATE_VARIABLE, "your own certificate"),
        ("--tls-key", dial.KEY_VARIABLE, "its key"),
    ):
        parser.add_argument(
            option, type=Path, metavar="FILE", help=f"for HOST:PORT: {what} (PEM); default: ${variable}"
        )
    parser.add_argument(
        "--tls-name",
        metavar="NAME",
        help=f"the name in the daemon's certificate; default: ${dial.NAME_VARIABLE}, else HOST",
    )


def chosen(options: argparse.Namespace, environ: Mapping[str, str]) -> Address:
    """The read API that `options` and `environ` name. Raises AddressError."""
    tls = dial.Tls(options.tls_ca, options.tls_certificate, options.tls_key, options.tls_name)
    return read_address(options.address, environ, tls)


def read_address(flag: str | None, environ: Mapping[str, str], tls: dial.Tls | None = None) -> Address:
    """The read API: the flag, else CLOCKGATE_ADDRESS, else the default socket. Raises AddressError.

    An empty one counts as not given, as for the trainer: scripts pass variables on that may be unset. What `tls` leaves
    open comes from the environment.
    """
    return Address(_parsed(flag or environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_SOCKET), dial.tls_of(environ, tls))


def admin_address(flag: str | None) -> Address:
    """The admin API: the flag unless it is empty, else the default; a socket always. Raises AddressError."""
    place = _parsed(flag or DEFAULT_ADMIN_SOCKET)
    if place.path is None:
        raise AddressError(f'address "{place}": wanted the path of the admin socket; it is not served by TCP')
    return Address(place)


def _parsed(text: str) -> dial.Address:
    try:
        return dial.parse_address(text)
    except dial.DialError as error:
        raise AddressError(f"address {error}") from None


def connect(address: Address) -> grpc.Channel:
    """A channel to `address`; nothing is sent before the first call. Raises AddressError."""
    try:
        return dial.open_channel(address.place, address.tls, _CHANNEL_OPTIONS)
    except dial.DialError as error:
        raise AddressError(str(error)) from None


def status_code(error: grpc.RpcError) -> grpc.StatusCode | None:
    """The status of a failed call; None when it never became one."""
    return error.code() if hasattr(error, "code") else None


def details(error: grpc.RpcError) -> str:
    """What the daemon, or grpc itself, says about a failed call, fit for a terminal."""
    return printable((error.details() if hasattr(error, "details") else None) or str(error))


def unreachable(address: Address, error: grpc.RpcError) -> UnreachableError:
    """What a failed call to `address` means to a person."""
    return UnreachableError(f"{address}: {_cause(address.place, error)}")


def _cause(place: dial.Address, error: grpc.RpcError) -> str:
    code = status_code(error)
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {DEADLINE_S:g} s; the daemon hangs: look at `systemctl status clockgated`"
    if code == grpc.StatusCode.PERMISSION_DENIED:
        return details(error)
    if code != grpc.StatusCode.UNAVAILABLE:
        return f"not the answer of a clockgated ({details(error)}); is this its address?"
    if place.path is None:
        return (
            f"nobody answers ({details(error)}); see that [api] tcp is set there, and that each side's certificate is "
            "from the CA that the other side knows"
        )
    try:
        is_socket = place.path.is_socket()
    except PermissionError:
        is_socket = True  # cannot be looked at: it is permission that is missing
        denied = True
    else:
        denied = "ermission denied" in details(error)
    if denied:
        return "permission denied; run as root"
    if not is_socket:
        return (
            "no socket there; start clockgated (`systemctl start clockgated`), or name its socket (--address; for the "
            "admin socket --admin-address)"
        )
    return "a socket without a daemon; start clockgated (`systemctl start clockgated`)"
