"""Where the clock daemon listens, and what to bring for TLS: the flag, the environment, then the packaged socket."""

from collections.abc import Mapping

from clockgate.dial import Address, DialError, Tls, credentials, parse_address, tls_of

from clockgate_trainer.errors import ConfigError

ADDRESS_VARIABLE = "CLOCKGATE_ADDRESS"
DEFAULT_SOCKET = "/run/clockgate/clockgate.sock"


def resolve_address(flag: str | None, environ: Mapping[str, str]) -> str:
    """Target of the daemon for gRPC: `flag` (--clock_daemon), then CLOCKGATE_ADDRESS, then the packaged socket.

    A value with a slash and no scheme is a socket path; `unix:PATH` is one too; anything else (`host:port`,
    `dns:///host:port`) is an address of TCP. Raises ConfigError when it is none, or its path is too long for the
    kernel.
    """
    value, origin = (flag, "--clock_daemon") if flag else (environ.get(ADDRESS_VARIABLE), ADDRESS_VARIABLE)
    if not value:
        value, origin = DEFAULT_SOCKET, "the default"
    address = _parsed(value, origin)
    # Another rank, or a later moment, may have another working folder.
    return address.target if address.path is None else _parsed(str(address.path.absolute()), origin).target


def resolve_tls(target: str, environ: Mapping[str, str]) -> Tls:
    """What to bring to `target`, as `resolve_address` gives it.

    That is the files that CLOCKGATE_TLS_CA, CLOCKGATE_TLS_CERTIFICATE and CLOCKGATE_TLS_KEY name, and
    CLOCKGATE_TLS_NAME, for which the daemon's certificate has to be.

    Raises ConfigError when one is missing for a daemon beyond this machine, cannot be read, or does not fit.
    """
    tls = tls_of(environ)
    try:
        credentials(parse_address(target), tls)
    except DialError as error:
        raise ConfigError(f"the clock daemon's address: {error}") from error
    return tls


def _parsed(value: str, origin: str) -> Address:
    try:
        return parse_address(value)
    except DialError as error:
        raise ConfigError(f"{origin}: {error}") from error
