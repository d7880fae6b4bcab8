"""What became of a change, and what stands between us and a knob. Pure values."""

from dataclasses import dataclass
from enum import StrEnum

from clockgated.tuning.model import Knob


class TroubleCode(StrEnum):
    """Why a knob could not be read or written."""

    GONE = "gone"
    """There is no such file, interface or interrupt."""
    READ_ONLY = "read_only"
    """It is there, and this process or this namespace may not write it."""
    UNSUPPORTED = "unsupported"
    """The kernel or the driver does not offer it."""
    FAILED = "failed"
    """Anything else: refused value, busy driver."""


@dataclass(frozen=True)
class Trouble:
    """A knob that could not be read or written, and the kernel's word for it."""

    code: TroubleCode
    detail: str


class OutcomeCode(StrEnum):
    """What became of one change."""

    APPLIED = "applied"
    """Set, read back and equal."""
    REVERTED = "reverted"
    """As it was found."""
    LEFT = "left"
    """Left alone: somebody else has changed it since."""
    DEFERRED = "deferred"
    """Not done: a job or the clock forbids it."""
    FAILED = "failed"
    """Tried and failed, or not accepted as written."""
    GONE = "gone"
    """Its interface or file is gone."""


@dataclass(frozen=True)
class Outcome:
    """What became of one change. `before` and `wanted` are those of the change; `actual` None: could not be read."""

    code: OutcomeCode
    knob: Knob
    before: str
    wanted: str
    actual: str | None
    detail: str = ""
