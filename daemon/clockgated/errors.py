"""Errors of the daemon. Expected trouble (no sample yet, a lost source) is a state and a reason, never an exception.

ClockgateError
  ConfigError   the operator can fix it; names file and key     exit 78
  SocketError   a socket cannot be served as asked              exit 78
    AbsentAddressError   the network may not be up yet          exit 1
"""

EXIT_USAGE = 2
EXIT_CONFIG = 78


class ClockgateError(Exception):
    """Base of all errors that the daemon raises on purpose."""


class ConfigError(ClockgateError):
    """A setting is wrong. The message names file, key, value seen and value wanted."""


class SocketError(ClockgateError):
    """A socket cannot be bound as asked: too long, not a socket, or another instance serves it."""


class AbsentAddressError(SocketError):
    """An address to listen on is not one of this machine, or not yet: the same start may succeed later."""
