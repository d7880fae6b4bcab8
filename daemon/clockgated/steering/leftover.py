"""The kernel's frequency as an earlier time daemon left it, looked at before one of ours starts to steer.

A servo that lost its clock leaves the end of its range behind (10 %, a phc2sys beside a hardware clock that stood
still), and the next daemon takes that for a measurement of the oscillator.
"""

import ctypes
import os

from clockgated.clock.model import Reason, ReasonCode
from clockgated.clock.witness import KernelLook
from clockgated.timex import Timex
from clockgated.units import PPB_PER_PPM

# No oscillator of a computer is off by more; the kernel's own loop stops there too.
_MAX_SANE_PPB = 500 * PPB_PER_PPM
_ADJ_FREQUENCY, _ADJ_TICK = 0x0002, 0x4000
_NOMINAL_TICK_US = 10_000


def leftover_frequency(look: KernelLook | None) -> str | None:
    """What is wrong with the correction in force, in a few words; None when it is that of a sane oscillator."""
    if look is None or abs(look.correction_ppb) <= _MAX_SANE_PPB:
        return None
    return (
        f"the kernel corrects the clock by {look.correction_ppb / PPB_PER_PPM:+.6g} ppm, left behind by an earlier "
        f"time daemon; wanted at most {_MAX_SANE_PPB / PPB_PER_PPM:g} ppm"
    )


def leftover_notice(look: KernelLook | None, *, was_reset: bool) -> Reason | None:
    """The reason for a reading."""
    found = leftover_frequency(look)
    if found is None:
        return None
    outcome = "it was set back to 0" if was_reset else "it stays, for lack of the right to set the clock (CAP_SYS_TIME)"
    return Reason(ReasonCode.LEFTOVER_FREQUENCY, f"{found}; {outcome}")


def reset_frequency() -> None:
    """Let the clock run at the oscillator's own rate. Raises OSError without CAP_SYS_TIME."""
    timex = Timex(modes=_ADJ_FREQUENCY | _ADJ_TICK, freq=0, tick=_NOMINAL_TICK_US)
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"adjtimex: {os.strerror(number)}")
