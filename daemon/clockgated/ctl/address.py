"""Where the daemon is, how it is called, and what to tell a person when it does not answer."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import grpc

from clockgated.errors import ClockgateError

DEFAULT_SOCKET = Path("/run/clockgate/clockgate.sock")
DEFAULT_ADMIN_SOCKET = Path("/run/clockgate/admin/admin.sock")
ENVIRONMENT_VARIABLE = "CLOCKGATE_ADDRESS"
DEADLINE_S = 2.0
_PATH_LIMIT_BYTES = 107  # sockaddr_un.sun_path is 108 bytes, one of them the final NUL

_CHANNEL_OPTIONS = (
    # A restarted daemon is found again within a second; grpc's own limit is two minutes.
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class AddressError(ClockgateError):
    """An address that is neither a path nor unix:PATH."""


class UnreachableError(ClockgateError):
    """Nobody answered as a clockgated would. The message names the path and the next step."""


def read_address(flag: str | None, environ: Mapping[str, str]) -> Path:
    """The socket of the read API: the flag, else CLOCKGATE_ADDRESS, else the default. Raises AddressError.

    An empty one counts as not given, as for the trainer: scripts pass variables on that may be unset.
    """
    text = flag or environ.get(ENVIRONMENT_VARIABLE)
    return parse(text) if text else DEFAULT_SOCKET


def admin_address(flag: str | None) -> Path:
    """The socket of the admin API: the flag unless it is empty, else the default. Raises AddressError."""
    return parse(flag) if flag else DEFAULT_ADMIN_SOCKET


def parse(text: str) -> Path:
    """A socket's path from "PATH", "unix:PATH" or "unix:///PATH". Raises AddressError."""
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    if not path or "\0" in path or re.fullmatch(r"[^/]*:[^/]*", path):
        raise AddressError(f'address "{text}": wanted the path of a socket, or unix:PATH')
    length = len(os.fsencode(path))
    if length > _PATH_LIMIT_BYTES:
        raise AddressError(f'address "{text}": {length} bytes long; a socket\'s path has at most {_PATH_LIMIT_BYTES}')
    try:
        path.encode()
    except UnicodeEncodeError:
        raise AddressError(f"address {text!a}: not UTF-8; wanted the path of a socket") from None
    return Path(path)


def connect(path: Path) -> grpc.Channel:
    """A channel to the socket at `path`; nothing is sent before the first call."""
    return grpc.insecure_channel(f"unix:{path}", options=_CHANNEL_OPTIONS)


def status_code(error: grpc.RpcError) -> grpc.StatusCode | None:
    """The status of a failed call; None when it never became one."""
    return error.code() if hasattr(error, "code") else None


def details(error: grpc.RpcError) -> str:
    """What the daemon, or grpc itself, says about a failed call."""
    return (error.details() if hasattr(error, "details") else None) or str(error)


def unreachable(path: Path, error: grpc.RpcError) -> UnreachableError:
    """What a failed call to `path` means to a person."""
    return UnreachableError(f"{path}: {_cause(path, error)}")


def _cause(path: Path, error: grpc.RpcError) -> str:
    code = status_code(error)
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {DEADLINE_S:g} s; the daemon hangs: look at `systemctl status clockgated`"
    if code != grpc.StatusCode.UNAVAILABLE:
        return f"not the answer of a clockgated ({details(error)}); is this its socket?"
    try:
        is_socket = path.is_socket()
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
