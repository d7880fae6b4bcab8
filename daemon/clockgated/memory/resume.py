"""What the last reading of an earlier process of this daemon is still worth. Pure.

Beside the reading stand the clocks and the kernel's steering of the same moment. They tell what happened while nobody
looked: a step moves REALTIME - BOOTTIME, sleep moves BOOTTIME - MONOTONIC, and another kernel frequency means that the
clock may have run away faster than was promised. Changes of frequency are paid for in bound; a step, or sleep, ends
the epoch; another boot ends everything.
"""

from dataclasses import dataclass, replace

from clockgated.clock.bound import grown_ns
from clockgated.clock.breach import Breach
from clockgated.clock.continuity import Continuity, Look, continuity_between, jump_between_ns
from clockgated.clock.model import ClockState, Reading, Reason, ReasonCode, Silence
from clockgated.clock.promise import Promise
from clockgated.clock.state import StatePolicy, Track, advance, start
from clockgated.units import NS_PER_S

_BOUND_HELD = (ClockState.SYNCHRONIZED, ClockState.HOLDOVER, ClockState.FREE_RUNNING)
_NOMINAL_TICK_US = 10_000
# adjtimex(2): the clock gains `tick` µs a hundredth of a second, so one unit more is 100 ppm faster.
_PPB_PER_TICK_US = 100_000
# Without figures, so that any number of restarts adds it once.
_ASSUMPTIONS = (
    "while no clockgated watched the clock, no two steps cancelled each other",
    "while no clockgated watched the clock, its rate stayed between that before and that after",
    "while no clockgated watched the clock, nobody changed its rate (adjtimex cannot be read here)",
)


@dataclass(frozen=True)
class Steering:
    """The kernel's rate correction (adjtimex): positive `freq_ppb`, or `tick_us` above 10000, runs the clock faster."""

    freq_ppb: int
    tick_us: int = _NOMINAL_TICK_US

    @property
    def rate_ppb(self) -> int:
        """Both corrections together."""
        return self.freq_ppb + (self.tick_us - _NOMINAL_TICK_US) * _PPB_PER_TICK_US


@dataclass(frozen=True)
class SavedReading:
    """A published reading and the circumstances of that moment.

    `steering` is None where adjtimex cannot be read. `good_boot_ns` is when all gates of the source were last true
    (CLOCK_BOOTTIME): the horizon of a holdover counts from there, over any number of restarts. `update_id` names the
    update of the reference that the bound is from. `breach` is a break that the source has not looked across yet.
    `steering_ppb` is the part of the reading's growth that only a servo at work is good for.
    """

    reading: Reading
    look: Look
    steering: Steering | None
    good_boot_ns: int | None = None
    update_id: str | None = None
    breach: Breach | None = None
    steering_ppb: int = 0


@dataclass(frozen=True)
class Resumed:
    """What still holds: the state machine as it goes on, and the look at the clocks at which it was taken up.

    With `breaks` a new epoch has begun in it and there is no bound. `jump_ns` is how far the wall clock was set, None
    when that broke nothing.
    """

    track: Track
    look: Look
    breaks: tuple[Reason, ...]
    jump_ns: int | None = None


@dataclass(frozen=True)
class Discarded:
    """Nothing is taken up again, and why: one sentence."""

    why: str


def saved_reading(reading: Reading, track: Track, look: Look, steering: Steering | None) -> SavedReading:
    """What is kept of one cycle."""
    promise = track.promise
    return SavedReading(
        reading=reading,
        look=look,
        steering=steering,
        good_boot_ns=promise.good_boot_ns if promise else None,
        update_id=promise.update_id if promise else None,
        breach=track.breach,
        steering_ppb=promise.steering_ppb if promise else 0,
    )


def resume(
    saved: SavedReading,
    now: Look,
    boot_id: str,
    steering: Steering | None,
    policy: StatePolicy,
    *,
    recorded: Reason | None = None,
) -> Resumed | Discarded:
    """What `saved` is worth `now`, under the boot `boot_id`, with the kernel steering as it is now.

    The bound ages at its own growth plus the change of the kernel's rate, as if that change had been made right after
    saving: the servo may have been at work all the time. `recorded` is a break that was journaled but not saved any
    more.
    """
    reading = saved.reading
    if reading.boot_id != boot_id:
        return Discarded(f"the last reading is of boot {reading.boot_id}, this is boot {boot_id}")
    age_ns = now.boot_ns - reading.as_of_boot_ns
    if age_ns < 0 or now.boot_ns < saved.look.boot_ns or now.mono_ns < saved.look.mono_ns:
        return Discarded(f"the last reading is {-age_ns / NS_PER_S:.3f} s in the future of this boot")
    now = replace(now, steering_id=now.steering_id or saved.look.steering_id)
    jump_ns = jump_between_ns(saved.look, now)
    promise = _promise(saved, now, steering, policy)
    # A leap second while nobody looked is a break: whether it was one cannot be told any more.
    continuity = continuity_between(saved.look, now, leap_in_progress=False)
    is_stepped = any(reason.code is ReasonCode.CLOCK_STEPPED for reason in continuity.breaks)
    if recorded is not None and not continuity.is_broken:
        continuity = Continuity((recorded,))
    # As if the source had been silent for one cycle: the same rules decide about horizon, limit and breaks.
    unmeasured = Silence(reading.source_kind, now.boot_ns, Reason(ReasonCode.STARTING, _sentence(age_ns)))
    track = advance(_track(saved, promise), unmeasured, continuity, now.boot_ns, policy, slew_ppb=None)
    return Resumed(track, now, continuity.breaks, jump_ns if is_stepped else None)


def _track(saved: SavedReading, promise: Promise | None) -> Track:
    reading = saved.reading
    track = start(reading.source_kind, reading.as_of_boot_ns, reading.epoch, reading.sequence)
    is_unfounded = reading.state in _BOUND_HELD and promise is None
    state = ClockState.UNKNOWN if is_unfounded else reading.state
    return replace(track, state=state, promise=promise, breach=saved.breach)


def _promise(saved: SavedReading, now: Look, steering: Steering | None, policy: StatePolicy) -> Promise | None:
    """The bound that was held, aged to `now`; None when none was."""
    reading = saved.reading
    if reading.state not in _BOUND_HELD or reading.relative_bound_ns is None or saved.good_boot_ns is None:
        return None
    growth_ppb = max(reading.growth_ppb - saved.steering_ppb, policy.growth_ppb)
    is_rate_known = steering is not None and saved.steering is not None
    rate_change_ppb = abs(steering.rate_ppb - saved.steering.rate_ppb) if steering and saved.steering else 0
    age_ns = now.boot_ns - reading.as_of_boot_ns

    def aged_ns(bound_ns: int) -> int:
        return grown_ns(bound_ns, growth_ppb + saved.steering_ppb + rate_change_ppb, age_ns)

    bound_ns = aged_ns(reading.relative_bound_ns)
    utc_bound_ns = None if reading.utc_bound_ns is None else aged_ns(reading.utc_bound_ns)
    added = (_ASSUMPTIONS[0], _ASSUMPTIONS[1] if is_rate_known else _ASSUMPTIONS[2])
    return Promise(
        bound_ns=bound_ns,
        utc_bound_ns=utc_bound_ns,
        measured_bound_ns=bound_ns,
        measured_utc_bound_ns=utc_bound_ns,
        growth_ppb=growth_ppb,
        as_of_boot_ns=now.boot_ns,
        good_boot_ns=min(saved.good_boot_ns, reading.as_of_boot_ns),
        reference=reading.reference,
        assumptions=tuple(dict.fromkeys((*reading.assumptions, *added))),
        update_id=saved.update_id,
        steering_ppb=saved.steering_ppb,
    )


def _sentence(age_ns: int) -> str:
    return (
        f"the last reading of an earlier process, {age_ns / NS_PER_S:.1f} s old, is taken up again until the first "
        "measurement is done"
    )
