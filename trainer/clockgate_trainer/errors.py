"""Exit codes and errors of the trainer.

TrainerError          carries the exit code that the rank ends with
  UsageError     2    flags
  ConfigError    78   data, model or daemon are not as asked; nothing was trained
  DesyncError    77   ranks are not at the same point
  PeerLostError  79   a rank died or did not answer
  NoProgressError 79  resumed twice from one step without getting further
  StoppedAtLaunchError  76  the gate stopped a run before its first step
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of a rank and of `clockgate-train launch`."""

    DONE = 0
    USAGE = 2
    STOPPED = 75
    STOPPED_UNSAVED = 76
    DESYNC = 77
    CONFIG = 78
    PEER_LOST = 79


class TrainerError(Exception):
    """Base of all errors that end a rank on purpose. `ranks` names the ranks at fault, when known."""

    exit_code = ExitCode.CONFIG

    def __init__(self, message: str, *, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


class UsageError(TrainerError):
    """A flag is wrong: names the flag, the value seen and the value wanted."""

    exit_code = ExitCode.USAGE


class ConfigError(TrainerError):
    """Data, model, checkpoint or daemon are not as asked. Raised before any step is taken."""

    exit_code = ExitCode.CONFIG


class DesyncError(TrainerError):
    """Ranks voted with another protocol version, kind or step."""

    exit_code = ExitCode.DESYNC


class PeerLostError(TrainerError):
    """A rank died or did not answer before the deadline."""

    exit_code = ExitCode.PEER_LOST


class NoProgressError(TrainerError):
    """Starts in a row from one checkpoint got nowhere; raised on all ranks together."""

    exit_code = ExitCode.PEER_LOST


class StoppedAtLaunchError(TrainerError):
    """The gate stopped a run before its first step, on all ranks together."""

    exit_code = ExitCode.STOPPED_UNSAVED
