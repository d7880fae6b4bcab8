"""What the cycle itself sees of the host, joined with what the source says: breaks of continuity and other causes.

Steps, sleep and a change of the steering process break continuity by themselves (continuity.py); whether the source
knows of a step is judged here. A witness that contradicts the time daemon breaks it when it begins to, and whenever
something is promised; while it goes on it is a fault, which keeps the gate closed, and no further epoch begins. What a
source witnesses itself (a frozen hardware clock, say) counts in the same way, and nothing is told twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from clockgated.clock.continuity import UNBROKEN, Continuity, Look, continuity_between, jump_between_ns
from clockgated.clock.model import Evidence, Reason, ReasonCode, Silence
from clockgated.clock.witness import (
    KernelLook,
    KernelState,
    RateLook,
    foreign_adjuster,
    leap_second,
    rate_disagrees,
    tai_slip,
)
from clockgated.units import NS_PER_MS, NS_PER_S, PPB_PER_PPM

# TAI - UTC since 2017, for kernels that nobody told.
_USUAL_TAI_OFFSET_S = 37
# Somebody else's clock may be slewed by adjtime(3), at 500 ppm and not to be seen in the kernel's frequency. Ours never
# is; the rest covers what a servo did and undid between two looks.
_MAX_FOREIGN_RATE_PPB = 600 * PPB_PER_PPM
_MAX_OWN_RATE_PPB = 100 * PPB_PER_PPM
# A servo that changed its mind twice between two looks disagrees once, hardly three times in a row.
_RATE_STRIKES = 3
# Our servos' claims, where a source knows them, are judged there; here only the kernel's own loop is.
_NO_CLAIMS = ()
# A time daemon slews what is smaller. What it says of its step is known to this part, for it may have been slewing.
_LEAST_OWN_STEP_NS = NS_PER_MS
_OWN_STEP_PART = 100
# A witness that comes and goes, with nothing promised in between, is one disruption.
_MEMORY_NS = 60 * NS_PER_S
# With these the clock may run away faster than any bound grows.
_BREAKING = frozenset(
    {ReasonCode.WITNESS_DISAGREES, ReasonCode.PHC_FROZEN, ReasonCode.SERVO_PINNED, ReasonCode.TAI_SLIP}
)


@dataclass(frozen=True)
class HostLook:
    """One look at the host. `kernel` and `rate` are None where they could not be read."""

    clocks: Look
    kernel: KernelLook | None = None
    rate: RateLook | None = None


@dataclass(frozen=True)
class Watch:
    """What is remembered from one cycle to the next.

    `said` is the source's last measurement that was no silence. `told` holds the causes that broke continuity, each
    with the CLOCK_BOOTTIME, ns, at which it was last seen.
    """

    before: HostLook | None = None
    said: Evidence | None = None
    was_leaping: bool = False
    rate_strikes: int = 0
    told: tuple[tuple[ReasonCode, int], ...] = ()


@dataclass(frozen=True)
class Watched:
    """The outcome of one cycle: `measurement` with the witnesses' faults, and what is to be remembered.

    `remarks` are causes that neither break continuity nor close a gate. `jump_ns` is how far the wall clock was set
    (positive: forward), None when no step broke continuity. `slew_ppb` is how fast the clock was moved against the bare
    oscillator since the last look, either way, rather too fast than too slow; None when that could not be read.
    """

    watch: Watch
    measurement: Evidence | Silence
    continuity: Continuity
    remarks: tuple[Reason, ...] = ()
    jump_ns: int | None = None
    slew_ppb: int | None = None


def watched(
    watch: Watch,
    measurement: Evidence | Silence,
    now: HostLook,
    *,
    own_steering: bool,
    is_promised: bool,
) -> Watched:
    """Judge one cycle.

    `is_promised`: a bound is in force, which a witness that still or again disagrees puts an end to. `own_steering`:
    units of ours steer, so that every other adjuster is foreign. Otherwise all of them are, and what they do to the
    kernel is their business.
    """
    leap = leap_second(now.kernel, 0)
    measurement, is_leaping = _with_leap(measurement, leap)
    tai_offset_s = (now.kernel.tai_offset_s if now.kernel else None) or _USUAL_TAI_OFFSET_S
    continuity, jump_ns = _continuity(watch, measurement, now, is_leaping=is_leaping, tai_offset_s=tai_offset_s)
    rate = _rate_disagreement(watch.before, now, own_steering)
    strikes = watch.rate_strikes + 1 if rate else 0
    found = (
        rate if strikes >= _RATE_STRIKES else None,
        _foreign_loop(watch, now) if own_steering else None,
        _slipped(measurement, tai_offset_s),
    )
    measurement, faults = _with_faults(measurement, [reason for reason in found if reason])
    breaking = _BREAKING | {ReasonCode.FOREIGN_ADJUSTER} if own_steering else _BREAKING
    standing = [reason for reason in faults if reason.code in breaking]
    told = set() if is_promised else {code for code, _ in watch.told}
    known = told | {reason.code for reason in continuity.breaks}
    begun = tuple(reason for reason in standing if reason.code not in known)
    breaks = continuity.breaks + begun
    return Watched(
        watch=Watch(
            before=now,
            said=watch.said if isinstance(measurement, Silence) else measurement,
            was_leaping=is_leaping,
            rate_strikes=strikes,
            told=_told(watch.told, (*breaks, *standing), now.clocks.boot_ns, breaking),
        ),
        measurement=measurement,
        continuity=replace(continuity, breaks=breaks, is_known_to_source=continuity.is_known_to_source and not begun),
        remarks=_other_than(_reasons(measurement), [leap] if leap else []),
        jump_ns=jump_ns,
        slew_ppb=_slew_ppb(watch.before, now),
    )


def _slew_ppb(before: HostLook | None, now: HostLook) -> int | None:
    if before is None or before.rate is None or now.rate is None:
        return None
    elapsed_ns = now.rate.raw_ns - before.rate.raw_ns
    if elapsed_ns <= 0:
        return None
    moved_ns = abs(now.rate.mono_ns - before.rate.mono_ns - elapsed_ns) + before.rate.error_ns + now.rate.error_ns
    return -(-moved_ns * NS_PER_S // elapsed_ns)


def _told(
    told: tuple[tuple[ReasonCode, int], ...],
    seen: Iterable[Reason],
    boot_ns: int,
    breaking: frozenset[ReasonCode],
) -> tuple[tuple[ReasonCode, int], ...]:
    remembered = dict(told) | {reason.code: boot_ns for reason in seen if reason.code in breaking}
    return tuple((code, seen_ns) for code, seen_ns in remembered.items() if boot_ns - seen_ns <= _MEMORY_NS)


def _with_leap(measurement: Evidence | Silence, leap: Reason | None) -> tuple[Evidence | Silence, bool]:
    """The measurement in a leap second that either the source or the kernel tells of, and whether there is one."""
    is_leaping = leap is not None and leap.code is ReasonCode.LEAP_IN_PROGRESS
    if isinstance(measurement, Silence):
        return measurement, is_leaping
    is_leaping = is_leaping or measurement.leap_in_progress
    return replace(measurement, leap_in_progress=is_leaping), is_leaping


def _continuity(
    watch: Watch, measurement: Evidence | Silence, now: HostLook, *, is_leaping: bool, tai_offset_s: int
) -> tuple[Continuity, int | None]:
    """The breaks of continuity, and how far the wall clock was set by one of them."""
    before = watch.before
    if before is None:
        return UNBROKEN, None
    explains_second = watch.was_leaping or is_leaping or _leapt(before.kernel, now.kernel)
    continuity = continuity_between(before.clocks, now.clocks, explains_second)
    if all(reason.code is not ReasonCode.CLOCK_STEPPED for reason in continuity.breaks):
        return continuity, None
    jump_ns = jump_between_ns(before.clocks, now.clocks)
    if len(continuity.breaks) == 1 and _is_own_step(watch.said, measurement, jump_ns):
        continuity = replace(continuity, set_back_ns=0, is_known_to_source=True)
    slip = tai_slip("the wall clock was set at once and", jump_ns, tai_offset_s)
    # The same event under its better name, when it has one.
    named = (slip if slip and one.code is ReasonCode.CLOCK_STEPPED else one for one in continuity.breaks)
    return replace(continuity, breaks=tuple(named)), jump_ns


def _is_own_step(said: Evidence | None, measurement: Evidence | Silence, jump_ns: int) -> bool:
    """Whether the time daemon itself made a step: it took off all that it knew of, and says that nothing is left.

    chronyd shifts its samples along with a step of its own. A stranger's leaves what it says unchanged until its next
    measurement, which then finds the step with the opposite sign.
    """
    if isinstance(measurement, Silence) or measurement.last_offset_ns is None or measurement.offset_ns is None:
        return False
    if abs(jump_ns) < _LEAST_OWN_STEP_NS:
        return False
    known_ns = (said.offset_ns or 0) if said else 0
    if said is None or said.update_id != measurement.update_id:
        known_ns += measurement.last_offset_ns
    tolerance_ns = abs(jump_ns) // _OWN_STEP_PART
    return abs(jump_ns + known_ns) <= tolerance_ns and abs(measurement.offset_ns) <= tolerance_ns


def _leapt(before: KernelLook | None, now: KernelLook | None) -> bool:
    """Whether the kernel went through a leap second between two looks, maybe too fast to be seen in it."""
    if before is None or now is None:
        return False
    was_due = before.state in (KernelState.INSERT, KernelState.DELETE, KernelState.IN_PROGRESS)
    return was_due and now.state in (KernelState.IN_PROGRESS, KernelState.JUST_HAPPENED)


def _rate_disagreement(before: HostLook | None, now: HostLook, own_steering: bool) -> Reason | None:
    if before is None or not (before.kernel and now.kernel and before.rate and now.rate):
        return None
    if before.kernel.is_looping or now.kernel.is_looping:
        return None
    corrections_ppb = before.kernel.correction_ppb, now.kernel.correction_ppb
    limit_ppb = _MAX_OWN_RATE_PPB if own_steering else _MAX_FOREIGN_RATE_PPB
    return rate_disagrees(before.rate, now.rate, corrections_ppb, limit_ppb)


def _foreign_loop(watch: Watch, now: HostLook) -> Reason | None:
    """Whether somebody switched the kernel's phase loop on and left it on. One found on is left over from earlier."""
    if now.kernel is None or not now.kernel.is_looping or watch.before is None or watch.before.kernel is None:
        return None
    is_told = any(code is ReasonCode.FOREIGN_ADJUSTER for code, _ in watch.told)
    before = replace(watch.before.kernel, status=0) if is_told else watch.before.kernel
    return foreign_adjuster(before, now.kernel, _NO_CLAIMS, 0)


def _slipped(measurement: Evidence | Silence, tai_offset_s: int) -> Reason | None:
    if isinstance(measurement, Silence) or measurement.offset_ns is None:
        return None
    return tai_slip("the clock, beside its reference,", measurement.offset_ns, tai_offset_s)


def _with_faults(measurement: Evidence | Silence, found: list[Reason]) -> tuple[Evidence | Silence, tuple[Reason, ...]]:
    """The measurement with what was found as faults, and every fault there is then; silence has none of its own."""
    if isinstance(measurement, Silence):
        return measurement, tuple(found)
    faults = (*measurement.faults, *_other_than(_reasons(measurement), found))
    return replace(measurement, faults=faults), faults


def _reasons(measurement: Evidence | Silence) -> tuple[Reason, ...]:
    if isinstance(measurement, Silence):
        return (measurement.reason,)
    return measurement.faults + measurement.remarks


def _other_than(known: Iterable[Reason], reasons: list[Reason]) -> tuple[Reason, ...]:
    codes = {reason.code for reason in known}
    return tuple(reason for reason in reasons if reason.code not in codes)
