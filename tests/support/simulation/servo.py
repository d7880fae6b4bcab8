"""linuxptp's PI servo, with its default constants: offsets in, frequency adjustments out."""

from dataclasses import dataclass
from enum import Enum, auto

_HARDWARE, _SOFTWARE = (0.7, 0.3), (0.1, 0.001)
_PROPORTIONAL_EXPONENT, _PROPORTIONAL_NORM = -0.3, 0.7
_INTEGRAL_EXPONENT, _INTEGRAL_NORM = 0.4, 0.3
_FIRST_STEP_NS = 20_000
_NS_PER_S = 1e9


class ServoState(Enum):
    """s0, s1 and s2 in linuxptp's log."""

    UNLOCKED = auto()
    JUMP = auto()
    LOCKED = auto()


@dataclass(frozen=True)
class Correction:
    """What to do to the clock: run it slower by `frequency_ppb`, and on JUMP take the offset off at once."""

    state: ServoState
    frequency_ppb: float


class PiServo:
    """One servo; `interval_s` is between two samples. It steps at most once, at its start."""

    def __init__(self, interval_s: float, max_frequency_ppb: float, *, is_hardware: bool) -> None:
        proportional, integral = _HARDWARE if is_hardware else _SOFTWARE
        self._proportional = min(proportional * interval_s**_PROPORTIONAL_EXPONENT, _PROPORTIONAL_NORM / interval_s)
        self._integral = min(integral * interval_s**_INTEGRAL_EXPONENT, _INTEGRAL_NORM / interval_s)
        self._max_ppb = max_frequency_ppb
        self._first: tuple[float, float] | None = None
        self._drift_ppb = 0.0
        self._is_locked = False

    def sample(self, offset_ns: float, at_s: float) -> Correction:
        """One measurement of how far the clock is ahead."""
        if not self._is_locked:
            return self._start(offset_ns, at_s)
        integral_ppb = self._integral * offset_ns
        wanted_ppb = self._proportional * offset_ns + self._drift_ppb + integral_ppb
        if abs(wanted_ppb) <= self._max_ppb:
            self._drift_ppb += integral_ppb
        return Correction(ServoState.LOCKED, self._clamped(wanted_ppb))

    def _start(self, offset_ns: float, at_s: float) -> Correction:
        if self._first is None:
            self._first = offset_ns, at_s
            return Correction(ServoState.UNLOCKED, 0.0)
        first_ns, first_s = self._first
        if at_s - first_s < min(1000.0, 0.016 / self._integral):
            return Correction(ServoState.UNLOCKED, 0.0)
        self._drift_ppb = self._clamped((offset_ns - first_ns) / (at_s - first_s))
        self._is_locked = True
        state = ServoState.JUMP if abs(offset_ns) > _FIRST_STEP_NS else ServoState.LOCKED
        return Correction(state, self._drift_ppb)

    def _clamped(self, frequency_ppb: float) -> float:
        return max(-self._max_ppb, min(self._max_ppb, frequency_ppb))
