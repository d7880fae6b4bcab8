"""Where the clock daemon listens: the flag, then the environment, then the packaged socket. Pure."""

from collections.abc import Mapping
from pathlib import Path

from clockgate_trainer.errors import ConfigError

ADDRESS_VARIABLE = "CLOCKGATE_ADDRESS"
DEFAULT_SOCKET = "/run/clockgate/clockgate.sock"
# sun_path holds 108 bytes with its final zero.
_LONGEST_PATH = 107


def resolve_address(flag: str | None, environ: Mapping[str, str]) -> str:
    """Target of the daemon for gRPC: `flag` (--clock_daemon), then CLOCKGATE_ADDRESS, then the packaged socket.

    A value with a slash and no scheme is a socket path; `unix:PATH` is one too; anything else (`host:port`,
    `dns:///host:port`) is passed on. Raises ConfigError when a socket path is too long for the kernel.
    """
    if flag:
        return _target(flag, "--clock_daemon")
    value = environ.get(ADDRESS_VARIABLE)
    if value:
        return _target(value, ADDRESS_VARIABLE)
    return _target(DEFAULT_SOCKET, "the default")


def _target(value: str, origin: str) -> str:
    scheme, colon, rest = value.partition(":")
    if colon and scheme == "unix":
        path = rest.removeprefix("//") if rest.startswith("///") else rest
    elif "/" in value and (not colon or "/" in scheme):
        path = value
    else:
        return value
    absolute = str(Path(path).absolute())
    length = len(absolute.encode())
    if length > _LONGEST_PATH:
        raise ConfigError(
            f"{origin}: socket path {absolute} has {length} bytes, wanted at most {_LONGEST_PATH}; use a shorter folder"
        )
    return f"unix:{absolute}"
